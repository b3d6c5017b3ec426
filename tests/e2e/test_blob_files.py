"""Blob directories are the stock FileStorage's: what it wrote is served, packed and undone, and
what the server left it opens; after packs both have kept the same blobs.
"""

import shutil
import stat
import time

import pytest
import transaction
import ZODB
import ZODB.FileStorage
from BTrees.OOBTree import OOBTree
from harness import files
from harness.process import ServerFailed
from persistent.TimeStamp import TimeStamp
from ZODB.blob import Blob, FilesystemHelper, is_blob_record
from ZODB.POSException import POSKeyError, UndoError
from ZODB.serialize import referencesf

pytestmark = pytest.mark.zodium


def stock(path, **options):
    blob_dir = str(path.with_name("blobs-" + path.stem))
    return ZODB.FileStorage.FileStorage(str(path), blob_dir=blob_dir, **options)


def blobs_of(path):
    """The blobs beside a data file, by their names below the directory."""
    folder = path.with_name("blobs-" + path.stem)
    return found_in(folder), found_in(folder.with_name(folder.name + ".old"))


def found_in(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.blob")}


def serve(start_server, path, *options):
    return start_server(path, "--blob-dir", str(path.with_name("blobs-" + path.stem)), *options)


def write_history(path, random, count=60, undo=True):
    """Blobs that come, change and go, with undos, as the stock storage writes them."""
    database = ZODB.DB(stock(path))
    manager = transaction.TransactionManager()
    connection = database.open(manager)
    things = connection.root()["things"] = OOBTree()
    manager.commit()
    for number in range(count):
        key = random.randrange(8)
        kind = random.random()
        if undo and kind < 0.2 and number > 3:
            try:
                database.undo(database.undoLog(0, 1)[0]["id"], manager.get())
                manager.commit()
            except (UndoError, POSKeyError):
                manager.abort()
        elif kind < 0.35 and key in things:
            del things[key]
        elif key in things:
            with things[key].open("w") as file:
                file.write(random.randbytes(random.randrange(100)))
        else:
            things[key] = Blob(random.randbytes(random.randrange(100)))
        manager.commit()
    connection.close()
    database.close()


def copy_of(path, name):
    """A copy of a data file with its blobs, under another name."""
    other = path.with_name(name + ".fs")
    shutil.copy(path, other)
    shutil.copytree(path.with_name("blobs-" + path.stem), path.with_name("blobs-" + name))
    return other


def assert_complete(path):
    """Every record of a blob has its file, and nothing else has one."""
    storage = stock(path, read_only=True)
    expected = set()
    for txn in storage.iterator():
        for record in txn:
            if is_blob_record(record.data):
                storage.openCommittedBlobFile(record.oid, record.tid).close()
                expected.add((record.oid, record.tid))
    helper = storage.fshelper
    found = {
        helper.splitBlobFilename(str(file))
        for _, folder in helper.listOIDs()
        for file in path.parent.joinpath(folder).glob("*.blob")
    }
    storage.close()
    assert found == expected


@pytest.mark.parametrize("keep_old", [True, False], ids=["old", "no-old"])
@pytest.mark.parametrize("gc", [True, False], ids=["gc", "no-gc"])
def test_packs_keep_the_blobs_that_stock_packs_keep(
    tmp_path, start_server, connect, seeded, gc, keep_old
):
    path = tmp_path / "Data.fs"
    # Without gc the stock one trips over back pointers to what it has dropped.
    write_history(path, seeded, undo=gc)
    tids = [txn.tid for txn in files.read(path)]
    place = seeded.randrange(2, len(tids))
    middle = sum(TimeStamp(tid).timeTime() for tid in tids[place - 1 : place + 1]) / 2
    peer = copy_of(path, "peer")
    options = [*([] if gc else ["--no-pack-gc"]), *([] if keep_old else ["--no-pack-keep-old"])]
    for pack_time in (middle, time.time()):
        storage = stock(peer, pack_gc=gc, pack_keep_old=keep_old)
        storage.pack(pack_time, referencesf)
        storage.close()
        server = serve(start_server, path, *options)
        client = connect(server)
        client.pack(pack_time)
        client.close()
        assert server.stop() == 0
        assert blobs_of(path) == blobs_of(peer)
        assert_complete(path)


def test_folders_of_packed_blobs_are_as_private_as_those_of_others(
    tmp_path, start_server, connect, seeded
):
    path, old = tmp_path / "Data.fs", tmp_path / "blobs-Data.old"
    write_history(path, seeded, undo=False)
    modes = {".": 0o700, "0x00": 0o2750}
    for name, mode in modes.items():
        (tmp_path / "blobs-Data" / name).chmod(mode)
    server = serve(start_server, path)
    connect(server).pack(time.time())
    assert server.stop() == 0
    assert found_in(old)
    assert {name: stat.S_IMODE((old / name).stat().st_mode) for name in modes} == modes


def test_undo_copies_blobs_that_stock_reads(tmp_path, start_server, connect, seeded):
    path = tmp_path / "Data.fs"
    database = ZODB.DB(stock(path))
    connection = database.open()
    blob = connection.root()["blob"] = Blob(b"first")
    transaction.commit()
    oid = blob._p_oid
    with blob.open("w") as file:
        file.write(b"second")
    transaction.commit()
    database.close()
    server = serve(start_server, path)
    served = ZODB.DB(connect(server))
    for _ in range(3):
        served.undo(served.undoLog(0, 1)[0]["id"])
        transaction.commit()
    served.close()
    assert server.stop() == 0
    assert_complete(path)
    storage = stock(path)
    found = []
    for txn in storage.iterator():
        for record in txn:
            if record.oid == oid:
                name = storage.loadBlob(oid, record.tid)
                with open(name, "rb") as file:
                    found.append(file.read())
                mode = stat.S_IMODE(path.joinpath(name).stat().st_mode)
                assert not mode & 0o222
    assert found == [b"first", b"second", b"first", b"second", b"first"]
    # And the stock storage goes on from there.
    database = ZODB.DB(storage)
    connection = database.open()
    with connection.root()["blob"].open("w") as file:
        file.write(b"third")
    transaction.commit()
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    connection.sync()
    with connection.root()["blob"].open() as file:
        assert file.read() == b"first"
    database.close()


@pytest.mark.parametrize("layout", ["bushy", "lawn", "unmarked"])
def test_directories_are_opened_in_the_layout_they_have(
    tmp_path, start_server, connect, seeded, layout
):
    path = tmp_path / "Data.fs"
    folder = tmp_path / "blobs-Data"
    # The stock storage empties a blob directory when it creates the data file.
    stock(path).close()
    shutil.rmtree(folder)
    FilesystemHelper(str(folder), "bushy" if layout == "bushy" else "lawn").create()
    write_history(path, seeded, count=20)
    if layout == "unmarked":
        (folder / ".layout").unlink()
    server = serve(start_server, path)
    served = ZODB.DB(connect(server))
    served.undo(served.undoLog(0, 1)[0]["id"])
    transaction.commit()
    served.close()
    assert server.stop() == 0
    expected = "bushy" if layout == "bushy" else "lawn"
    assert (folder / ".layout").read_text() == expected
    assert_complete(path)
    (folder / ".layout").write_text("other")
    with pytest.raises(ServerFailed, match="the layout"):
        serve(start_server, path)


def test_new_directories_are_those_of_zodb(tmp_path, start_server, connect):
    server = serve(start_server, tmp_path / "Data.fs")
    connect(server).close()
    assert server.stop() == 0
    peer = FilesystemHelper(str(tmp_path / "peer"))
    peer.create()
    ours, theirs = tmp_path / "blobs-Data", tmp_path / "peer"
    assert (ours / ".layout").read_text() == (theirs / ".layout").read_text()
    for name in (".", "tmp", ".layout"):
        assert (ours / name).stat().st_mode == (theirs / name).stat().st_mode
