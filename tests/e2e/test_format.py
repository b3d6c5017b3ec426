"""The files that Zodium writes beside ZODB's are as docs/format.md says.

A server and a client write them, and a reader that knows only the document compares them with the
data that they are about.
"""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import transaction
import ZODB
import ZODB.blob
import ZODB.FileStorage
from harness import blobs, damage, own_files
from harness.own_files import BlobSum, IndexLine, Marker, crc32c
from harness.waiting import wait_for
from harness.wire import Z64
from persistent.mapping import PersistentMapping
from ZODB.utils import p64, u64

pytestmark = pytest.mark.zodium

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "format.md"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "Data.fs"


def beside(path, suffix):
    return path.with_name(path.name + suffix)


def fill(storage):
    """Transactions with metadata, an undo, a large record, and zeros at the ends of sectors."""
    database = ZODB.DB(storage)
    manager = transaction.TransactionManager()
    connection = database.open(manager)
    for number in range(20):
        connection.root()[number % 5] = PersistentMapping(text=f"{number} " * number)
        manager.get().setUser(f"user {number}")
        manager.get().note(f"number {number}")
        manager.commit()
    for size in (0, 5_000, 100_000):
        connection.root()["zeros"] = PersistentMapping(data=bytes(size))
        manager.commit()
    connection.root()["large"] = PersistentMapping(data=os.urandom(300_000))
    manager.commit()
    database.undo(database.undoLog(0, 1)[0]["id"], manager.get())
    manager.commit()
    connection.close()
    database.close()


def assert_covers(checksums, path):
    """All parts of the file at `path` have entries; the header."""
    header, covered, announced = own_files.checksums(checksums)
    data = path.read_bytes()
    assert covered == list(own_files.parts_of(data))
    assert announced == []
    assert header.inode == path.stat().st_ino
    return header


def test_the_checksum_is_the_one_of_the_document():
    assert crc32c(b"123456789") == 0xE3069283
    assert "`0xE3069283`" in DOCUMENT.read_text()


def test_checksums_cover_every_record_and_transaction(path, start_server, connect):
    server = start_server(path)
    fill(connect(server))
    assert server.stop() == 0
    header = assert_covers(beside(path, ".checksums"), path)
    size = path.stat().st_size
    assert (header.closed, header.end, header.length) == (1, size, size)
    assert header.modified == path.stat().st_mtime_ns
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert header.boot == int(boot.replace("-", "")[:16], 16)
    assert header.count == len(list(own_files.parts_of(path.read_bytes())))
    # Another session adds its entries behind those.
    server = start_server(path)
    fill(connect(server))
    assert server.stop() == 0
    later = assert_covers(beside(path, ".checksums"), path)
    assert later.count > header.count
    assert (later.salt, later.previous_session) == (header.salt, header.session)
    assert later.session != header.session


def test_entries_of_a_killed_session_are_behind_the_counted_ones(path, start_server, connect):
    server = start_server(path)
    fill(connect(server))
    server.kill()
    header = assert_covers(beside(path, ".checksums"), path)
    assert (header.closed, header.count, header.end) == (0, 0, own_files.MAGIC_BYTES)
    assert start_server(path).stop() == 0
    later = assert_covers(beside(path, ".checksums"), path)
    assert later.closed == 1 and later.count > 0


def test_a_file_of_the_stock_server_is_covered_later(path, start_server):
    damage.fill_covered(path, start_server)
    header = assert_covers(beside(path, ".checksums"), path)
    assert header.closed == 1


def test_the_index_has_a_line_with_its_checksum(path, start_server, connect):
    server = start_server(path)
    fill(connect(server))
    assert server.stop() == 0
    index = beside(path, ".index").read_bytes()
    *_, (_, last, _, _) = own_files.transactions_of(path.read_bytes())
    line = own_files.index_line(beside(path, ".index.crc32c"))
    assert line == IndexLine(crc32c(index), len(index), last, None)


def test_the_marker_names_the_session(path, start_server, connect, binary):
    lock, checksums = beside(path, ".lock"), beside(path, ".checksums")

    def found():
        process, marker = own_files.marker(lock)
        return process, marker, own_files.checksums(checksums)[0].session

    server = start_server(path)
    fill(connect(server))
    process, marker, session = found()
    assert (process, marker) == (server.process.pid, Marker(session, False))
    assert server.stop() == 0
    assert found() == (process, marker, session)
    # The second pack opens the file, finds nothing to do, and ends before anything is covered.
    for _ in range(2):
        checksums.unlink()
        subprocess.run([str(binary), "pack", str(path)], check=True, timeout=60)
    _, marker, session = found()
    assert marker == Marker(session, True)
    server = start_server(path, "--checksums", "off")
    assert own_files.marker(lock) == (server.process.pid, None)


def test_a_stock_opening_removes_the_marker(path, start_server, connect):
    server = start_server(path)
    fill(connect(server))
    assert server.stop() == 0
    ZODB.FileStorage.FileStorage(str(path)).close()
    assert own_files.marker(beside(path, ".lock")) == (os.getpid(), None)
    server = start_server(path)
    assert "another program has opened the data file for writing" in server.log()


