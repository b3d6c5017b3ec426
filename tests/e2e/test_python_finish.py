"""A finish that the server has answered raises nothing, and a failed one leaves no files.

What fails is on the client's side: the function that tells its connections, its blob cache.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading

import pytest
import transaction
import ZODB
from harness import package
from harness.blobs import RECORD
from harness.silent_proxy import SilentProxy
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

package.use()

from zodium.exceptions import OutcomeUnknown  # noqa: E402

# Seconds for what nothing should hinder.
PATIENCE = 30
# Seconds after which a silent server is left.
SILENCE = 2


@pytest.fixture
def server(tmp_path, start_server):
    return start_server(tmp_path / "Data.fs", "--blob-dir", str(tmp_path / "blobs"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def storage(server, open_native, cache):
    return open_native(server.address, blob_dir=str(cache))


def begin_blob(storage, tmp_path, content):
    """A transaction with a blob, voted, and the blob's oid."""
    txn, oid, path = TransactionMetaData(), storage.new_oid(), tmp_path / "content"
    path.write_bytes(content)
    storage.tpc_begin(txn)
    storage.storeBlob(oid, z64, RECORD, str(path), "", txn)
    storage.tpc_vote(txn)
    return txn, oid


def test_of_several_blobs_for_one_object_the_last_one_is_committed_and_cached(
    server, storage, open_native, tmp_path
):
    txn, oid, path = TransactionMetaData(), storage.new_oid(), tmp_path / "content"
    storage.tpc_begin(txn)
    for content in (b"first", b"second"):
        path.write_bytes(content)
        storage.storeBlob(oid, z64, RECORD, str(path), "", txn)
    storage.tpc_vote(txn)
    tid = storage.tpc_finish(txn)
    for each in (storage, open_native(server.address, blob_dir=str(tmp_path / "other"))):
        with open(each.loadBlob(oid, tid), "rb") as file:
            assert file.read() == b"second"


def files_in(cache):
    """What is in a blob cache beside its own files."""
    own = {".layout", ".lock"}
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.name not in own)


def test_a_failing_callback_is_logged_and_open_connections_see_the_commit(storage, logged):
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["one"] = PersistentMapping(value="old")
    reader = database.open(transaction.TransactionManager())
    one = reader.root()["one"]
    assert one["value"] == "old"
    data, serial = storage.load(one._p_oid)

    def fail(tid):
        raise ZeroDivisionError("told nobody")

    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    storage.store(one._p_oid, serial, data.replace(b"old", b"new"), "", txn)
    storage.tpc_vote(txn)
    tid = storage.tpc_finish(txn, fail)
    assert tid == storage.getTid(one._p_oid) == storage.lastTransaction() > serial
    [record] = [found for found in logged if found.levelno == logging.ERROR]
    assert tid.hex() in record.getMessage() and record.exc_info[0] is ZeroDivisionError
    reader.transaction_manager.begin()
    assert reader.root()["one"]["value"] == "new"


def test_what_stops_the_process_goes_through_and_tells_that_it_is_committed(
    storage, tmp_path, cache
):
    def stop(tid):
        raise KeyboardInterrupt

    txn, oid = begin_blob(storage, tmp_path, b"content")
    with pytest.raises(KeyboardInterrupt) as raised:
        storage.tpc_finish(txn, stop)
    storage.tpc_abort(txn)
    tid = storage.getTid(oid)
    assert storage.outcome(raised.value) == tid == storage.lastTransaction()
    assert [name.endswith(f"{tid.hex()}.blob") for name in files_in(cache)] == [True]


def test_a_transaction_that_begins_in_the_function_given_to_a_finish_is_refused(storage):
    refusals, txn = [], TransactionMetaData()

    def begin(tid):
        try:
            storage.tpc_begin(TransactionMetaData())
        except RuntimeError as error:
            refusals.append(str(error))

    storage.tpc_begin(txn)
    storage.store(storage.new_oid(), z64, RECORD, "", txn)
    storage.tpc_vote(txn)
    # In a thread that is given up when it waits for itself.
    finish = threading.Thread(target=storage.tpc_finish, args=(txn, begin), daemon=True)
    finish.start()
    finish.join(PATIENCE)
    assert not finish.is_alive()
    [refusal] = refusals
    assert "cannot wait for the server" in refusal
    storage.tpc_begin(txn)
    storage.tpc_abort(txn)


