"""Blobs through real ZEO clients: what an application does with them, and what files that makes.

The judge of the files is the stock FileStorage with a blob directory: it must
find what clients committed, and be able to go on from there.
"""

import contextlib
import io
import os
import threading

import pytest
import transaction
import ZODB
import ZODB.blob
import ZODB.FileStorage
from harness import blobs
from harness.servers import STOCK_SERVER, spawn
from harness.wire import MAXTID, Z64
from ZODB.POSException import POSKeyError, Unsupported
from ZODB.utils import p64

LARGE = 3_000_001  # bytes: many chunks, and a rest


@pytest.fixture(params=["own", "shared"])
def cache(request, tmp_path, folder):
    """cache(name): how a client is told where its blobs are."""

    def options(name="client"):
        if request.param == "shared":
            return {"blob_dir": str(folder), "shared_blob_dir": True}
        return {"blob_dir": str(tmp_path / f"cache-{name}")}

    return options


@pytest.fixture(params=["bushy", "lawn"])
def layout(request, tmp_path, folder):
    """The layout of the directory; new ones are bushy, a lawn is of an older database."""
    if request.param == "lawn":
        ZODB.FileStorage.FileStorage(str(tmp_path / "Data.fs")).close()
        folder.mkdir()
        (folder / ".layout").write_text("lawn")
    return request.param


@pytest.fixture
def open_db(connect):
    """open_db(server, **options): a database through a client, closed with the test."""
    databases = []

    def open_database(server, **options):
        databases.append(ZODB.DB(connect(server, **options)))
        return databases[-1]

    yield open_database
    transaction.abort()
    for database in databases:
        database.close()


@pytest.fixture
def server(start_server, folder):
    return start_server(None, "--blob-dir", str(folder))


@contextlib.contextmanager
def connection(database):
    """A connection with a transaction of its own, aborted if it is left open."""
    manager = transaction.TransactionManager()
    opened = database.open(manager)
    try:
        yield opened
    finally:
        manager.abort()
        opened.close()


def set_blob(database, data, name="blob"):
    with connection(database) as opened:
        blob = opened.root().setdefault(name, ZODB.blob.Blob())
        with blob.open("w") as file:
            file.write(data)
        opened.transaction_manager.commit()
        return blob._p_oid


def read_blob(database, name="blob"):
    with connection(database) as opened:
        with opened.root()[name].open("r") as file:
            return file.read()


def undo_last(database):
    manager = transaction.TransactionManager()
    database.undo(database.undoLog(0, 1)[0]["id"], manager.get())
    manager.commit()


def test_a_blob_is_created_changed_undone_and_redone(
    tmp_path, start_server, folder, cache, layout, encoding, open_db
):
    server = start_server(None, "--blob-dir", str(folder), encoding=encoding)
    database, other = open_db(server, **cache("one")), open_db(server, **cache("two"))
    states = [b"first", os.urandom(LARGE), b""]
    for state in states:
        set_blob(database, state)
        other.storage.ping()
        assert read_blob(database) == read_blob(other) == state
    with connection(database) as opened:
        with opened.root()["blob"].open("w") as file:
            file.write(b"not committed")
    assert read_blob(database) == states[2]
    undo_last(database)
    assert read_blob(database) == states[1]
    undo_last(database)
    other.storage.ping()
    assert read_blob(database) == read_blob(other) == states[2]
    assert layout == (folder / ".layout").read_text().strip()
    blobs.assert_whole(tmp_path / "Data.fs", folder)


def test_a_pack_removes_what_it_removes_the_records_of(
    tmp_path, start_server, folder, cache, layout, open_db
):
    server = start_server(None, "--blob-dir", str(folder))
    database = open_db(server, **cache())
    for data in (b"first", b"second", b"third"):
        oid = set_blob(database, data)
        set_blob(database, data * 2, "other")
    undo_last(database)
    database.pack()
    blobs.assert_whole(tmp_path / "Data.fs", folder)
    kept, other = blobs.digest(b"third"), blobs.digest(b"second" * 2)
    assert sorted(blobs.digests(folder).values()) == sorted([kept, other])
    assert read_blob(open_db(server, **cache("two"))) == b"third"
    with connection(database) as opened:
        del opened.root()["blob"]
        opened.transaction_manager.commit()
    database.pack()
    assert list(blobs.digests(folder).values()) == [other]
    blobs.assert_whole(tmp_path / "Data.fs", folder)
    assert not blobs.path_of(folder, oid, Z64).parent.exists()