def test_an_unfinished_end_is_kept_as_it_was(path, start_server, connect):
    server = start_server(path)
    fill(connect(server))
    server.kill()
    size, ends = path.stat().st_size, [b"half a transaction", bytes(700)]
    for number, end in enumerate(ends):
        with open(path, "ab") as file:
            file.write(end)
        start_server(path).kill()
        assert beside(path, f".tr{number}").read_bytes() == end
        assert path.stat().st_size == size
    assert not beside(path, ".tr_tmp").exists()


def test_a_pack_keeps_the_old_file_with_its_checksums(path, start_server, connect):
    server = start_server(path)
    fill(connect(server))
    client = connect(server)
    before = path.read_bytes()
    session = own_files.checksums(beside(path, ".checksums"))[0].session
    client.pack(time.time())
    client.close()
    assert server.stop() == 0
    old = beside(path, ".old")
    assert old.read_bytes() == before != path.read_bytes()
    assert assert_covers(beside(path, ".old.checksums"), old).session == session
    header = assert_covers(beside(path, ".checksums"), path)
    assert header.previous_session == session
    assert own_files.marker(beside(path, ".lock"))[1] == Marker(header.session, False)
    assert not beside(path, ".pack").exists() and not beside(path, ".pack.checksums").exists()


def test_a_recovered_file_has_checksums(path, tmp_path, start_server, binary):
    damage.fill_covered(path, start_server)
    damage.damage(path, 3)
    copy = tmp_path / "New.fs"
    subprocess.run([str(binary), "recover", str(path), str(copy)], timeout=60)
    header = assert_covers(beside(copy, ".checksums"), copy)
    assert header.closed == 1
    marker = beside(copy, ".lock").read_text().split("\n")[1]
    assert marker == f"zodium {header.session:016x}"


@pytest.fixture
def serve_blobs(path, folder, start_server, wire):
    """(server, raw client): a new server, with blobs."""

    def serve():
        server = start_server(path, "--blob-dir", str(folder))
        return server, wire(server, seconds=60)

    return serve


def test_blob_sums_are_those_of_the_blobs(folder, serve_blobs):
    server, client = serve_blobs()
    written, serial = [], Z64
    for number, size in enumerate([0, 1, 70_000], 1):
        data = os.urandom(size)
        others = [(p64(n), Z64, b"other") for n in (number * 10, number * 10 + 1)]
        tid = blobs.commit(client, number, [*others, (p64(1), serial, data)])
        sums = [(u64(oid), data) for oid, _, data in others] + [(1, data)]
        written += [BlobSum(o, u64(tid), len(d), crc32c(d)) for o, d in sorted(sums)]
        serial = tid
    assert server.stop() == 0
    assert own_files.blob_sums(folder / ".zodium-sums") == written


def test_an_undone_blob_has_the_sum_of_the_one_that_came_back(path, folder, start_server, connect):
    server = start_server(path, "--blob-dir", str(folder))
    storage = connect(server, blob_dir=str(folder), shared_blob_dir=True)
    database = ZODB.DB(storage)
    manager = transaction.TransactionManager()
    root = database.open(manager).root()
    root["blob"] = blob = ZODB.blob.Blob(b"first")
    manager.commit()
    with blob.open("w") as file:
        file.write(b"second one")
    manager.commit()
    database.undo(database.undoLog(0, 1)[0]["id"], manager.get())
    manager.commit()
    oid = u64(blob._p_oid)
    database.close()
    assert server.stop() == 0
    found = own_files.blob_sums(folder / ".zodium-sums")
    texts = [b"first", b"second one", b"first"]
    assert [(e.oid, e.length, e.sum) for e in found] == [(oid, len(t), crc32c(t)) for t in texts]


def own_contents(folder):
    """What the server's own files have in them, that are for its uploads."""
    return [path.read_bytes() for path in (folder / "tmp").glob("zodium-*")]


def test_an_intent_names_the_blobs_of_a_vote(folder, serve_blobs, wire):
    server, client = serve_blobs()
    first = blobs.commit(client, 1, [(p64(1), Z64, b"first")])
    blobs.begin(client, 2)
    blobs.upload(client, 2, p64(1), first, [b"second"])
    blobs.upload(client, 2, p64(2), Z64, [b"other"])
    other = wire(server)
    blobs.begin(other, 3)
    blobs.upload(other, 3, p64(3), Z64, [b"not voted"])
    other.call("ping")
    assert len(client.call("vote", 2)) == 0
    # Its intent, and the upload, which is written in the background.
    blobs.wait_for_leftovers(folder, 4)
    wait_for(lambda: b"not voted" in own_contents(folder), lambda: own_contents(folder))
    server.kill()
    own = sorted((folder / "tmp").glob("zodium-*"))
    (intent,) = [name for name in own if name.suffix == ".intent"]
    (upload,) = [name for name in own if name.suffix != ".intent"]
    assert upload.read_bytes() == b"not voted"
    assert all(re.fullmatch(r"zodium-[0-9a-f]{16}-[0-9a-f]+(\.intent)?", p.name) for p in own)
    after, blobs_of_vote = own_files.intent(intent)
    named = dict(blobs_of_vote)
    assert (after, set(named)) == (u64(first), {1, 2})
    voted = {o: blobs.path_of(folder, p64(o), first).with_name(named[o]) for o in named}
    assert {o: path.read_bytes() for o, path in voted.items()} == {1: b"second", 2: b"other"}
    assert all(path.stat().st_mode & 0o222 == 0 for path in voted.values())
    serve_blobs()
    assert not any(path.exists() for path in [intent, upload, *voted.values()])


