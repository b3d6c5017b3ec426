"""Blobs larger than the server's memory: they go through it in pieces, and hold up nobody.

ZODIUM_TEST_LARGE=1 sends 4 GB instead of 300 MB; another number is taken as megabytes.
"""

import hashlib
import os
import re
import time
from pathlib import Path

import pytest
import ZODB.blob
from harness import blobs
from harness.waiting import wait_for
from harness.wire import MAXTID, Z64
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64

MEGABYTE = 1 << 20
ASKED = int(os.environ.get("ZODIUM_TEST_LARGE") or 300)
LARGE = (4096 if ASKED == 1 else ASKED) * MEGABYTE + 17
# What any process has, a small cache, and the pieces under way.
SERVER_BYTES_MAX = 80 << 20
OID = p64(1)

pytestmark = pytest.mark.zodium


@pytest.fixture
def server(start_server, folder):
    return start_server(None, "--blob-dir", str(folder), "--cache-size", "8MiB")


def peak_bytes(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def pieces(size):
    """`size` bytes in chunks, not all alike, and the digest of them all."""
    base = os.urandom(MEGABYTE)
    found = hashlib.sha1()
    for start in range(0, size, MEGABYTE):
        piece = (start.to_bytes(8, "big") + base[8:])[: size - start]
        found.update(piece)
        yield piece
    yield found.hexdigest()


def write_file(path, size):
    with open(path, "wb") as file:
        for piece in pieces(size):
            if isinstance(piece, str):
                return piece
            file.write(piece)


def commit_files(client, files):
    """Commit {oid: path} as blobs in one transaction; its tid."""
    meta = TransactionMetaData()
    client.tpc_begin(meta)
    for oid, path in files.items():
        client.storeBlob(oid, Z64, blobs.RECORD, str(path), "", meta)
    client.tpc_vote(meta)
    return client.tpc_finish(meta)


def test_a_large_blob_goes_in_and_out_in_pieces(
    start_server, folder, tmp_path, connect, encoding, capsys
):
    options = "--blob-dir", str(folder), "--cache-size", "8MiB"
    server = start_server(None, *options, encoding=encoding)
    writer = connect(server, blob_dir=str(tmp_path / "writer"))
    expected = write_file(tmp_path / "upload", LARGE)
    begun = time.monotonic()
    tid = commit_files(writer, {OID: tmp_path / "upload"})
    stored = time.monotonic() - begun
    assert peak_bytes(server) < SERVER_BYTES_MAX
    assert blobs.digests(folder) == {(OID, tid): expected}

    (cached,) = (tmp_path / "writer").rglob("*.blob")
    ZODB.blob.remove_committed(str(cached))
    begun = time.monotonic()
    path = writer.loadBlob(OID, tid)
    loaded = time.monotonic() - begun
    assert blobs.file_digest(path) == expected
    assert peak_bytes(server) < SERVER_BYTES_MAX
    with capsys.disabled():
        figures = f"{LARGE >> 20} MB stored in {stored:.1f} s, loaded in {loaded:.1f} s"
        print(f" ({figures}, server at most {peak_bytes(server) >> 20} MB) ", end="")


def test_others_are_answered_while_a_blob_is_sent(server, folder, wire):
    """Of the same connection too: a reply waits behind a few pieces, not behind the blob."""
    client, other = wire(server), wire(server)
    data = os.urandom(MEGABYTE) * 60
    tid = blobs.commit(client, 1, [(OID, Z64, data)])
    digest = blobs.digest(data)

    taken = []
    asked = client.request("sendBlob", OID, tid)
    ping = client.request("ping")
    load = client.request("loadBefore", OID, MAXTID)
    written = other.commit(1, [(p64(2), Z64, b"seen while the blob is on its way")])

    found = blobs.receive(client, {asked: (OID, tid)}, on_chunk=lambda args: taken.append(1))
    assert found == {(OID, tid): digest}
    replies = {found for found, _, name, _ in client.notices if name == ".reply"}
    assert replies == {ping, load}
    invalidated = [args[0] for _, _, name, args in client.notices if name[:3] == "inv"]
    assert invalidated == [written]


def test_replies_come_between_the_pieces_of_a_blob(server, wire):
    client = wire(server)
    tid = blobs.commit(client, 1, [(OID, Z64, os.urandom(MEGABYTE) * 60)])
    asked = client.request("sendBlob", OID, tid)
    ping = client.request("ping")
    names = []
    while True:
        found, _, name, _ = client.receive()
        if found == asked:
            break
        names.append("ping" if found == ping else name)
    assert names.index("ping") < names.index("receiveBlobStop")
    assert names.index("ping") < 60


def test_many_blobs_at_once_on_one_connection(server, wire):
    client = wire(server, seconds=60)
    contents = {p64(number): os.urandom(number * 40_000) for number in range(40)}
    tid = blobs.commit(client, 1, [(oid, Z64, data) for oid, data in contents.items()])
    wanted = [(oid, tid) for oid in contents]
    found = blobs.download(client, *wanted, *wanted[:3])
    assert found == {(oid, tid): blobs.digest(data) for oid, data in contents.items()}


def test_one_blob_asked_for_often_is_sent_whole_every_time(server, wire):
    client = wire(server, seconds=60)
    data = os.urandom(2 * MEGABYTE)
    tid = blobs.commit(client, 1, [(OID, Z64, data)])
    stops = []
    requests = {client.request("sendBlob", OID, tid): (OID, tid) for _ in range(5)}
    while requests:
        found, _, name, args = client.receive()
        if name == "receiveBlobStart":
            body = bytearray()
        elif name == "receiveBlobChunk":
            body += args[2]
        elif name == "receiveBlobStop":
            stops.append(bytes(body))
        else:
            requests.pop(found)
    assert stops == [data] * 5


def open_blobs(server):
    found = []
    for entry in Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except FileNotFoundError:
            continue
    return [path for path in found if path.endswith(".blob")]


def test_who_does_not_take_its_blobs_costs_little_and_who_goes_away_nothing(server, wire):
    writer, idle = wire(server, seconds=60), wire(server)
    data = os.urandom(MEGABYTE) * 20
    blob_ids = [p64(number) for number in range(1, 25)]
    tid = blobs.commit(writer, 1, [(oid, Z64, data) for oid in blob_ids])
    for oid in blob_ids:
        idle.request("sendBlob", oid, tid)
    found = blobs.download(writer, *[(oid, tid) for oid in blob_ids])
    assert set(found.values()) == {blobs.digest(data)}
    assert 0 < len(open_blobs(server)) <= 17
    assert peak_bytes(server) < SERVER_BYTES_MAX
    idle.close()
    wait_for(lambda: not open_blobs(server), "no blob is open")


def test_who_sends_faster_than_the_disk_takes_has_to_wait(server, folder, wire):
    """One frame after the other without a pause: the server keeps no more than a few."""
    client, other = wire(server, seconds=120), wire(server)
    blobs.begin(client, 1)
    piece = os.urandom(MEGABYTE)
    blobs.upload(client, 1, OID, Z64, (piece for _ in range(300)))
    assert other.call("ping") is None
    assert len(client.call("vote", 1)) == 0
    tid = client.call("tpc_finish", 1)
    assert blobs.path_of(folder, OID, tid).stat().st_size == 300 * MEGABYTE
    assert peak_bytes(server) < SERVER_BYTES_MAX


def test_a_vanished_sender_leaves_nothing(server, folder, wire):
    client = wire(server)
    blobs.begin(client, 1)
    client.notify("storeBlobStart")
    for _ in range(20):
        client.notify("storeBlobChunk", b"x" * MEGABYTE)
    client.close()
    blobs.wait_for_leftovers(folder)
    assert wire(server).call("ping") is None
