"""NEO/py's own tests, with our program in place of its masters, storage nodes and admins.

    NEOPPOD=CHECKOUT PYTHON tests/conformance/neo/run.py [--master COMMAND] [--storage COMMAND]
        [--admin COMMAND] [--client zodium|gateway] [--adapter MySQL] [NAME ...]

PYTHON runs NEO/py.  A NAME is a module (zodb.testBasic, functional.testStorage), a
group (zodb, functional, subset), or part of the name of a test after a colon (zodb:Undo).
Without names all of zodb and functional run.  COMMAND is what `neomaster`, `neostorage` or
`neoadmin` is replaced by; `--master stock` and the like leave NEO's own.

The tests of ZODB's storages use NEO's client. With `--client zodium` they use zodium.NEOStorage,
and with `--client gateway` ZEO's client over `zodium serve neo://`; PYTHON needs ZEO then.

With `--adapter MySQL` the databases are on a MariaDB server, which is started for them.

The group subset is the part of zodb that depends on how many nodes there are, in larger
clusters: 2 masters, 3 storages, 1 replica, 5 partitions, TLS.

NEO's functional tests start each node as a child process with neostorage's options.
Key decision: nothing of NEO/py is changed.  In the child of a node the command is
executed in place of NEO's code; nodes with the adapter Importer, which we do not
have, stay NEO's.  Each test has a process of its own: NEO's fixtures do
not come back to order after a failure.
"""

import argparse
import contextlib
import functools
import os
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PROFILE = os.environ.get("ZODIUM_TESTED_PROFILE") or "debug"
PROGRAM = f"{REPOSITORY}/target/{PROFILE}/zodium"
GROUPS = {
    "zodb": [
        *("testBasic", "testConflict", "testHistory", "testIterator", "testMT", "testPack"),
        *("testPersistent", "testReadOnly", "testRevision", "testSynchronization"),
        *("testUndo", "testZODB"),
    ],
    "functional": ["testMaster", "testClient", "testCluster", "testStorage"],
    "subset": [
        *("testBasic", "testConflict", "testHistory", "testIterator", "testMT", "testPack"),
        *("testReadOnly", "testRevision", "testSynchronization", "testUndo"),
    ],
}
DEFAULT_GROUPS = ["zodb", "functional"]
# Only in clusters of one storage NEO's client says which transactions can be undone in order.
NOT_IN_SUBSET = "testIndicesInUndo"
# What NEO's tests make of the environment: the clusters of the group subset.
LARGER = {"MASTERS": 2, "STORAGES": 3, "REPLICAS": 1, "PARTITIONS": 5}
OUTCOMES = ["passed", "failed", "skipped", "expected"]


def substitute(commands):
    """Has processes run commands in place of their own, by the names of NEO's programs."""
    from neo.tests.functional import NEOProcess

    stock = NEOProcess.run

    def run(process):
        words = shlex.split(commands.get(process.command, "stock"))
        if words == ["stock"]:
            return stock(process)
        if "Importer" in sys.argv:
            remove_logs(Path(process.arg_dict["database"]).parent)
            return stock(process)
        # NEO's log files are databases: one that is text stops a later node of NEO's.
        log = process.arg_dict.get("logfile")
        options = [f"{word}.txt" if word == log else word for word in sys.argv[1:]]
        return os.execv(words[0], [*words, *options])

    NEOProcess.run = run


def remove_logs(folder):
    """Removes logs of databases that NEO's fixtures have removed.

    They know of no log; a node of NEO's would read it into its new database.
    """
    for log in folder.glob("*.sqlite-wal"):
        if not log.with_name(log.name.removesuffix("-wal")).exists():
            log.unlink()


def tests_named(names):
    """(group, test) for each test that a name stands for."""
    for name in names or DEFAULT_GROUPS:
        module, _, part = name.partition(":")
        group, _, one = module.partition(".")
        package, prefix = group, "test"
        if group in ("zodb", "subset"):
            from neo.tests.zodb import prefix

            package = "zodb"
        loader = unittest.TestLoader()
        loader.testMethodPrefix = prefix
        for module in [one] if one else GROUPS[group]:
            for test in flat(loader.loadTestsFromName(f"neo.tests.{package}.{module}")):
                is_apart = group == "subset" and NOT_IN_SUBSET in test.id()
                if part in test.id() and not is_apart:
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
    parser = argparse.ArgumentParser(description="NEO/py's tests with our nodes")
    for node in ("master", "storage", "admin"):
        command, help = f"{PROGRAM} neo {node}", f"what neo{node} is replaced by"
        parser.add_argument(f"--{node}", default=command, help=help)
    help = "what ZODB's tests use: stock, zodium or gateway"
    parser.add_argument("--client", choices=["stock", *CLIENTS], default="stock", help=help)
    help = "kind of the storages' databases: SQLite or MySQL"
    parser.add_argument("--adapter", default="SQLite", help=help)
    parser.add_argument("--details", action="store_true", help="show each failure in full")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sys.path.insert(0, os.environ["NEOPPOD"])
    os.environ["NEO_TEST_ZODB_FUNCTIONAL"] = "1"
    os.environ["NEO_TESTS_ADAPTER"] = options.adapter
    stack = contextlib.ExitStack()
    if options.adapter == "MySQL":
        stack.enter_context(mariadb_server())
    nodes = {"master": options.master, "storage": options.storage, "admin": options.admin}
    substitute({f"neo{node}": command for node, command in nodes.items()})
    counts = {}
    for group, test in tests_named(options.names):
        count = counts.setdefault(group, dict.fromkeys(OUTCOMES, 0))
        prepare = functools.partial(prepare_test, group, options.client)
        count[OUTCOMES[run_apart(test, options.details, prepare)]] += 1
    stack.close()
    for group, count in counts.items():
        print(
            f"{group}: {sum(count.values()) - count['failed']} of {sum(count.values())} passed"
            f" ({count['expected']} fail as expected, {count['skipped']} skipped)"
        )
    sys.exit(1 if any(count["failed"] for count in counts.values()) else 0)


