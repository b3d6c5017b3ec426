"""zodium dump, load, commit, cmp, copy, info and catobj, on random databases that ZODB wrote.

A dump is compared byte for byte with one that is made from the grammar, and what is loaded from it
with the file that it came from.
"""

import hashlib
import re
import shutil
import subprocess
from contextlib import closing

import pytest
import transaction
import ZODB.FileStorage
from harness import zodb_dump
from harness.history import History
from ZODB.POSException import POSKeyError
from ZODB.utils import p64, u64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


@pytest.fixture
def run(run_bytes):
    return run_bytes


def tids_of(storage):
    return [transaction.tid for transaction in storage.iterator()]


def test_a_dump_is_what_the_grammar_says(run, path, storage):
    assert run("dump", path) == (0, zodb_dump.dumped(storage), "")
    assert run("dump", "--hashonly", f"file://{path}") == (
        0,
        zodb_dump.dumped(storage, hash_only=True),
        "",
    )
    assert run("dump", "--log-order", path)[1] == zodb_dump.dumped(storage, in_order=True)


def test_a_dump_of_any_records_is_what_the_grammar_says(run, tmp_path, seeded):
    path = tmp_path / "raw.fs"
    storage = ZODB.FileStorage.FileStorage(str(path))
    History(seeded).write(storage, 40)
    assert run("dump", path) == (0, zodb_dump.dumped(storage), "")
    storage.close()


def test_ranges_include_both_ends(run, path, storage, seeded):
    tids = tids_of(storage)
    first, last = sorted(seeded.choices(tids, k=2))
    for text, start, stop in [
        (f"{first.hex()}..{last.hex()}", first, last),
        (f"{first.hex()}..", first, None),
        (f"..{last.hex()}", None, last),
        ("..", None, None),
        ("1 hour ago..now", None, None),
    ]:
        assert run("dump", path, text) == (0, zodb_dump.dumped(storage, start, stop), ""), text
    assert run("dump", path, "--at", last.hex())[1] == zodb_dump.dumped(storage, None, last)
    assert run("dump", path, f"{tids[-1].hex()}..{tids[0].hex()}") == (0, b"", "")
    for wrong in ["x", "x..", "..2020-01-01", "a..b..c"]:
        code, out, said = run("dump", path, wrong)
        assert (code, out) == (2, b"") and said.startswith("zodium: "), wrong


def test_what_is_dumped_and_loaded_is_the_same_file(run, path, tmp_path, storage):
    dump = run("dump", "--log-order", path)[1]
    loaded = tmp_path / "loaded.fs"
    code, out, said = run("load", loaded, given=dump)
    assert (code, said) == (0, "")
    assert out.split() == [tid.hex().encode() for tid in tids_of(storage)]
    if not any(undoes_to_deletion(record) for txn in storage.iterator() for record in txn):
        assert loaded.read_bytes() == path.read_bytes()
    assert run("cmp", "-v", path, loaded) == (0, b"equal\n", "")
    # Sorted by oid it has the same transactions.
    other = tmp_path / "sorted.fs"
    assert run("load", "-q", other, given=run("dump", path)[1]) == (0, b"", "")
    assert run("cmp", "-v", path, other) == (0, b"equal\n", "")


def undoes_to_deletion(record):
    """Whether it points back to a deletion, for which the format has no other word than delete."""
    return record.data is None and record.data_txn is not None


def test_a_dump_goes_through_a_database_in_sqlite(run, path, tmp_path):
    database, back = f"sqlite://{tmp_path / 'neo.sqlite'}", tmp_path / "back.fs"
    dump = run("dump", path)[1]
    assert run("load", "-q", database, given=dump) == (0, b"", "")
    assert run("load", "-q", back, given=run("dump", database)[1]) == (0, b"", "")
    assert run("cmp", "-v", path, database)[:2] == (0, b"equal\n")
    assert run("cmp", "-v", database, back)[:2] == (0, b"equal\n")
    # NEO's back pointers may lead to another record with the same data.
    assert contents(path) == contents(back)


def contents(path):
    """What an iteration shows, with the data that back pointers lead to."""
    with closing(ZODB.FileStorage.FileStorage(str(path), read_only=True)) as storage:
        return [
            (
                (txn.tid, txn.status, txn.user, txn.description, txn.extension_bytes),
                sorted((record.oid, record.data or b"") for record in txn),
            )
            for txn in storage.iterator()
        ]


