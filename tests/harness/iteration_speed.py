"""How fast a database is iterated over: ZEO's client and ours, side by side.

python -m harness.iteration_speed [--stock] [--rounds N] [--native FOLDER]

Run it in tests/. Each client, in a process of its own, reads tid, oid and data of
all records and adds up their bytes; they take turns. FOLDER holds the package
`zodium` to measure, as built for release; else it is that of the tests, which is not.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .process import ServerProcess, command_words, free_port
from .servers import COMMAND, stock_server

# Transactions, records of each, and bytes of a record.
SHAPES = [(10_000, 10, 200), (10_000, 10, 4000), (10, 10_000, 200), (10, 10_000, 4000)]


def write(path, transactions, records, size):
    """A file with that shape."""
    from ZODB.Connection import TransactionMetaData
    from ZODB.FileStorage import FileStorage
    from ZODB.utils import p64, z64

    storage = FileStorage(str(path))
    data = b"\x80\x03cpersistent\nPersistent\nq\x01.\x80\x03C" + b"\xff" + b"x" * (size - 40) + b"."
    for number in range(transactions):
        txn = TransactionMetaData()
        storage.tpc_begin(txn)
        for place in range(records):
            storage.store(p64(number * records + place), z64, data, "", txn)
        storage.tpc_vote(txn)
        storage.tpc_finish(txn)
    storage.close()


def iterate(kind, host, port):
    """For a process of its own: seconds, records and bytes."""
    if kind == "zeo":
        from ZEO.ClientStorage import ClientStorage
    else:
        from zodium import ClientStorage
    storage = ClientStorage((host, int(port)), wait_timeout=30)
    begun, count, total = time.perf_counter(), 0, 0
    for one in storage.iterator():
        for record in one:
            count += 1
            total += len(record.data) + len(record.oid) + len(record.tid)
    print(time.perf_counter() - begun, count, total, flush=True)
    storage.close()


def measured(kind, server, native):
    words = [sys.executable, "-m", "harness.iteration_speed", "--iterate", kind]
    words += [str(part) for part in server.address]
    environment = {"PYTHONPATH": str(native), "PATH": ""}
    told = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    seconds, count, total = told.stdout.split()
    return float(seconds), (int(count), int(total))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--native")
    parser.add_argument("--iterate", nargs=3)
    options = parser.parse_args()
    if options.iterate:
        iterate(*options.iterate)
        return
    if not options.native:
        from . import package

        options.native = package.build()
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), shape, options)


def compare(folder, shape, options):
    write(folder / "Data.fs", *shape)
    if options.stock:
        server = stock_server(folder, "Z5")
    else:
        port = free_port()
        words = command_words(COMMAND, path=folder / "Data.fs", port=port)
        server = ServerProcess(words, port, folder)
    seconds, seen = {"zeo": [], "zodium": []}, set()
    for _ in range(options.rounds):
        for kind, times in seconds.items():
            took, what = measured(kind, server, options.native)
            times.append(took)
            seen.add(what)
    server.stop()
    assert len(seen) == 1, seen
    (count, _) = seen.pop()
    middle = {kind: statistics.median(times) for kind, times in seconds.items()}
    rates = ", ".join(
        f"{kind} {count / took:,.0f}/s ({min(seconds[kind]):.3f} to {max(seconds[kind]):.3f} s)"
        for kind, took in middle.items()
    )
    ratio = middle["zeo"] / middle["zodium"]
    print(f"{shape[0]} x {shape[1]} of {shape[2]} bytes: {rates}; {ratio:.1f} x", flush=True)


if __name__ == "__main__":
    main()
