"""Backup clusters: masters of ours and of NEO/py on both sides."""

import signal

import pytest
from harness.neo import clusters, needs_neo
from harness.neo_databases import opening, serving, values_of
from harness.waiting import wait_for

pytestmark = [pytest.mark.zodium, needs_neo]

# Whose masters the upstream cluster has, and the backup.
SIDES = {"ours-of-ours": (True, True), "ours-of-neo": (False, True), "neo-of-ours": (True, False)}


@pytest.fixture
def make(tmp_path):
    """make(is_own, **shape): a cluster that does not run yet, with masters of ours or of NEO/py."""
    with clusters(tmp_path) as make:

        def build(is_own, **shape):
            masters = range(1, shape.get("masters", 1) + 1)
            return make(own_masters=masters if is_own else (), **shape)

        yield build


def backup_tid(backup):
    """The last transaction that a backup cluster has, as neoctl says it."""
    first = backup.neoctl("print", "ids").stdout.splitlines()[:1]
    return first[0].split()[2] if first and first[0].startswith("backup_tid") else ""


def wait_followed(backup, client):
    """Waits until the backup has all that the upstream cluster has."""
    last = f"0x{client.call('last').lstrip('0')}"
    wait_for(lambda: backup_tid(backup) == last, f"the backup has {last}")


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
def test_a_backup_follows_is_read_and_becomes_a_cluster(make, sides):
    upstream = make(sides[0], storages=2, partitions=3)
    upstream.start()
    client = upstream.client()
    client.call("fill", count=5)
    backup = make(sides[1], storages=2, partitions=3, replicas=1, upstream=upstream)
    backup.start()
    assert backup.neoctl("set", "cluster", "STARTING_BACKUP").stdout == "Cluster state changed\n"
    backup.wait_state("BACKINGUP")
    client.call("set", a=1)
    wait_followed(backup, client)
    reader = backup.client(read_only=True)
    assert reader.call("get") == {"a": 1}
    assert reader.call("filled") == list(range(5))
    reader.close()
    # The primary cells are lost: others go on from what they have.
    backup.storages[0].kill()
    client.call("set", a=2)
    wait_followed(backup, client)
    backup.storages[0].start()
    backup.wait_up_to_date(2)
    client.call("set", a=3)
    wait_followed(backup, client)
    stopped = backup.neoctl("set", "cluster", "STOPPING_BACKUP")
    assert stopped.stdout == "Cluster state changed\n"
    backup.wait_running()
    writer = backup.client()
    writer.call("set", b=4)
    assert writer.call("get") == {"a": 3, "b": 4}
    assert client.call("get") == {"a": 3}


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
def test_both_clusters_are_restarted(make, sides):
    """An empty cluster begins as a backup, and goes on as one."""
    upstream = make(sides[0], storages=1, partitions=2, masters=2)
    upstream.start()
    client = upstream.client()
    client.call("set", a=1)
    shape = {"storages": 1, "partitions": 2, "upstream": upstream}
    backup = make(sides[1], begins_as_backup=True, autostart=1, **shape)
    backup.wait_autostarted("BACKINGUP")
    wait_followed(backup, client)
    for node in [*backup.master_nodes, *backup.storages]:
        node.kill()
    client.call("set", a=2)
    for node in [*backup.master_nodes, *backup.storages]:
        node.start()
    wait_followed(backup, client)
    # The primary master of the upstream cluster is lost, whichever it is.
    for node in upstream.master_nodes:
        node.kill()
        upstream.wait_running()
        node.start()
        wait_for(
            lambda: upstream.neoctl("print", "node", "master").stdout.count("RUNNING") == 2,
            "both masters run",
        )
    client.call("set", a=3)
    wait_followed(backup, client)


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
def test_packs_of_the_upstream_cluster_are_carried_out(make, sides):
    upstream = make(sides[0], storages=1, partitions=2)
    upstream.start()
    client = upstream.client()
    for number in range(3):
        client.call("set", a=number)
    backup = make(sides[1], storages=1, partitions=2, upstream=upstream)
    backup.start()
    assert backup.neoctl("set", "cluster", "STARTING_BACKUP").returncode == 0
    backup.wait_state("BACKINGUP")
    wait_followed(backup, client)
    assert backup_history(backup) > 1
    # It returns when the pack is done upstream.
    client.call("pack")
    wait_followed(backup, client)
    wait_for(lambda: backup_history(backup) == 1, "the backup is packed")