def prepare_test(group, client):
    """Prepares the process of a test."""
    if group == "subset":
        enlarge_clusters()
    if client != "stock":
        from neo.tests.functional import NEOCluster

        sys.path.insert(0, str(REPOSITORY / "tests"))
        NEOCluster.getZODBStorage = CLIENTS[client]()


def with_native_client():
    """Our client in place of NEO's."""
    from harness import package

    package.use()
    from ZODB.tests.IteratorStorage import IteratorStorage
    from zodium import NEOStorage

    # Extensions come as they were committed, as FileStorage's do.
    IteratorStorage.use_extension_bytes = True

    class Storage(NEOStorage):
        undoLog = without_packs(NEOStorage.undoLog)

    def open_storage(cluster, **options):
        storage = Storage(**cluster.getClientConfig(**options))
        cluster.zodb_storage_list.append(storage)
        return storage

    return open_storage


def with_gateway():
    """ZEO's client over a gateway of ours, which ends with it."""
    from harness.process import HOST, free_port
    from ZEO.ClientStorage import ClientStorage

    class Storage(ClientStorage):
        undoLog = without_packs(ClientStorage.undoLog)

        def __init__(self, command, *, read_only=False):
            port = free_port()
            words = [*command, "-a", f"{HOST}:{port}", *(["--read-only"] if read_only else [])]
            self.gateway = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            super().__init__((HOST, port), read_only=read_only, wait_timeout=60)

        def close(self):
            super().close()
            self.gateway.terminate()
            self.gateway.wait()

    def open_storage(cluster, read_only=False):
        given = cluster.getClientConfig()
        query = "&".join(f"{name}={given[name]}" for name in ("ca", "cert", "key") if name in given)
        url = f"neo://{given['name']}@{given['master_nodes'].replace(' ', ',')}?{query}"
        # Classes of the tests are resolved with this Python, as runzeo does.
        words = [PROGRAM, "serve", url, "--python-resolver", sys.executable]
        storage = Storage([*words, "--log-level", "warn"], read_only=read_only)
        cluster.zodb_storage_list.append(storage)
        return storage

    return open_storage


CLIENTS = {"zodium": with_native_client, "gateway": with_gateway}


def without_packs(undo_log):
    """As NEO's fixture has it: what the tests undo are no orders to pack."""

    def listed(storage, *arguments, **options):
        found = undo_log(storage, *arguments, **options)
        return [one for one in found if one["description"] != b"IStorage.pack"]

    return listed


@contextlib.contextmanager
def mariadb_server():
    """A server for the databases of all tests, which NEO's fixtures create."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from harness.mariadb import MariaDB

    with tempfile.TemporaryDirectory() as folder:
        # None of these tests cuts the power.
        server = MariaDB(Path(folder), ["--innodb-flush-log-at-trx-commit=0"]).start()
        os.environ |= {"NEO_DB_SOCKET": str(server.socket), "NEO_DB_ADMIN": "root"}
        try:
            yield
        finally:
            server.stop()


def enlarge_clusters():
    """Has the tests of this process use larger clusters, with TLS."""
    from neo.tests import SSL
    from neo.tests.functional import NEOCluster
    from neo.tests.zodb import ZODBTestCase

    os.environ.update({f"NEO_TEST_ZODB_{name}": str(count) for name, count in LARGER.items()})
    NEOCluster.SSL = SSL
    ZODBTestCase._getDatabaseManager = lambda test: Databases(test.neo)


class Databases:
    """All databases of a cluster, in place of the one that NEO's fixture looks into."""

    def __init__(self, cluster):
        self.managers = [cluster.getSQLConnection(name) for name in cluster.db_list]
        self.lock = self.managers[0].lock

    def commit(self):
        for manager in self.managers:
            manager.commit()

    def setup(self):
        for manager in self.managers:
            manager.setup()

    def nonempty(self, table):
        return any(manager.nonempty(table) for manager in self.managers)

    @property
    def _uncommitted_data(self):
        return [manager._uncommitted_data for manager in self.managers if manager._uncommitted_data]

    def getOrphanList(self):
        return [orphan for manager in self.managers for orphan in manager.getOrphanList()]

    def close(self):
        for manager in self.managers:
            manager.close()


def run_apart(test, details, prepare=None):
    """Runs a test in a process of its own, after `prepare`; the number of its outcome."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status if status in range(len(OUTCOMES)) else OUTCOMES.index("failed")
    outcome = OUTCOMES.index("failed")
    try:
        if prepare:
            prepare()
        result = Result(unittest.runner._WritelnDecorator(sys.stderr), True, 0)
        test.run(result)
        bad = [*result.failures, *result.errors]
        bad += [(test, "unexpected success") for test in result.unexpectedSuccesses]
        for _, text in bad if details else ():
            print(f"--- {test.id()}\n{text}")
        skipped, expected = bool(result.skipped), bool(result.expectedFailures)
        word = "failed" if bad else "skipped" if skipped else "expected" if expected else "passed"
        outcome = OUTCOMES.index(word)
    finally:
        sys.stdout.flush()
        os._exit(outcome)


if __name__ == "__main__":
    main()
