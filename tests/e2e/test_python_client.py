"""zodium.ClientStorage: takes the place of ZEO's, against Zodium and the stock server.

What ZODB's own suites ask of a storage is asked in tests/conformance
(`run.py --client zodium`); here is what an application sees.
"""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest
import transaction
import ZODB
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from harness import package
from harness.process import HOST, ServerProcess, free_port
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError, ReadOnlyError, UndoError
from ZODB.utils import maxtid, p64, u64, z64

package.use()

import zodium  # noqa: E402
from zodium import _blob_cache_size  # noqa: E402
from zodium.exceptions import ClientDisconnected  # noqa: E402


@pytest.fixture
def server(either_server):
    return either_server


def test_an_application_is_switched_by_one_line_and_back(server, open_storage, connect):
    for number, client in enumerate([connect, open_storage, connect, open_storage]):
        database = ZODB.DB(client(server))
        with database.transaction() as connection:
            root = connection.root()
            app = root.setdefault("app", OOBTree()) if number == 0 else root["app"]
            assert list(app) == list(range(number))
            app[number] = PersistentMapping(text="x" * number)
        with database.transaction() as connection:
            assert [value["text"] for value in connection.root()["app"].values()] == [
                "x" * length for length in range(number + 1)
            ]
        database.close()


def test_what_one_connection_commits_another_one_sees(server, open_storage):
    ours = ZODB.DB(open_storage(server))
    others = ZODB.DB(open_storage(server, server_sync=True))
    for number in range(20):
        with ours.transaction() as connection:
            connection.root()["number"] = number
        with ours.transaction() as connection:
            assert connection.root()["number"] == number
        with others.transaction() as connection:
            assert connection.root()["number"] == number


def test_conflicts_are_resolved_with_the_classes_of_the_application(server, open_storage):
    database = ZODB.DB(open_storage(server))
    with database.transaction() as connection:
        connection.root()["count"] = Length()
    managers = [transaction.TransactionManager() for _ in range(3)]
    for manager in managers:
        database.open(manager).root()["count"].change(1)
    for manager in managers:
        manager.commit()
    with database.transaction() as connection:
        assert connection.root()["count"]() == len(managers)


def test_a_conflict_that_cannot_be_resolved_is_raised_and_the_next_attempt_goes_through(
    server, open_storage
):
    database = ZODB.DB(open_storage(server))
    first, second = transaction.TransactionManager(), transaction.TransactionManager()
    database.open(first).root()["who"] = "first"
    database.open(second).root()["who"] = "second"
    first.commit()
    with pytest.raises(ZODB.POSException.ConflictError) as raised:
        second.commit()
    assert raised.value.oid == z64
    second.abort()
    with database.transaction() as connection:
        assert connection.root()["who"] == "first"
        connection.root()["who"] = "second"


@pytest.mark.parametrize("shared", [False, True])
def test_blobs_come_back_from_a_cache_and_from_a_shared_directory(
    tmp_path, start_server, open_storage, encoding, shared
):
    directory = tmp_path / "blobs"
    server = start_server(tmp_path / "Data.fs", "--blob-dir", str(directory), encoding=encoding)
    content = os.urandom(200_000)

    def database(name):
        blob_dir = directory if shared else tmp_path / name
        return ZODB.DB(open_storage(server, blob_dir=str(blob_dir), shared_blob_dir=shared))

    with database("writer").transaction() as connection:
        connection.root()["blob"] = Blob(content)
    with database("reader").transaction() as connection:
        with connection.root()["blob"].open() as file:
            assert file.read() == content
        assert open(connection.root()["blob"].committed(), "rb").read() == content


def test_threads_share_one_connection(server, open_storage):
    database = ZODB.DB(open_storage(server))
    threads_count, rounds = 8, 25
    with database.transaction() as connection:
        connection.root()["counts"] = [Length() for _ in range(threads_count)]
    failures = []

    def work(number):
        manager = transaction.TransactionManager()
        try:
            for _ in range(rounds):
                with manager:
                    connection = database.open(manager)
                    connection.root()["counts"][number].change(1)
                connection.close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    with database.transaction() as connection:
        assert [count() for count in connection.root()["counts"]] == [rounds] * threads_count


def test_waiting_for_the_server_lets_other_threads_run(server, open_storage):
    storage = open_storage(server)
    with server.frozen():
        caller = threading.Thread(target=storage.ping)
        caller.start()
        # With the interpreter's lock held by the caller we would not come back from this.
        time.sleep(0.2)
        assert caller.is_alive()
    caller.join(20)
    assert not caller.is_alive()


