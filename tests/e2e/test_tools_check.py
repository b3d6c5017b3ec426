"""zodium check of storages that are no files, and copies that are killed and go on."""

import contextlib
import json
import os
import sqlite3
import subprocess

import pytest
import transaction
import ZODB
from harness import files
from harness.cut import CutRelay
from harness.damage import damage, fill, fill_covered
from harness.databases import write_database
from harness.servers import stock_server
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60
ALL = ["--references", "--pickles", "--btrees"]


@pytest.fixture
def check(run):
    """check(storage, *options): the exit code, what was found, and the summary."""

    def check_storage(storage, *options):
        code, out, said = run("check", "--json", *options, storage)
        *found, summary = [json.loads(line) for line in out.splitlines()]
        assert said == "" and summary["kind"] == "summary"
        return code, [one for one in found if one["kind"] != "btrees"], summary

    return check_storage


def references(found):
    return {one["oid"] for one in found if one["kind"] == "reference"}


def odd_extensions():
    """Extensions that ZODB writes, though they are no plain data."""
    itself = []
    itself.append(itself)
    deep = []
    for _ in range(300):
        deep = [deep]
    return [{"a": itself}, {"a": deep}, {"a": os.fsdecode(b"\xe9")}, {"a": {1, 2}}]


@pytest.mark.parametrize("number", range(4))
def test_odd_extensions_are_whole_and_servers_refuse_them(
    run, check, start_server, connect, tmp_path, number
):
    path, database = tmp_path / "Data.fs", f"sqlite://{tmp_path}/neo.sqlite"
    with contextlib.closing(ZODB.DB(FileStorage(str(path)))) as db:
        with db.transaction() as connection:
            connection.transaction_manager.get().extension.update(odd_extensions()[number])
            connection.root()["a"] = 1
        last = db.lastTransaction().hex()
        undo_id = db.undoLog(0, 1)[0]["id"]
    assert run("copy", path, database)[0] == 0
    for storage in (path, database):
        assert check(storage, *ALL)[:2] == (0, []), storage
    server = start_server(tmp_path / "served.fs")
    code, _, said = run("copy", path, server.url)
    assert code == 2 and f"transaction {last}: its extension is no plain data" in said
    # Lists go on without it.
    client = connect(start_server(path))
    assert [entry["id"] for entry in client.undoLog(0, 1)] == [undo_id]
    assert [entry["tid"].hex() for entry in client.history(p64(0), size=1)] == [last]


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(run, tmp_path):
    pipe = tmp_path / "Data.fs"
    os.mkfifo(pipe)
    for words in (["check", pipe], ["serve", pipe, "-a", "0"], ["dump", pipe]):
        code, _, said = run(*words)
        assert code != 0 and "it is a pipe, and no file" in said, words


def test_what_is_whole_in_a_file_is_whole_elsewhere(run, check, start_server, tmp_path, seeded):
    path, database = tmp_path / "Data.fs", f"sqlite://{tmp_path}/neo.sqlite"
    write_database(path, seeded, odd=False)
    code, found, of_file = check(path, *ALL)
    assert run("copy", path, database)[0] == 0
    stock = stock_server(tmp_path, "Z5")
    try:
        for storage in (stock.url, database):
            other_code, other_found, summary = check(storage, *ALL)
            # Objects that others have lost their way to are the same ones.
            assert (other_code, references(other_found)) == (code, references(found)), storage
            for figure in ("transactions", "records", "objects"):
                assert summary[figure] == of_file[figure], (storage, figure)
            assert "blobs" in summary["not_checked"]
    finally:
        stock.kill()
    assert check(start_server(path).url)[0] == 0
    text = run("check", database)[1]
    assert "whole (" in text and "not checked: how the storage keeps its bytes" in text
    for option in ("--write-checksums", f"--blob-dir={tmp_path}"):
        code, out, said = run("check", option, database)
        assert (code, out) == (2, "") and option.split("=")[0] in said


def undo_last(database):
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()


def test_a_copy_whose_back_pointers_form_a_chain_is_equal(run, start_server, tmp_path):
    path, back = tmp_path / "Data.fs", tmp_path / "Back.fs"
    copied = f"sqlite://{tmp_path}/neo.sqlite"
    with contextlib.closing(ZODB.DB(FileStorage(str(path)))) as database:
        for value in "one", "two":
            with database.transaction() as connection:
                connection.root()["value"] = value
        # A file says that the last of these has the data of the first, NEO that it has those of the
        # one before last.
        for _ in range(3):
            undo_last(database)
        last = database.lastTransaction().hex()
    assert run("copy", path, copied)[0] == 0
    assert run("copy", copied, back)[0] == 0
    stock = stock_server(tmp_path, "Z5")
    try:
        for storage in copied, back, stock.url:
            for limits in [], [f"{last}.."]:
                assert run("cmp", "-v", path, storage, *limits) == (0, "equal\n", ""), storage
    finally:
        stock.kill()
    # What the back pointers lead to counts.
    with sqlite3.connect(tmp_path / "neo.sqlite") as database:
        database.execute("update obj set value_tid=(select max(tid) from obj)-1 where value_tid>0")
    database.close()
    assert run("cmp", path, copied)[0] == 1
    assert run("cmp", path, copied, f"{last}..")[0] == 1


