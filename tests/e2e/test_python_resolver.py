"""Conflicts of an application's classes, resolved by the helper process of --python-resolver.

That the server resolved one, and not the client, is told by its figures, or by an
undo: the client is never asked for that unless a class is named.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest
import transaction
from BTrees.IOBTree import IOBTree
from BTrees.Length import Length
from harness import orchard
from harness.process import HOST, free_port
from harness.servers import spawn
from harness.waiting import wait_for
from ZEO.runzeo import ZEOOptions
from ZODB import DB
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import UndoError
from ZODB.utils import z64

pytestmark = pytest.mark.zodium

TESTS = Path(__file__).resolve().parents[1]


class Site:
    """Two databases on one server, of stock clients, with one object in the root."""

    def __init__(self, server, connect):
        self.server = server
        self.storage = connect(server, server_sync=True)
        self.database = DB(self.storage)
        self.other_storage = connect(server, server_sync=True)
        self.other = DB(self.other_storage)

    def put(self, thing):
        with self.database.transaction() as connection:
            connection.root()["thing"] = thing

    def state(self):
        with self.other.transaction() as connection:
            connection.sync()
            thing = connection.root()["thing"]
            thing._p_activate()
            return dict(thing.__dict__)

    def conflict(self, change, other_change=None):
        """Both change the object from the same revision; the change of the first is later."""
        connections = []
        for database in self.database, self.other:
            manager = transaction.TransactionManager()
            connections.append((manager, database.open(manager)))
            # Asks the server for what was committed before.
            manager.begin()
        (first, one), (second, two) = connections
        try:
            thing, same = one.root()["thing"], two.root()["thing"]
            thing._p_activate()
            (other_change or change)(same)
            second.commit()
            change(thing)
            first.commit()
        finally:
            for manager, connection in connections:
                manager.abort()
                connection.close()

    def undo_of_earlier(self, change):
        """Changes the object twice, and undoes the first change."""
        for _ in range(2):
            with self.database.transaction() as connection:
                change(connection.root()["thing"])
        earlier = self.database.undoLog(1, 2)[0]["id"]
        self.database.undo(earlier)
        try:
            transaction.commit()
        except Exception:
            transaction.abort()
            raise

    def figures(self):
        status = self.storage.server_status()
        return status["conflicts"], status["conflicts_resolved"]


def increase(thing):
    thing.value += 1


def is_alive(pid):
    """Whether a process runs. One that has ended stays listed until its parent waits for it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def children(process):
    """The ids of a server's helpers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == process.pid and state != "Z":
                found.append(int(folder.name))
    return found


def until_logged(server, text):
    wait_for(lambda: text in server.log(), lambda: f"{text!r} in {server.log()}")


@pytest.fixture
def modules(monkeypatch):
    """Servers that are started find these tests' modules."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.fixture
def site(start_server, connect, modules):
    """site(*options): on a server that resolves with the Python of the tests."""

    def open_site(*options):
        options = options or (f"--python-resolver={sys.executable}",)
        return Site(start_server(None, *options), connect)

    return open_site


def test_a_store_is_merged_with_its_references(site):
    site = site()
    site.put(orchard.Basket())
    names = iter(("apple", "pear"))
    site.conflict(lambda basket: basket.add(orchard.Fruit(next(names))))
    with site.other.transaction() as connection:
        connection.sync()
        basket = connection.root()["thing"]
        assert (basket.count, [fruit.name for fruit in basket.fruits]) == (2, ["apple", "pear"])
    assert site.figures() == (1, 1)
    assert "the Python resolver runs" in site.server.log()


def test_an_undo_is_merged_without_naming_a_class(site):
    site = site()
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 1


def test_undos_that_only_python_can_merge_are_left_to_it_of_known_classes_too(site):
    site = site()
    site.put(Length(Decimal(0)))
    site.undo_of_earlier(lambda length: length.change(Decimal(1)))
    text = "x" * 5000
    site.put(IOBTree({key: text for key in range(0, 100, 2)}))
    keys = iter((1, 51))
    site.undo_of_earlier(lambda tree: tree.update({next(keys): text}))
    with site.other.transaction() as connection:
        connection.sync()
        assert 51 in connection.root()["thing"] and 1 not in connection.root()["thing"]


