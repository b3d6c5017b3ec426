"""What is true of every command that works on storages: exit codes, JSON, closed pipes, empty and
damaged files, and servers that go away.
"""

import contextlib
import json
import os
import shutil
import subprocess

import pytest
import ZODB
from harness.cut import CutRelay
from harness.damage import fill
from persistent.mapping import PersistentMapping
from ZODB.FileStorage import FileStorage

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60
TID_BYTES = 8

# How long a command waits for a server: for one that is there, which may be busy, for one that it
# loses, to which it connects within the same time, and for one that is absent.
PATIENT, LOST, IMPATIENT = (f"?wait_timeout={seconds}" for seconds in (30, 2, 0.1))

# Each command that reads, with its arguments; `{}` is the storage, `{out}` a folder for what it
# writes, `{same}` a copy of the storage.
READING = {
    "info": "info {}",
    "dump": "dump {}",
    "disassembled": "dump --pretty zpickledis {}",
    "fsdump": "dump --format fsdump {}",
    "cmp": "cmp -v {} {same}",
    "copy": "copy {} {out}/copy.fs",
    "convert": "convert {} sqlite://{out}/neo.sqlite",
    "catobj": "catobj {} 0 1",
    "tail": "tail {}",
    "analyze": "analyze {}",
    "stats": "stats -v {}",
    "oids": "oids {} 0 1 2",
    "refs": "refs --to 1 --path {}",
    "check": "check --references --pickles --btrees {}",
    "gc": "gc --dry-run --days 0 -v {}",
    "backup": "backup {} {out}/repository",
}
# They read a part of the storage, so they need not find its damage.
PARTIAL = ["info", "catobj", "tail"]
# They print a line as text only, or data.
TEXT_ONLY = ["disassembled", "fsdump"]


@pytest.fixture
def run(binary, tmp_path):
    """run(line, storage, *more): (exit code, standard output, standard error)."""

    def run_command(line, storage, *more, given=b"", **options):
        # Each run has an empty folder.
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        words = line.format(storage, out=out, same=tmp_path / "same.fs").split(" ")
        words = [str(binary), *words, *more]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        done = subprocess.run(words, input=given, timeout=RUN_SECONDS, **options)
        return done.returncode, done.stdout, done.stderr.decode()

    return run_command


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "Data.fs"
    fill(path)
    shutil.copy(path, tmp_path / "same.fs")
    return path


