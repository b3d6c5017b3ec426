"""NEO/py's own tests, with our program in place of its storage nodes.

    NEOPPOD=CHECKOUT PYTHON tests/conformance/neo/run.py [--storage COMMAND] [NAME ...]

PYTHON runs NEO/py.  A NAME is a module (zodb.testBasic, functional.testStorage), a
group (zodb, functional), or part of the name of a test after a colon (zodb:Undo).
Without names all of both groups run.  COMMAND is what `neostorage` is replaced by;
`--storage stock` leaves NEO's own.

NEO's functional tests start each node as a child process with neostorage's options.
Key decision: nothing of NEO/py is changed.  In the child of a storage node the
command is executed in place of NEO's code.
"""

import argparse
import os
import shlex
import sys
import time
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
DEFAULT = f"{REPOSITORY}/target/release/zodium neo storage"
GROUPS = {
    "zodb": [
        *("testBasic", "testConflict", "testHistory", "testIterator", "testMT", "testPack"),
        *("testPersistent", "testReadOnly", "testRevision", "testSynchronization"),
        *("testUndo", "testZODB"),
    ],
    "functional": ["testMaster", "testClient", "testCluster", "testStorage"],
}


def substitute(command):
    """Has storage processes run `command`."""
    from neo.tests.functional import NEOProcess

    words, stock = shlex.split(command), NEOProcess.run

    def run(process):
        if process.command != "neostorage":
            return stock(process)
        os.environ.setdefault("RUST_BACKTRACE", "1")
        return os.execv(words[0], [*words, *sys.argv[1:]])

    NEOProcess.run = run


def tests_named(names):
    """(group, test) for each test that a name stands for."""
    for name in names or GROUPS:
        module, _, part = name.partition(":")
        group, _, one = module.partition(".")
        prefix = "test"
        if group == "zodb":
            from neo.tests.zodb import prefix
        loader = unittest.TestLoader()
        loader.testMethodPrefix = prefix
        for module in [one] if one else GROUPS[group]:
            for test in flat(loader.loadTestsFromName(f"neo.tests.{group}.{module}")):
                if part in test.id():
                    yield group, test


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


class Result(unittest.TextTestResult):
    """Prints one line for each test, with its duration."""

    def startTest(self, test):
        self.start = time.monotonic()
        unittest.TestResult.startTest(self, test)

    def line(self, word, test):
        seconds = time.monotonic() - self.start
        print(f"{word:8} {seconds:6.1f} s  {test.id()}", flush=True)

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        self.line("ok", test)

    def addError(self, test, error):
        unittest.TestResult.addError(self, test, error)
        self.line("ERROR", test)

    def addFailure(self, test, error):
        unittest.TestResult.addFailure(self, test, error)
        self.line("FAILED", test)

    def addSkip(self, test, reason):
        unittest.TestResult.addSkip(self, test, reason)
        self.line("skipped", test)

    def addExpectedFailure(self, test, error):
        unittest.TestResult.addExpectedFailure(self, test, error)
        self.line("expected", test)

    def addUnexpectedSuccess(self, test):
        unittest.TestResult.addUnexpectedSuccess(self, test)
        self.line("SUCCESS?", test)


def main():
    parser = argparse.ArgumentParser(description="NEO/py's tests with our storage nodes")
    parser.add_argument("--storage", default=DEFAULT, help="what neostorage is replaced by")
    parser.add_argument("--details", action="store_true", help="show each failure in full")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sys.path.insert(0, os.environ["NEOPPOD"])
    os.environ["NEO_TEST_ZODB_FUNCTIONAL"] = "1"
    os.environ["NEO_TESTS_ADAPTER"] = "SQLite"
    if options.storage != "stock":
        substitute(options.storage)
    groups = {}
    for group, test in tests_named(options.names):
        groups.setdefault(group, unittest.TestSuite()).addTest(test)
    failed = 0
    for group, suite in groups.items():
        result = Result(unittest.runner._WritelnDecorator(sys.stderr), True, 0)
        count = suite.countTestCases()
        suite.run(result)
        bad = [*result.failures, *result.errors]
        bad += [(test, "unexpected success") for test in result.unexpectedSuccesses]
        if options.details:
            for test, text in bad:
                print(f"--- {test.id()}\n{text}")
        expected, skipped = len(result.expectedFailures), len(result.skipped)
        print(
            f"{group}: {count - len(bad)} of {count} passed"
            f" ({expected} fail as expected, {skipped} skipped)"
        )
        failed += len(bad)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
