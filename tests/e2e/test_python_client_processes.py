"""zodium.ClientStorage with servers that only read, processes that fork, and turns to commit."""

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback

import pytest
import ZODB
from harness import package
from harness.blobs import RECORD
from harness.process import HOST, ServerProcess, free_port
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ReadOnlyError
from ZODB.utils import z64

package.use()

from zodium.exceptions import ClientDisconnected  # noqa: E402

PATIENCE = 30


def test_a_server_that_only_reads_is_left_for_one_that_writes(tmp_path, start_server, open_native):
    path = tmp_path / "Data.fs"
    first = start_server(path)
    with ZODB.DB(open_native(first.address)).transaction() as connection:
        connection.root()["one"] = 1
    first.stop()
    reading = start_server(path, "--read-only")
    writing = HOST, free_port()
    storage = open_native([writing, reading.address], read_only_fallback=True)
    database = ZODB.DB(storage)
    assert storage.is_read_only()
    with database.transaction() as connection:
        assert connection.root()["one"] == 1
    with pytest.raises(ReadOnlyError), database.transaction() as connection:
        connection.root()["one"] = 2
    with pytest.raises(ReadOnlyError):
        storage.new_oid()
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "Data.fs"
    copy.write_bytes(path.read_bytes())
    words = [word.replace(str(path), str(copy)) for word in first.words]
    words = [word.replace(f":{first.port}", f":{writing[1]}") for word in words]
    start_server.servers.append(ServerProcess(words, writing[1], tmp_path / "other"))
    wait_for(lambda: not storage.is_read_only(), "the server that writes", PATIENCE)
    with database.transaction() as connection:
        assert connection.root()["one"] == 1
        connection.root()["one"] = 2
    with database.transaction() as connection:
        assert connection.root()["one"] == 2


def test_without_fallback_a_server_that_only_reads_will_not_do(tmp_path, start_server, open_native):
    start_server(tmp_path / "Data.fs").stop()
    reading = start_server(tmp_path / "Data.fs", "--read-only")
    with pytest.raises(ZODB.POSException.StorageError, match="within 1 seconds"):
        open_native(reading.address, wait_timeout=1)
    assert open_native(reading.address, read_only=True).is_read_only()


def count_up(database, name, rounds):
    for _ in range(rounds):
        with database.transaction() as connection:
            counts = connection.root()["counts"][name]
            counts["count"] = counts.get("count", 0) + 1
    database.storage.ping()
    with database.transaction() as connection:
        assert connection.root()["counts"][name]["count"] == rounds


# As C code does that tells Python nothing, such as uWSGI.
fork_without_hooks = ctypes.PyDLL(None).fork


@pytest.mark.parametrize("forks", ["os.fork", "multiprocessing", "C"])
def test_parent_and_children_read_and_commit(either_server, open_native, forks):
    rounds, names = 10, ("parent", "first", "second")
    database = ZODB.DB(open_native(either_server.address))
    with database.transaction() as connection:
        connection.root()["counts"] = {name: PersistentMapping() for name in names}
        connection.root()["counts"].update()
    database.storage.load(z64)
    # Somebody is at the socket at the moment of the fork.
    is_over = threading.Event()

    def ask():
        while not is_over.is_set():
            database.storage.ping()

    # Without Python's hooks a child knows the parent's threads, and may wait for them.
    askers = [threading.Thread(target=ask)] if forks != "C" else []
    for asker in askers:
        asker.start()
    children = []
    for name in names[1:]:
        if forks != "multiprocessing":
            child = fork_without_hooks() if forks == "C" else os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(PATIENCE)
                    count_up(database, name, rounds)
                    code = 0
                finally:
                    os._exit(code)
            children.append(lambda child=child: os.waitpid(child, 0)[1])
        else:
            context = multiprocessing.get_context("fork")
            process = context.Process(target=count_up, args=(database, name, rounds))
            process.start()
            children.append(lambda process=process: process.join(PATIENCE) or process.exitcode)
    count_up(database, "parent", rounds)
    codes = [child() for child in children]
    is_over.set()
    for asker in askers:
        asker.join(PATIENCE)
    assert codes == [0, 0]
    database.storage.ping()
    with database.transaction() as connection:
        found = {name: one["count"] for name, one in connection.root()["counts"].items()}
    assert found == dict.fromkeys(names, rounds)


