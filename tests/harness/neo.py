"""Clusters of NEO/py's masters, admins and clients, with our nodes.

NEOPPOD          a checkout of NEO/py, and
NEOPPOD_PYTHON   a Python with msgpack, six and ZODB, which runs it
ZODIUM_TEST_OWN_MASTERS  if set, masters of ours in place of NEO/py's in all tests

Key decision: NEO/py runs in processes of its own, with its own Python.  The tests
see what an operator sees: neoctl, log files, exit codes, databases.
"""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from .process import HOST, STOP_SECONDS, crash_of, free_port
from .servers import BINARY
from .waiting import wait_for

CHECKOUT, PYTHON = os.environ.get("NEOPPOD"), os.environ.get("NEOPPOD_PYTHON")
CLIENT = Path(__file__).with_name("neo_client.py")
COMMANDS = Path(__file__).with_name("neo_commands.py")
COMMAND_SECONDS = 120
# Whether all masters are ours where a test does not say.
OWN_MASTERS = bool(os.environ.get("ZODIUM_TEST_OWN_MASTERS"))

needs_neo = pytest.mark.skipif(
    not CHECKOUT or not PYTHON,
    reason="NO CLUSTER OF NEO IS TESTED: set NEOPPOD to a checkout of NEO/py and"
    " NEOPPOD_PYTHON to a Python that runs it",
)


class Node:
    """One process of a cluster, which can be started again."""

    def __init__(self, words, name, folder):
        self.words, self.name, self.folder = words, name, folder
        self.log_path = folder / f"{name}.out"
        self.process = None

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""


