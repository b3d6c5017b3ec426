"""The ends of what the format holds: files beyond 4 GiB, the last oids and tids, empty records.

ZODIUM_TEST_LARGE=1 fills the large file with data through the server; else it has holes.
"""

import os
import struct

import pytest
import ZODB.FileStorage
from harness import files, longfile
from harness.servers import stock_server
from harness.wire import MAXTID, Z64, ErrorReply, Wire
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, u64

MEGABYTES_64 = 64 << 20
RECORDS = 66  # of 64 MiB: 4.1 GiB
IS_LONG = os.environ.get("ZODIUM_TEST_LARGE") == "1"
LAST = (1 << 63) - 1
OWN_OID_MAX = 1 << 62  # of a new object
# As tids count them: 12 months of 31 days.
ENCODED_MINUTES_OF_99_YEARS = 99 * 12 * 31 * 24 * 60


def write_holes(path):
    """A file of RECORDS objects whose data are zeros that take no space."""
    with open(path, "wb") as file:
        file.write(b"FS30")
        for number in range(RECORDS):
            position, tid = file.tell(), longfile.tid_of(number)
            length = 23 + 42 + MEGABYTES_64
            file.write(tid + struct.pack(">QcHHH", length, b" ", 0, 0, 0))
            file.write(files.oid_of(number) + tid)
            file.write(struct.pack(">QQHQ", 0, position, 0, MEGABYTES_64))
            file.seek(MEGABYTES_64, os.SEEK_CUR)
            file.write(struct.pack(">Q", length))


def write_data(path, start_server, wire):
    """The same through the server, with data."""
    server = start_server(path)
    client = wire(server, seconds=300)
    for number in range(RECORDS):
        data = number.to_bytes(8, "big") + os.urandom(1 << 20) * 64
        client.commit(number, [(files.oid_of(number), Z64, data[:MEGABYTES_64])])
    assert server.stop() == 0


def assert_loads(client, oid, length):
    data, tid, end = client.call("loadBefore", oid, MAXTID)
    assert (len(data), end) == (length, None)
    return tid


