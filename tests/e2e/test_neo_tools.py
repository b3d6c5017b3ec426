"""The tools on a running NEO cluster, and copies into it."""

import contextlib
import json
import sqlite3
import subprocess

import pytest
import ZODB
from harness.databases import change, delete, undo
from harness.neo import OwnCluster, running_clusters
from harness.process import ServerProcess, command_words, free_port
from harness.servers import COMMAND
from harness.waiting import wait_for
from ZODB.FileStorage import FileStorage

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


@pytest.fixture
def run(run_bytes):
    return run_bytes


@pytest.fixture
def start_cluster(tmp_path):
    with running_clusters(tmp_path, OwnCluster) as start:
        yield start


@pytest.fixture
def data_file(tmp_path, seeded):
    """A file with changes, undos and deletions; none is packed."""
    path = tmp_path / "Data.fs"
    extend(path, seeded, 30)
    return path


def extend(path, random, count):
    database = ZODB.DB(FileStorage(str(path)))
    for number in range(count):
        [(step)] = random.choices([change, undo, delete], [8, 3, 1] if number > 9 else [1, 0, 0])
        step(database, random)
    database.close()


def last_tid(path):
    storage = FileStorage(str(path), read_only=True)
    try:
        return storage.lastTransaction().hex()
    finally:
        storage.close()


def followed(dump):
    """A dump whose back pointers name the transaction that holds the data: NEO's lead there from
    one record with these data to the next, those of a file may lead there at once."""
    lines, tid, sources = [], None, {}
    for line in dump.split(b"\n"):
        words = line.split(b" ")
        if words[0] == b"txn":
            tid = words[1]
        elif words[0] == b"obj" and words[2:3] == [b"from"]:
            words[3] = sources[words[1], tid] = sources.get((words[1], words[3]), words[3])
        lines.append(b" ".join(words))
    return lines


def sorted_lines(result):
    code, out, errors = result
    return code, sorted(out.splitlines()), errors


def test_a_file_is_copied_into_a_cluster_and_on_to_other_places(
    run, start_cluster, data_file, tmp_path, seeded
):
    cluster = start_cluster(storages=2, partitions=3, replicas=1)
    url = cluster.url()
    code, out, errors = run("copy", "--json", data_file, url)
    assert code == 0, errors
    assert json.loads(out)["verified"] and json.loads(out)["last"] == last_tid(data_file)
    assert run("cmp", data_file, url)[0] == 0
    # What the tools say of a file they say of the cluster.
    assert followed(run("dump", url)[1]) == followed(run("dump", data_file)[1])
    for words in (["analyze", "-c"], ["stats"], ["oids"]):
        assert run(*words, url) == run(*words, data_file), words
    # Objects come in the order of their records, which partitions change.
    assert sorted_lines(run("refs", url)) == sorted_lines(run("refs", data_file))
    for words in (["tail", "-n", "3"], ["catobj"]):
        code, out, errors = run(*words, url, *(["0000000000000000"] if words == ["catobj"] else []))
        assert code == 0 and out, (words, errors)
    code, out, errors = run("info", url)
    assert code == 0 and last_tid(data_file).encode() in out, errors
    # More of the same file, and from the cluster to a file and to a database.
    extend(data_file, seeded, 5)
    assert run("copy", data_file, url)[0] != 0, "transactions are there already"
    code, _, errors = run("copy", "--incremental", data_file, url)
    assert code == 0, errors
    for copy in (tmp_path / "copy.fs", f"sqlite://{tmp_path}/copy.sqlite"):
        code, _, errors = run("copy", url, copy)
        assert code == 0, errors
        assert run("cmp", data_file, copy)[0] == 0
    other = start_cluster()
    code, _, errors = run("load", other.url(), given=run("dump", url)[1])
    assert code == 0, errors
    assert run("cmp", url, other.url())[0] == 0


