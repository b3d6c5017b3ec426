"""zodium backup and restore, beside repozo: either tool goes on with what the other wrote."""

import contextlib
import json
import random
import re
import subprocess
import time
from collections import Counter

import pytest
import transaction
import ZODB
from harness.blobs import digests
from harness.databases import commit_change, write_database
from harness.files import tids_of
from harness.zodb_dump import has_own_data
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex
from ZODB.scripts import repozo
from ZODB.utils import get_pickle_metadata, p64, u64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


def add_transactions(path, random, count=3):
    database = ZODB.DB(FileStorage(str(path)))
    for _ in range(count):
        commit_change(database, random)
    database.close()


def wait_for_another_second(folder):
    """Names have seconds."""
    newest = max(file.name for file in folder.iterdir())
    while time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime()) <= newest[:19]:
        time.sleep(0.02)


class Ours:
    def __init__(self, run, folder):
        self.run, self.folder = run, folder

    def back_up(self, path, *options):
        code, out, said = self.run(
            "backup", "--format", "repozo", path, self.folder, "--json", *options
        )
        assert (code, said) == (0, ""), said
        return json.loads(out)

    def restore(self, output):
        code, _, said = self.run("restore", self.folder, output)
        assert (code, said) == (0, ""), said


class Stock:
    def __init__(self, folder):
        self.folder = folder

    def back_up(self, path, *options):
        repozo.main(["-B", "-r", str(self.folder), "-f", str(path), *options])

    def restore(self, output):
        repozo.main(["-R", "-w", "-r", str(self.folder), "-o", str(output)])


def contents(folder):
    """Files by their extensions, in order, without what depends on the time and on gzip."""
    found = []
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        if file.suffix == ".dat":
            data = [line.split()[1:] for line in data.decode().splitlines()]
        found.append((file.suffix, data))
    return found


def test_a_file_of_python_2_stays_one(run, path, tmp_path):
    """ZODB on Python 2 reads no others. The records have the same format."""
    content = b"FS21" + path.read_bytes()[4:]
    path.write_bytes(content)
    path.with_suffix(".fs.index").unlink(missing_ok=True)
    repository = tmp_path / "repository"
    for words in (["copy", path], ["restore", repository]):
        if words[0] == "restore":
            assert run("backup", path, repository)[0] == 0
        made = tmp_path / f"{words[0]}.fs"
        code, _, said = run(*words, made)
        assert (code, said) == (0, "") and made.read_bytes() == content, words
    database = ZODB.DB(FileStorage(str(tmp_path / "other.fs")))
    database.close()
    assert run("copy", "--incremental", tmp_path / "other.fs", tmp_path / "new.fs")[0] == 0
    assert (tmp_path / "new.fs").read_bytes().startswith(b"FS30")


def test_what_was_appended_is_analyzed(run, path, tmp_path, seeded):
    stock = Stock(tmp_path / "stock")
    stock.folder.mkdir()
    stock.back_up(path)
    with contextlib.closing(FileStorage(str(path), read_only=True)) as storage:
        first = u64(storage.lastTransaction()) + 1
    add_transactions(path, seeded, 8)
    database = ZODB.DB(FileStorage(str(path)))
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    database.close()
    wait_for_another_second(stock.folder)
    stock.back_up(path)
    (delta,) = stock.folder.glob("*.deltafs")
    with contextlib.closing(FileStorage(str(path), read_only=True)) as storage:
        transactions = [list(txn) for txn in storage.iterator(p64(first))]
    own = [record for records in transactions for record in records if has_own_data(record)]
    code, out, said = run("analyze", "--json", delta)
    found = json.loads(out)
    assert (code, said) == (0, "")
    assert found["transactions"] == len(transactions)
    assert found["records"] == sum(map(len, transactions))
    assert found["total"] == {"bytes": sum(len(record.data) for record in own)}
    names = Counter(".".join(get_pickle_metadata(record.data)) for record in own)
    assert {one["class"]: one["records"] for one in found["classes"]} == names
    last = found["last"]
    assert json.loads(run("analyze", "--json", delta, f"{last}..")[1])["transactions"] == 1
    table = run("analyze", delta)[1].splitlines()
    assert table[5].split() == ["Class", "Name", "T.Count", "T.Bytes", "Pct", "AvgSize"]
    content = delta.read_bytes()
    cut = tmp_path / "cut.deltafs"
    for damaged in (content[:-1], content[:30], b"x" + content):
        cut.write_bytes(damaged)
        code, _, said = run("analyze", cut)
        assert code == 1 and "damaged: at " in said, said
    assert run("analyze", tmp_path / "none.deltafs")[0] == 2


