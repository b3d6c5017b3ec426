"""kill -9 during commits: what was acknowledged is there, whole, every time.

Four clients commit as fast as they can and journal what the server acknowledged;
the server is killed at a random moment, again and again, on one file.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import ZODB.FileStorage
from harness import files
from harness.committer import digest, promises_of
from harness.waiting import wait_for
from harness.wire import MAXTID

CLIENTS = 4
KILLS = 20
TESTS = Path(__file__).resolve().parents[1]


def start_client(server, number, seed, journal):
    host, port = server.address
    words = [sys.executable, "-m", "harness.committer", host, str(port), str(number), str(seed)]
    return subprocess.Popen([*words, str(journal)], cwd=TESTS)


@pytest.fixture
def journals(tmp_path):
    return [tmp_path / f"journal-{number}" for number in range(CLIENTS)]


def commit_until_killed(server, journals, seeded):
    """Run the clients, kill the server in the middle, and wait for all of them."""
    seed = seeded.randrange(1 << 30)
    clients = [start_client(server, n, seed, journal) for n, journal in enumerate(journals)]
    before = [journal.stat().st_size if journal.exists() else 0 for journal in journals]

    def are_promised():
        sizes = [journal.stat().st_size if journal.exists() else 0 for journal in journals]
        return all(now > size for now, size in zip(sizes, before))

    # Then the kill hits commits.
    wait_for(are_promised, "each client is promised something", pause=0.005)
    time.sleep(seeded.uniform(0, 0.3))
    server.kill()
    assert [client.wait(30) for client in clients] == [0] * CLIENTS


def assert_promises_kept(path, journals):
    """Every acknowledged record is in the file, with its bytes; the number of them."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    kept = 0
    try:
        for journal in journals:
            for tid, objects in promises_of(journal):
                for oid, sha in objects.items():
                    assert digest(storage.loadSerial(oid, tid)) == sha
                    kept += 1
    finally:
        storage.close()
    return kept


def test_acknowledged_commits_survive_kill(tmp_path, start_server, wire, seeded, journals, scale):
    path = tmp_path / "Data.fs"
    for _ in range(int(KILLS * scale)):
        server = start_server(path)
        commit_until_killed(server, journals, seeded)
    server = start_server(path)
    last = wire(server).register_tid
    assert last >= max(tid for journal in journals for tid, _ in promises_of(journal))
    kept = assert_promises_kept(path, journals)
    assert kept >= CLIENTS * int(KILLS * scale)
    assert server.stop() == 0
    files.check(path)
    files.read(path)


def test_the_server_itself_loads_what_it_acknowledged(
    tmp_path, start_server, wire, seeded, journals
):
    path = tmp_path / "Data.fs"
    for _ in range(3):
        commit_until_killed(start_server(path), journals, seeded)
    client = wire(start_server(path))
    current = {}
    for journal in journals:
        for tid, objects in promises_of(journal):
            for oid, sha in objects.items():
                assert digest(client.call("loadSerial", oid, tid)) == sha
                current[oid] = max(tid, current.get(oid, b""))
    for oid, tid in current.items():
        # A commit may be there that nobody was told of, but never an older one.
        assert client.call("loadBefore", oid, MAXTID)[1] >= tid


def test_a_killed_server_keeps_its_tids_increasing(tmp_path, start_server, wire, seeded, journals):
    path = tmp_path / "Data.fs"
    last = b""
    for _ in range(3):
        server = start_server(path)
        commit_until_killed(server, journals, seeded)
        tids = [txn.tid for txn in files.read(path)]
        assert tids == sorted(set(tids))
        assert tids[-1] > last
        last = tids[-1]