def test_a_copy_that_was_killed_goes_on(run, start_cluster, binary, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    extend(path, seeded, 200)
    cluster = start_cluster(storages=2, partitions=2)
    url = cluster.url()
    copying = subprocess.Popen([binary, "copy", path, url])

    def transactions():
        return int(cluster.ctl("print", "ids").stdout.count("last_tid = 0x0") > 0)

    wait_for(lambda: copying.poll() is not None or transactions(), "the first transaction")
    copying.kill()
    copying.wait()
    code, _, errors = run("copy", "--incremental", path, url)
    assert code == 0, errors
    assert run("cmp", path, url)[0] == 0


def test_a_copied_database_is_served_with_its_history(run, start_cluster, data_file, tmp_path):
    cluster = start_cluster()
    assert run("copy", data_file, cluster.url())[0] == 0
    port = free_port()
    server = ServerProcess(
        command_words(COMMAND, (), path=cluster.url(), port=port), port, tmp_path
    )
    try:
        code, _, errors = run("cmp", data_file, server.url)
        assert code == 0, errors
    finally:
        server.kill()


def test_a_cluster_is_checked_as_its_copy_is(run, start_cluster, data_file, tmp_path):
    cluster = start_cluster(storages=2, partitions=3, replicas=1)
    copy = f"sqlite://{tmp_path}/copy.sqlite"
    for target in (copy, cluster.url()):
        assert run("copy", data_file, target)[0] == 0
    checks = ("--references", "--pickles", "--btrees", "--json")
    code, out, errors = run("check", *checks, cluster.url())
    assert (code, out) == run("check", *checks, copy)[:2], errors
    summary = json.loads(out.splitlines()[-1])
    transactions = run("dump", "--hashonly", data_file)[1].count(b"\ntxn ") + 1
    assert (summary["kind"], summary["transactions"]) == ("summary", transactions)
    code, out, errors = run("check", cluster.url())
    assert (code, errors) == (0, ""), out
    assert out.startswith(f"neo://{cluster.name}@".encode()) and b": whole (" in out


def test_damage_in_a_cluster_is_found(run, start_cluster, data_file):
    cluster = start_cluster()
    assert run("copy", data_file, cluster.url())[0] == 0
    with contextlib.closing(sqlite3.connect(cluster.database(1))) as database, database:
        [(value,)] = database.execute("SELECT value FROM data WHERE id = 1")
        damaged = value[:-1] + bytes([value[-1] ^ 1])
        database.execute("UPDATE data SET value = ? WHERE id = 1", (damaged,))
    code, out, errors = run("check", cluster.url())
    assert code == 1 and b"do not have their SHA-1" in out, (out, errors)
    assert b" damage" in out.splitlines()[-1]


def sorted_by_transaction(lines):
    """The lines of objects sorted, each below its transaction."""
    ordered = []
    for part in "\n".join(lines).strip("\n").split("\n\n"):
        transaction, *objects = part.split("\n")
        ordered += [transaction, *sorted(objects), ""]
    return ordered


def test_commits_in_a_cluster_are_watched(binary, run, start_cluster, data_file, seeded):
    cluster = start_cluster(storages=2, partitions=3)
    url = cluster.url()
    assert run("copy", data_file, url)[0] == 0
    first = last_tid(data_file)
    watching = subprocess.Popen([binary, "watch", "-v", url], stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout.readline() == f"# at {first}\n"
        extend(data_file, seeded, 3)
        code, _, errors = run("copy", "--incremental", data_file, url)
        assert code == 0, errors
        expected = []
        for line in run("dump", "--hashonly", data_file)[1].decode().splitlines():
            kind, value, *_ = [*line.split(), "", ""]
            if kind == "txn":
                expected += [f"txn {value}", ""]
            elif kind == "obj":
                expected.insert(-1, f"obj {value}")
        expected = expected[expected.index(f"txn {first}") :]
        expected = expected[expected.index("") + 1 :]
        assert expected
        # The dump has the objects of a transaction sorted, the cluster has them in their order.
        seen = [watching.stdout.readline().rstrip("\n") for _ in expected]
        assert sorted_by_transaction(seen) == expected
    finally:
        watching.kill()
        watching.communicate()
    words = [binary, "watch", "--json", "--at", first, url]
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert json.loads(watching.stdout.readline()) == {"at": first}
        tids = [line.split()[1] for line in expected if line.startswith("txn")]
        assert [json.loads(watching.stdout.readline()) for _ in tids] == [{"tid": t} for t in tids]
    finally:
        watching.kill()
        watching.communicate()