def test_a_repository_is_the_one_that_repozo_makes(run, path, tmp_path, seeded):
    ours, stock = Ours(run, tmp_path / "ours"), Stock(tmp_path / "stock")
    stock.folder.mkdir()
    for _ in range(3):
        ours.back_up(path, "--quick")
        stock.back_up(path, "-Q")
        add_transactions(path, seeded)
        for side in (ours, stock):
            wait_for_another_second(side.folder)
    assert contents(ours.folder) == contents(stock.folder)
    assert [suffix for suffix, _ in contents(ours.folder)].count(".deltafs") == 2


@pytest.mark.parametrize("zipped", [False, True])
def test_either_tool_goes_on_with_what_the_other_wrote(run, path, tmp_path, seeded, zipped):
    folder = tmp_path / "backups"
    folder.mkdir()
    sides = [Ours(run, folder), Stock(folder)]
    seeded.shuffle(sides)
    for number in range(4):
        sides[number % 2].back_up(path, *["-z"] * zipped)
        for side in sides:
            output = tmp_path / f"restored-{number}-{type(side).__name__}.fs"
            side.restore(output)
            assert output.read_bytes() == path.read_bytes()
            index = fsIndex.load(f"{output}.index")
            assert index["pos"] == path.stat().st_size
        if number < 3:
            add_transactions(path, seeded, 1)
            wait_for_another_second(folder)
    deltas = [file for file in folder.iterdir() if "deltafs" in file.name]
    assert len(deltas) == 3
    assert run("backup", "--verify", folder)[0] == 0
    repozo.main(["-V", "-r", str(folder)])


def test_a_pack_makes_a_full_backup_and_nothing_new_none(run, path, tmp_path, seeded):
    side = Ours(run, tmp_path / "backups")
    assert side.back_up(path)["full"]
    wait_for_another_second(side.folder)
    assert side.back_up(path) == {"changed": False}
    first = path.read_bytes()
    add_transactions(path, seeded)
    assert not side.back_up(path)["full"]
    assert path.read_bytes().startswith(first)
    # Another history, as after a pack.
    other = tmp_path / "other.fs"
    write_database(other, seeded)
    wait_for_another_second(side.folder)
    assert side.back_up(other, "--kill-old-on-full")["full"]
    assert not [file for file in side.folder.iterdir() if file.suffix == ".deltafs"]


def test_a_backup_as_of_a_date_is_restored(run, path, tmp_path, seeded):
    side, states = Ours(run, tmp_path / "backups"), {}
    for _ in range(3):
        name = side.back_up(path)["name"]
        states[name.split(".")[0]] = path.read_bytes()
        wait_for_another_second(side.folder)
        add_transactions(path, seeded, 1)
    for number, (date, state) in enumerate(states.items()):
        day, clock = date[:10], date[11:].replace("-", ":")
        for text in (date, f"{day}T{clock}Z"):
            output = tmp_path / f"{number}-{len(text)}.fs"
            assert run("restore", side.folder, output, "--at", text)[0] == 0
            assert output.read_bytes() == state
    code, _, said = run("restore", side.folder, tmp_path / "none.fs", "--at", "2001-01")
    assert code == 2 and "no full backup" in said
    assert not (tmp_path / "none.fs").exists()
    # What is there is not overwritten.
    assert run("restore", side.folder, path)[0] == 2


def test_damage_in_a_backup_is_found_and_not_restored(run, path, tmp_path, seeded):
    side = Ours(run, tmp_path / "backups")
    name = side.back_up(path, *["-z"] * seeded.randrange(2))["name"]
    file = side.folder / name
    data = bytearray(file.read_bytes())
    # Bytes 4 to 9 of a gzip file are a time and flags that no sum covers.
    data[seeded.randrange(12, len(data))] ^= 1 << seeded.randrange(8)
    file.write_bytes(data)
    code, out, said = run("backup", "--verify", side.folder)
    assert (code, out) == (1, "") and name in said
    code, out, said = run("restore", side.folder, tmp_path / "out.fs")
    assert (code, out) == (1, "") and name in said
    assert not list(tmp_path.glob("out.fs*"))
    file.unlink()
    assert run("backup", "--verify", side.folder)[0] == 2