# A master that marks cells as corrupted, and not only its log.
MARKING_MASTER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import neo.master.app
from neo.master.handlers import storage
storage.EXPERIMENTAL_CORRUPTED_STATE = True
from neo.scripts.neomaster import main
main()
"""


class Cluster:
    """Masters, an admin, and storages; nothing runs until `start`."""

    def __init__(
        self,
        folder,
        storages=1,
        partitions=1,
        replicas=0,
        masters=1,
        tls=None,
        upstream=None,
        begins_as_backup=False,
        autostart=None,
        marks_corrupted_cells=False,
        monitors=(),
        own_masters=None,
    ):
        self.folder, self.name, self.tls = folder, "zodium_test", tls
        self.partitions = partitions
        addresses = [f"{HOST}:{free_port()}" for _ in range(masters)]
        self.masters, self.admin_address = " ".join(addresses), f"{HOST}:{free_port()}"
        shape = ["--partitions", str(partitions), "--replicas", str(replicas)]
        if autostart:
            shape += ["--autostart", str(autostart)]
        if upstream:
            shape += ["--upstream-cluster", upstream.name, "--upstream-masters", upstream.masters]
            shape += ["--backup"] if begins_as_backup else []
            self.name = "zodium_backup"
        self.master_nodes = [
            self.neo_node("neomaster", f"master-{number}", "--bind", address, *shape)
            for number, address in enumerate(addresses, 1)
        ]
        # The numbers of masters, from 1, that are ours.
        is_own = OWN_MASTERS and not marks_corrupted_cells
        everyone = range(1, masters + 1) if is_own else ()
        for number in everyone if own_masters is None else own_masters:
            self.master_nodes[number - 1] = self.master_node(number, addresses[number - 1], *shape)
        if marks_corrupted_cells:
            for node in self.master_nodes:
                node.words[1:2] = ["-c", MARKING_MASTER, CHECKOUT]
        self.monitored = [word for name in monitors for word in ("--monitor-backup", name)]
        self.admin = self.neo_node(
            "neoadmin", "admin", "--bind", self.admin_address, *self.monitored
        )
        # A second admin, ours; `start` leaves it alone.
        self.own_admin_address = f"{HOST}:{free_port()}"
        self.own_admin = self.admin_node(self.own_admin_address, *self.monitored)
        self.storages = [self.storage_node(number) for number in range(1, storages + 1)]
        self.clients = []

    def common(self):
        words = ["--cluster", self.name, "--masters", self.masters]
        if self.tls:
            words += ["--ca", self.tls[0], "--cert", self.tls[1], "--key", self.tls[2]]
        return words

    def neo_node(self, program, name, *options):
        logfile = str(self.folder / f"{name}.neolog")
        words = [PYTHON, f"{CHECKOUT}/{program}", *self.common(), "--logfile", logfile, *options]
        return Node(words, name, self.folder)

    def database(self, number):
        return self.folder / f"storage-{number}.sqlite"

    def databases(self):
        return [self.database(number) for number in range(1, len(self.storages) + 1)]

    def storage_node(self, number, *options):
        words = [BINARY, "neo", "storage", *self.common(), "--adapter", "SQLite"]
        words += ["--database", str(self.database(number)), "--nid", str(number)]
        words += ["--log-level", "debug", *options]
        return Node(words, f"storage-{number}", self.folder)

    def master_node(self, number, address, *options):
        """A master of ours."""
        words = [BINARY, "neo", "master", *self.common(), "--bind", address, *options]
        return Node([*words, "--log-level", "debug"], f"master-{number}", self.folder)

    def admin_node(self, address, *options):
        """An admin of ours."""
        words = [BINARY, "neo", "admin", *self.common(), "--bind", address]
        return Node([*words, "--log-level", "debug", *options], "own-admin", self.folder)

    def neo_storage_node(self, number):
        """A storage node of NEO/py."""
        database = str(self.database(number))
        options = ("--adapter", "SQLite", "--database", database, "--nid", str(number))
        return self.neo_node("neostorage", f"storage-{number}", *options)

    def start(self):
        """Starts all nodes, and the cluster; returns when it is RUNNING."""
        for node in [*self.master_nodes, *self.storages, self.admin]:
            node.start()
        count = len(self.storages)
        wait_for(lambda: self.nodes().count("PENDING") >= count, "storages are pending")
        wait_for(lambda: self.neoctl("start").returncode == 0, "the cluster starts")
        self.wait_running()

    def wait_autostarted(self, state):
        """Starts all nodes of a cluster that starts without an operator."""
        for node in [*self.master_nodes, *self.storages, self.admin]:
            node.start()
        self.wait_state(state)

    def wait_running(self):
        self.wait_state("RUNNING")

    def truncate(self, tid):
        """Undoes what came after a transaction; returns when the cluster runs again."""
        done = self.neoctl("truncate", f"tid:0x{tid}")
        assert done.returncode == 0, done.stderr
        # The answer comes before the admin knows that the cluster has stopped.
        last = f"last_tid = 0x{tid.lstrip('0')} "
        wait_for(lambda: last in self.neoctl("print", "ids").stdout, f"{last}after a truncation")
        self.wait_running()

    def wait_state(self, state):
        wait_for(lambda: self.neoctl("print", "cluster").stdout.strip() == state, state)

    def neoctl(self, *words, admin=None):
        return self.command([PYTHON, f"{CHECKOUT}/neoctl"], admin, words)

    def ctl(self, *words, admin=None):
        """Our commands in place of neoctl's."""
        return self.command([BINARY, "neo", "ctl"], admin, words)

    def status(self, *words, admin=None):
        return self.command([BINARY, "neo", "status"], admin, words)

    def command(self, command, admin, words):
        command = [*command, *self.reach(admin), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)

    def neoctl_each(self, commands, admin=None):
        """(exit code, output, errors) of many commands of neoctl, in one process."""
        command = [PYTHON, str(COMMANDS), CHECKOUT, *self.reach(admin)]
        done = subprocess.run(
            command,
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return [tuple(one) for one in json.loads(done.stdout)]

    def reach(self, admin):
        """The options by which commands reach an admin."""
        options = ["--address", admin or self.admin_address]
        if self.tls:
            options += ["--ca", self.tls[0], "--cert", self.tls[1], "--key", self.tls[2]]
        return options

    def nodes(self):
        """What neoctl says of the storages."""
        return self.neoctl("print", "node", "storage").stdout

    def cells(self):
        """The states of the cells of each partition, as neoctl says them."""
        lines = self.neoctl("print", "pt", "0", str(self.partitions)).stdout.splitlines()[1:]
        return [[cell.split()[-1] for cell in line.split("|")[1:-1]] for line in lines]

    def wait_up_to_date(self, count):
        """Waits until every partition has so many cells, and all are up to date."""

        def are_up_to_date():
            cells = self.cells()
            return cells and all(row == ["UP_TO_DATE"] * count for row in cells)

        wait_for(are_up_to_date, "all cells are up to date")

    def client(self, read_only=False):
        self.clients.append(Client(self, read_only))
        # Two first clients would both create the root.
        self.clients[-1].call("last")
        return self.clients[-1]

    def url(self, query="wait=20", name=None):
        """What a server, a tool or a client of ours calls it."""
        if self.tls:
            authority, certificate, key = self.tls
            query += f"&ca={authority}&cert={certificate}&key={key}"
        return f"neo://{name or self.name}@{self.masters.replace(' ', ',')}?{query}"

    def end(self):
        """Ends all processes; shows what they said."""
        for client in self.clients:
            client.close()
        for node in self.all_nodes():
            if node.is_running():
                node.kill()
            print(f"--- {node.name}\n{node.log()[-6000:]}")

    def all_nodes(self):
        return [*self.storages, *self.master_nodes, self.admin, self.own_admin]


class OwnCluster(Cluster):
    """A cluster of our nodes only, which needs no NEO/py."""

    def __init__(self, folder, masters=1, **shape):
        everyone = range(1, masters + 1)
        super().__init__(folder, masters=masters, own_masters=everyone, **shape)
        self.admin = self.admin_node(self.admin_address)

    def neoctl(self, *words, admin=None):
        return self.ctl(*words, admin=admin)


@contextlib.contextmanager
def clusters(folder, kind=Cluster):
    """make(kind=..., **shape): a cluster that does not run yet; all end with the block."""
    made = []

    def make(kind=kind, **shape):
        place = folder / f"cluster-{len(made)}"
        place.mkdir()
        made.append(kind(place, **shape))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.end()
    crashes = [crash_of(node) for one in made for node in one.all_nodes()]
    assert list(filter(None, crashes)) == []


@contextlib.contextmanager
def running_clusters(folder, kind=Cluster):
    """start(kind=..., **shape): a running cluster; all end with the block."""
    with clusters(folder, kind) as make:

        def start(**shape):
            one = make(**shape)
            one.start()
            return one

        yield start


class Failed(Exception):
    """What a client raised: the name of the exception and its text."""


class Client:
    """A ZODB application over NEO/py's client, in a process of its own."""

    def __init__(self, cluster, read_only):
        configuration = {"master_nodes": cluster.masters, "name": cluster.name}
        configuration |= {"read_only": True} if read_only else {}
        if cluster.tls:
            configuration |= dict(zip(("ca", "cert", "key"), cluster.tls, strict=True))
        self.process = subprocess.Popen(
            [PYTHON, str(CLIENT), CHECKOUT, json.dumps(configuration)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command, **arguments):
        """Begins a command."""
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        """The answer to the oldest command."""
        line = self.process.stdout.readline()
        assert line, "the client has ended"
        kind, value = json.loads(line)
        if kind == "raised":
            raise Failed(value)
        return value

    def call(self, command, **arguments):
        self.ask(command, **arguments)
        return self.answer()

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