def backup_history(backup):
    """How many revisions the root has in a backup."""
    reader = backup.client(read_only=True)
    try:
        return reader.call("history")
    finally:
        reader.close()


def start_backup(make, is_own, upstream):
    backup = make(is_own, storages=1, partitions=2, upstream=upstream)
    backup.start()
    assert backup.neoctl("set", "cluster", "STARTING_BACKUP").returncode == 0
    backup.wait_state("BACKINGUP")
    return backup


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
def test_a_gateway_to_a_backup_shows_what_comes(make, sides, tmp_path):
    upstream = make(sides[0], storages=1, partitions=2)
    upstream.start()
    client = upstream.client()
    client.call("set", a=1)
    backup = start_backup(make, sides[1], upstream)
    wait_followed(backup, client)
    with serving(tmp_path) as serve, opening() as open_database:
        gateway = serve(backup.url(), "--read-only", "--cache-size", "0")
        database = open_database(gateway, read_only=True)
        assert values_of(database) == {"a": 1}
        client.call("set", a=2)
        wait_for(lambda: values_of(database) == {"a": 2}, "the commit is told")
        # What was current at the start is packed away.
        client.call("pack")
        wait_for(lambda: backup_history(backup) == 1, "the backup is packed")
        assert values_of(open_database(gateway, read_only=True)) == {"a": 2}


def test_a_backup_leaves_an_upstream_cluster_that_lacks_its_last_transaction(make):
    upstream = make(True, storages=1, partitions=2)
    upstream.start()
    client = upstream.client()
    client.call("set", a=1)
    kept = client.call("last")
    backup = start_backup(make, True, upstream)
    client.call("set", a=2)
    wait_followed(backup, client)
    backup.master_nodes[0].kill()
    upstream.truncate(kept)
    # The upstream cluster is ahead again before the backup is back.
    client = upstream.client()
    client.call("set", b=1)
    backup.master_nodes[0].start()
    backup.wait_running()
    assert "lacks a transaction of this backup" in backup.master_nodes[0].log()
    assert backup.client().call("get") == {"a": 2}
    assert client.call("get") == {"a": 1, "b": 1}


def test_what_cannot_be_a_backup_is_refused(make):
    upstream = make(True, storages=1, partitions=2)
    upstream.start()
    alone = upstream.neoctl("set", "cluster", "STARTING_BACKUP")
    assert alone.returncode == 1 and "No upstream cluster" in alone.stderr
    backup = make(True, storages=1, partitions=2, upstream=upstream)
    backup.start()
    client = backup.client()
    busy = backup.neoctl("set", "cluster", "STARTING_BACKUP")
    assert busy.returncode == 1 and "connected clients" in busy.stderr
    client.close()
    # The root of the backup is later than anything upstream: it follows another database.
    wait_for(
        lambda: backup.neoctl("set", "cluster", "STARTING_BACKUP").returncode == 0,
        "the client is gone",
    )
    # Until then the admin may still know it as running.
    log = backup.master_nodes[0].log
    wait_for(lambda: "the upstream cluster was truncated" in log(), log)
    backup.wait_running()
    writer = backup.client()
    writer.call("set", a=1)
    assert writer.call("get") == {"a": 1}


def test_a_storage_that_was_away_at_the_promotion_makes_the_cluster_no_backup(make):
    upstream = make(True, storages=1, partitions=2)
    upstream.start()
    client = upstream.client()
    client.call("set", a=1)
    backup = make(True, storages=2, partitions=2, replicas=1, upstream=upstream)
    backup.start()
    assert backup.neoctl("set", "cluster", "STARTING_BACKUP").returncode == 0
    backup.wait_state("BACKINGUP")
    wait_followed(backup, client)
    old, master = backup.storages[1], backup.master_nodes[0]
    old.kill()
    assert backup.neoctl("set", "cluster", "STOPPING_BACKUP").returncode == 0
    backup.wait_running()
    assert backup.neoctl("drop", "S2").returncode == 0
    backup.client().call("set", b=1)
    old.start()
    wait_for(lambda: "PENDING" in backup.nodes(), "S2 is back without cells")
    master.kill()
    # It is the first one to be asked.
    backup.storages[0].process.send_signal(signal.SIGSTOP)
    before = len(master.log())
    master.start()
    wait_for(lambda: "loaded the partition table" in master.log()[before:], "S2")
    backup.storages[0].process.send_signal(signal.SIGCONT)
    backup.wait_running()
    assert backup.client().call("get") == {"a": 1, "b": 1}