def damage_a_transaction(path):
    """Its length is not what it was."""
    with contextlib.closing(FileStorage(str(path), read_only=True)) as storage:
        transactions = list(storage.iterator())
        position = transactions[len(transactions) // 2]._tpos
    with open(path, "r+b") as file:
        file.seek(position + TID_BYTES)
        file.write(b"\xff" * 4)


def gc_name(line, storage):
    """`gc` takes its storages with names."""
    return f"main={storage}" if line.startswith("gc ") else storage


@pytest.mark.parametrize("command", READING)
def test_a_command_reads(run, path, command):
    """Alone, as JSON, into a closed pipe, from an empty database, and from a damaged one."""
    line = READING[command]
    storage = gc_name(line, path)
    code, out, said = run(line, storage)
    assert (code, said) == (0, ""), command
    if command not in TEXT_ONLY:
        code, out, said = run(line, storage, "--json")
        assert (code, said) == (0, "")
        assert out and all(isinstance(json.loads(text), dict) for text in out.splitlines())

    # Nobody reads what it prints.
    reading, writing = os.pipe()
    os.close(reading)
    assert run(line, storage, stdout=writing)[::2] == (0, "")
    os.close(writing)

    damage_a_transaction(path)
    code, _, said = run(line, storage)
    if command in PARTIAL:
        assert code in (0, 1)
    else:
        assert code == 1 and (command == "check" or said.startswith("zodium: ")), (code, said)
    assert "panicked" not in said


@pytest.mark.parametrize("command", READING)
def test_an_empty_database_has_nothing(run, tmp_path, command):
    line, path = READING[command], tmp_path / "empty.fs"
    path.write_bytes(b"FS30")
    shutil.copy(path, tmp_path / "same.fs")
    code, _, said = run(line, gc_name(line, path))
    # There is no root that could be shown or led from.
    expected = 2 if command in ("catobj", "refs") else 0
    assert code == expected and "panicked" not in said, said
    # What never was a file of a database, and what is not there.
    path.write_bytes(b"no database at all" * 50)
    code, out, said = run(line, gc_name(line, path))
    assert code in (1, 2) and (command == "check" or said.startswith("zodium: ")), (code, said)
    code, out, said = run(line, gc_name(line, tmp_path / "missing.fs"))
    assert (code, out) == (2, b"") and said.startswith("zodium: ") and "missing.fs" in said


@pytest.mark.parametrize("command", READING)
def test_a_server_goes_away(run, start_server, path, command):
    line = READING[command]
    server = start_server(path)
    with CutRelay(server) as relay:
        code, _, said = run(line, gc_name(line, relay.url + PATIENT))
        assert code == 0, said
        answered = relay.answered
    with CutRelay(server, limit=answered * 2 // 3) as relay:
        code, _, said = run(line, gc_name(line, relay.url + LOST))
        assert code == 2 and said.startswith("zodium: "), (code, said)
        assert relay.reached.is_set(), "the server did not answer that much"
    # And one that is not there.
    code, out, said = run(line, gc_name(line, relay.url + IMPATIENT))
    assert (code, out) == (2, b"") and said.startswith("zodium: "), (code, said)


def test_commands_that_write_print_what_they_did(run, path, tmp_path):
    dump = run("dump {}", path)[1]
    loaded = tmp_path / "loaded.fs"
    code, out, said = run("load {}", loaded, "--json", given=dump)
    tids = [json.loads(line)["tid"] for line in out.splitlines()]
    assert (code, said) == (0, "") and len(tids) == dump.count(b"\n\ntxn ") + 1
    text = b'user ""\ndescription ""\nextension ""\nobj 0000000000000000 from %s\n\n'
    text %= tids[0].encode()
    code, out, said = run("commit {} " + tids[-1], loaded, "--json", given=text)
    assert (code, said) == (0, "") and json.loads(out)["tid"] > tids[-1]
    assert run("commit {} " + tids[-1], loaded, given=text)[0] == 2
    assert run("cmp {} {same}", loaded)[0] == 1
    # A load goes on when nobody reads its tids.
    again = tmp_path / "again.fs"
    reading, writing = os.pipe()
    os.close(reading)
    assert run("load {}", again, given=dump, stdout=writing)[::2] == (0, "")
    os.close(writing)
    assert run("cmp {} {same}", again)[0] == 0
    repository = tmp_path / "repository"
    assert run(f"backup {{}} {repository}", path)[0] == 0
    for line in ("prune --json --keep-last 1 {}", "restore --json {} {out}/restored.fs"):
        code, out, said = run(line, repository)
        assert (code, said) == (0, "") and isinstance(json.loads(out), dict), line
    damaged = next(file for file in (repository / "chunks").rglob("*") if file.is_file())
    damaged.write_bytes(damaged.read_bytes()[:-100] + bytes(100))
    assert run("restore {} {out}/restored.fs", repository)[0] == 1
    assert run("restore {} {out}/restored.fs", tmp_path / "none")[0] == 2


def test_the_state_at_a_transaction_is_shown(run, path, tmp_path, start_server):
    tids = [
        line.split()[1]
        for line in run("dump --hashonly {}", path)[1].splitlines()
        if line.startswith(b"txn ")
    ]
    middle = tids[len(tids) // 2].decode()
    url = start_server(path).url
    assert run(f"tail -n 3 --at {middle} {{}}", path)[1].count(b"hash=") == 3
    for storage in (path, url):
        code, out, said = run(f"tail -n 2 --json --at {middle} {{}}", storage)
        found = [json.loads(line)["tid"].encode() for line in out.splitlines()]
        assert (code, found) == (0, tids[: len(tids) // 2 + 1][:-3:-1]), said


@pytest.mark.parametrize("kind", ["file", "server", "sqlite"])
def test_a_watch_begins_where_it_is_told(binary, run, path, tmp_path, start_server, kind):
    database = ZODB.DB(FileStorage(str(path)))
    database.close()
    tids = [
        line.split()[1]
        for line in run("dump --hashonly {}", path)[1].decode().splitlines()
        if line.startswith("txn ")
    ]
    storage = path
    if kind == "server":
        storage = start_server(path).url
    if kind == "sqlite":
        storage = f"sqlite://{tmp_path}/watched.sqlite"
        assert run(f"copy {{}} {storage}", path)[0] == 0
    words = [binary, "watch", "--at", tids[-4], str(storage)]
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        lines = [watching.stdout.readline().strip() for _ in range(4)]
        assert lines == [f"# at {tids[-4]}", *(f"txn {tid}" for tid in tids[-3:])]
    finally:
        watching.kill()
        watching.communicate()


def test_references_are_followed_to_a_deep_object(run, tmp_path):
    """A path of some hundred objects, beside a thousand others."""
    path = tmp_path / "deep.fs"
    database = ZODB.DB(FileStorage(str(path)))
    with database.transaction() as connection:
        place = connection.root()
        for _ in range(300):
            place["next"] = PersistentMapping()
            place = place["next"]
            for number in range(3):
                place[number] = PersistentMapping()
        connection.add(place)
        oid = place._p_oid
    database.close()
    code, out, _ = run(f"refs --json --path --to {oid.hex()} {{}}", path)
    steps = json.loads(out.splitlines()[-1])["path"]
    assert code == 0 and len(steps) == 301