def test_relative_folders_of_modules_are_found(site, monkeypatch, tmp_path):
    # The server runs in the folder of its data file.
    (tmp_path / "application").symlink_to(TESTS)
    monkeypatch.setenv("PYTHONPATH", "application")
    site = site()
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 1


def test_without_the_line_nothing_is_merged_and_no_process_is_started(site):
    site = site("--cache-size=1MiB")
    site.put(orchard.Counter())
    with pytest.raises(UndoError):
        site.undo_of_earlier(increase)
    site.conflict(increase)
    assert site.state()["value"] == 4
    assert site.figures()[1] == 0
    assert children(site.server.process) == []


def test_a_line_of_zeo_conf_is_enough_and_runzeo_reads_the_file_too(
    tmp_path, start_server, connect, modules, binary
):
    configuration = tmp_path / "zeo.conf"
    configuration.write_text(
        f"%define zodium_python_resolver {sys.executable}\n"
        f"<zeo>\n  address {HOST}:{free_port()}\n</zeo>\n"
        f"<filestorage 1>\n  path {tmp_path}/Data.fs\n</filestorage>\n"
    )
    stock = ZEOOptions()
    stock.realize(["-C", str(configuration)])
    assert stock.storages[0].config.path == f"{tmp_path}/Data.fs"
    command = f"{binary} serve -C {configuration} -a {HOST}:{{port}}"
    server = spawn(command, tmp_path / "Data.fs", (), "Z5", True, ())
    start_server.servers.append(server)
    site = Site(server, connect)
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 1