class Repository:
    """A repository of our own format."""

    def __init__(self, run, folder):
        self.run, self.folder = run, folder

    def back_up(self, storage, *options):
        code, out, said = self.run("backup", storage, self.folder, "--json", *options)
        assert (code, said) == (0, ""), said
        return json.loads(out)

    def restore(self, output, *options):
        code, out, said = self.run("restore", self.folder, output, "--json", *options)
        assert (code, said) == (0, ""), said
        return json.loads(out)

    def verify(self, *options):
        return self.run("backup", "--verify", self.folder, *options)


def packed_tids_of(path):
    storage = FileStorage(str(path), read_only=True)
    tids = [transaction.tid for transaction in storage.iterator() if transaction.status == "p"]
    storage.close()
    return tids


def test_any_transaction_is_restored_to_the_byte(run, path, tmp_path, seeded):
    repository = Repository(run, tmp_path / "backups")
    repository.back_up(path)
    for _ in range(3):
        add_transactions(path, seeded, 2)
        done = repository.back_up(path, *["--quick"] * seeded.randrange(2))
    for options in [], ["--quick"]:
        code, out, said = repository.verify(*options)
        assert (code, said) == (0, "")
        assert f"the newest is point {done['point']} of 20" in out and f"to {done['last']}" in out
    data = path.read_bytes()
    # Of what was there before the pack it may have removed a part.
    *before, packed = packed_tids_of(path)
    code, _, said = run("restore", repository.folder, tmp_path / "no.fs", "--at", before[-1].hex())
    assert code == 2 and packed.hex() in said and not list(tmp_path.glob("no.fs*"))
    code, _, said = run("restore", repository.folder, "mysql://root@127.0.0.1:1/absent")
    assert code == 2 and "`zodium copy`" in said
    tids = [tid for tid in tids_of(path) if tid >= packed]
    for number, tid in enumerate(seeded.sample(tids, min(6, len(tids)))):
        output = tmp_path / f"{number}.fs"
        assert repository.restore(output, "--at", tid.hex())["last"] == tid.hex()
        restored = output.read_bytes()
        assert data.startswith(restored)
        assert tids_of(output)[-1] == tid
    repository.restore(tmp_path / "all.fs")
    assert (tmp_path / "all.fs").read_bytes() == data
    assert not repository.back_up(path)["changed"]
    assert run("restore", repository.folder, path)[0] == 2