def test_a_child_that_c_code_forks_may_drop_the_storage(either_server, open_native):
    storage = open_native(either_server.address)
    losses = []
    storage.notify_disconnected = lambda: losses.append("lost")
    oid, txn = storage.new_oid(), TransactionMetaData()
    storage.tpc_begin(txn)
    storage.store(oid, z64, b"cpersistent.mapping\nPersistentMapping\n.}.", "", txn)
    storage.tpc_vote(txn)
    child = fork_without_hooks()
    if child == 0:
        signal.alarm(PATIENCE)
        # All references to the native client.
        del storage._client, storage.loadBefore
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    tid = storage.tpc_finish(txn)
    assert (storage.load(oid)[1], losses) == (tid, [])


def test_a_storage_is_closed_by_an_interpreter_that_ends_after_its_thread(tmp_path, start_server):
    server = start_server(tmp_path / "Data.fs")
    # As uWSGI does.
    program = """
        import ctypes, sys, zodium
        zodium.ClientStorage(("127.0.0.1", int(sys.argv[1]))).ping()
        storage = zodium.ClientStorage(("127.0.0.1", int(sys.argv[1])))
        libc = ctypes.PyDLL(None)
        libc.on_exit(ctypes.pythonapi.Py_FinalizeEx, None)
        libc.exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(server.port)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def in_child(work):
    """Calls a function in a forked child, which must not fail."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def begin_another(storage, txn):
    own = TransactionMetaData()
    storage.tpc_begin(own)
    storage.tpc_abort(own)


def refused(end):
    def work(storage, txn):
        with pytest.raises(ClientDisconnected, match="parent process"):
            getattr(storage, end)(txn)

    return work


@pytest.mark.parametrize(
    "work",
    [
        begin_another,
        refused("tpc_vote"),
        refused("tpc_finish"),
        refused("tpc_abort"),
        lambda storage, txn: txn.set_data(storage, None),
    ],
    ids=["begins", "votes", "finishes", "aborts", "drops"],
)
def test_a_transaction_that_was_open_stays_the_parents(either_server, open_native, work):
    storage = open_native(either_server.address)
    oid, txn = storage.new_oid(), TransactionMetaData()
    storage.tpc_begin(txn)
    storage.store(oid, z64, b"cpersistent.mapping\nPersistentMapping\n.}.", "", txn)
    storage.tpc_vote(txn)
    in_child(lambda: work(storage, txn))
    tid = storage.tpc_finish(txn)
    assert storage.load(oid)[1] == tid


def test_the_blobs_of_a_transaction_that_was_open_stay_the_parents(
    tmp_path, start_server, open_native
):
    server = start_server(tmp_path / "Data.fs", "--blob-dir", str(tmp_path / "blobs"))
    storage = open_native(server.address, blob_dir=str(tmp_path / "cache"))
    oid, txn, content = storage.new_oid(), TransactionMetaData(), tmp_path / "content"
    content.write_bytes(b"content")
    storage.tpc_begin(txn)
    storage.storeBlob(oid, z64, RECORD, str(content), "", txn)
    storage.tpc_vote(txn)
    in_child(lambda: refused("tpc_abort")(storage, txn))
    tid = storage.tpc_finish(txn)
    in_cache = storage.fshelper.getBlobFilename(oid, tid)
    assert open(in_cache, "rb").read() == b"content"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python makes the lock anew")
