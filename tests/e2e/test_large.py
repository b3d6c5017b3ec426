"""Large things: an object of hundreds of megabytes, 100,000 objects at once.

ZODIUM_TEST_LARGE=1 stores 2 GB in one object instead of 300 MB, and takes 10 GB
of memory; ZODIUM_TEST_LARGE=30 stores 30 MB, enough for the stock server, whose
time grows with the square.
"""

import hashlib
import os
import resource

import ZODB.FileStorage
from harness import files
from harness.history import LIMIT, TEXTS
from harness.wire import MAXTID, NOTICE, Z64
from ZODB.Connection import TransactionMetaData

MEGABYTE = 1 << 20
MEGABYTES = int(os.environ.get("ZODIUM_TEST_LARGE") or 300)
LARGE = (2048 if MEGABYTES == 1 else MEGABYTES) * MEGABYTE - 1
MANY = 100_000
RECORD_OVERHEAD = 42 + 23 + 8  # a data record's and a transaction's header, and its end


def test_one_large_object(tmp_path, start_server, wire, encoding):
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    writer, reader = wire(server, seconds=300), wire(server, seconds=300)
    data = os.urandom(MEGABYTE) * (LARGE // MEGABYTE) + b"x" * (LARGE % MEGABYTE)
    digest = hashlib.sha1(data).digest()
    tid = writer.commit(1, [(Z64, Z64, data)])
    del data
    found, start, end = reader.call("loadBefore", Z64, MAXTID)
    assert (start, end) == (tid, None)
    assert len(found) == LARGE
    assert hashlib.sha1(found).digest() == digest
    del found
    assert path.stat().st_size == 4 + RECORD_OVERHEAD + LARGE
    assert server.stop() == 0
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    assert hashlib.sha1(storage.load(Z64)[0]).digest() == digest
    storage.close()


def test_others_are_served_while_a_large_object_comes_in(start_server, wire):
    server = start_server()
    writer, reader = wire(server, seconds=120), wire(server)
    tid = writer.commit(1, [(Z64, Z64, b"small")])
    data = os.urandom(MEGABYTE) * (MEGABYTES // 6)
    writer.notify("tpc_begin", 2, b"", b"", {}, None, " ")
    for number in range(1, 5):
        writer.notify("storea", files.oid_of(number), Z64, data, 2)
        assert reader.call("loadBefore", Z64, MAXTID) == (b"small", tid, None)
    writer.call("vote", 2)
    assert reader.call("loadBefore", Z64, MAXTID) == (b"small", tid, None)
    writer.call("tpc_finish", 2)


def test_many_objects_in_one_transaction(tmp_path, start_server, wire, encoding):
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    writer, other = wire(server, seconds=120), wire(server, seconds=120)
    writer.notify("tpc_begin", 1, b"", b"", {}, None, " ")
    frames = []
    for number in range(MANY):
        args = files.oid_of(number), Z64, b"%d" % number, 1
        body = writer.codec.encode((0, NOTICE, "storea", args))
        frames.append(len(body).to_bytes(4, "big") + body)
    writer.send_raw(b"".join(frames))
    assert len(writer.call("vote", 1)) == 0
    tid = writer.call("tpc_finish", 1)
    _, _, name, (invalid, oids) = other.receive()
    assert (name, invalid) == ("invalidateTransaction", tid)
    assert set(oids) == {files.oid_of(number) for number in range(MANY)}
    for number in range(0, MANY, 997):
        loaded = other.call("loadBefore", files.oid_of(number), MAXTID)
        assert loaded == (b"%d" % number, tid, None)
    assert other.call("get_info")["length"] == MANY
    assert server.stop() == 0
    (transaction,) = files.read(path)
    assert [record.data for record in transaction.records] == [b"%d" % n for n in range(MANY)]


def test_metadata_at_its_limits(tmp_path, start_server, connect):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    client = connect(server)
    key_and_frame = 22  # bytes of the pickle around the one long value
    cases = [("u" * LIMIT, "", {}), ("", "é" * (LIMIT // 2) + "x", {})]
    cases += [("", "", {"x": "y" * (LIMIT - key_and_frame)})]
    cases += [(text, text, {text or "empty": text}) for text in TEXTS]
    for number, (user, description, extension) in enumerate(cases):
        txn = TransactionMetaData(user, description, extension)
        client.tpc_begin(txn)
        client.store(files.oid_of(number), Z64, b"data", "", txn)
        client.tpc_vote(txn)
        client.tpc_finish(txn)
    for found in (files.snapshot(client), files.read(path)):
        assert [(t.user.decode(), t.description.decode(), t.extension) for t in found] == cases
    longest = files.read(path)[2]
    # Python writes six bytes of memo into such a pickle, another server need not.
    assert LIMIT - 6 <= len(txn_extension(path, longest.tid)) <= LIMIT


def txn_extension(path, tid):
    """The extension of one transaction as the bytes that are in the file."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    try:
        (found,) = storage.iterator(tid, tid)
        return found.extension_bytes
    finally:
        storage.close()


def test_large_oids_and_long_histories(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    client = wire(server)
    oids = [files.oid_of(number) for number in (0, 1 << 31, 1 << 48, 1 << 62)]
    serials = dict.fromkeys(oids, Z64)
    revisions = []
    for number in range(300):
        data = b"revision %d" % number
        tid = client.commit(number, [(oid, serials[oid], data) for oid in oids])
        serials = dict.fromkeys(oids, tid)
        revisions.append((data, tid))
    ends = [tid for _, tid in revisions[1:]] + [None]
    for oid in oids:
        for (data, tid), end in zip(revisions, ends):
            assert client.call("loadBefore", oid, files.tid_after(tid)) == (data, tid, end)
        assert len(client.call("history", oid, 1000)) == len(revisions)
    server.stop()
    files.check(path)


def test_many_connections(start_server, wire):
    """Idle ones cost nothing but descriptors; each still gets every invalidation."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(500, soft - 100)
    server = start_server()
    idle = [wire(server) for _ in range(count)]
    writer = wire(server)
    tid = writer.commit(1, [(Z64, Z64, b"data")])
    for client in idle:
        _, _, name, (invalid, oids) = client.receive()
        assert (name, invalid, tuple(oids)) == ("invalidateTransaction", tid, (Z64,))
