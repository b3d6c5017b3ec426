#!/usr/bin/env python3
"""Run the storage test suites of ZODB and ZEO against an external ZEO server.

    run.py                                       # what `make programs` has built
    run.py --gate                                # what must pass, over Z5 and M5
    run.py --server-cmd 'runzeo -C {config}'     # the stock server
    run.py --client zodium                       # with zodium.ClientStorage

Every test gets a server process of its own, on a free loopback port, with a
data file of its own, and talks to it only through a client storage:

* group "mixin": the test mixins of ZODB.tests and ZEO.tests, mounted on a
  storage that is a client of the external server;
* group "db":    the tests of ZODB and BTrees that make databases of their own, each
  on a storage that is a client of the external server;
* group "zeo":   ZEO's own test modules, run as they are, with the function that
  starts their server replaced.  Tests that never ask for a server, or that must
  have the Python server in their own process, are left out of the count.

One line per suite ("name passed/failed/errors"), then "N passed, N failed".  The
exit status is 0 only when at least one test ran and all that ran passed.

What {..} in --server-cmd may name:
  {path}    data file to create or open          {port}     TCP port to bind
  {dir}     the test's own empty folder          {blob_dir} blob folder ("" = no blobs)
  {config}  a ZConfig file saying all of the below (what `runzeo -C` reads)
  {options} the settings a test asks for, as --long-options, for a server that
            has no ZConfig reader: --blob-dir D, --read-only, --no-pack-gc,
            --invalidation-queue-size N, --invalidation-age S,
            --transaction-timeout S, --client-conflict-resolution, --msgpack,
            --ssl-certificate F, --ssl-key F, --ssl-authenticate F,
            --ssl-key-password-file F (with what a password-function returns)
A suite that needs such a setting is skipped when the command names neither
{config} nor {options}; a skipped suite is printed, never counted as passed.

One blob doctest expects a read-only file to refuse a write.  Root's override is
dropped for it where setpriv is there; without it that test fails for root,
whatever the server.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from harness import package  # noqa: E402
from harness.servers import BINARY, COMMAND, IS_ZODIUM  # noqa: E402

from conformance import databases, gate, inside  # noqa: E402
from conformance.client import CLASSES, Chosen  # noqa: E402
from conformance.mixins import MIXINS  # noqa: E402
from conformance.report import Report  # noqa: E402
from conformance.server import Server  # noqa: E402
from conformance.worker import tests_of, work  # noqa: E402
from conformance.zeo_suites import zeo_tests  # noqa: E402


def main():
    options = parse_arguments()
    Server.template = options.server_cmd
    Server.msgpack = options.encoding == "M5"
    Chosen.name = options.client
    if options.worker:
        return work(options.worker, {int(number) for number in options.ids.split(",")})
    if options.gate or options.client == "zodium":
        package.use()
    suites = [s for s in asked_suites(options) if not options.suite or re.search(options.suite, s)]
    if options.list:
        for suite in suites:
            print(f"{suite:44} {len(tests_of(suite))}")
        return 0
    jobs = [gate.Job(suite, options.encoding, options.client) for suite in suites]
    if options.gate:
        jobs = [job for job in gate.JOBS if job.suite in suites]
    report = Report(options.verbose, strict=options.gate)

    def run(job):
        start = time.monotonic()
        return run_suite(job, options), time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for job, (results, seconds) in zip(jobs, pool.map(run, jobs)):
            report.add(job.title if options.gate else job.suite, results, seconds)
    if options.json:
        report.write(options.json, options.server_cmd)
    return report.close()


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # A zeo.conf says all that a test may ask for.
    default = f"{BINARY} serve -C {{config}}" if IS_ZODIUM else COMMAND
    add = parser.add_argument
    add(
        "--server-cmd",
        default=default,
        help="default: that of ZODIUM_SERVER_COMMAND, or the program under test, with {config}",
    )
    add("--gate", action="store_true", help="the suites that must pass, over both encodings")
    add("--encoding", choices=gate.ENCODINGS, default="Z5", help="what the server announces")
    add("--client", choices=list(CLASSES), default="zeo", help="whose client storage is run")
    add("--group", choices=("mixin", "db", "zeo", "all"), default="mixin")
    add("--suite", help="only suites whose name matches this expression")
    add("--test", help="only tests whose id matches this expression")
    add("--at-level", type=int, default=1, help="10 adds the very long tests")
    add("--timeout", type=float, default=600, help="seconds one test may take")
    add("--jobs", type=int, default=1, help="suites run side by side")
    add("--json", help="write every test's outcome to this file")
    add("--list", action="store_true", help="list suites and their test counts")
    add("--verbose", action="store_true", help="print each failure's traceback")
    add("--worker", help=argparse.SUPPRESS)
    add("--ids", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    program = shlex.split(options.server_cmd)[0]
    if not shutil.which(program):
        parser.error(f"there is no {program}: build it, or name another with --server-cmd")
    return options


def asked_suites(options):
    if options.gate:
        return list(dict.fromkeys(job.suite for job in gate.JOBS))
    groups = {"mixin": MIXINS, "db": databases.SUITES}
    suites = [suite for name in groups if options.group in (name, "all") for suite in groups[name]]
    return suites + (list(zeo_tests()) if options.group in ("zeo", "all") else [])


def run_suite(job, options):
    """The results of one suite; a test that hangs is ended and counted."""
    left = wanted_tests(job, options)
    results, folder = [], tempfile.mkdtemp(prefix="conformance-run-")
    while left:
        current = run_child(job, left, results, folder, options)
        if current is None:
            break
        number, test_id = current or (left[0], f"{job.suite}[{left[0]}]")
        left.remove(number)
        text = f"no answer in {options.timeout} s, or the test process died"
        results.append(
            {"id": test_id, "outcome": "error", "seconds": options.timeout, "text": text}
        )
    shutil.rmtree(folder, ignore_errors=True)
    return results


def wanted_tests(job, options):
    """The numbers of the suite's tests that are asked for."""
    excluded = dict(databases.EXCLUDED.get(job.suite, {}))
    if job.client == "zodium":
        excluded.update(inside.EXCLUDED.get(job.suite, {}))
    if options.gate:
        excluded.update(gate.EXCLUDED.get(job.suite, {}))
    level_max = max(options.at_level, gate.LEVEL if options.gate else 1)
    return [
        number
        for number, test in enumerate(tests_of(job.suite))
        if level_of(test) <= level_max
        and (not options.test or re.search(options.test, test.id()))
        and short_name(test) not in excluded
    ]