def test_no_native_thread_is_at_a_lock_of_the_interpreter_when_python_forks(
    either_server, open_native
):
    storage, told = open_native(either_server.address), []
    # Either may come first.
    storage.invalidateTransaction = lambda tid, oids: told.append(tid)
    storage.info = told.append
    # Behind what the client logs of its connection.
    commit_one(open_native(either_server.address))
    wait_for(lambda: told, "the news of a commit", PATIENCE)
    holding_the_gil = ctypes.PyDLL(None)
    interval = sys.getswitchinterval()
    writer = os.fork()
    if writer == 0:
        signal.alarm(PATIENCE)
        commit_one(storage)
        os._exit(0)
    try:
        # No other thread gets the GIL: the native one that hears of the commit waits for it.
        sys.setswitchinterval(1000)
        count = len(told)
        holding_the_gil.waitpid(writer, None, 0)
        holding_the_gil.usleep(1_000_000)
        in_child(lambda: told[count])
    finally:
        sys.setswitchinterval(interval)


def test_the_first_transaction_of_a_child_waits_for_its_connection(either_server, open_native):
    database = ZODB.DB(open_native(either_server.address))
    with database.transaction() as connection:
        connection.root()["one"] = 1
    last = database.storage.lastTransaction()

    def read():
        assert database.storage.lastTransaction() == last
        with database.transaction() as connection:
            connection.cacheMinimize()
            assert connection.root()["one"] == 1

    for _ in range(5):
        in_child(read)


def test_a_storage_that_was_not_connected_yet_begins_with_the_servers_last_transaction(
    either_server, open_native
):
    last = commit_one(open_native(either_server.address))
    for _ in range(5):
        storage = open_native(either_server.address, wait=False)
        assert storage.lastTransaction() == last
    nowhere = open_native((HOST, free_port()), wait=False, wait_timeout=0.2)
    with pytest.raises(ClientDisconnected):
        nowhere.lastTransaction()


def commit_one(storage):
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["one"] = 1
    return storage.lastTransaction()


@pytest.mark.parametrize("ours", [False, True])
def test_a_second_transaction_waits_for_the_first_ones_end(
    either_server, open_native, connect, ours
):
    """As with ZEO's client."""
    storage = open_native(either_server.address) if ours else connect(either_server)
    for end in (storage.tpc_abort, storage.tpc_finish):
        first, second = TransactionMetaData(), TransactionMetaData()
        storage.tpc_begin(first)
        order = []

        def begin(second=second, order=order):
            storage.tpc_begin(second)
            order.append("second")

        waiting = threading.Thread(target=begin)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        storage.tpc_vote(first)
        order.append("first")
        end(first)
        waiting.join(PATIENCE)
        assert order == ["first", "second"]
        storage.tpc_abort(second)


# A close waits less for the thread that tells the storage.
ENDS_WHILE_TOLD = """
    import json, sys, threading, time
    from ZODB.Connection import TransactionMetaData
    from ZODB.utils import z64
    import zodium

    is_told = threading.Event()

    class Told:
        def invalidate(self, *change):
            print("told", flush=True)
            is_told.set()
            end = time.monotonic() + 7
            while time.monotonic() < end:
                time.sleep(0.01)

        def invalidateCache(self):
            pass

        def transform_record_data(self, data):
            return data

        untransform_record_data, references = transform_record_data, None

    address = tuple(json.loads(sys.argv[1]))
    storage, other = zodium.ClientStorage(address), zodium.ClientStorage(address)
    storage.registerDB(Told())
    change = TransactionMetaData()
    other.tpc_begin(change)
    other.store(other.new_oid(), z64, b"data", "", change)
    other.tpc_vote(change)
    other.tpc_finish(change)
    is_told.wait(60)
"""


def test_a_program_ends_soundly_while_a_storage_is_told_of_a_commit(either_server):
    words = [
        sys.executable,
        "-c",
        textwrap.dedent(ENDS_WHILE_TOLD),
        json.dumps(either_server.address),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "told\n"), ended.stderr
