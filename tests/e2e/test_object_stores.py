"""Backups in an object store that fails: each restore is exact, and one of two archivers writes.

ZODIUM_OBJECT_STORES=PROGRAM    a zodium that was built with --features object-stores
"""

import json
import os

import pytest
from harness.archiver import Archiver
from harness.databases import add_change, write_database
from harness.s3 import ObjectStore

PROGRAM = os.environ.get("ZODIUM_OBJECT_STORES")
RUN_SECONDS = 300
URL = "s3://bucket/site/main"
LEASE_SECONDS = 2

pytestmark = [
    pytest.mark.zodium,
    pytest.mark.skipif(
        not PROGRAM, reason="NO OBJECT STORE IS TESTED: `make objectstores` builds the program"
    ),
]


@pytest.fixture
def store(seeded):
    store = ObjectStore(seeded.randrange(1 << 32))
    yield store
    print(f"faults: {store.faults}")
    store.close()


@pytest.fixture
def binary():
    return PROGRAM


@pytest.fixture
def run(run, store):
    return lambda *words: run(*words, env=store.environment())


@pytest.fixture
def archive(store, tmp_path):
    env = {**os.environ, **store.environment()}
    archivers = []

    def start(storage, name, *options):
        (tmp_path / name).mkdir()
        options = ("--lease", LEASE_SECONDS, *options)
        archivers.append(Archiver(PROGRAM, storage, URL, tmp_path / name, *options, env=env))
        return archivers[-1].start()

    yield start
    for archiver in archivers:
        archiver.close()
        print(f"--- {archiver.log_path}\n{archiver.log()}")


@pytest.mark.parametrize("rate", [0, 0.15])
def test_a_backup_is_restored_from_a_store_that_fails(run, store, tmp_path, seeded, rate):
    path, key = tmp_path / "Data.fs", tmp_path / "key"
    key.write_text(seeded.randbytes(32).hex())
    key.chmod(0o600)
    options = ["--key-file", key] * seeded.randrange(2)
    write_database(path, seeded)
    store.fault_rate = rate
    states = []
    for _ in range(3):
        tid = add_change(path, seeded)
        code, out, said = run("backup", path, URL, "--json", *options)
        assert code == 0, said
        assert json.loads(out)["last"] == tid.hex()
        states.append((tid, path.read_bytes()))
    for number, (tid, data) in enumerate(states):
        output = tmp_path / f"{number}.fs"
        code, _, said = run("restore", URL, output, "--at", tid.hex(), *options)
        assert code == 0, said
        assert output.read_bytes() == data
    assert run("backup", "--verify", URL, *options)[0] == 0
    assert run("prune", URL, "--keep-last", 1, *options)[0] == 0
    assert run("backup", "--verify", URL, *options)[0] == 0
    assert len([name for name in store.objects if "/points/" in name]) == 1
    assert bool(store.faults) == bool(rate)


def test_a_storage_is_archived_into_a_store_that_fails(run, archive, store, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    write_database(path, seeded)
    archiver = archive(path, "one")
    store.fault_rate = 0.15
    for _ in range(10):
        archiver.wait_for_tid(add_change(path, seeded))
    # An outage.
    store.fault_rate = 1
    tid = add_change(path, seeded)
    store.fault_rate = 0
    archiver.wait_for_tid(tid)
    assert archiver.stop() == 0
    assert run("restore", URL, tmp_path / "out.fs")[0] == 0
    assert (tmp_path / "out.fs").read_bytes() == path.read_bytes()
    assert run("backup", "--verify", URL)[0] == 0


def test_a_second_archiver_is_refused_and_takes_over_from_a_dead_one(
    run, archive, tmp_path, seeded
):
    path = tmp_path / "Data.fs"
    write_database(path, seeded)
    first = archive(path, "one")
    first.wait_for_tid(add_change(path, seeded))
    code, _, said = run("backup", path, URL)
    assert code == 2 and "another archiver" in said
    # It does not answer; another one takes over when the lease has ended.
    first.process.send_signal(19)
    second = archive(path, "two")
    tid = add_change(path, seeded)
    second.wait_for_tid(tid)
    # It wakes up, and must not write any more.
    first.process.send_signal(18)
    assert first.process.wait(30) == 2
    assert "has taken the repository over" in first.log()
    second.wait_for_tid(add_change(path, seeded))
    assert second.stop() == 0
    assert run("restore", URL, tmp_path / "out.fs")[0] == 0
    assert (tmp_path / "out.fs").read_bytes() == path.read_bytes()
    assert run("backup", "--verify", URL)[0] == 0


def test_a_damaged_object_of_a_store_is_found(run, store, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    write_database(path, seeded)
    assert run("backup", path, URL)[0] == 0
    for name in [name for name in store.objects if not name.endswith("/lease")]:
        whole = store.objects[name]
        data = bytearray(whole)
        data[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
        store.objects[name] = bytes(data)
        assert run("backup", "--verify", URL)[0] in (1, 2), name
        store.objects[name] = whole
    assert run("backup", "--verify", URL)[0] == 0