def test_a_class_that_cannot_be_imported_is_left_to_the_client_and_logged(
    tmp_path, start_server, connect, monkeypatch
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    site = Site(start_server(None, f"--python-resolver={sys.executable}"), connect)
    site.put(orchard.Counter())
    site.conflict(increase)
    assert site.state()["value"] == 2
    with pytest.raises(UndoError):
        site.undo_of_earlier(increase)
    assert "harness.orchard.Counter, which cannot be imported" in site.server.log()
    assert site.figures()[1] == 0


def test_a_class_that_never_answers_holds_up_no_client_and_costs_its_helper_only(site, monkeypatch):
    monkeypatch.setenv("ZODIUM_WORKERS", "1")
    site = site()
    site.put(orchard.Endless())
    refused = []

    def undo():
        with pytest.raises(UndoError):
            site.undo_of_earlier(increase)
        refused.append(True)

    undoing = threading.Thread(target=undo)
    undoing.start()
    while not children(site.server.process):
        time.sleep(0.01)
    for _ in range(20):
        site.other_storage.ping()
    assert undoing.is_alive(), "the worker waited as well"
    undoing.join()
    assert refused
    # On a busy machine the clock strikes first.
    log = site.server.log()
    assert "processor time was used up" in log or "took longer than 30s" in log
    assert_another_helper_resolves(site)


def test_a_class_that_crashes_costs_its_helper_only(site):
    site = site()
    site.put(orchard.Crashing())
    with pytest.raises(UndoError):
        site.undo_of_earlier(increase)
    assert "signal: 11" in site.server.log()
    assert_another_helper_resolves(site)


def assert_another_helper_resolves(site):
    assert children(site.server.process) == []
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 1


@pytest.mark.parametrize("kind, why", [(orchard.Wrong, "of the application"), (orchard.Greedy, "")])
def test_a_class_that_raises_keeps_its_helper(site, kind, why):
    site = site()
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    [helper] = children(site.server.process)
    site.put(kind())
    with pytest.raises(UndoError):
        site.undo_of_earlier(increase)
    until_logged(site.server, f"Error: {why}" if why else "MemoryError")
    assert children(site.server.process) == [helper]


def test_what_a_class_prints_is_no_answer(site):
    site = site()
    site.put(orchard.Printing())
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 1


def test_a_helper_that_was_killed_is_replaced(site):
    site = site()
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    [helper] = children(site.server.process)
    os.kill(helper, signal.SIGKILL)
    while helper in children(site.server.process):
        time.sleep(0.01)
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 2
    assert children(site.server.process) not in ([], [helper])
    until_logged(site.server, "it ended while it had nothing to do (signal: 9")


def test_a_helper_ends_with_its_server(site):
    site = site()
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    [helper] = children(site.server.process)
    site.server.kill()
    wait_for(lambda: not is_alive(helper), "the helper ends")


@pytest.mark.parametrize("python", ["/nonexistent/python3", "false", shutil.which("true")])
def test_a_python_that_does_not_work_is_logged_once_and_clients_resolve(site, python):
    site = site(f"--python-resolver={python}")
    site.put(orchard.Counter())
    for _ in range(3):
        site.conflict(increase)
    with pytest.raises(UndoError):
        site.undo_of_earlier(increase)
    assert site.state()["value"] == 8
    assert site.figures()[1] == 0
    assert site.server.log().count("the Python resolver failed") == 1
    assert ("there is no such program" in site.server.log()) == python.startswith("/nonexistent")


def offered_by_the_kernel():
    """The words for what a kernel with this version of Landlock can refuse."""
    create_ruleset, ask_version = 444, 1
    libc = ctypes.CDLL(None)
    version = libc.syscall(create_ruleset, None, ctypes.c_size_t(0), ask_version)
    words = {"files to write": 1, "TCP": 4, "signals": 6}
    return [word for word, since in words.items() if version >= since]


def test_hostile_code_reaches_no_file_no_peer_and_not_the_server(site, tmp_path):
    site = site()
    victim = tmp_path / "victim"
    victim.write_text("whole")
    curious = orchard.Curious()
    curious.folder, curious.file = str(tmp_path), str(victim)
    curious.address, curious.server = site.server.address, site.server.process.pid
    site.put(curious)
    site.undo_of_earlier(increase)
    state = site.state()
    assert state["value"] == 1
    # What the kernel refuses is logged; a file's content is refused by a limit in any case.
    [line] = [line for line in site.server.log().splitlines() if "the Python resolver runs" in line]
    assert [word for word in offered_by_the_kernel() if word not in line] == []
    refused = {name for name, result in state["tried"].items() if result.endswith("Error")}
    if "files to write" in line:
        assert refused >= {"write", "truncate", "remove", "run"}
        assert victim.read_text() == "whole"
        assert not (tmp_path / "written").exists() and not (tmp_path / "ran").exists()
    if "network" in line or "TCP" in line:
        assert "connect" in refused
    if "signals" in line:
        assert "signal" in refused
    known = {"LANG", "LC_CTYPE", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(state["environment"]) <= known | {"PATH", "PYTHONHOME", "PYTHONPATH"}
    assert state["folder_of_work"] == "/"
    assert [one.partition(":")[0] for one in state["open"]] == ["socket"]


def test_a_pickle_that_calls_is_called_by_the_helper_not_by_the_server(site):
    """Loading a record calls what it names, in a stock server too: here it ends the helper."""
    site = site()
    oid = site.storage.new_oid()
    # os._exit(7), where the class should be.
    for state in b"}.", b"N.", b").":
        store(site.storage, oid, b"cposix\n_exit\n(I7\ntR." + state)
    with pytest.raises(UndoError):
        undo(site.storage)
    until_logged(site.server, "exit status: 7")
    assert site.server.is_running()
    site.put(orchard.Counter())
    site.undo_of_earlier(increase)
    assert site.state()["value"] == 1


def store(storage, oid, data):
    try:
        serial = storage.load(oid)[1]
    except KeyError:
        serial = z64
    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    storage.store(oid, serial, data, "", txn)
    storage.tpc_vote(txn)
    storage.tpc_finish(txn)


def undo(storage):
    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    try:
        storage.undo(storage.undoLog(1, 2)[0]["id"], txn)
        storage.tpc_vote(txn)
        storage.tpc_finish(txn)
    except Exception:
        storage.tpc_abort(txn)
        raise


CLOSING = """
import os, sys
source = open(sys.argv[1]).read()
steps, close = [], os.closerange
os.closerange = lambda low, high: steps.append(high - low) or close(low, high)
exec(source[: source.rindex("main()")])
others = [os.open(os.devnull, os.O_RDONLY) for _ in range(9)]
os.close(others.pop(4))
channel = take_channel()
left = [one for one in others if os.path.exists(f"/proc/self/fd/{one}")]
channel.sendall(repr((left, max(steps))).encode())
"""


def test_a_helper_closes_what_is_open_without_counting_up_to_the_limit():
    """Without close_range(2) each number costs a call, and the limit may be 2**30."""
    source = TESTS.parent / "crates" / "resolver" / "src" / "helper.py"
    ours, its = socket.socketpair()
    with ours, its:
        subprocess.run([sys.executable, "-c", CLOSING, source], stdin=its, check=True)
        assert ours.recv(1000) == b"([], 1)"