def test_a_server_that_was_restarted_is_found_again(tmp_path, start_server, open_storage):
    server = start_server(tmp_path / "Data.fs")
    storage = open_storage(server)
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["value"] = "kept"
    server.stop()
    wait_for(lambda: not storage.is_connected(), "disconnected", 20)
    assert storage.getName().endswith("(disconnected)")
    start_server.servers.append(ServerProcess(server.words, server.port, tmp_path))
    with database.transaction() as connection:
        assert connection.root()["value"] == "kept"
        connection.root()["value"] = "new"


def test_connections_that_are_open_go_on_after_a_new_address(server, open_storage):
    storage = open_storage(server)
    database = ZODB.DB(storage)
    connection = database.open()
    connection.root()["before"] = PersistentMapping()
    transaction.commit()
    storage.new_addr(server.address)
    connection.root()["after"] = PersistentMapping()
    transaction.commit()
    assert sorted(connection.root()) == ["after", "before"]
    assert connection._storage.lastTransaction() == connection.root()._p_serial
    database.close()


def test_a_forked_child_has_a_connection_of_its_own(server, open_storage):
    database = ZODB.DB(open_storage(server))
    with database.transaction() as connection:
        connection.root()["value"] = 1
    child = os.fork()
    if child == 0:
        try:
            with database.transaction() as connection:
                assert connection.root()["value"] == 1
                connection.root()["value"] = 2
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

    def value():
        with database.transaction() as connection:
            return connection.root()["value"]

    wait_for(lambda: value() == 2, "the commit of the child", 20)


def test_a_closed_storage_stays_closed_in_a_forked_child(server, open_storage):
    storage = open_storage(server)
    storage.close()
    child = os.fork()
    if child == 0:
        try:
            time.sleep(0.5)
            assert not storage.is_connected()
            with pytest.raises(ClientDisconnected):
                storage.load(p64(0))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_interpreter_ends_with_storages_open(server):
    program = """
        import contextlib, sys, threading, zodium
        host, port = sys.argv[1:]
        databases = [zodium.DB((host, int(port))) for _ in range(3)]
        def wait():
            with contextlib.suppress(zodium.exceptions.ClientDisconnected):
                while True:
                    databases[0].storage.ping()
        threading.Thread(target=wait, daemon=True).start()
        print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, server.address)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_a_storage_that_nobody_holds_is_gone(server):
    reference = weakref.ref(zodium.ClientStorage(server.address))
    gc.collect()
    # The native thread that tells it of its connection has it meanwhile.
    wait_for(lambda: reference() is None, "it is gone", 20)


def test_errors_are_those_that_zodb_knows(server, open_storage):
    storage = open_storage(server, read_only=True)
    with pytest.raises(POSKeyError):
        storage.load(p64(12345))
    with pytest.raises(POSKeyError):
        storage.loadBefore(p64(12345), maxtid)
    with pytest.raises(ReadOnlyError):
        storage.tpc_begin(transaction.get())
    with pytest.raises(TypeError, match="8 bytes"):
        storage.loadBefore(b"short", maxtid)
    with pytest.raises(TypeError, match="cannot send"):
        storage._call("history", object())
    storage.close()
    with pytest.raises(ClientDisconnected):
        storage.ping()


def test_a_closed_storage_says_so_when_it_is_asked_for_its_order(server, open_storage):
    storage = open_storage(server)
    storage.close()
    with pytest.raises(ClientDisconnected, match="the client was closed"):
        storage.sortKey()


def test_a_closed_storage_answers_no_load_from_its_cache(server, open_storage):
    storage = open_storage(server)
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["value"] = "old"
    before = p64(u64(storage.lastTransaction()) + 1)
    assert storage.loadBefore(z64, before) is not None
    storage.close()
    loads = [
        lambda: storage.load(z64),
        lambda: storage.loadBefore(z64, before),
        lambda: storage.load_many([z64], before),
    ]
    for load in loads:
        with pytest.raises(ClientDisconnected, match="the client was closed"):
            load()


def test_no_time_to_wait_is_the_usual_one_as_with_zeo(server, open_storage):
    storage = open_storage(server, wait_timeout=0)
    assert storage.is_connected()


def test_nobody_there_is_said_with_the_address(free_address):
    with pytest.raises(ClientDisconnected, match=str(free_address[1])):
        zodium.ClientStorage(free_address, wait_timeout=1)
    storage = zodium.ClientStorage(free_address, wait=False)
    assert not storage.is_connected()
    storage.close()


@pytest.fixture
def free_address():
    return HOST, free_port()


def test_transactions_are_iterated_and_copied(tmp_path, start_server, server, open_storage):
    source = open_storage(server)
    database = ZODB.DB(source)
    for number in range(5):
        with database.transaction() as connection:
            connection.root()[number] = PersistentMapping()
    (tmp_path / "copy").mkdir()
    target = open_storage(start_server(tmp_path / "copy" / "Data.fs"))
    target.copyTransactionsFrom(source)

    def content(storage):
        return [
            (one.tid, one.description, [(record.oid, record.data) for record in one])
            for one in storage.iterator()
        ]

    assert len(content(source)) == 6
    assert content(source) == content(target)


def test_a_copy_into_a_server_says_that_it_lacks_the_files_of_blobs(
    tmp_path, server, open_storage, warnings
):
    source = FileStorage(str(tmp_path / "source.fs"), blob_dir=str(tmp_path / "source"))
    database = ZODB.DB(source)
    for number in range(3):
        with database.transaction() as connection:
            connection.root()[number] = Blob(b"data") if number else PersistentMapping()
    target = open_storage(server)
    target.copyTransactionsFrom(source)
    database.close()
    assert len(list(target.iterator())) == 4
    (warning,) = warnings
    assert "2 records of blobs were copied without their files" in warning


def test_a_transaction_is_undone(server, open_storage):
    database = ZODB.DB(open_storage(server))
    for value in "old", "new":
        with database.transaction() as connection:
            connection.root()["value"] = value
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    with database.transaction() as connection:
        assert connection.root()["value"] == "old"


def test_a_transaction_that_cannot_be_undone_says_why(server, open_storage):
    database = ZODB.DB(open_storage(server))
    with database.transaction() as connection:
        connection.root()["child"] = PersistentMapping()
    for value in "old", "new":
        with database.transaction() as connection:
            connection.root()["child"]["value"] = value
    database.undo(database.undoLog(1, 2)[0]["id"])
    with pytest.raises(UndoError) as refused:
        transaction.commit()
    transaction.abort()
    assert "0x01" in str(refused.value)


def test_an_extension_does_not_replace_what_a_history_says_itself(server, open_storage):
    database = ZODB.DB(open_storage(server))
    with database.transaction() as connection:
        connection.root()["value"] = 1
        entered = {"user_name": "other", "time": 5, "size": 3, "tid": "x", "more": 1}
        for name, value in entered.items():
            connection.transaction_manager.get().setExtendedInfo(name, value)
    (entry,) = database.history(p64(0))
    assert (entry["more"], entry["tid"]) == (1, database.lastTransaction())
    assert entry["size"] > 3 and entry["time"] > 5 and "other" not in entry["user_name"]


def test_temporary_files_of_killed_processes_leave_the_blob_cache(tmp_path, monkeypatch):
    folder = tmp_path / "7"
    folder.mkdir()
    names = {"1.0123.blob", "1.0123.blob.dl", "0x01ab.tmp", "0x01ab.tmp-", ".lock"}
    for name in names:
        folder.joinpath(name).write_bytes(b"some")

    def left():
        _blob_cache_size.shrink(tmp_path, 100)
        return {path.name for path in folder.iterdir()}

    assert left() == names
    later = time.time() + 25 * 60 * 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert left() == {"1.0123.blob", ".lock"}


def test_gevent_is_refused_with_the_reason():
    program = """
        import sys, types
        monkey = types.ModuleType("gevent.monkey")
        monkey.is_module_patched = lambda name: True
        sys.modules["gevent.monkey"] = monkey
        import zodium
        try:
            zodium.ClientStorage(1)
        except RuntimeError as error:
            print("gevent" in str(error))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "True\n", ended.stderr


