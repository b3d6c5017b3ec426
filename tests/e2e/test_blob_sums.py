"""Blobs that are not what was committed: served as errors that name them, and found by a check.

What is sound is never called damaged, though the stock server commits and packs in turns.
"""

import json
import os
import subprocess

import pytest
import transaction
import ZODB
import ZODB.blob
import ZODB.FileStorage
from harness import blobs
from harness.monitor import Monitor
from harness.waiting import wait_for
from harness.wire import Z64, ErrorReply
from ZODB.POSException import POSKeyError
from ZODB.utils import p64, u64

pytestmark = pytest.mark.zodium

RUN_SECONDS = 60
SIZES = [0, 1, 100, 60_000, 600_000, 3_000_001]  # of one window, and of several
HEAD_BYTES, ENTRY_BYTES = 32, 32


@pytest.fixture
def check(binary, tmp_path, folder):
    """check(*options): the exit code, what was found, and the summary."""

    def run(*options):
        path = tmp_path / "Data.fs"
        words = [str(binary), "check", "--json", "--blob-dir", str(folder), *options, str(path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_SECONDS)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        return done.returncode, lines[:-1], lines[-1]

    return run


@pytest.fixture
def served(start_server, folder, wire):
    """(server, its monitor, a raw client, [(oid, tid, data)]): blobs of all sizes."""
    monitor = Monitor()
    server = start_server(None, "--blob-dir", str(folder), *monitor.options)
    client = wire(server, seconds=60)
    written = []
    for number, size in enumerate(SIZES, 1):
        data = os.urandom(size)
        tid = blobs.commit(client, number, [(p64(number), Z64, data)])
        written.append((p64(number), tid, data))
    return server, monitor, client, written


def truncate(path, length):
    path.chmod(0o600)
    os.truncate(path, length)


def health(monitor):
    return json.loads(monitor.fetch("/health")[2])


def assert_others_load(client, written, damaged):
    others = [entry for entry in written if entry[0] != damaged]
    found = blobs.download(client, *[(oid, tid) for oid, tid, _ in others])
    assert found == {(oid, tid): blobs.digest(data) for oid, tid, data in others}


def download_fails(client, oid, tid):
    """What the error of a download says."""
    with pytest.raises(ErrorReply) as raised:
        blobs.download(client, (oid, tid))
    assert "POSKeyError" in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("place", range(1, len(SIZES)), ids=SIZES[1:])
def test_a_shortened_blob_is_an_error_that_names_it_and_all_others_load(
    served, folder, check, place
):
    server, monitor, client, written = served
    oid, tid, data = written[place]
    path = blobs.path_of(folder, oid, tid)
    assert health(monitor)["status"] == "ok"
    truncate(path, len(data) // 2)
    for _ in range(2):
        text = download_fails(client, oid, tid)
        assert f"{len(data) // 2} bytes, {len(data)} were committed" in text
        assert str(path) in text
    assert_others_load(client, written, oid)
    assert health(monitor)["status"] == "degraded"
    assert health(monitor)["storages"][0]["damaged"] == 1
    [line] = [line for line in server.log().splitlines() if "ERROR" in line]
    assert str(path) in line
    code, [found], summary = check()
    assert (code, summary["damages"], summary["blobs"]["damaged"]) == (1, 1, 1)
    assert (found["kind"], found["oid"], found["tid"]) == ("blob-length", oid.hex(), tid.hex())
    assert str(path) in found["what"]
    # Put back from a backup.
    path.unlink()
    path.write_bytes(data)
    assert_others_load(client, written, None)
    assert check("--blob-data")[0] == 0


@pytest.mark.parametrize("place", range(1, len(SIZES)), ids=SIZES[1:])
def test_a_changed_blob_is_an_error_and_found_by_a_check_that_reads_blobs(
    served, folder, check, place
):
    _, monitor, client, written = served
    oid, tid, data = written[place]
    path = blobs.path_of(folder, oid, tid)
    path.chmod(0o600)
    with open(path, "r+b") as file:
        file.seek(len(data) // 2)
        file.write(bytes([data[len(data) // 2] ^ 1]))
    for _ in range(2):
        assert "other bytes than were committed" in download_fails(client, oid, tid)
    assert_others_load(client, written, oid)
    assert health(monitor)["storages"][0]["damaged"] == 1
    assert check()[:2] == (0, [])
    code, [found], summary = check("--blob-data")
    assert (code, summary["blobs"]["damaged"]) == (1, 1)
    assert (found["kind"], found["oid"], found["tid"]) == ("blob-sum", oid.hex(), tid.hex())
    path.write_bytes(data)
    assert_others_load(client, written, None)
    assert health(monitor)["status"] == "ok"


def test_the_clients_of_applications_get_the_error_of_a_missing_blob(
    served, folder, tmp_path, connect, open_native
):
    server, _, _, written = served
    oid, tid, data = written[-1]
    truncate(blobs.path_of(folder, oid, tid), 10)
    stock = connect(server, blob_dir=str(tmp_path / "stock-cache"))
    native = open_native(server.address, blob_dir=str(tmp_path / "native-cache"))
    for storage in (stock, native):
        for _ in range(2):
            with pytest.raises(POSKeyError, match="10 bytes, 3000001 were committed"):
                storage.loadBlob(oid, tid)
        for oid_, tid_, data_ in written[:-1]:
            with open(storage.loadBlob(oid_, tid_), "rb") as file:
                assert file.read() == data_


def test_blobs_that_clients_put_there_themselves_are_recorded(
    tmp_path, start_server, folder, connect, check
):
    server = start_server(None, "--blob-dir", str(folder))
    shared = connect(server, blob_dir=str(folder), shared_blob_dir=True)
    database = ZODB.DB(shared)
    with database.transaction() as connection:
        connection.root()["blob"] = ZODB.blob.Blob(os.urandom(200_000))
        connection.root()["other"] = ZODB.blob.Blob(b"other")
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    database.close()
    code, found, summary = check("--blob-data")
    assert (code, found) == (0, [])
    assert summary["blobs"]["records"] == 4
    assert summary["blobs"]["unrecorded"] == 0
    (oid, tid) = sorted(blobs.recorded(tmp_path / "Data.fs"))[0]
    path = blobs.path_of(folder, oid, tid)
    path.chmod(0o600)
    path.write_bytes(os.urandom(path.stat().st_size))
    code, found, _ = check("--blob-data")
    # The undone one is the same file by another name.
    assert (code, {entry["kind"] for entry in found}) == (1, {"blob-sum"})
    assert [u64(oid)] * 2 == [int(entry["oid"], 16) for entry in found]


def test_with_a_stock_server_in_turns_nothing_is_called_damaged(
    tmp_path, start_server, folder, connect, check, seeded
):
    path = tmp_path / "Data.fs"
    ours, number = set(), 0
    for turn in range(6):
        if turn % 2 == 0:
            server = start_server(path, "--blob-dir", str(folder), "--no-pack-keep-old")
            storage = connect(server, blob_dir=str(tmp_path / f"cache-{turn}"))
        else:
            storage = ZODB.FileStorage.FileStorage(
                str(path), blob_dir=str(folder), pack_keep_old=False
            )
        before = blobs.recorded(path) if path.exists() else set()
        database = ZODB.DB(storage)
        for _ in range(8):
            number += 1
            with database.transaction() as connection:
                blob = connection.root().setdefault(number % 5, ZODB.blob.Blob())
                with blob.open("w") as file:
                    file.write(seeded.randbytes(seeded.randrange(100)))
        database.undo(database.undoLog(0, 1)[0]["id"])
        transaction.commit()
        if turn % 2 == 0:
            ours |= blobs.recorded(path) - before
        if turn >= 2:
            database.pack()
        database.close()
        if turn % 2 == 0:
            assert server.stop() == 0
        code, found, summary = check("--blob-data")
        assert (code, found) == (0, []), turn
        records = blobs.recorded(path)
        assert summary["blobs"]["records"] == len(records)
        assert summary["blobs"]["unrecorded"] == len(records - ours), turn
        assert blobs.leftovers(folder) == []
    entries = (folder / ".zodium-sums").stat().st_size - HEAD_BYTES
    # Of its own pack the server has dropped the entries.
    assert entries // ENTRY_BYTES < len(ours)


def test_no_flipped_bit_of_the_sums_calls_a_blob_damaged(
    served, folder, check, start_server, wire, seeded
):
    server, _, client, written = served
    client.close()
    assert server.stop() == 0
    sums = folder / ".zodium-sums"
    whole = sums.read_bytes()
    assert len(whole) == HEAD_BYTES + len(SIZES) * ENTRY_BYTES
    for _ in range(20):
        flipped = bytearray(whole)
        flipped[seeded.randrange(len(whole))] ^= 1 << seeded.randrange(8)
        sums.write_bytes(flipped)
        code, found, summary = check("--blob-data")
        assert (code, found) == (0, [])
        assert summary["blobs"]["unrecorded"] <= 1
    assert_others_load(wire(start_server(None, "--blob-dir", str(folder))), written, None)


def test_check_says_in_words_what_is_wrong_and_what_is_not_known(served, folder, tmp_path, binary):
    _, _, _, written = served
    oid, tid, _ = written[2]
    path = blobs.path_of(folder, oid, tid)
    truncate(path, 7)
    (tmp_path / "blobs" / ".zodium-sums").rename(tmp_path / "kept")
    words = [str(binary), "check", "--blob-dir", str(folder), str(tmp_path / "Data.fs")]

    def run():
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_SECONDS)
        return done.returncode, done.stdout

    code, text = run()
    assert (code, f"{len(SIZES)} without a recorded length" in text) == (0, True)
    (tmp_path / "kept").rename(tmp_path / "blobs" / ".zodium-sums")
    code, text = run()
    assert code == 1
    assert f"{path}: 7 bytes, 100 were committed" in text
    assert f"{len(SIZES)} blobs, 0 missing, 1 damaged, 0 without a recorded length" in text
    alone = subprocess.run(
        [str(binary), "check", "--blob-data", str(tmp_path / "Data.fs")],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert alone.returncode == 2
    assert "--blob-dir" in alone.stderr


def test_a_directory_that_is_away_takes_no_blobs(served, folder):
    """As when its disk is unmounted: an empty folder has its name then."""
    server, monitor, client, written = served
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir()
    wait_for(lambda: b"is away" in monitor.fetch("/health")[2], "the directory is missed", 30)
    code, _, body = monitor.fetch("/health")
    assert (code, b'"degraded"' in body) == (200, True)
    with pytest.raises(ErrorReply, match="the blob directory in use is away"):
        blobs.commit(client, 901, [(p64(901), Z64, b"refused")])
    with pytest.raises(ErrorReply, match="the blob directory in use is away"):
        blobs.download(client, written[0][:2])
    assert list(folder.iterdir()) == []
    folder.rmdir()
    aside.rename(folder)
    wait_for(lambda: b"is away" not in monitor.fetch("/health")[2], "the directory is back", 30)
    blobs.commit(client, 902, [(p64(902), Z64, b"accepted")])
    blobs.download(client, written[0][:2])
    log = server.log()
    told = [line for line in log.splitlines() if "is away" in line and "cannot send" not in line]
    assert len(told) == 1 and "the blob directory is back" in log
