"""Valkey's own tests, with our program as an external server.

    VALKEY=TREE PYTHON tests/conformance/resp/run.py [--server COMMAND] [NAME ...]

TREE is a source tree of Valkey, with its programs built in src/; tclsh has to be in PATH.
A NAME is a file of its tests (type/zset, multi); without names all files of the commands
that we have run.  COMMAND is a template with {port}; the default is the binary of
ZODIUM_TESTED_PROFILE.  `--server stock` runs the tree's own server, for the counts to reach.

Key decision: nothing of the tree is changed.  Its tests name a server's host and port, and
leave themselves out where they need a server of their own.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY))

from tests.harness.process import ServerProcess, command_words, free_port  # noqa: E402

PROFILE = os.environ.get("ZODIUM_TESTED_PROFILE") or "debug"
# Tests that end a script need another connection for that, of another worker.
DEFAULT = (
    f"{REPOSITORY}/target/{PROFILE}/zodium resp -a 127.0.0.1:{{port}} --workers 8 --no-balance"
)
STOCK = "{tree}/src/valkey-server --port {port} --save '' --bind 127.0.0.1"
FILES = [
    *("type/string", "type/incr", "type/hash", "type/list", "type/list-3", "type/set"),
    *("type/zset", "keyspace", "expire", "scan", "multi", "pubsub", "protocol", "quit"),
    *("other", "info-command"),
]
# Without eviction, a test of memory limits would leave its connection within a transaction.
TAGS = (
    "-slow -needs:repl -needs:other-server -needs:debug -needs:pfdebug -needs:save "
    "-needs:config-maxmemory"
)
OPTIONS = ["--durable", "--no-latency", "--ignore-encoding", "--ignore-digest"]
LINE = re.compile(r"\[(ok|err|exception)\]:? (.*)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
SECONDS_MAX = 600


def run_file(tree, name, port, verbose):
    """Counts of one file's outcomes, and the lines about failures."""
    words = [
        *("tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", str(port)),
        *OPTIONS,
        *("--baseport", str(free_port()), "--single", f"unit/{name}", "--tags", TAGS),
    ]
    counts, failures = collections.Counter(), []
    try:
        run = subprocess.run(
            words, cwd=tree, capture_output=True, text=True, errors="replace", timeout=SECONDS_MAX
        )
        output = run.stdout + run.stderr
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        failures.append(f"no end after {SECONDS_MAX} s")
    if verbose:
        print(output)
    for line in COLOURS.sub("", output).splitlines():
        if match := LINE.match(line.strip()):
            counts[match[1]] += 1
            if match[1] != "ok":
                failures.append(line.strip())
    return counts, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=DEFAULT, help="a template with {port}, or stock")
    parser.add_argument("--verbose", action="store_true", help="print what the tests print")
    parser.add_argument("names", nargs="*", default=FILES)
    arguments = parser.parse_args()
    tree = os.environ.get("VALKEY")
    if not tree or not (Path(tree) / "tests/test_helper.tcl").is_file():
        sys.exit("set VALKEY to a source tree of Valkey, with its programs built")
    command = STOCK if arguments.server == "stock" else arguments.server
    total, all_failures = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            # Each file has a server of its own: none sees what another one has set.
            port = free_port()
            words = command_words(command, port=port, tree=tree)
            server = ServerProcess(words, port, folder)
            try:
                counts, failures = run_file(tree, name, port, arguments.verbose)
                alive = server.is_running()
            finally:
                server.stop()
            if not alive:
                failures.append(f"the server ended: {server.log_tail()}")
            print(f"{name:14} {counts['ok']:5} passed {len(failures):4} failed", flush=True)
            for failure in failures:
                print(f"    {failure}", flush=True)
            total += counts
            all_failures += failures
    print(f"{'together':14} {total['ok']:5} passed {len(all_failures):4} failed")
    return 1 if all_failures else 0


if __name__ == "__main__":
    sys.exit(main())