# What is done to a database, and the kinds of damage that are found.
DAMAGES = {
    "delete from obj where oid=3": ["reference"],
    "update obj set data_id=null where oid=5": ["reference"],
    "update data set value=x'0011' where id=(select data_id from obj where oid=4)": ["log", "load"],
    "delete from trans where tid=(select max(tid) from trans)": ["log"],
    "update obj set value_tid=tid-5, data_id=null where oid=6": ["reference"],
}


@pytest.mark.parametrize("statement", DAMAGES)
def test_damage_of_a_database_is_found(run, check, tmp_path, statement):
    path = tmp_path / "neo.sqlite"
    fill(tmp_path / "Data.fs")
    assert run("copy", tmp_path / "Data.fs", f"sqlite://{path}")[0] == 0
    assert check(path, *ALL)[:2] == (0, [])
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    code, found, summary = check(path, "--references")
    assert (code, [one["kind"] for one in found]) == (1, DAMAGES[statement])
    assert summary["damages"] == len(found)


def test_damage_behind_a_server_is_found(check, start_server, tmp_path):
    path = tmp_path / "Data.fs"
    oids = fill_covered(path, start_server)
    damage(path, 7)
    code, found, _ = check(start_server(path).url, "--references")
    assert code == 1
    # The others are loaded nevertheless.
    assert {one["oid"] for one in found if one["kind"] == "load"} == {oids[7].hex()}


def test_a_check_beside_writers_and_packs_finds_nothing(check, start_server, tmp_path):
    server = start_server(tmp_path / "Data.fs")
    database = ZODB.DB(ClientStorage(server.address, wait=True))
    try:
        for round_ in range(5):
            for number in range(20):
                with database.transaction() as connection:
                    connection.root()[number] = PersistentMapping(round=round_)
            assert check(server.url, "--references", "--pickles")[:2] == (0, [])
            database.pack()
    finally:
        database.close()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_killed_copy_goes_on(binary, run, start_server, tmp_path, seeded, kind):
    """Killed again and again, wherever its source keeps it waiting."""
    path, target = tmp_path / "Data.fs", tmp_path / "target"
    write_large(path)
    name = target if kind == "file" else f"sqlite://{target}"
    written, part_name = tmp_path / "target.part", f"{name}.part"
    server = start_server(path)
    last = tids = 0
    for part in range(1, 7):
        limit = path.stat().st_size * part // 6 + seeded.randrange(50_000)
        with CutRelay(server, limit, holds=True) as relay:
            words = [binary, "copy", "--incremental", relay.url, str(name)]
            copying = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            assert relay.reached.wait(RUN_SECONDS)
            copying.kill()
            copying.wait()
        assert not target.exists()
        if written.exists() and written.stat().st_size:
            last, tids = tids, run("dump", "--hashonly", part_name)[1].count("\ntxn ")
            assert tids >= last
    code, out, said = run("copy", "--incremental", server.url, name)
    assert (code, said) == (0, "") and "verified" in out
    assert run("cmp", "-v", path, name)[:2] == (0, "equal\n")
    assert not written.exists()
    if kind == "file":
        assert files.read(target) == files.read(path)
    # What differs from its source is no copy that could go on.
    other = tmp_path / "other.fs"
    write_database(other, seeded)
    code, _, said = run("copy", "--incremental", other, name)
    assert code == 1 and "differs" in said


def test_a_killed_copy_leaves_nothing_that_a_server_would_take(binary, run, start_server, tmp_path):
    path, target = tmp_path / "Data.fs", tmp_path / "target"
    write_large(path)
    server = start_server(path)
    with CutRelay(server, path.stat().st_size // 2, holds=True) as relay:
        copying = subprocess.Popen([binary, "copy", relay.url, target], stdout=subprocess.DEVNULL)
        assert relay.reached.wait(RUN_SECONDS)
        copying.kill()
        copying.wait()
    part = tmp_path / "target.part"
    assert not target.exists() and part.exists()
    code, _, said = run("copy", part, target)
    assert code == 2 and "is the part of a copy to" in said
    other = tmp_path / "other.fs"
    write_large(other)
    assert run("copy", other, target)[0] == 0
    assert files.read(target) == files.read(other)
    assert not part.exists() and not list(tmp_path.glob("target.part*"))


def write_large(path):
    database = ZODB.DB(FileStorage(str(path)))
    for number in range(60):
        with database.transaction() as connection:
            connection.root()[number] = PersistentMapping(text=str(number) * 40_000)
    database.close()
