"""Three Galera nodes on this machine, and a server whose node in use is killed under commits.

    python tests/galera/run.py [--kills N] [--clients N]
    python tests/galera/run.py --rate [--clients N]

Clients commit through `zodium serve mysql://NODE,NODE,NODE/...`.  Again and again the node
that the server uses is killed with SIGKILL, and started again.  The end of each run compares
what was acknowledged with what is there, and prints the pauses of the commits.  With --rate
nothing is killed: zodium-bench measures commits beside those on one MariaDB server of its own.

Key decision: it is a run of minutes, so it is no part of `make test`.  As root the nodes run as
the user `mysql`, since Galera's copy of state fails as root.
"""

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ZODB
from BTrees.IOBTree import IOBTree
from ZEO.ClientStorage import ClientStorage

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.process import HOST, ServerProcess, command_words, free_port
from harness.servers import BINARY, COMMAND

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
JOIN_SECONDS = 120
USER = "mysql" if os.getuid() == 0 else None


class Node:
    def __init__(self, folder, number, ports, is_plain=False):
        """A node of a cluster, or with `is_plain` a server of its own."""
        self.folder = folder / f"node{number}"
        self.folder.mkdir()
        if USER:
            shutil.chown(self.folder, USER, USER)
        self.port, own = ports[number][0], ports[number]
        self.socket, self.process = self.folder / "socket", None
        self.data = f"--datadir={self.folder / 'data'}"
        peers = ",".join(f"{HOST}:{base}" for _, base, _, _ in ports)
        provider = (
            f"base_host={HOST};base_port={own[1]};gmcast.listen_addr=tcp://{HOST}:{own[1]};"
            f"ist.recv_addr={HOST}:{own[2]}"
        )
        self.words = [
            *("mariadbd", "--no-defaults", self.data, f"--socket={self.socket}"),
            *(f"--port={self.port}", f"--bind-address={HOST}", "--max-allowed-packet=64M"),
            *(f"--pid-file={self.folder / 'pid'}", "--innodb-buffer-pool-size=64M"),
            *("--binlog-format=ROW", "--default-storage-engine=InnoDB"),
            "--innodb-autoinc-lock-mode=2",
        ]
        self.is_plain = is_plain
        cluster = [
            *("--wsrep-on=ON", f"--wsrep-provider={PROVIDER}"),
            *("--wsrep-cluster-name=zodium", f"--wsrep-cluster-address=gcomm://{peers}"),
            *(f"--wsrep-node-name=n{number}", f"--wsrep-node-address={HOST}:{own[1]}"),
            *("--wsrep-sst-method=rsync", f"--wsrep-sst-receive-address={HOST}:{own[3]}"),
            f"--wsrep-provider-options={provider}",
        ]
        self.words += [] if is_plain else cluster
        install = ["mariadb-install-db", "--no-defaults", "--skip-test-db", self.data]
        install.append("--auth-root-authentication-method=normal")
        self.run_as(install, subprocess.run, check=True, capture_output=True)

    def run_as(self, words, run, **options):
        options |= {"cwd": self.folder}
        return run(words, user=USER, group=USER, **options) if USER else run(words, **options)

    def start(self, is_first=False):
        words = [*self.words, "--wsrep-new-cluster"] if is_first else self.words
        wanted = "1" if self.is_plain else "Synced"
        with open(self.folder / "log", "ab") as log:
            self.process = self.run_as(words, subprocess.Popen, stdout=log, stderr=log)
        end = time.monotonic() + JOIN_SECONDS
        while self.status() != wanted:
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"a node does not join: see {self.folder / 'log'}")
            time.sleep(0.2)

    def run(self, sql):
        words = ["mariadb", "--no-defaults", "-uroot", f"-S{self.socket}", "-BN", "-e", sql]
        return subprocess.run(words, capture_output=True, text=True).stdout.split()

    def status(self):
        if self.is_plain:
            return "".join(self.run("SELECT 1"))
        return "".join(self.run("SHOW STATUS LIKE 'wsrep_local_state_comment'")[1:])

    def is_in_use(self):
        find = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'zodium'"
        return self.run(find) not in ([], ["0"])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def make_database(self):
        self.run("CREATE DATABASE neo; CREATE USER zodium@localhost")
        self.run("GRANT ALL ON neo.* TO zodium@localhost")