def test_a_pack_lists_the_blobs_that_it_dropped(path, folder, serve_blobs):
    _, client = serve_blobs()
    dropped, serial = [], Z64
    for number in range(1, 5):
        dropped.append((0, u64(serial)))
        serial = blobs.commit(client, number, [(p64(0), serial, b"%d" % number)])
    client.call("pack", time.time(), True)
    last = u64(serial)
    found = own_files.packed(folder / "tmp" / "zodium-packed")
    transactions = list(own_files.transactions_of(path.read_bytes()))
    packed = [entry for entry in transactions if entry[2] == b"p"]
    assert found.tid == last and found.boundary == packed[-1][3] == path.stat().st_size
    assert found.keep_old is True and found.blobs == dropped[1:]
    old = folder.with_name("blobs.old")
    assert set(blobs.digests(old)) == {(p64(o), p64(t)) for o, t in [*dropped[1:], (0, last)]}
    assert [entry.tid for entry in own_files.blob_sums(folder / ".zodium-sums")] == [last]


def test_the_cache_of_a_client_holds_its_revisions(tmp_path, path, start_server, open_native):
    server = start_server(path)
    database = ZODB.DB(open_native(server.address, client="app", var=str(tmp_path)))
    with database.transaction() as connection:
        connection.root()["a"] = PersistentMapping(text="one")
    with database.transaction() as connection:
        connection.root()["a"]["text"] = "two"
        oid = u64(connection.root()["a"]._p_oid)
    database.close()
    found = own_files.cache(tmp_path / "app-1.zodium")
    *_, (_, last, _, _) = own_files.transactions_of(path.read_bytes())
    host, port = server.address
    assert found.source.startswith("storage 1 of ") and found.source.endswith(f":{port}")
    assert found.last_tid == last
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    for known, revisions in found.objects.items():
        assert revisions == sorted(revisions)
        assert all(end > serial for serial, end, _ in revisions[:-1])
        for serial, _, data in revisions:
            assert data == storage.loadSerial(p64(known), p64(serial))
    storage.close()
    serial, end, data = found.objects[oid][-1]
    assert (serial, end) == (last, 0) and b"two" in data
    lock = (tmp_path / "app-1.zodium.lock").read_text()
    assert lock == f" {os.getpid()}\n"


def test_no_file_is_undocumented(tmp_path, path, folder, start_server, wire, open_native):
    known = {name for row in document_rows() for name in re.findall(r"`([^`]+)`", row[0])}
    server = start_server(path, "--blob-dir", str(folder))
    client = wire(server, seconds=60)
    open_native(server.address, client="app", var=str(tmp_path)).close()
    tid = blobs.commit(client, 1, [(p64(0), Z64, b"one")])
    tid = blobs.commit(client, 2, [(p64(0), tid, b"two")])
    client.call("pack", time.time(), True)
    blobs.begin(client, 3)
    blobs.upload(client, 3, p64(0), tid, [b"three"])
    assert len(client.call("vote", 3)) == 0
    server.kill()
    with open(path, "ab") as file:
        file.write(b"unfinished")
    found = names_below(tmp_path)
    assert start_server(path, "--blob-dir", str(folder)).stop() == 0
    found |= names_below(tmp_path)
    assert {"Data.fs.tr0", "Data.fs.index.crc32c", "blobs/tmp/zodium-packed"} <= found
    unknown = {name for name in found if documented(name) not in known}
    assert unknown == set()


def document_rows():
    """The cells of the first table of the document."""
    table = DOCUMENT.read_text().split("\n| name |")[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def names_below(folder):
    """Files of storages and clients, but for logs and configurations of the test."""
    found = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return {name for name in found if not re.fullmatch(r"server-\d+\.(log|conf)", name)}


def documented(name):
    """The name as the document writes it."""
    if name.startswith("blobs.old/"):
        return "BLOBS.old/"
    name = re.sub(r"^app-1", "NAME", name)
    name = re.sub(r"^blobs/", "BLOBS/", name)
    name = re.sub(r"\.tr\d+$", ".trN", name)
    name = re.sub(r"(0x[0-9a-f]+/)+", "0x../", name)
    name = re.sub(r"zodium-[0-9a-f]{16}-[0-9a-f]+", "zodium-*", name)
    return re.sub(r"0x[0-9a-f]+\.blob$", "0x*.blob", name)