def test_a_load_stops_at_what_is_wrong_and_keeps_what_was_whole(run, path, tmp_path, storage):
    dump = run("dump", path)[1]
    parts = dump.split(b"\n\ntxn ")
    loaded = tmp_path / "loaded.fs"
    code, out, said = run("load", loaded, given=dump[:-1])
    assert (code, len(out.split())) == (2, len(tids_of(storage)) - 1)
    assert "ends within a transaction" in said
    assert run("load", loaded, given=dump)[0] == 2
    assert run("load", loaded, given=b"txn " + parts[-1]) == (
        0,
        tids_of(storage)[-1].hex().encode() + b"\n",
        "",
    )
    assert run("cmp", path, loaded)[0] == 0
    hashes = run("dump", "--hashonly", path)[1]
    assert run("load", tmp_path / "hashes.fs", given=hashes)[0] == 2


def test_a_transaction_is_committed_upon_the_one_it_names(run, path, tmp_path):
    with closing(ZODB.FileStorage.FileStorage(str(path))) as storage:
        head, root = storage.lastTransaction(), storage.load(p64(0))
        living = p64(max(u64(record.oid) for txn in storage.iterator() for record in txn))
    data = root[0] + b"\n\nmore"
    digest = hashlib.sha1(data).hexdigest().encode()
    text = b'user "me"\ndescription "\\xff"\nextension ""\n'
    text += b"obj %016x %d sha1:%s\n%s\n" % (0, len(data), digest, data)
    text += b"obj %016x delete\n\n" % u64(living)
    before = path.read_bytes()
    for refused, why in [
        (text.replace(b"more", b"less"), "sha1 is"),
        (text + b"x", "only one"),
        (text[:-1], "ends within"),
        (
            text.replace(
                b"obj 0000000000000000 %d sha1:%s\n%s\n" % (len(data), digest, data),
                b"obj 0000000000000000 %d sha1:%s -\n" % (len(data), digest),
            ),
            "only the hash",
        ),
    ]:
        code, out, said = run("commit", path, head.hex(), given=refused)
        assert (code, out) == (2, b"") and why in said, said
    code, out, said = run("commit", path, "000000000000aaaa", given=text)
    assert (code, out) == (2, b"") and "conflict" in said
    assert path.read_bytes() == before
    code, out, said = run("commit", path, head.hex(), given=text)
    assert (code, said) == (0, "")
    with closing(ZODB.FileStorage.FileStorage(str(path))) as storage:
        assert storage.load(p64(0)) == (data, bytes.fromhex(out.decode().strip()))
        with pytest.raises(POSKeyError):
            storage.load(living)
        newest = list(storage.iterator())[-1]
        assert (newest.user, newest.description) == (b"me", b"\xff")


def test_differences_are_told(run, path, tmp_path, storage):
    tids = tids_of(storage)
    shorter = tmp_path / "shorter.fs"
    shutil.copy(path, shorter)
    with open(shorter, "r+b") as file:
        file.truncate(list(storage.iterator())[-1]._tpos)
    last = tids[-1].hex()
    missing = f"not-equal: tid {last} present in stor1 but not in stor2\n".encode()
    assert run("cmp", path, shorter) == (1, b"", "")
    assert run("cmp", "-v", path, shorter) == (1, missing, "")
    assert run("cmp", "-v", shorter, path)[1] == missing.replace(
        b"stor1 but not in stor2", b"stor2 but not in stor1"
    )
    assert run("cmp", path, shorter, f"..{tids[-2].hex()}")[0] == 0
    other = tmp_path / "other.fs"
    dump = run("dump", path)[1]
    run("load", "-q", other, given=dump.replace(b'description "', b'description "X', 1))
    first = tids[0].hex()
    assert run("cmp", "-v", path, other)[:2] == (
        1,
        f"not-equal: transaction {first} is different\n".encode(),
    )
    assert run("cmp", path, tmp_path / "none.fs")[0] == 2


