"""Storage nodes of ours in clusters of NEO/py: masters, admins and clients notice nothing."""

import pytest
from harness.neo import CHECKOUT, Cluster, Failed, needs_neo, running_clusters
from harness.waiting import WAIT_SECONDS, wait_for

pytestmark = [pytest.mark.zodium, needs_neo]


@pytest.fixture
def cluster(tmp_path):
    """cluster(**shape): a running cluster."""
    with running_clusters(tmp_path) as start:
        yield start


def test_commits_survive_a_killed_storage(cluster):
    cluster = cluster()
    client = cluster.client()
    client.call("set", a=1)
    client.call("set", a=2, b="two")
    assert client.call("get") == {"a": 2, "b": "two"}
    storage = cluster.storages[0]
    storage.kill()
    storage.start()
    cluster.wait_running()
    assert cluster.client().call("get") == {"a": 2, "b": "two"}
    client.call("set", c=3)
    assert client.call("get") == {"a": 2, "b": "two", "c": 3}


def test_sigterm_ends_a_storage_in_order(cluster):
    cluster = cluster()
    cluster.client().call("set", a=1)
    assert cluster.storages[0].stop() == 0
    assert [path.name for path in cluster.folder.glob("*.sqlite*")] == ["storage-1.sqlite"]


def test_the_master_ends_storages(cluster):
    cluster = cluster()
    cluster.client().call("set", a=1)
    assert cluster.neoctl("set", "cluster", "STOPPING").returncode == 0
    assert cluster.storages[0].process.wait(WAIT_SECONDS) == 0


def test_conflicts_are_noticed(cluster):
    cluster = cluster(partitions=2)
    one, other = cluster.client(), cluster.client()
    one.call("set", a=1)
    one.call("begin_set", a=2)
    other.call("get")
    other.call("begin_set", a=3)
    one.call("commit")
    with pytest.raises(Failed, match="ConflictError"):
        other.call("commit")
    assert other.call("get") == {"a": 2}


def test_undo_history_and_log(cluster):
    cluster = cluster(partitions=3)
    client = cluster.client()
    client.call("set", a=1)
    client.call("set", a=2)
    assert client.call("history") == 3
    client.call("undo")
    assert client.call("get") == {"a": 1}
    assert client.call("history") == 4
    count, records = client.call("transactions_of_log")
    assert (count, records) == (4, 4)


def test_a_pack_drops_old_revisions(cluster):
    cluster = cluster(partitions=3)
    client = cluster.client()
    for value in range(5):
        client.call("set", a=value)
    assert client.call("history") == 6
    client.call("pack")
    assert client.call("history") == 1
    assert client.call("get") == {"a": 4}


def test_several_storages_share_the_partitions(cluster):
    cluster = cluster(storages=3, partitions=7)
    client = cluster.client()
    client.call("fill", count=30)
    assert client.call("filled") == list(range(30))
    for storage in cluster.storages:
        storage.kill()
        storage.start()
    cluster.wait_running()
    wait_for(lambda: cluster.nodes().count("RUNNING") == 3, "all storages run")
    assert cluster.client().call("filled") == list(range(30))


def test_a_replica_takes_over_and_catches_up(cluster):
    cluster = cluster(storages=2, partitions=4, replicas=1)
    client = cluster.client()
    client.call("fill", count=10)
    cluster.storages[0].kill()
    client.call("set", a=1)
    assert client.call("filled") == list(range(10))
    cluster.storages[0].start()
    cluster.wait_up_to_date(2)
    cluster.storages[1].kill()
    other = cluster.client()
    assert other.call("get") == {"a": 1}
    assert other.call("filled") == list(range(10))


