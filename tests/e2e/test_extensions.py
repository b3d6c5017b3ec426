"""Extensions of transactions that ZODB does not write today: what clients are told of them."""

import contextlib
import datetime
import pickle

import pytest
import transaction
import ZODB
from harness.wire import Z64
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import load_current

RUN_SECONDS = 60
PYTHON_2 = b"\x80\x02}(U\x08usernameU\x03joeU\x05tokenU\x02\x00\xffU\x01nK\x01u."
OLD_PROTOCOL = pickle.dumps({"username": "joe", "token": b"\x00\xff", "none": b""}, 2)


def write_extensions(path, *extensions):
    ZODB.DB(str(path)).close()
    with contextlib.closing(FileStorage(str(path))) as storage:
        data, serial = load_current(storage, Z64)
        for extension in extensions:
            txn = TransactionMetaData(b"user", b"description", extension)
            storage.tpc_begin(txn)
            storage.store(Z64, serial, data, "", txn)
            storage.tpc_vote(txn)
            serial = storage.tpc_finish(txn)


def told(storage):
    log, history = storage.undoLog(0, 9), storage.history(Z64, 9)
    found = [
        [{key: entry[key] for key in entry if key not in ("size", "time")} for entry in entries]
        for entries in (log, history)
    ]
    found.append(len(storage.undoInfo(0, -9, {"username": "joe"})))
    return [*found, [one.extension for one in storage.iterator()]]


@pytest.mark.parametrize("native", [False, True])
def test_extensions_of_older_pythons_are_told_as_filestorage_tells_them(
    tmp_path, start_server, encoding, connect, open_storage, native
):
    path = tmp_path / "Data.fs"
    write_extensions(path, PYTHON_2, OLD_PROTOCOL)
    with contextlib.closing(FileStorage(str(path), read_only=True)) as storage:
        expected = told(storage)
    assert expected[2] == 2 and {"username": "joe", "token": b"\x00\xff", "n": 1} in expected[3]
    server = start_server(path, encoding=encoding)
    client = open_storage(server) if native else connect(server)
    assert told(client) == expected


def test_a_copy_to_a_server_has_the_values_of_an_extension_of_python_2(tmp_path, run, start_server):
    path, copied = tmp_path / "Data.fs", tmp_path / "copied.fs"
    write_extensions(path, PYTHON_2, OLD_PROTOCOL)
    server = start_server(copied)
    assert run("copy", path, server.url)[0] == 0
    assert server.stop() == 0
    found = [
        [one.extension for one in FileStorage(str(one), read_only=True).iterator()]
        for one in (path, copied)
    ]
    assert found[0] == found[1]


def commit_extension(client, value):
    """Try a commit with this value in its extension, as an application does; give the tries."""
    tries = []
    with contextlib.closing(ZODB.DB(client)) as database:

        def attempt():
            tries.append(1)
            transaction.get().setExtendedInfo("value", value)
            database.open().root()["value"] = repr(value)

        try:
            transaction.manager.run(attempt, 3)
        except Exception as error:
            transaction.abort()
            return len(tries), repr(error)
    return len(tries), None


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("value", [{1}, frozenset("a"), bytearray(b"a"), 1j, [{b"a", 2**70}]])
def test_sets_and_their_like_are_taken(
    tmp_path, start_server, connect, open_storage, value, native
):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    client = open_storage(server) if native else connect(server)
    assert commit_extension(client, value) == (1, None)
    assert server.stop() == 0
    with contextlib.closing(FileStorage(str(path), read_only=True)) as storage:
        assert list(storage.iterator())[-1].extension == {"value": value}


@pytest.mark.parametrize("value", [datetime.datetime(2020, 1, 1), "\ud800"])
def test_a_commit_with_another_instance_fails_once(start_server, connect, value):
    tries, error = commit_extension(connect(start_server()), value)
    assert tries == 1 and "the metadata of the transaction cannot be stored" in error


def test_an_iterator_does_not_wait_for_ever_for_an_instance(tmp_path, start_server, connect):
    path = tmp_path / "Data.fs"
    write_extensions(path, pickle.dumps({"value": {1}}, 3))
    client = connect(start_server(path))
    with pytest.raises(Exception, match="it holds an instance"):
        list(client.iterator())


def test_a_database_that_takes_no_commits_lists_its_undo_log(tmp_path, start_server, connect):
    path = tmp_path / "Data.fs"
    write_extensions(path, b"", b"")
    client = connect(start_server(path, "--read-only"), read_only=True)
    with contextlib.closing(ZODB.DB(client)) as database:
        assert len(database.undoLog(0, 9)) == len(database.undoInfo(0, -9)) == 3