def test_stock_servers_before_and_after(tmp_path, start_server, folder, cache, layout, open_db):
    """The same files, served by runzeo, by this server, and by runzeo again."""
    path = tmp_path / "Data.fs"
    storage = ZODB.FileStorage.FileStorage(str(path), blob_dir=str(folder))
    database = ZODB.DB(storage)
    set_blob(database, b"by FileStorage", "one")
    database.close()

    expected = {"one": b"by FileStorage"}
    for name, command in (
        ("two", None),
        ("three", f"{STOCK_SERVER} -C {{config}}"),
        ("four", None),
    ):
        if command:
            server = spawn(command, path, ["--blob-dir", str(folder)])
            start_server.servers.append(server)
        else:
            server = start_server(path, "--blob-dir", str(folder))
        database = open_db(server, **cache(name))
        assert {found: read_blob(database, found) for found in expected} == expected
        expected[name] = name.encode() * 100_000
        set_blob(database, expected[name], name)
        set_blob(database, expected["one"], "one")
        database.close()
        server.stop()
    blobs.assert_whole(path, folder)
    storage = ZODB.FileStorage.FileStorage(str(path), blob_dir=str(folder))
    database = ZODB.DB(storage)
    assert {found: read_blob(database, found) for found in expected} == expected
    undo_last(database)
    assert read_blob(database, "four") == expected["four"]
    database.close()


def test_two_large_blobs_in_one_transaction(tmp_path, server, folder, cache, open_db):
    database = open_db(server, **cache())
    contents = {"one": os.urandom(LARGE), "two": os.urandom(5 * LARGE)}
    with connection(database) as opened:
        for name, data in contents.items():
            opened.root()[name] = ZODB.blob.Blob(data)
        opened.transaction_manager.commit()
    other = open_db(server, **cache("other"))
    assert {name: read_blob(other, name) for name in contents} == contents
    blobs.assert_whole(tmp_path / "Data.fs", folder)


def test_a_blob_from_a_file_and_one_that_grows(tmp_path, server, cache, open_db):
    database = open_db(server, **cache())
    consumed = tmp_path / "upload"
    consumed.write_bytes(b"x" * LARGE)
    with connection(database) as opened:
        blob = opened.root()["blob"] = ZODB.blob.Blob()
        blob.consumeFile(str(consumed))
        opened.transaction_manager.commit()
        for _ in range(3):
            with blob.open("a") as file:
                file.write(b"more")
            opened.transaction_manager.commit()
    assert not consumed.exists()
    assert read_blob(open_db(server, **cache("other"))) == b"x" * LARGE + b"more" * 3


