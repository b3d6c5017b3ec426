"""Commits to a NEO cluster: their rate, and the processor time that each kind of node takes.

    NEOPPOD=CHECKOUT NEOPPOD_PYTHON=PYTHON PYTHONPATH=tests PYTHON -m harness.neo_commit_cost

Two clusters, one all ours and one all NEO/py's, each with so many clients, which are processes of
their own.  A transaction stores three objects of 999 bytes that only its client writes.  The rounds
of the two are interleaved.  Printed are commits a second, milliseconds a commit as a client sees
it, and microseconds of processor time a commit: of the master, the storages and the clients.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time

from .neo_load_cost import compare, open_storage
from .vitals import cpu_seconds

OBJECTS, OBJECT_BYTES = 3, 999
COLUMNS = ("commits/s", "ms", "master us", "storages us", "clients us")


def client(kind, masters, name):
    """Commits for as many seconds as each line on standard input says."""
    import transaction
    from ZODB.utils import z64

    storage, _ = open_storage(kind, masters, name)
    serials = {storage.new_oid(): z64 for _ in range(OBJECTS)}

    def commit():
        txn = transaction.Transaction()
        storage.tpc_begin(txn)
        for oid, serial in serials.items():
            storage.store(oid, serial, random.randbytes(OBJECT_BYTES), "", txn)
        storage.tpc_vote(txn)
        serials.update(dict.fromkeys(serials, storage.tpc_finish(txn)))

    commit()
    print("ready", flush=True)
    for line in sys.stdin:
        count, began, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < float(line):
            commit()
            count += 1
        passed, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(json.dumps([count, passed, cpu]), flush=True)
    os._exit(0)


class Side:
    """A cluster and its clients."""

    def __init__(self, kind, folder, options):
        from . import package
        from .neo import PYTHON, Cluster, OwnCluster

        folder.mkdir()
        shape = {"storages": options.storages, "partitions": 12}
        self.cluster = (OwnCluster if kind == "ours" else Cluster)(folder, **shape)
        if kind != "ours":
            numbers = range(1, options.storages + 1)
            self.cluster.storages = [self.cluster.neo_storage_node(number) for number in numbers]
        self.cluster.start()
        package.use()
        words = [PYTHON, "-m", "harness.neo_commit_cost", "--client", kind]
        words += [self.cluster.masters, self.cluster.name]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.clients = [subprocess.Popen(words, **pipes) for _ in range(options.clients)]
        for one in self.clients:
            assert one.stdout.readline() == "ready\n"
        self.seconds, self.rows = options.seconds, []

    def nodes_cpu(self):
        kinds = self.cluster.master_nodes, self.cluster.storages
        return [sum(cpu_seconds(node.process.pid) for node in nodes) for nodes in kinds]

    def round(self):
        before = self.nodes_cpu()
        for one in self.clients:
            print(self.seconds, file=one.stdin, flush=True)
        told = [json.loads(one.stdout.readline()) for one in self.clients]
        count, passed = sum(line[0] for line in told), max(line[1] for line in told)
        nodes = [now - then for now, then in zip(self.nodes_cpu(), before)]
        costs = [spent / count * 1e6 for spent in [*nodes, sum(line[2] for line in told)]]
        self.rows.append((count / passed, passed * len(told) / count * 1e3, *costs))

    def end(self):
        for one in self.clients:
            one.stdin.close()
            one.wait()
        self.cluster.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client")
    parser.add_argument("place", nargs="*")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--storages", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    if options.client:
        client(options.client, *options.place)
    print(f"{options.clients} clients, {options.storages} storages")
    compare(lambda kind, folder: Side(kind, folder, options), options.rounds, "", COLUMNS)


if __name__ == "__main__":
    main()
