"""A NEO cluster on this machine, whose primary master is killed under commits, again and again.

    NEOPPOD=CHECKOUT NEOPPOD_PYTHON=PYTHON python tests/neo_kills/run.py [--masters ours|mixed]
        [--kills N] [--clients N] [--starts N]

Stock ZEO clients commit through `zodium serve neo://...`; the storages are ours.  Of two masters
the primary one is killed with SIGKILL, and started again.  The end compares what was
acknowledged with what is there, and prints the pauses of the commits.  Then the cluster is
killed as a whole and started again, and the time from the connection of the last storage to
RUNNING is taken from the logs of our masters.

Key decision: it is a run of minutes, so it is no part of `make test`.
"""

import argparse
import datetime
import logging
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import ZODB
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.neo import CHECKOUT, PYTHON, Cluster
from harness.process import HOST, ServerProcess, command_words, free_port
from harness.servers import COMMAND
from harness.waiting import wait_for

LINE = re.compile(r"^(\S+)Z +INFO (accepting a node node=S|the cluster is running)", re.M)


class Client(threading.Thread):
    """Counts in an object of its own, and notes when each commit was acknowledged."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.database = ZODB.DB(ClientStorage(address, wait=True, wait_timeout=60))
        self.name_of_count, self.count, self.commits = f"client{number}", 0, 0
        self.times, self.failures, self.stops = [time.monotonic()], [], threading.Event()
        self.start()

    def run(self):
        while not self.stops.is_set():
            try:
                with self.database.transaction() as connection:
                    root = connection.root()
                    own = root.setdefault(self.name_of_count, PersistentMapping(count=0))
                    # What was not acknowledged may have been committed.
                    count = max(self.count, own["count"]) + 1
                    own["count"] = count
            except Exception as error:
                self.failures.append(type(error).__name__)
                time.sleep(0.01)
            else:
                self.count, self.commits = count, self.commits + 1
                self.times.append(time.monotonic())

    def pause_since(self, start):
        times = [at for at in self.times if at >= start]
        return max((b - a for a, b in zip([start, *times], times, strict=False)), default=None)


def masters_running(cluster):
    return cluster.ctl("print", "node", "master").stdout.count("RUNNING")


def primary_of(cluster):
    """The process of the primary master, as soon as there is one."""

    def found():
        primary = cluster.ctl("print", "primary").stdout.strip()
        for line in cluster.ctl("print", "node", "master").stdout.splitlines():
            if primary and line.startswith(f"{primary} "):
                address = line.split("|")[2].strip()
                return next(node for node in cluster.master_nodes if address in node.words)
        return None

    return wait_for(found, "a primary master")


def kill_primaries(options, cluster, clients):
    pauses = []
    for kill in range(options.kills):
        wait_for(lambda: masters_running(cluster) == 2, "both masters run")
        primary = primary_of(cluster)
        start = time.monotonic()
        primary.kill()
        resumed = lambda: all(client.times[-1] > start + 0.3 for client in clients)  # noqa: B023,E731
        wait_for(resumed, "commits go on", 60)
        # A master may have stopped between its answer and the kill: then nothing paused.
        pauses.append(max(client.pause_since(start) for client in clients))
        print(f"kill {kill + 1}, of {primary.name}: pause {pauses[-1]:.2f} s", flush=True)
        primary.start()
    return pauses


def judge(clients, address):
    for client in clients:
        client.stops.set()
    for client in clients:
        client.join(90)
    database = ZODB.DB(ClientStorage(address, wait=True, wait_timeout=60))
    with database.transaction() as connection:
        root = connection.root()
        for client in clients:
            count = root[client.name_of_count]["count"]
            assert count >= client.count, f"LOST: {client.name_of_count}"
    database.close()
    failures = [failure for client in clients for failure in client.failures]
    commits = sum(client.commits for client in clients)
    print(f"{commits} commits, none lost; {len(failures)} failed: {sorted(set(failures))}")


def measure_starts(options, cluster):
    """Seconds from the connection of the last storage to RUNNING."""
    seconds = []
    nodes = [*cluster.master_nodes, *cluster.storages]
    for _ in range(options.starts):
        for node in nodes:
            node.kill()
        sizes = {node: len(node.log()) for node in cluster.master_nodes}
        for node in nodes:
            node.start()
        wait_for(lambda: cluster.ctl("print", "cluster").stdout.strip() == "RUNNING", "RUNNING")
        for node, size in sizes.items():
            found = LINE.findall(node.log()[size:])
            if found and found[-1][1].startswith("the cluster"):
                # A storage may have come again since the cluster runs.
                storages = [at for at, what in found if what.startswith("accepting")]
                times = [datetime.datetime.fromisoformat(at) for at in (storages[-1], found[-1][0])]
                seconds.append((times[1] - times[0]).total_seconds())
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--masters", choices=["ours", "mixed"], default="ours")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    if not CHECKOUT or not PYTHON:
        parser.error(
            "the admin is NEO/py's: set NEOPPOD to a checkout of it, and NEOPPOD_PYTHON to a Python"
            " that runs it"
        )
    # Commits that fail are counted.
    logging.basicConfig(handlers=[logging.NullHandler()])
    folder = Path(tempfile.mkdtemp(prefix="zodium-kills-"))
    own_masters = {"ours": (1, 2), "mixed": (1,)}[options.masters]
    shape = {"storages": 2, "partitions": 4, "replicas": 1, "masters": 2}
    cluster, server = Cluster(folder, own_masters=own_masters, **shape), None
    try:
        cluster.start()
        port = free_port()
        url = f"neo://{cluster.name}@{cluster.masters.replace(' ', ',')}"
        server = ServerProcess(command_words(COMMAND, [], path=url, port=port), port, folder)
        clients = [Client((HOST, port), number) for number in range(options.clients)]
        wait_for(lambda: all(client.count for client in clients), "all clients commit")
        pauses = kill_primaries(options, cluster, clients)
        judge(clients, (HOST, port))
        longest = max(pauses)
        print(f"pauses: median {statistics.median(pauses):.2f} s, longest {longest:.2f} s")
        if starts := measure_starts(options, cluster):
            print(f"RUNNING after the last storage: longest {max(starts):.3f} s of {len(starts)}")
    finally:
        if server:
            server.kill()
        for node in [*cluster.storages, *cluster.master_nodes, cluster.admin]:
            if node.is_running():
                node.kill()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