def test_replicas_of_both_kinds_feed_each_other(cluster, tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    mixed = Cluster(folder, storages=2, partitions=3, replicas=1)
    mixed.storages[1] = mixed.neo_storage_node(2)
    try:
        mixed.start()
        client = mixed.client()
        client.call("fill", count=20)
        for stopped, left in ((0, 1), (1, 0)):
            mixed.storages[stopped].kill()
            client.call("set", stopped=stopped)
            mixed.storages[stopped].start()
            mixed.wait_up_to_date(2)
            mixed.storages[left].kill()
            assert mixed.client().call("get") == {"stopped": stopped}
            assert mixed.client().call("filled") == list(range(20))
            mixed.storages[left].start()
            mixed.wait_up_to_date(2)
    finally:
        mixed.end()


def test_a_new_storage_gets_its_share(cluster):
    cluster = cluster(storages=1, partitions=4)
    client = cluster.client()
    client.call("fill", count=10)
    cluster.storages.append(cluster.storage_node(2))
    cluster.storages[1].start()
    wait_for(lambda: "PENDING" in cluster.nodes(), "the new storage is pending")
    assert cluster.neoctl("add", "all").returncode == 0
    assert cluster.neoctl("tweak").returncode == 0
    cluster.wait_up_to_date(1)
    assert client.call("filled") == list(range(10))
    # Everything goes to the new one, and the old one leaves.
    assert cluster.neoctl("tweak", "S1").returncode == 0
    wait_for(lambda: all("OUT_OF_DATE" not in row for row in cluster.cells()), "copied")
    assert cluster.neoctl("kill", "S1").returncode == 0
    assert cluster.storages[0].process.wait(WAIT_SECONDS) == 0
    assert cluster.client().call("filled") == list(range(10))


def test_a_truncated_database_is_as_it_was(cluster):
    cluster = cluster(storages=2, partitions=3)
    client = cluster.client()
    client.call("set", a=1)
    last = client.call("last")
    client.call("set", a=2)
    cluster.truncate(last)
    wait_for(lambda: cluster.nodes().count("RUNNING") == 2, "all storages run")
    assert cluster.client().call("get") == {"a": 1}


def test_a_cluster_with_tls(cluster):
    folder = f"{CHECKOUT}/neo/tests"
    files = tuple(f"{folder}/{name}" for name in ("ca.crt", "node.crt", "node.key"))
    cluster = cluster(storages=2, partitions=2, replicas=1, tls=files)
    client = cluster.client()
    client.call("set", a=1)
    cluster.storages[0].kill()
    client.call("set", a=2)
    cluster.storages[0].start()
    cluster.wait_up_to_date(2)
    assert cluster.client().call("get") == {"a": 2}


def test_neo_opens_what_we_wrote_and_we_what_neo_wrote(cluster):
    cluster = cluster(partitions=2)
    cluster.client().call("fill", count=5)
    ours, theirs = cluster.storages[0], cluster.neo_storage_node(1)
    for storage, value in ((theirs, 1), (ours, 2)):
        cluster.storages[0].stop()
        cluster.storages[0] = storage
        storage.start()
        cluster.wait_running()
        wait_for(lambda: "RUNNING" in cluster.nodes(), "the storage runs")
        client = cluster.client()
        client.call("set", a=value)
        assert client.call("get") == {"a": value}
        assert client.call("filled") == list(range(5))


def test_a_backup_cluster_follows_and_becomes_a_cluster(cluster):
    upstream = cluster(storages=2, partitions=3)
    client = upstream.client()
    client.call("fill", count=10)
    backup = cluster(storages=2, partitions=3, replicas=1, upstream=upstream)
    assert backup.neoctl("set", "cluster", "STARTING_BACKUP").returncode == 0
    backup.wait_state("BACKINGUP")
    client.call("set", a=1)

    def has_followed():
        return client.call("last")[2:] in backup.neoctl("print", "ids").stdout.splitlines()[0]

    wait_for(has_followed, "the backup has everything")
    reader = backup.client(read_only=True)
    assert reader.call("get") == {"a": 1}
    assert reader.call("filled") == list(range(10))
    client.call("set", a=2)
    wait_for(has_followed, "the backup has the last commit")
    reader.close()
    assert backup.neoctl("set", "cluster", "STOPPING_BACKUP").returncode == 0
    backup.wait_running()
    writer = backup.client()
    writer.call("set", b=3)
    assert writer.call("get") == {"a": 2, "b": 3}
    assert client.call("get") == {"a": 2}
