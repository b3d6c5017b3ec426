"""Blobs as a blob directory has them, and as they go over the wire.

Key decision: what is in a directory is said as {(oid, tid): digest of the file},
whatever its layout, so that directories, histories and downloads can be compared.
"""

import hashlib
import os
import time
from pathlib import Path

import ZODB.blob
import ZODB.FileStorage

from .waiting import WAIT_SECONDS
from .wire import ERROR, MAXTID, ErrorReply

RECORD = b"\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N."  # what Data.fs has of any blob
CHUNK = 59_000  # bytes, as the stock client sends them
# The layout's name, lengths and sums, and what the last pack removed, which stays until the next
# opening.
OWN_FILES = {".layout", ".zodium-sums", "zodium-packed"}


def digest(data):
    return hashlib.sha1(data).hexdigest()


def file_digest(path):
    found = hashlib.sha1()
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def digests(folder):
    """{(oid, tid): digest} of the blobs committed to `folder`."""
    helper = ZODB.blob.FilesystemHelper(str(folder))
    found = {}
    for _, path in helper.listOIDs():
        for name in os.listdir(path):
            blob = helper.splitBlobFilename(os.path.join(path, name))
            if blob != (None, None):
                found[blob] = file_digest(os.path.join(path, name))
    return found


def path_of(folder, oid, tid):
    return Path(ZODB.blob.FilesystemHelper(str(folder)).getBlobFilename(oid, tid))


def leftovers(folder):
    """Files that belong to no committed blob, nor to the directory itself."""
    # A folder may go meanwhile, which `rglob` takes for an error.
    files = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    known = [path for path in files if path.suffix == ".blob" or path.name in OWN_FILES]
    return sorted(str(path.relative_to(folder)) for path in set(files) - set(known))


def wait_for_leftovers(folder, count=0, seconds=WAIT_SECONDS):
    """Return the leftovers once there are `count`; what goes is removed in the background."""
    deadline = time.monotonic() + seconds
    while len(found := leftovers(folder)) != count:
        assert time.monotonic() < deadline, f"{found}, expected {count}"
        time.sleep(0.005)
    return found


def recorded(path):
    """The (oid, tid) of every record in the file at `path` that is a blob's."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    try:
        return {
            (record.oid, record.tid)
            for txn in storage.iterator()
            for record in txn
            if record.data and ZODB.blob.is_blob_record(record.data)
        }
    finally:
        storage.close()


def assert_whole(path, folder):
    """Every blob record has its file, every file its record, and there is nothing else."""
    assert recorded(path) == set(digests(folder))
    assert leftovers(folder) == []


def upload(wire, txn, oid, serial, chunks, record=RECORD):
    """Send a blob into the open transaction `txn`, as stock clients do."""
    wire.notify("storea", oid, serial, record, txn)
    wire.notify("storeBlobStart")
    for chunk in chunks:
        wire.notify("storeBlobChunk", chunk)
    wire.notify("storeBlobEnd", oid, serial, record, txn)


def commit(wire, txn, blobs):
    """Commit [(oid, serial, data)], each a blob; the tid."""
    begin(wire, txn)
    for oid, serial, data in blobs:
        upload(wire, txn, oid, serial, chunks_of(data))
    assert len(wire.call("vote", txn)) == 0
    return wire.call("tpc_finish", txn)


def begin(wire, txn):
    wire.notify("tpc_begin", txn, b"", b"", {}, None, " ")


def chunks_of(data, size=CHUNK):
    return [data[start : start + size] for start in range(0, len(data), size)]


def receive(wire, requests, on_chunk=None):
    """Take blobs that were asked for; {(oid, serial): digest}.

    `requests` is {message id: (oid, serial)}.  Checks that each comes as start,
    chunks, stop, reply, and calls `on_chunk` with every message's arguments.
    """
    coming, done = {}, {}
    while requests:
        found, flag, name, args = wire.receive(60)
        if name == "receiveBlobStart":
            assert args not in coming
            coming[args] = hashlib.sha1()
        elif name == "receiveBlobChunk":
            coming[args[:2]].update(args[2])
            if on_chunk:
                on_chunk(args)
        elif name == "receiveBlobStop":
            done[args] = coming.pop(args).hexdigest()
        elif found in requests:
            if flag == ERROR:
                raise ErrorReply(*args)
            assert args is None
            assert requests.pop(found) in done
        else:
            wire.notices.append((found, flag, name, args))
    return done


def download(wire, *wanted, on_chunk=None):
    requests = {wire.request("sendBlob", *blob): blob for blob in wanted}
    return receive(wire, requests, on_chunk)


def current_serial(wire, oid):
    return wire.call("loadBefore", oid, MAXTID)[1]