def test_a_blob_that_cannot_be_cached_is_committed_and_fetched_later(
    storage, tmp_path, cache, logged
):
    first, first_oid = begin_blob(storage, tmp_path, b"first")
    [folder] = [path for path in cache.iterdir() if path.is_dir() and path.name.isdigit()]
    # Its lock cannot be taken.
    (folder / ".lock").mkdir()
    tid = storage.tpc_finish(first)
    assert tid == storage.getTid(first_oid)
    [record] = [found for found in logged if found.name == "zodium.blobs"]
    assert tid.hex() in record.getMessage() and str(cache) in record.getMessage()
    assert files_in(cache) == []
    (folder / ".lock").rmdir()
    assert open(storage.loadBlob(first_oid, tid), "rb").read() == b"first"


# The cache is on a disk of 1 MB that is full when the server has answered.
ON_A_FULL_DISK = """
import json, os, sys
import zodium
from pathlib import Path
from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

address, small = json.loads(sys.argv[1]), Path(sys.argv[2])
record = bytes.fromhex(sys.argv[3])
storage = zodium.ClientStorage(tuple(address), blob_dir=str(small / "cache"))
txn, oids = TransactionMetaData(), [storage.new_oid() for _ in range(3)]
storage.tpc_begin(txn)
for oid in oids:
    (small / "content").write_bytes(oid * 5000)
    storage.storeBlob(oid, z64, record, str(small / "content"), "", txn)
storage.tpc_vote(txn)
with open(small / "ballast", "wb", 0) as ballast:
    try:
        while ballast.write(bytes(4096)):
            pass
    except OSError:
        pass
tid = storage.tpc_finish(txn)
assert all(storage.getTid(oid) == tid for oid in oids)
left = [p.name for p in (small / "cache").rglob("*") if p.is_file() and p.name[0] != "."]
os.unlink(small / "ballast")
for oid in oids:
    assert open(storage.loadBlob(oid, tid), "rb").read() == oid * 5000
storage.close()
print(json.dumps([tid.hex(), left]))
"""


def test_a_full_disk_of_the_blob_cache_fails_no_commit(tmp_path, server, tiny_disk):
    program = [sys.executable, "-c", ON_A_FULL_DISK]
    given = [json.dumps(server.address), str(tmp_path / "small"), RECORD.hex()]
    ended = subprocess.run([*tiny_disk, *program, *given], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    # One that is given up makes room for others.
    tid, left = json.loads(ended.stdout)
    assert len(left) < 3 and all(name.endswith(f"{tid}.blob") for name in left), ended.stderr
    assert "No space left" in ended.stderr


def test_a_finish_without_an_answer_leaves_no_files(server, tmp_path, cache, open_native):
    with contextlib.closing(SilentProxy(server.address)) as proxy:
        storage = open_native(proxy.address, blob_dir=str(cache), silence_timeout=SILENCE)
        txn, oid = begin_blob(storage, tmp_path, b"content")
        assert len(files_in(cache)) == 1
        proxy.fall_silent_after(b"tpc_finish")
        with pytest.raises(OutcomeUnknown) as raised:
            storage.tpc_finish(txn)
        storage.tpc_abort(txn)
        assert files_in(cache) == []
        proxy.speak()
        storage.ping()
        tid = storage.outcome(raised.value)
        assert open(storage.loadBlob(oid, tid), "rb").read() == b"content"


def test_a_blob_that_the_cache_has_no_room_for_leaves_no_file(storage, tmp_path, cache):
    txn, oid = TransactionMetaData(), storage.new_oid()
    storage.tpc_begin(txn)
    with pytest.raises(OSError, match="missing"):
        storage.storeBlob(oid, z64, RECORD, str(tmp_path / "missing"), "", txn)
    storage.tpc_abort(txn)
    assert files_in(cache) == []
    assert os.listdir(cache / "tmp") == []
