"""Faults of a NEO cluster with our storage nodes: lost masters, full disks, damaged databases."""

import contextlib
import os
import select
import shutil
import sqlite3
import subprocess
import threading

import pytest
from harness.neo import Cluster, Failed, Node, needs_neo
from harness.neo_cut import CuttingProxy
from harness.neo_rows import differing, unfinished
from harness.process import HOST
from harness.waiting import WAIT_SECONDS, wait_for

pytestmark = [pytest.mark.zodium, needs_neo]

# A commit is a lock, its answer, and an unlock.
PACKETS_OF_A_COMMIT = 3
# More packets than a commit, or a recovery, has between a storage and its master.
COMMIT_PACKETS, RECOVERY_PACKETS = 6, 40


@pytest.fixture
def cluster(tmp_path):
    """cluster(options): storages with these options, one unless others are wanted; not started."""
    clusters = []

    def make(*options, database=None, storages=1, **shape):
        one = Cluster(tmp_path, storages=storages, **shape)
        if database:
            one.database = lambda number: database
        one.storages = [one.storage_node(number, *options) for number in range(1, storages + 1)]
        clusters.append(one)
        return one

    yield make
    for one in clusters:
        one.end()


@pytest.fixture
def proxied(cluster):
    """A running cluster whose storage meets its master through a proxy; and the proxy."""
    one = cluster()
    proxy = CuttingProxy((HOST, int(one.masters.rpartition(":")[2])))
    words = one.storages[0].words
    words[words.index("--masters") + 1] = proxy.address
    one.start()
    yield one, proxy
    proxy.close()


def recovers(one):
    """Waits until the cluster takes commits again."""
    one.wait_running()
    wait_for(lambda: "RUNNING" in one.nodes(), "the storage runs")


def begin_anew(one, before=lambda: None):
    """Starts the storage again; one that has met its master goes around the proxy to it."""
    one.storages[0].stop()
    wait_for(lambda: "RUNNING" not in one.nodes(), "the master misses the storage")
    before()
    one.storages[0].start()
    recovers(one)


def runs_again(one):
    """A new client, when the cluster has recovered."""
    recovers(one)
    return one.client()


def set_or_fail(client, **values):
    """Commits; whether that was acknowledged."""
    client.ask("set", **values)
    return answers(client)


def has_answer(client):
    """Whether a command that was asked for has ended."""
    return bool(select.select([client.process.stdout], [], [], 0)[0])


def answers(client):
    """Whether a command that was asked for succeeds."""
    try:
        client.answer()
    except Failed:
        return False
    return True


def test_a_master_that_is_cut_off_at_any_packet_of_a_commit(proxied):
    one, proxy = proxied
    one.client().call("set", value=0)
    known, cuts = {0}, 0
    for packets in range(1, COMMIT_PACKETS + 1):
        begin_anew(one)
        client = one.client()
        proxy.arm(packets)
        is_acknowledged = set_or_fail(client, value=packets)
        known = {packets} if is_acknowledged else {*known, packets}
        # The unlock may come after the answer to the client.
        if packets <= PACKETS_OF_A_COMMIT:
            wait_for(lambda: proxy.has_cut, f"{packets} packets")
        cuts += proxy.has_cut
        proxy.cut()
        client = runs_again(one)
        value = client.call("get")["value"]
        assert value in known, f"after {packets} packets"
        known = {value}
    assert cuts >= PACKETS_OF_A_COMMIT


def test_a_master_that_is_cut_off_at_any_packet_of_a_recovery(proxied):
    one, proxy = proxied
    one.client().call("set", value="kept")
    cuts = 0
    for packets in range(1, RECOVERY_PACKETS + 1):
        begin_anew(one, lambda packets=packets: proxy.arm(packets))
        if not proxy.has_cut:
            break
        cuts += 1
    # The master tells the storage of a new client, which could be the packet to cut at.
    proxy.arm(None)
    assert one.client().call("get") == {"value": "kept"}
    # Identification, recovery, verification and the start of operation.
    assert cuts >= 15


# One storage writes a transaction at its lock. With replicas both do at their votes; without, the
# one that has the metadata of a transaction syncs at its lock.
@pytest.mark.parametrize(
    "shape",
    [
        {"storages": 1},
        {"storages": 2, "partitions": 2, "replicas": 1},
        {"storages": 2, "partitions": 2},
    ],
    ids=["alone", "replicas", "parts"],
)
def test_what_was_acknowledged_outlives_a_kill_during_commits(cluster, shape):
    one = cluster(**shape)
    one.start()
    client = one.client()
    client.call("set", number=0)
    acknowledged = number = 0

    def restart():
        for storage in one.storages:
            storage.kill()
        for storage in one.storages:
            storage.start()

    for delay in (0.2, 0.3, 0.4):
        # The kill comes in the midst of one of many commits.
        killer = threading.Timer(delay, restart)
        killer.start()
        while killer.is_alive():
            number += 1
            if set_or_fail(client, number=number):
                acknowledged = number
        client = runs_again(one)
        found = client.call("get")["number"]
        assert acknowledged <= found <= number
        acknowledged = number = found
    assert acknowledged > 0
    client.close()
    wait_for(lambda: not any(map(unfinished, one.databases())), "all commits are unlocked")
    for storage in one.storages:
        assert storage.stop() == 0
    if len(one.storages) > 1 and "replicas" in shape:
        assert differing(one.databases()) == []


