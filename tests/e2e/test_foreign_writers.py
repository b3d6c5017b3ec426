"""A large file that Zodium has served with checksums, and another program wrote since: sound for
every command, served whole, and with the right index afterwards.
"""

import json
import shutil
import subprocess

import pytest
import transaction
import ZODB
import ZODB.FileStorage
from harness import judge
from harness.monitor import Monitor
from persistent.mapping import PersistentMapping

pytestmark = pytest.mark.zodium

# Checksums of a small file are all near its end, where mistakes do not show.
FOLDERS, ITEMS = 160, 100
TEXT = "some text " * 20
COMMAND_SECONDS = 120


def stock(path):
    return ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))


def fill(path):
    db = stock(path)
    with db.transaction() as connection:
        for number in range(FOLDERS):
            folder = connection.root()[number] = PersistentMapping()
            for item in range(ITEMS):
                folder[item] = PersistentMapping(text=TEXT[: 10 + (number * item) % 150])
    db.close()


def change(db, step, mark):
    """Changes one item of each `step`-th folder, a transaction each."""
    connection = db.open(transaction.TransactionManager())
    for number in range(0, FOLDERS, step):
        change_one(connection, number, mark)
    connection.close()


def change_one(connection, number, mark):
    connection.root()[number][number % ITEMS]["text"] = f"{mark} {number}"
    connection.transaction_manager.get().note("/page")
    connection.transaction_manager.commit()


def packed_by_stock(path, folder):
    db = stock(path)
    change(db, 2, "stock")
    db.pack()
    change(db, 50, "stock again")
    db.close()


def last_replaced(path, folder):
    """A copy that lacked the last transaction went on with one of the same length."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    *_, last = (one._tpos for one in storage.iterator())
    storage.close()
    standby = folder / "standby.fs"
    standby.write_bytes(path.read_bytes()[:last])
    db = stock(standby)
    connection = db.open(transaction.TransactionManager())
    change_one(connection, (FOLDERS - 1) // 3 * 3, "others")
    db.close()
    assert standby.stat().st_size == path.stat().st_size
    shutil.copyfile(standby, path)


def put_back(path, folder):
    shutil.copyfile(folder / "older.fs", path)


def copied(path, folder):
    for file in list(path.parent.glob("Data.fs*")):
        shutil.copy2(file, folder / "copy")
        (folder / "copy").rename(file)


def is_covered(status):
    storage = status["storages"][0]
    return storage["checksums"]["covered_bytes"] == storage["size_bytes"]


@pytest.fixture
def served_before(tmp_path, start_server, connect):
    """The path of a file that a server has covered and committed to; `older.fs` was before that."""
    (tmp_path / "site").mkdir()
    path = tmp_path / "site" / "Data.fs"
    fill(path)
    shutil.copyfile(path, tmp_path / "older.fs")
    monitor = Monitor()
    server = start_server(path, *monitor.options)
    monitor.wait_until(is_covered, seconds=60)
    db = ZODB.DB(connect(server))
    change(db, 3, "Zodium")
    db.close()
    server.stop()
    return path


@pytest.mark.parametrize("write", [packed_by_stock, last_replaced, put_back, copied])
def test_what_others_have_written_is_sound_and_gets_the_right_index(
    served_before, tmp_path, write, binary, start_server, connect
):
    path = served_before
    write(path, tmp_path)
    (tmp_path / "judge").mkdir()
    truth = judge.read(path, tmp_path / "judge")
    assert truth.is_sound, truth.problem

    def run(*words):
        words = [str(word) for word in (binary, *words)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_SECONDS)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    _, lines = run("check", "--json", path)
    assert [line for line in lines[:-1] if line["kind"] != "index"] == []
    assert not lines[-1]["checksums"] and lines[-1]["checksums_not_used"]
    code, lines = run("recover", "--json", path, tmp_path / "New.fs")
    assert (code, len(lines), lines[0]["left_out"]) == (0, 1, 0)
    assert (tmp_path / "New.fs").read_bytes() == path.read_bytes()

    monitor = Monitor()
    server = start_server(path, *monitor.options)
    storage = connect(server)
    for oid, (data, tid) in truth.current.items():
        assert storage.load(oid) == (data, tid)
    status = monitor.wait_until(is_covered, seconds=60)
    assert status["storages"][0]["checksums"]["damaged"] == 0
    server.stop()
    assert server.log().count("checksums beside the data file are not used") == 1
    for word in ("damage", "does not fit", "are lost"):
        assert word not in server.log()
    assert judge.index_beside(path) == (truth.size, truth.index)
    code, lines = run("check", "--json", path)
    assert (code, lines[-1]["checksums"], lines[-1]["uncovered"]) == (0, True, 0)