def short_name(test):
    """The name of a test's method, or of its file when it is a doctest."""
    return test.id().rpartition(".")[2]


def level_of(test):
    """ZODB's tests have levels: 1 is run always, 10 takes very long."""
    levels = getattr(test, "level", 1), getattr(getattr(test, short_name(test), None), "level", 1)
    return max(level if isinstance(level, int) else 1 for level in levels)


def run_child(job, left, results, folder, options):
    """Run the tests `left` in a child, moving each that ends to `results`.

    None when the child has done them all, else what it was at when it died or
    hung: (number, id), or () if it had not begun one.
    """
    command = [*as_anybody(), sys.executable, __file__]
    command += ["--server-cmd", job.server_command or options.server_cmd]
    command += ["--client", job.client, "--encoding", job.encoding]
    command += ["--worker", job.suite, "--ids", ",".join(map(str, left))]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": folder},
    )
    current = ()
    try:
        for message in messages(child, options.timeout):
            if "begin" in message:
                current = message["begin"], message["id"]
            elif "end" in message:
                left.remove(message["end"])
                results.append(message)
                current = ()
            else:
                return None
        return current
    finally:
        # The child leads a process group of its own, with its servers in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def as_anybody():
    """What makes root ask before it writes to a read-only file, as a blob test expects."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return []
    lost = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}"]


def messages(child, timeout):
    """What the child reports, until it ends or is silent for `timeout` seconds."""
    lines = queue.Queue()

    def read():
        for line in child.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=timeout)
        except queue.Empty:
            return
        if not line:
            return
        yield json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