class Client(threading.Thread):
    """Commits to an object of its own, and notes when each commit was acknowledged."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.database = ZODB.DB(ClientStorage(address, wait=True, wait_timeout=60))
        self.number, self.count, self.times, self.failures = number, 0, [time.monotonic()], []
        self.stops = threading.Event()
        self.start()

    def run(self):
        while not self.stops.is_set():
            try:
                with self.database.transaction() as connection:
                    name = f"client{self.number}"
                    # Its objects stay small, and with them what a node copies when it joins.
                    connection.root().setdefault(name, IOBTree())
                    connection.root()[name][self.count + 1] = os.urandom(200)
            except Exception as error:
                self.failures.append(repr(error))
                time.sleep(0.05)
            else:
                self.count += 1
                self.times.append(time.monotonic())

    def pause_since(self, start):
        times = [at for at in self.times if at >= start]
        return max((b - a for a, b in zip([start, *times], times, strict=False)), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--clients", type=int, help="4, or 16 with --rate")
    parser.add_argument("--rate", action="store_true", help="measure commits, and kill nothing")
    options = parser.parse_args()
    options.clients = options.clients or (16 if options.rate else 4)
    # Commits that fail are counted.
    logging.basicConfig(handlers=[logging.NullHandler()])
    folder = Path(tempfile.mkdtemp(prefix="zodium-galera-"))
    folder.chmod(0o755)
    ports = [[free_port() for _ in range(4)] for _ in range(4)]
    nodes = [Node(folder, number, ports[:3]) for number in range(3)]
    plain = [Node(folder, 3, ports, is_plain=True)] if options.rate else []
    servers = []
    try:
        for number, node in enumerate([*nodes, *plain]):
            node.start(is_first=number == 0)
        for cluster in filter(None, (nodes, plain)):
            cluster[0].make_database()
            hosts = ",".join(f"{HOST}:{node.port}" for node in cluster)
            servers.append(serve(f"mysql://zodium@{hosts}/neo", folder))
        if options.rate:
            measure(options, *servers)
        else:
            run(options, nodes, *servers)
    finally:
        for server in servers:
            server.kill()
        for node in [*nodes, *plain]:
            if node.process and node.process.poll() is None:
                node.kill()
    shutil.rmtree(folder)


def serve(url, folder):
    port = free_port()
    return ServerProcess(command_words(COMMAND, [], path=url, port=port), port, folder)


def measure(options, galera, plain):
    bench = [str(Path(BINARY).with_name("zodium-bench")), "commit", "--format", "table"]
    bench += ["--clients", str(options.clients), "--modes", "add", "--no-floor"]
    for name, server in (("galera", galera), ("mariadb", plain)):
        bench += ["--peer", f"{name}={server.url}"]
    subprocess.run(bench, check=True)


def run(options, nodes, server):
    clients = [Client(server.address, number) for number in range(options.clients)]
    pauses = []
    for kill in range(options.kills):
        time.sleep(2)
        used = next((node for node in nodes if node.is_in_use()), None)
        assert used, "no node is used"
        start = time.monotonic()
        used.kill()
        while not all(client.times[-1] > start + 1 for client in clients):
            assert time.monotonic() < start + 90, "commits do not go on"
            assert server.is_running(), "the server has ended"
            time.sleep(0.05)
        pauses.append(max(client.pause_since(start) for client in clients))
        print(f"kill {kill + 1}: pause {pauses[-1]:.1f} s", flush=True)
        used.start()
    for client in clients:
        client.stops.set()
    for client in clients:
        client.join(90)
    database = ZODB.DB(ClientStorage(server.address, wait=True, wait_timeout=60))
    with database.transaction() as connection:
        for client in clients:
            found = set(connection.root()[f"client{client.number}"])
            lost = set(range(1, client.count + 1)) - found
            assert not lost, f"LOST: {sorted(lost)[:10]}"
    database.close()
    failures = [failure for client in clients for failure in client.failures]
    commits = sum(client.count for client in clients)
    print(f"{commits} commits, none lost; {len(failures)} failed: {sorted(set(failures))[:5]}")
    print(f"pauses: median {statistics.median(pauses):.1f} s, longest {max(pauses):.1f} s")


if __name__ == "__main__":
    main()