def test_a_second_process_on_a_database_is_refused(cluster):
    one = cluster()
    one.start()
    one.client().call("set", value=1)
    second = Node(one.storages[0].words, "second", one.folder)
    second.start()
    assert second.process.wait(WAIT_SECONDS) != 0
    assert "storage-1.sqlite" in second.log() and "in use by another process" in second.log()
    assert one.client().call("get") == {"value": 1}


def test_a_damaged_database_is_named_and_not_served(cluster):
    one = cluster()
    one.start()
    one.client().call("fill", count=50)
    storage, path = one.storages[0], one.database(1)
    assert storage.stop() == 0
    size = path.stat().st_size
    with open(path, "r+b") as file:
        # All pages but the first one, which says what kind of file it is.
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    storage.start()
    assert storage.process.wait(WAIT_SECONDS) != 0
    last = storage.log().splitlines()[-1]
    assert str(path) in storage.log() and "damaged" in last, last


def test_damage_that_is_met_while_a_node_serves_is_named(cluster):
    one = cluster()
    one.start()
    client = one.client()
    client.call("set", value="x" * 100)
    storage, path = one.storages[0], one.database(1)
    assert storage.stop() == 0
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE data SET value = zeroblob(length(value))")
    storage.start()
    with pytest.raises((Failed, AssertionError)):
        runs_again(one).call("get")
    client.close()


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_a_node_and_loses_nothing(cluster, small_disk):
    one = cluster(database=small_disk / "storage-1.sqlite")
    one.start()
    client = one.client()
    client.call("set", value=1)
    storage = one.storages[0]
    acknowledged, is_known = -1, True
    for number in range(200):
        client.ask("set", number=number, filling=os.urandom(10_000).hex())
        # A vote fails. During a finish the client waits for its outcome, until the node is back.
        wait_for(lambda: has_answer(client) or storage.process.poll() is not None, "an answer")
        is_known = has_answer(client)
        if not is_known or not answers(client):
            break
        acknowledged = number
    assert 0 < acknowledged < 199
    assert storage.process.wait(WAIT_SECONDS) != 0
    assert "no space left" in storage.log() and "small/storage-1.sqlite" in storage.log()
    # The operator makes room.
    words = ["mount", "-o", "remount,size=20m", str(small_disk)]
    subprocess.run(words, check=True)
    storage.start()
    found = runs_again(one).call("get")
    assert found["value"] == 1
    assert found["number"] - acknowledged in ((0,) if is_known else (0, 1))


def test_a_collision_refuses_its_transaction_only(cluster):
    one = cluster("--dedup")
    one.start()
    client = one.client()
    client.call("set", value="first")
    client.call("set", value="second")
    storage, path = one.storages[0], one.database(1)
    assert storage.stop() == 0
    # As if other data with the same SHA-1 as those of the first commit were there.
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        rows = database.execute(
            "SELECT data_id FROM obj WHERE oid = 0 AND data_id IS NOT NULL ORDER BY tid"
        ).fetchall()
        database.execute("UPDATE data SET value = zeroblob(length(value)) WHERE id = ?", rows[1])
    storage.start()
    client = runs_again(one)
    with pytest.raises(Failed, match="SHA-1"):
        client.call("set", value="first")
    assert storage.is_running()
    other = one.client()
    other.call("set", value="third")
    assert other.call("get") == {"value": "third"}
    assert "refusing a transaction" in storage.log()
    shutil.copy(path, one.folder / "copy.sqlite")
    with contextlib.closing(sqlite3.connect(one.folder / "copy.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM ttrans").fetchone() == (0,)


# ----------------------------------------------------------------- large transactions

# One is 80 MB. A database that is served takes some memory for pages.
LARGE = {"objects": 80, "size": 1_000_000}
GROWTH_BYTES_MAX = 40 << 20


def peak_bytes(node):
    """The most memory that the process of a node has had."""
    with open(f"/proc/{node.process.pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) << 10


def rows_of_data(one):
    with contextlib.closing(sqlite3.connect(f"file:{one.database(1)}?mode=ro", uri=True)) as rows:
        return rows.execute("SELECT COUNT(*), TOTAL(LENGTH(value)) FROM data").fetchone()


def test_large_transactions_are_not_in_memory_and_leave_nothing_when_they_end_early(cluster):
    one = cluster()
    one.start()
    (node,) = one.storages
    client = one.client()
    client.call("fill", count=1)
    before, rows = peak_bytes(node), rows_of_data(one)
    with pytest.raises(Failed, match="voted against"):
        client.call("commit_large", fails=True, **LARGE)
    wait_for(lambda: rows_of_data(one) == rows, "the rows of the vote are gone")
    client.ask("commit_large", **LARGE)
    # Killed while data come in: a spool of some size is open.
    descriptors = f"/proc/{node.process.pid}/fd"

    def spooled_bytes():
        sizes = []
        for name in os.listdir(descriptors):
            with contextlib.suppress(OSError):
                if "deleted" in os.readlink(f"{descriptors}/{name}"):
                    sizes.append(os.stat(f"{descriptors}/{name}").st_size)
        return sum(sizes)

    wait_for(lambda: spooled_bytes() > 20_000_000, "data are in the spool")
    assert peak_bytes(node) - before < GROWTH_BYTES_MAX
    node.kill()
    # The client may need the master, which lets no client in without a storage.
    node.start()
    with pytest.raises(Failed):
        client.answer()
    recovers(one)
    assert rows_of_data(one) == rows
    client.close()
    other = one.client()
    before = peak_bytes(node)
    other.call("commit_large", **LARGE)
    assert peak_bytes(node) - before < GROWTH_BYTES_MAX
    assert rows_of_data(one)[0] >= rows[0] + LARGE["objects"]