def test_the_package_holds_the_program(tmp_path, start_server):
    server = start_server(tmp_path / "Data.fs")
    zodium.DB(server.address).close()
    server.stop()
    command = [sys.executable, "-m", "zodium"]
    checked = subprocess.run([*command, "check", str(tmp_path / "Data.fs")], timeout=60)
    assert checked.returncode == 0
    wrong = subprocess.run([*command, "served"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2
    assert "serve" in wrong.stderr


def test_a_program_without_standard_streams_writes_into_no_data_file(tmp_path):
    path = tmp_path / "Data.fs"
    database = ZODB.DB(str(path))
    with database.transaction() as connection:
        connection.root()["key"] = target = PersistentMapping()
    oid = target._p_oid
    # A pack warns of a reference that leads nowhere.
    storage, change = database.storage, TransactionMetaData()
    data, serial = storage.load(z64)
    storage.tpc_begin(change)
    storage.store(z64, serial, data.replace(oid, p64(0xABCDEF)), "", change)
    storage.tpc_vote(change)
    storage.tpc_finish(change)
    database.close()
    for closed in ("<&- 2>&-", "2>&-", "<&- >&- 2>&-"):
        # With a stream closed, a file that is opened gets its number.
        words = f"{sys.executable} -m zodium pack {path} {closed}"
        assert subprocess.run(["sh", "-c", words], timeout=60).returncode == 0
        assert path.read_bytes().startswith(b"FS30")
        assert b"WARN" not in (tmp_path / "Data.fs.lock").read_bytes()