def test_two_threads_open_uncached_blobs_over_one_connection(server, tmp_path, open_db):
    contents = {str(number): os.urandom(LARGE) for number in range(6)}
    database = open_db(server, blob_dir=str(tmp_path / "writer"))
    for name, data in contents.items():
        set_blob(database, data, name)
    reader = open_db(server, blob_dir=str(tmp_path / "reader"))
    found = {}

    def read(name):
        found[name] = read_blob(reader, name)

    threads = [threading.Thread(target=read, args=[name]) for name in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == contents


def test_a_blob_that_left_the_cache_is_fetched_again(server, tmp_path, open_db):
    database = open_db(server, blob_dir=str(tmp_path / "cache"))
    set_blob(database, b"x" * LARGE)
    (cached,) = (tmp_path / "cache").rglob("*.blob")
    for _ in range(2):
        ZODB.blob.remove_committed(str(cached))
        assert read_blob(database) == b"x" * LARGE


def test_old_revisions_are_read_from_their_own_files(server, folder, cache, open_db, connect):
    database = open_db(server, **cache())
    for number in range(4):
        oid = set_blob(database, b"%d" % number)
    client = connect(server, **cache("other"))
    tids = [entry["tid"] for entry in client.history(oid, 9)]
    assert [read_file(client, oid, tid) for tid in tids] == [b"3", b"2", b"1", b"0"]
    # Over the real wire, with messages around the chunks.
    with pytest.raises(POSKeyError):
        client.loadBlob(oid, MAXTID)
    with pytest.raises(POSKeyError):
        client.loadBlob(p64(77), tids[0])


def read_file(client, oid, tid):
    with client.openCommittedBlobFile(oid, tid) as file:
        return file.read()


def test_a_blob_whose_file_is_gone_is_a_key_error(server, folder, tmp_path, open_db, connect):
    database = open_db(server, blob_dir=str(tmp_path / "one"))
    oid = set_blob(database, b"data")
    tid = database.storage.getTid(oid)
    ZODB.blob.remove_committed(str(blobs.path_of(folder, oid, tid)))
    other = connect(server, blob_dir=str(tmp_path / "two"))
    with pytest.raises(POSKeyError):
        other.loadBlob(oid, tid)
    assert other.getTid(oid) == tid


def test_conflicting_blobs_fail_and_leave_nothing(server, folder, cache, open_db, tmp_path):
    database, other = open_db(server, **cache("one")), open_db(server, **cache("two"))
    set_blob(database, b"first")
    other.storage.ping()
    with connection(other) as opened:
        with opened.root()["blob"].open("w") as file:
            file.write(b"loses" * 100_000)
        set_blob(database, b"wins")
        with pytest.raises(ZODB.POSException.ConflictError):
            opened.transaction_manager.commit()
    other.storage.ping()
    assert read_blob(other) == b"wins"
    blobs.wait_for_leftovers(folder)
    blobs.assert_whole(tmp_path / "Data.fs", folder)


def test_an_aborted_vote_leaves_nothing(server, folder, cache, connect, tmp_path):
    client = connect(server, **cache())
    oid = client.new_oid()
    for _ in range(2):
        upload = tmp_path / "upload"
        upload.write_bytes(b"x" * LARGE)
        meta = ZODB.Connection.TransactionMetaData()
        client.tpc_begin(meta)
        client.storeBlob(oid, b"\0" * 8, blobs.RECORD, str(upload), "", meta)
        client.tpc_vote(meta)
        client.tpc_abort(meta)
        assert blobs.digests(folder) == {}
    blobs.wait_for_leftovers(folder)


def test_blobs_are_copied_out_with_their_transactions(server, folder, tmp_path, open_db, connect):
    database = open_db(server, blob_dir=str(tmp_path / "cache"))
    for data in (b"first", os.urandom(LARGE), b"last"):
        set_blob(database, data)
    undo_last(database)
    source = connect(server, blob_dir=str(tmp_path / "other"))
    copy = ZODB.FileStorage.FileStorage(str(tmp_path / "copy.fs"), blob_dir=str(tmp_path / "copy"))
    copy.copyTransactionsFrom(source)
    copy.close()
    assert blobs.digests(tmp_path / "copy") == blobs.digests(folder)
    blobs.assert_whole(tmp_path / "copy.fs", tmp_path / "copy")


def test_an_export_with_blobs_can_be_imported(server, cache, open_db):
    database = open_db(server, **cache())
    set_blob(database, b"x" * LARGE)
    with connection(database) as opened:
        exported = io.BytesIO()
        opened.exportFile(opened.root()["blob"]._p_oid, exported)
        exported.seek(0)
        opened.root()["imported"] = opened.importFile(exported)
        opened.transaction_manager.commit()
    assert read_blob(database, "imported") == b"x" * LARGE


def test_clients_are_told_of_blobs_only_where_there_are_some(
    start_server, server, connect, tmp_path
):
    assert ZODB.interfaces.IBlobStorage.providedBy(connect(server))
    plain = start_server(tmp_path / "plain.fs")
    client = connect(plain, blob_dir=str(tmp_path / "cache"))
    assert not ZODB.interfaces.IBlobStorage.providedBy(client)
    database = ZODB.DB(client)
    with pytest.raises(Unsupported):
        set_blob(database, b"data")
    database.close()
