"""zodium check and zodium recover, on files of either server, beside fstest and fsrecover.

Whatever fstest finds is found, and whatever fsrecover gets out of a file rightly comes out.
"""

import json
import shutil
import subprocess
import sys

import pytest
import ZODB.FileStorage
from harness import files
from harness.history import History
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping

RUN_SECONDS = 60
# The stock fsrecover does not end when a '.' is among the last bytes of a file. This is processor
# time: a busy machine gives it less of that.
FSRECOVER_SECONDS = 5


def test_a_recovery_that_is_killed_leaves_no_file_of_that_name(tmp_path, seeded, binary, run):
    path, out = tmp_path / "Data.fs", tmp_path / "New.fs"
    storage = ZODB.FileStorage.FileStorage(str(path))
    History(seeded).write(storage, 600)
    storage.close()
    content = bytearray(path.read_bytes())
    for end in bounds(path)[1:]:
        content[end - 8 : end] = bytes(8)
    path.write_bytes(content)
    part = tmp_path / "New.fs.part"
    # It waits in the middle, because the notes of what it has met are not read.
    words = [binary, "recover", "--json", str(path), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        wait_for(part.exists, "a part of the file")
        # A database that another program makes there meanwhile stays.
        out.write_bytes(b"FS21")
        process.communicate()
        assert process.returncode == 2
    assert out.read_bytes() == b"FS21" and part.exists()
    out.unlink()
    # The next one would remove it; a part that is there is then its own.
    part.unlink()
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        wait_for(part.exists, "a part of the file")
        assert process.poll() is None and not out.exists()
        process.kill()
    assert not out.exists()
    code, _ = run("recover", "--json", path, out)
    assert code in (0, 1)
    assert out.exists() and not part.exists()
    assert not [name for name in tmp_path.iterdir() if "part" in name.name]


@pytest.fixture
def run(run):
    """run(*words): the exit code, and the JSON objects of the lines it printed."""

    def run_json(*words):
        code, out, _ = run(*words)
        return code, [json.loads(line) for line in out.splitlines()]

    return run_json


@pytest.fixture
def written(tmp_path, seeded):
    """(path, its history): a file with an index, written by the stock FileStorage."""
    path = tmp_path / "Data.fs"
    history = History(seeded)
    storage = ZODB.FileStorage.FileStorage(str(path))
    history.write(storage, 60)
    storage.close()
    return path, history


def bounds(path):
    """Where each transaction begins, and the end of the file."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    starts = [transaction._tpos for transaction in storage.iterator()]
    storage.close()
    return [*starts, path.stat().st_size]


def records_of(path):
    """{(oid, tid, data)} of all records; what metadata say is not looked at."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    try:
        return {
            (record.oid, transaction.tid, record.data)
            for transaction in storage.iterator()
            for record in transaction
        }
    finally:
        storage.close()


def stock_finds_damage(path):
    try:
        files.check(path)
    except Exception:
        return True
    return False


def stock_recovered(path, out):
    """What the stock fsrecover gets out of a file; nothing if it does not end."""
    limited = ["prlimit", f"--cpu={FSRECOVER_SECONDS}"]
    command = [sys.executable, "-m", "ZODB.fsrecover", "-p", str(path), str(out)]
    done = subprocess.run([*limited, *command], capture_output=True)
    if done.returncode < 0:
        return set()
    try:
        return records_of(out)
    except Exception:
        return set()


def test_files_of_stock_are_whole(written, run):
    path, history = written
    code, [summary] = run("check", path, "--json")
    assert (code, summary["damages"], summary["index"]) == (0, 0, "agrees")
    assert summary["transactions"] == len(history.transactions)
    assert summary["bytes"] == path.stat().st_size


def test_packed_file_of_stock_is_whole(tmp_path, run):
    path = tmp_path / "Data.fs"
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    for number in range(20):
        with database.transaction() as connection:
            connection.root()["thing"] = PersistentMapping(number=number)
        if number in (9, 15):
            database.pack()
        if number % 3 == 2:
            database.undo(database.undoLog(0, 1)[0]["id"])
            with database.transaction() as connection:
                connection.root()["other"] = number
    database.close()
    code, [summary] = run("check", path, "--references", "--pickles", "--json")
    assert (code, summary["index"]) == (0, "agrees")
    out = tmp_path / "Out.fs"
    code, [_] = run("recover", path, out, "--json")
    assert code == 0
    assert out.read_bytes() == path.read_bytes()


def test_file_is_checked_while_it_is_served(tmp_path, seeded, start_server, connect, run):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    client, history = connect(server), History(seeded)
    for _ in range(5):
        history.write(client, 20)
        code, found = run("check", path, "--json")
        assert code == 0, found
        assert found[-1]["transactions"] == len(history.transactions)
    client.close()
    assert server.stop() == 0
    code, [summary] = run("check", path, "--json")
    assert (code, summary["index"]) == (0, "agrees")


def test_reference_to_a_missing_object_is_found(tmp_path, run):
    path = tmp_path / "Data.fs"
    storage = ZODB.FileStorage.FileStorage(str(path))
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["thing"] = PersistentMapping()
    with database.transaction() as connection:
        thing = connection.root()["thing"]
        oid, serial = thing._p_oid, thing._p_serial
    transaction = ZODB.Connection.TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.deleteObject(oid, serial, transaction)
    storage.tpc_vote(transaction)
    storage.tpc_finish(transaction)
    database.close()
    assert run("check", path, "--json")[0] == 0
    code, found = run("check", path, "--references", "--json")
    assert code == 1
    assert [(one["kind"], one.get("oid")) for one in found] == [
        ("reference", "0" * 16),
        ("summary", None),
    ]
    assert f"PersistentMapping to object {oid.hex()}, which is deleted" in found[0]["what"]


def damage(random, path, starts):
    """Damage a file in one of the ways that files are damaged."""
    content = bytearray(path.read_bytes())
    at = random.randrange(4, len(content))
    kind = random.choice(["flip", "header", "zeros", "noise", "cut", "lost"])
    if kind == "flip":
        content[at] ^= 1 << random.randrange(8)
    elif kind == "header":
        at = random.choice(starts[:-1]) + random.randrange(23)
        content[at] ^= 0xFF
    elif kind == "zeros":
        content[at : at + 600] = bytes(len(content[at : at + 600]))
    elif kind == "noise":
        content[at : at + 100] = random.randbytes(len(content[at : at + 100]))
    elif kind == "cut":
        del content[at:]
    elif kind == "lost":
        del content[at : at + 512]
    path.write_bytes(content)
    return kind


def test_no_less_is_found_and_recovered_than_by_the_stock_tools(written, tmp_path, seeded, run):
    original, _ = written
    starts, whole, compared = bounds(original), records_of(original), 0
    for number in range(12):
        path = tmp_path / f"Damaged{number}.fs"
        shutil.copy(original, path)
        kind = damage(seeded, path, starts)
        code, found = run("check", path, "--json")
        assert code == 1 or not stock_finds_damage(path), kind
        out = tmp_path / f"Out{number}.fs"
        code, notes = run("recover", path, out, "--partial", "--json")
        assert code == (1 if notes[-1]["left_out"] else 0), notes
        code, left = run("check", out, "--json")
        assert code == 0, left
        files.check(out)
        ours = records_of(out)
        stock = stock_recovered(path, tmp_path / f"Stock{number}.fs") & whole
        missing = stock - ours
        if kind in ("zeros", "noise", "lost") and {data for _, _, data in missing} == {None}:
            # The one before the damage. A deletion says nothing but zeros: with no record after
            # it, it is a guess, since a record whose length was zeroed looks the same.
            missing.pop()
        assert not missing, f"{kind}: {len(missing)} of {len(stock)} records"
        compared += len(stock)
    assert compared


def test_what_is_left_out_is_said(written, tmp_path, run, connect, start_server):
    path, history = written
    starts = bounds(path)
    content = bytearray(path.read_bytes())
    content[starts[30] + 16] = ord("?")
    path.write_bytes(content)
    lost = history.transactions[30]
    code, [found, summary] = run("check", path, "--json")
    assert (code, summary["damages"]) == (1, 1)
    assert (found["kind"], found["position"]) == ("transaction", starts[30])
    assert found["tid"] == lost.tid.hex()
    out = tmp_path / "Out.fs"
    code, [note, *_, summary] = run("recover", path, out, "--json")
    assert code == 1
    assert (note["start"], note["end"], note["tids"]) == (starts[30], starts[31], [lost.tid.hex()])
    assert note["oids"] == sorted({record.oid.hex() for record in lost.records})
    assert summary["transactions"] == len(history.transactions) - 1
    expected = [one.tid for one in history.transactions if one is not lost]
    assert [one.tid for one in files.read(out)] == expected
    # It can be served, and goes on.
    client = connect(start_server(out))
    assert client.lastTransaction() == history.last_tid


def test_exit_codes(written, tmp_path, binary):
    path, _ = written

    def code(*words):
        return subprocess.run(
            [binary, *map(str, words)], capture_output=True, timeout=RUN_SECONDS
        ).returncode

    other = tmp_path / "other.txt"
    other.write_text("This is no FileStorage.")
    assert code("check", path) == 0
    assert code("check", other) == 2
    assert code("check", tmp_path / "missing.fs") == 2
    assert code("check") == 2
    before = other.read_bytes()
    assert code("recover", path, other) == 2
    assert code("recover", path, path) == 2
    # A part of the new file would be replaced.
    (tmp_path / "new.fs.part.restoring").touch()
    for name, expected in {
        "new.fs.part": 2,
        "new.fs.part.index": 2,
        "new.fs.part-damaged": 0,
    }.items():
        part = tmp_path / name
        part.write_bytes(path.read_bytes())
        assert code("recover", part, tmp_path / "new.fs") == expected
        assert part.read_bytes() == path.read_bytes()
    assert other.read_bytes() == before
    assert code("recover", path, tmp_path / "out.fs") == 0