def test_what_a_pack_did_not_touch_is_not_stored_again(run, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    database = ZODB.DB(FileStorage(str(path)))
    with database.transaction() as connection:
        root = connection.root()
        for number in range(50):
            root[f"old{number}"] = PersistentMapping(filler=seeded.randbytes(40_000))
    for number in range(60):
        with database.transaction() as connection:
            name = f"new{min(number, 40)}"
            connection.root()[name] = PersistentMapping(filler=seeded.randbytes(40_000))
    repository = Repository(run, tmp_path / "backups")
    first = repository.back_up(path)
    before = path.read_bytes()
    database.pack()
    database.close()
    assert path.stat().st_size < len(before)
    second = repository.back_up(path)
    assert 0 < second["stored_bytes"] < first["stored_bytes"]
    # Both are there.
    repository.restore(tmp_path / "packed.fs")
    assert run("cmp", path, tmp_path / "packed.fs")[0] == 0
    last = tids_of(tmp_path / "packed.fs")[-1]
    repository.restore(tmp_path / "before.fs", "--at", last.hex())
    assert (tmp_path / "before.fs").read_bytes() == before


def test_a_served_storage_is_backed_up_with_its_blobs(run, tmp_path, start_server, seeded):
    folder = tmp_path / "blobs"
    server = start_server(tmp_path / "Data.fs", "--blob-dir", str(folder))
    storage = ClientStorage(server.address, blob_dir=str(tmp_path / "cache"), wait=True)
    database = ZODB.DB(storage)
    for number in range(5):
        with database.transaction() as connection:
            connection.root()[f"b{number % 3}"] = Blob(seeded.randbytes(seeded.randrange(90000)))
    database.close()
    repository = Repository(run, tmp_path / "backups")
    assert repository.back_up(server.url)["changed"]
    server.stop()
    # Without the server it is the same, and nothing is new.
    options = ("--blob-dir", str(folder))
    assert not repository.back_up(tmp_path / "Data.fs", *options)["changed"]
    repository.restore(tmp_path / "out.fs", "--blob-dir", tmp_path / "restored")
    assert (tmp_path / "out.fs").read_bytes() == (tmp_path / "Data.fs").read_bytes()
    assert digests(tmp_path / "restored") == digests(folder)
    # A copy has them too.
    words = ("--blob-dir", folder, "--to-blob-dir", tmp_path / "copied")
    code, _, said = run("copy", tmp_path / "Data.fs", tmp_path / "copy.fs", *words)
    assert (code, said) == (0, "") and digests(tmp_path / "copied") == digests(folder)


def test_a_full_folder_of_temporary_files_is_named(
    run, binary, tmp_path, start_server, seeded, tiny_disk
):
    server = start_server(tmp_path / "Data.fs", "--blob-dir", str(tmp_path / "blobs"))
    storage = ClientStorage(server.address, blob_dir=str(tmp_path / "cache"), wait=True)
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["b"] = Blob(seeded.randbytes(2 << 20))
    database.close()
    small, repository = tmp_path / "small", str(tmp_path / "backups")
    words = [*tiny_disk, "env", f"TMPDIR={small}", binary, "backup", server.url, repository]
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert f"in {small}; name another folder in TMPDIR" in done.stderr


def test_each_flipped_bit_in_a_repository_is_found(run, path, tmp_path, seeded):
    repository = Repository(run, tmp_path / "backups")
    repository.back_up(path)
    files = [file for file in repository.folder.rglob("*") if file.is_file()]
    for _ in range(12):
        file = seeded.choice(files)
        whole = file.read_bytes()
        data = bytearray(whole)
        data[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
        file.write_bytes(data)
        assert repository.verify()[0] in (1, 2), file
        file.write_bytes(whole)
    assert repository.verify()[0] == 0


def test_a_backup_that_is_killed_leaves_the_points_before_it(binary, run, path, tmp_path, seeded):
    repository = Repository(run, tmp_path / "backups")
    repository.back_up(path)
    states = {1: path.read_bytes()}
    for _ in range(8):
        add_transactions(path, seeded, 1)
        words = [str(binary), "backup", str(path), str(repository.folder)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        time.sleep(seeded.random() * 0.03)
        process.kill()
        process.communicate()
        points = sorted((repository.folder / "points").glob("*.json"))
        states.setdefault(len(points), path.read_bytes())
        assert repository.verify()[0] == 0
    output = tmp_path / "out.fs"
    point = repository.restore(output)["point"]
    assert output.read_bytes() == states[point]
    repository.back_up(path)
    repository.restore(tmp_path / "last.fs")
    assert (tmp_path / "last.fs").read_bytes() == path.read_bytes()


def test_pruned_points_are_gone_and_the_others_whole(run, path, tmp_path, seeded):
    repository = Repository(run, tmp_path / "backups")
    for _ in range(4):
        repository.back_up(path)
        add_transactions(path, seeded, 2)
    prune = ("prune", repository.folder, "--json")
    assert run(*prune)[0] == 2
    promised = json.loads(run(*prune, "--keep-last", 2, "--dry-run")[1])
    assert json.loads(run(*prune, "--keep-daily", 1, "--dry-run")[1])["removed"] == 3
    assert json.loads(run(*prune, "--keep-within", 1)[1])["removed"] == 0
    pruned = json.loads(run(*prune, "--keep-last", 2)[1])
    assert (pruned["kept"], pruned["removed"]) == (2, 2) and pruned["freed_bytes"] > 0
    assert pruned == promised
    assert repository.verify()[0] == 0
    output = tmp_path / "out.fs"
    repository.restore(output)
    assert path.read_bytes().startswith(output.read_bytes())


def test_a_restore_that_fails_or_is_killed_leaves_nothing_in_the_way(run, path, tmp_path):
    backups, output, blobs = tmp_path / "backups", tmp_path / "out.fs", tmp_path / "blobs"
    code, said, _ = run("backup", path, backups)
    # Blobs are no part of the size of the transactions.
    summary = r"point 1: \d+ transactions \([^)]+B\) up to [0-9a-f]{16}; .+B are new, with blobs"
    assert code == 0 and re.match(summary, said), said
    # What a killed restore leaves.
    (tmp_path / "out.fs.part").write_bytes(path.read_bytes()[:-100])
    (tmp_path / "out.fs.part.index").write_bytes(b"old")
    (tmp_path / "out.fs.part.restoring").touch()
    blobs.mkdir()
    (blobs / ".restoring").touch()
    (blobs / "old.blob").touch()
    assert run("restore", backups, output, "--blob-dir", blobs)[0] == 0
    assert output.read_bytes() == path.read_bytes()
    assert not list(tmp_path.glob("out.fs.part*"))
    assert not (blobs / "old.blob").exists()
    before = set(tmp_path.iterdir())
    # A blob may be a wrong one.
    (blobs / "other.blob").touch()
    code, _, said = run("restore", backups, tmp_path / "other.fs", "--blob-dir", blobs)
    assert code == 2 and "not empty" in said
    for chunk in (found for found in (backups / "chunks").rglob("*") if found.is_file()):
        content = bytearray(chunk.read_bytes())
        content[len(content) // 2] ^= 1
        chunk.write_bytes(content)
    code, _, said = run("restore", backups, tmp_path / "other.fs")
    assert code != 0 and "damaged" in said
    assert set(tmp_path.iterdir()) == before


def test_a_point_is_not_written_over_when_a_kill_left_a_second_name_of_it(run, path, tmp_path):
    repository = tmp_path / "repository"
    assert run("backup", path, repository)[0] == 0
    # A kill between link and unlink leaves this.
    (point,) = (repository / "points").iterdir()
    content = point.read_bytes()
    (repository / "tmp.tmp").hardlink_to(point)
    add_transactions(path, random.Random(1))
    assert run("backup", path, repository)[0] == 0
    assert point.read_bytes() == content
    code, out, said = run("backup", "--verify", repository)
    assert (code, said) == (0, "") and "2 restore points" in out


def test_a_repozo_folder_is_left_alone_while_the_clock_is_before_its_backups(run, path, tmp_path):
    folder = tmp_path / "folder"
    assert run("backup", "--format", "repozo", path, folder)[0] == 0
    for file in list(folder.iterdir()):
        file.rename(folder / ("2999" + file.name[4:]))
    add_transactions(path, random.Random(1))
    files = sorted(folder.iterdir())
    code, _, said = run("backup", path, folder)
    assert code == 2 and "set the clock right" in said and "2999-" in said
    assert sorted(folder.iterdir()) == files


def test_a_repository_does_not_take_backups_in_the_format_of_repozo(run, path, tmp_path):
    repository = tmp_path / "repository"
    assert run("backup", path, repository)[0] == 0
    for asked in [(path, repository), ("--verify", repository)]:
        code, out, said = run("backup", "--format", "repozo", *asked)
        assert (code, out) == (2, "") and "give another folder" in said
    code, _, said = run("backup", "--format", "repozo", path, "s3://bucket/folder")
    assert code == 2 and "folders only" in said
    assert run("backup", "--verify", repository)[0] == 0


def test_what_the_format_of_repozo_does_not_have_is_refused(run, path, tmp_path):
    key, folder, blobs = tmp_path / "key", tmp_path / "folder", tmp_path / "blobs"
    key.write_text("5b" * 32 + "\n")
    key.chmod(0o600)
    blobs.mkdir()
    for how in [("--format", "repozo"), ()]:
        for words in [(path, folder), ("--verify", folder)]:
            for options, env, expected in [
                (("--key-file", key), None, "are not encrypted: use our format"),
                ((), {"ZODIUM_BACKUP_KEY_FILE": str(key)}, "leave out --key-file and ZODIUM_"),
                (("--blob-dir", blobs), None, "have no blobs: use our format"),
            ]:
                before = sorted(folder.iterdir()) if folder.exists() else None
                code, out, said = run("backup", *how, *words, *options, env=env)
                assert (code, out) == (2, "") and expected in said, said
                assert before == (sorted(folder.iterdir()) if folder.exists() else None)
        if not folder.exists():
            assert run("backup", "--format", "repozo", path, folder)[0] == 0
    output = tmp_path / "restored.fs"
    code, _, said = run("restore", folder, output, "--blob-dir", tmp_path / "restored")
    assert code == 2 and "have no blobs" in said
    assert not output.exists()
    # The key is for other repositories then.
    assert run("restore", folder, output, env={"ZODIUM_BACKUP_KEY_FILE": str(key)})[0] == 0


def test_options_for_another_way_of_backing_up_are_refused(run, path, tmp_path):
    repository, status = tmp_path / "repository", tmp_path / "status.json"
    for options in (["--full"], ["--gzip"], ["--kill-old-on-full"]):
        code, _, said = run("backup", path, repository, *options)
        assert code == 2 and "are for folders of repozo" in said
    for options in (["--interval", "1"], ["--status-file", str(status)]):
        code, _, said = run("backup", path, repository, *options)
        assert code == 2 and "--watch" in said
    assert not repository.exists() and not status.exists()


def test_blobs_that_are_not_there_are_told(run, tmp_path):
    path, blobs = tmp_path / "Data.fs", tmp_path / "blobs"
    database = ZODB.DB(FileStorage(str(path), blob_dir=str(blobs)))
    with database.transaction() as connection:
        connection.root()["blob"] = Blob(b"content")
    database.close()
    code, _, said = run("backup", path, tmp_path / "repository", "--blob-dir", tmp_path / "other")
    assert code == 2 and "no such blob directory" in said
    (blob,) = blobs.rglob("*.blob")
    blob.unlink()
    for options in [("--blob-dir", blobs), ()]:
        code, out, said = run("backup", path, tmp_path / "repository", "--json", *options)
        assert code == 0 and "1 blobs were not found" in said
        assert json.loads(out)["missing_blobs"] == 1


def test_transactions_beyond_the_largest_usual_tid_are_restored(run, tmp_path):
    path, copied = tmp_path / "Data.fs", tmp_path / "copied.fs"
    ZODB.DB(str(path)).close()
    storage, target = FileStorage(str(path)), FileStorage(str(copied))
    far = bytes.fromhex("ffffffffffff0000")
    meta = TransactionMetaData()
    target.tpc_begin(meta, far, " ")
    target.restore(p64(0), far, storage.load(p64(0))[0], "", None, meta)
    target.tpc_vote(meta)
    target.tpc_finish(meta)
    storage.close()
    target.close()
    assert run("backup", copied, tmp_path / "backups")[0] == 0
    restored = tmp_path / "restored.fs"
    code, out, _ = run("restore", tmp_path / "backups", restored, "--json")
    assert code == 0 and json.loads(out)["last"] == far.hex()
    assert restored.read_bytes() == copied.read_bytes()


def test_errors_say_what_to_do(run, path, tmp_path, start_server):
    repository, folder = tmp_path / "backups", tmp_path / "repozo"
    assert run("backup", path, repository)[0] == 0
    assert run("backup", "--format", "repozo", path, folder)[0] == 0
    missing = tmp_path / "missing.fs"
    for words in (("check", missing), ("backup", missing, repository), ("info", missing)):
        code, _, said = run(*words)
        assert code == 2 and said == f"zodium: {missing}: there is no such file\n", words
    for said_first, *words in (
        ("exists already: name a new file", "recover", path, path),
        ("nodir: there is no such directory", "restore", repository, tmp_path / "nodir" / "x.fs"),
        ("pack takes a server or a data file", "pack", f"sqlite://{tmp_path}/neo.sqlite"),
        ("a repozo folder", "prune", folder, "--keep-last", 1),
        ("--blob-data needs --blob-dir", "check", path, "--blob-data"),
    ):
        code, _, said = run(*words)
        assert code != 0 and said_first in said, said
    path.with_suffix(".fs.zodium-checksums").unlink(missing_ok=True)
    out = run("check", path, "--write-checksums")[1]
    assert out.splitlines()[-1] == f"{path}: the missing checksums were written"
    assert len(run("check", path, "--write-checksums")[1].splitlines()) == 1
