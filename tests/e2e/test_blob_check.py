"""`zodium check --blob-dir`, and what a server says whose blobs are elsewhere.

The blobs are written by a stock FileStorage, or by clients of the server while it is checked.
"""

import json
import shutil
import subprocess

import pytest
import transaction
import ZODB
import ZODB.blob
import ZODB.FileStorage
from harness import blobs
from harness.waiting import wait_for
from harness.wire import Z64
from persistent.mapping import PersistentMapping
from ZODB.utils import p64

pytestmark = pytest.mark.zodium

RUN_SECONDS = 60
LOG_SECONDS = 20
BLOBS = 5
NO_DIRECTORY = "given no blob directory"
NOT_THERE = "that are not in the blob directory"


@pytest.fixture
def check(binary):
    """check(path, folder): the exit code, what was found, and the summary."""

    def run(path, folder):
        words = [str(binary), "check", "--json", "--blob-dir", str(folder), str(path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_SECONDS)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        return done.returncode, lines[:-1], lines[-1]

    return run


@pytest.fixture(params=["bushy", "lawn"])
def written(request, tmp_path):
    """(path, blob directory): blobs, a second revision, an undone one, and objects without any."""
    path, folder = tmp_path / "Data.fs", tmp_path / "blobs"
    if request.param == "lawn":
        folder.mkdir()
        (folder / ".layout").write_text("lawn")
    write(path, folder)
    return path, folder


def write(path, folder):
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path), blob_dir=str(folder)))
    connection = database.open()
    root = connection.root()
    for number in range(BLOBS):
        root[number] = ZODB.blob.Blob(b"blob %d" % number)
        root[f"plain {number}"] = PersistentMapping(number=number)
        transaction.commit()
    for number in range(2):
        with root[number].open("w") as file:
            file.write(b"second revision")
        transaction.commit()
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    connection.close()
    database.close()


def file_of_some_blob(path, folder):
    """(oid, tid, path) of a blob."""
    oid, tid = sorted(blobs.recorded(path))[1]
    return oid, tid, blobs.path_of(folder, oid, tid)


def test_blobs_that_stock_wrote_and_packed_are_whole(written, check):
    path, folder = written
    blobs.assert_whole(path, folder)
    code, found, summary = check(path, folder)
    assert (code, found) == (0, [])
    records = len(blobs.recorded(path))
    none = {"missing": 0, "damaged": 0, "orphaned": 0}
    assert summary["blobs"] == {"records": records, "unrecorded": records, **none}
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path), blob_dir=str(folder)))
    database.pack()
    database.close()
    code, found, summary = check(path, folder)
    assert (code, found) == (0, [])
    assert summary["blobs"]["records"] == len(blobs.recorded(path)) < records


def test_missing_blob_is_named(written, check):
    path, folder = written
    oid, tid, file = file_of_some_blob(path, folder)
    file.unlink()
    code, [found], summary = check(path, folder)
    assert code == 1
    assert (found["kind"], found["oid"], found["tid"]) == ("blob-missing", oid.hex(), tid.hex())
    assert str(file) in found["what"]
    assert (summary["damages"], summary["blobs"]["missing"]) == (1, 1)


def test_blob_without_a_record_is_named_and_is_no_damage(written, check):
    path, folder = written
    oid, _, file = file_of_some_blob(path, folder)
    orphan = file.with_name("0x03f5945817777777.blob")
    orphan.write_bytes(b"of no transaction")
    code, [found], summary = check(path, folder)
    assert code == 0
    assert (found["kind"], found["oid"]) == ("blob-orphaned", oid.hex())
    assert str(orphan) in found["what"]
    assert (summary["damages"], summary["blobs"]["orphaned"]) == (0, 1)


def test_blobs_younger_than_the_data_file_are_orphaned(tmp_path, written, check):
    path, folder = written
    earlier = tmp_path / "Earlier.fs"
    shutil.copy(path, earlier)
    before = blobs.recorded(path)
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path), blob_dir=str(folder)))
    with database.transaction() as connection:
        connection.root()["later"] = ZODB.blob.Blob(b"later")
    database.close()
    [(oid, tid)] = blobs.recorded(path) - before
    code, [found], _ = check(earlier, folder)
    assert code == 0
    assert (found["kind"], found["oid"], found["tid"]) == ("blob-orphaned", oid.hex(), tid.hex())


def test_directory_that_is_not_there_is_an_error(written, binary, tmp_path):
    path, _ = written
    words = [str(binary), "check", "--blob-dir", str(tmp_path / "none"), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 2
    assert str(tmp_path / "none") in done.stderr


def test_blobs_are_checked_while_they_are_committed(tmp_path, start_server, wire, check):
    path, folder = tmp_path / "Data.fs", tmp_path / "blobs"
    client = wire(start_server(path, "--blob-dir", str(folder)))
    for number in range(40):
        blobs.commit(client, number + 1, [(p64(number + 1), Z64, b"data" * number)])
        if number % 10 == 9:
            # A commit is under way when the directory is listed.
            blobs.begin(client, 1000)
            blobs.upload(client, 1000, p64(1000 + number), Z64, [b"voted"])
            client.call("vote", 1000)
            client.request("tpc_finish", 1000)
            code, found, summary = check(path, folder)
            assert (code, found) == (0, [])
            assert summary["blobs"]["records"] >= number + 1
            client.reply(client.last_id)


def wait_for_line(server, text):
    def lines():
        return [line for line in server.log().splitlines() if text in line]

    return wait_for(lines, server.log, LOG_SECONDS)


def test_server_without_a_blob_directory_says_so_when_objects_are_blobs(written, start_server):
    path, _ = written
    [line] = wait_for_line(start_server(path), NO_DIRECTORY)
    assert "WARN" in line
    assert f"blobs={BLOBS}" in line


def test_server_with_an_empty_blob_directory_says_so(written, tmp_path, start_server):
    path, folder = written
    [line] = wait_for_line(start_server(path, "--blob-dir", str(tmp_path / "empty")), NOT_THERE)
    assert f"missing={BLOBS}" in line
    assert str(tmp_path / "empty") in line


def test_server_that_lacks_one_blob_says_which(written, start_server):
    path, folder = written
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    oid = min(oid for oid, _ in blobs.recorded(path))
    _, tid = storage.load(oid)
    storage.close()
    blobs.path_of(folder, oid, tid).unlink()
    [line] = wait_for_line(start_server(path, "--blob-dir", str(folder)), NOT_THERE)
    assert "missing=1" in line
    assert str(blobs.path_of(folder, oid, tid)) in line


def test_server_with_its_blobs_or_without_any_says_nothing(written, tmp_path, start_server):
    path, folder = written
    served = start_server(path, "--blob-dir", str(folder), "--log-level", "debug")
    plain = tmp_path / "plain.fs"
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(plain)))
    with database.transaction() as connection:
        connection.root()["plain"] = PersistentMapping()
    database.close()
    others = start_server(plain, "--log-level", "debug")
    for server in (served, others):
        wait_for_line(server, "no blob is missing")
        assert NO_DIRECTORY not in server.log()
        assert NOT_THERE not in server.log()