def test_a_file_beyond_4_gib_is_served_extended_and_opened_again(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    if IS_LONG:
        write_data(path, start_server, wire)
    else:
        write_holes(path)
    assert path.stat().st_size > 1 << 32
    server = start_server(path)
    client = wire(server, seconds=60)
    first, last = files.oid_of(0), files.oid_of(RECORDS - 1)
    old = assert_loads(client, first, MEGABYTES_64)
    assert_loads(client, last, MEGABYTES_64)
    tid = client.commit(1, [(first, old, b"beyond"), (files.oid_of(1000), Z64, b"new")])
    assert client.call("loadBefore", first, tid)[1:] == (old, tid)
    assert client.call("get_info")["size"] > 1 << 32
    assert server.stop() == 0
    # At first there was none: all positions have been found once already.
    for index in ("saved", "missing") if IS_LONG else ("saved",):
        if index == "missing":
            path.with_name("Data.fs.index").unlink()
        server = start_server(path)
        client = wire(server, seconds=60)
        assert client.register_tid == tid
        assert client.call("loadBefore", first, MAXTID) == (b"beyond", tid, None)
        assert_loads(client, last, MEGABYTES_64)
        found = client.call("loadBefore", files.oid_of(1000), MAXTID)
        assert found == (b"new", tid, None)
        assert [entry["tid"] for entry in client.call("history", first, 5)] == [tid, old]
        assert server.stop() == 0
    storage = ZODB.FileStorage.FileStorage(str(path))
    assert storage.load(first) == (b"beyond", tid)
    assert len(storage.load(last)[0]) == MEGABYTES_64
    storage.close()
    path.unlink()


def write_last_ids(path):
    """Objects and transactions at the end of their ranges; [(oid, tid)]."""
    written = []
    storage = ZODB.FileStorage.FileStorage(str(path))
    tids = [1, (1 << 62), LAST - (1 << 33), LAST - (1 << 32), LAST - 1, LAST]
    for tid in map(p64, tids):
        txn = TransactionMetaData()
        storage.tpc_begin(txn, tid, " ")
        for oid in (Z64, p64(LAST - 1), p64(LAST), p64(LAST + 1), b"\xff" * 8):
            storage.restore(oid, tid, b"%d" % len(written), "", None, txn)
            written.append((oid, tid))
        storage.tpc_vote(txn)
        storage.tpc_finish(txn)
    storage.close()
    return written


@pytest.mark.zodium
def test_the_last_oids_and_tids_are_served_as_the_stock_server_does(
    tmp_path, start_server, encoding
):
    (tmp_path / "stock").mkdir()
    written = write_last_ids(tmp_path / "Data.fs")
    write_last_ids(tmp_path / "stock" / "Data.fs")
    stock = stock_server(tmp_path / "stock", encoding)
    server = start_server(tmp_path / "Data.fs", encoding=encoding)
    answers = []
    for each in (stock, server):
        with Wire(each.address) as client:
            told = [client.register()]
            for oid, tid in written:
                told.append(client.call("loadSerial", oid, tid))
                for before in (tid, files.tid_after(tid), MAXTID, b"\xff" * 8):
                    told.append(client.call("loadBefore", oid, before))
            answers.append(told)
    stock.kill()
    assert answers[1] == answers[0]
    with Wire(server.address) as client:
        client.register()
        # After the last tid there is no other: that is said, and reads go on.
        with pytest.raises(ErrorReply, match="check the clock"):
            client.commit(1, [(p64(5), Z64, b"data")])
        assert client.call("loadSerial", *written[-1])
    assert server.stop() == 0
    files.check(tmp_path / "Data.fs")


@pytest.mark.zodium
def test_the_largest_oids_and_tids_that_are_taken_leave_some_for_others(
    tmp_path, start_server, wire, encoding
):
    """By ordinary commits, and by one that brings a late tid; ordinary ones follow it."""
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    client = wire(server)
    for number, oid in enumerate([p64(LAST), p64(LAST + 1), b"\xff" * 8], 10):
        with pytest.raises(ErrorReply, match="may be 4000000000000000 at most"):
            client.commit(number, [(oid, Z64, b"takes all oids")])
        client.call("tpc_abort", number)
    oids = [p64(OWN_OID_MAX - 1), p64(OWN_OID_MAX)]
    tid = client.commit(1, [(oid, Z64, oid) for oid in oids])
    late = p64(u64(tid) + (ENCODED_MINUTES_OF_99_YEARS << 32))
    client.notify("tpc_begin", 2, b"", b"", {}, late, " ")
    client.notify("restorea", oids[0], late, b"late", None, 2)
    client.call("vote", 2)
    assert client.call("tpc_finish", 2) == late
    after = client.commit(3, [(oids[1], tid, b"after")])
    assert after > late
    assert server.stop() == 0
    client = wire(start_server(path, encoding=encoding))
    assert client.register_tid == after
    found = [client.call("loadBefore", oid, MAXTID) for oid in oids]
    assert found == [(b"late", late, None), (b"after", after, None)]


# The stock server writes a file that it cannot read.
@pytest.mark.zodium
def test_an_empty_record_is_refused_and_the_smallest_is_not(tmp_path, start_server, wire, encoding):
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    client = wire(server)
    with pytest.raises(ErrorReply, match="0000000000000007 are empty"):
        client.commit(1, [(p64(6), Z64, b"data"), (p64(7), Z64, b"")])
    client.call("tpc_abort", 1)
    with pytest.raises(ErrorReply):
        client.call("loadBefore", p64(6), MAXTID)
    tid = client.commit(2, [(p64(7), Z64, b".")])
    assert client.call("loadBefore", p64(7), MAXTID) == (b".", tid, None)
    assert server.stop() == 0
    (transaction,) = files.read(path)
    assert [record.data for record in transaction.records] == [b"."]