def test_a_copy_goes_on_where_one_ended(run, path, tmp_path, storage):
    tids = tids_of(storage)
    part, middle = tmp_path / "part.fs", tids[len(tids) // 2].hex()
    assert run("copy", path, part, "--at", middle)[0] == 0
    assert run("copy", path, part)[0] == 2
    code, out, said = run("copy", "--incremental", path, part)
    assert (code, said) == (0, "") and b"verified" in out
    assert part.read_bytes() == path.read_bytes()
    assert b"copied 0 " in run("copy", "--incremental", path, part)[1]
    database = f"sqlite://{tmp_path / 'neo.sqlite'}"
    assert run("convert", path, database)[0] == 0
    assert run("cmp", path, database)[0] == 0


def test_a_printed_time_includes_its_transaction(run, path, storage):
    tids = tids_of(storage)
    out = run("dump", "--format", "fsdump", path)[1].decode()
    printed = re.findall(r"Trans .*tid=([0-9a-f]{16}) .*time=(\S+ \S+) ", out)
    assert [tid for tid, _ in printed] == [tid.hex() for tid in tids]
    for (tid, time), number in zip(printed, range(20), strict=False):
        until = f"..{time} UTC"
        assert run("dump", path, until)[1] == zodb_dump.dumped(storage, None, tids[number]), tid
        assert run("dump", path, f"{time} UTC..{time} UTC")[1].count(b"txn ") == 1, tid


def test_a_copy_with_several_records_of_an_object_in_a_transaction(run, tmp_path):
    path, database = tmp_path / "Data.fs", f"sqlite://{tmp_path / 'neo.sqlite'}"
    with closing(ZODB.DB(str(path))) as db:
        for number in range(4):
            with db.transaction() as connection:
                connection.root()["number"] = number
        # Zope's page for undo, with two of its boxes ticked: two records of the root.
        db.undoMultiple([entry["id"] for entry in db.undoLog(0, 2)])
        transaction.commit()
    code, out, said = run("copy", path, database)
    assert (code, said) == (0, "") and b"verified" in out
    assert run("copy", "--incremental", path, database)[::2] == (0, "")
    back = tmp_path / "back.fs"
    assert run("copy", database, back)[0] == 0
    with closing(ZODB.DB(str(back))) as db, db.transaction() as connection:
        assert connection.root()["number"] == 1


def test_an_empty_file_and_an_unfinished_end(run, tmp_path, path, storage):
    empty = tmp_path / "empty.fs"
    ZODB.FileStorage.FileStorage(str(empty)).close()
    assert run("dump", empty) == (0, b"", "")
    assert run("load", tmp_path / "new.fs", given=b"") == (0, b"", "")
    expected = zodb_dump.dumped(storage)
    with open(path, "ab") as file:
        file.write(b"\x04" * 30)
    assert run("dump", path) == (0, expected, "")


def test_damage_and_absence_have_their_exit_codes(run, path, tmp_path, storage):
    assert run("dump", tmp_path / "none.fs")[0] == 2
    assert run("dump", "neo://cluster@127.0.0.1:1?wait=0")[0] == 2
    with open(path, "r+b") as file:
        # The position of its transaction, in the first record of the second one.
        file.seek(list(storage.iterator())[1]._pos + 24)
        file.write(b"\xff" * 8)
    (path.parent / "Data.fs.index").unlink()
    assert run("dump", path)[0] == 1


def test_a_closed_pipe_ends_a_command_silently(binary, path):
    command = f"{binary} dump {path} | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 10, b"")


def test_info_says_where_a_storage_stands(run, path, storage):
    head = storage.lastTransaction().hex()
    size = path.stat().st_size
    expected = f"name={path}\nsize={size}\nhead={head}\nlast_tid={head}\n"
    assert run("info", path) == (0, expected.encode(), "")
    assert run("info", path, "head", "size") == (0, f"{head}\n{size}\n".encode(), "")
    assert run("info", path, "colour")[0] == 2


def test_objects_are_printed_as_of_a_transaction(run, path, storage, seeded):
    records = [record for txn in storage.iterator() for record in txn if record.data]
    for record in seeded.sample(records, 10):
        address = f"{record.tid.hex()}:{record.oid.hex()}"
        digest = hashlib.sha1(record.data).hexdigest()
        head = f"obj {record.oid.hex()} {len(record.data)} sha1:{digest}".encode()
        assert run("catobj", path, address) == (0, head + b"\n" + record.data + b"\n", "")
        assert run("catobj", "--hashonly", path, address)[1] == head + b" -\n"
        assert run("catobj", "--raw", path, address) == (0, record.data, "")
    code, out, said = run("catobj", path, f"{records[0].tid.hex()}:00000000000fffff")
    assert (code, out) == (2, b"") and "no such object" in said
