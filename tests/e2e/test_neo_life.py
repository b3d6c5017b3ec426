"""The life of clusters of NEO/py with storage nodes of ours, as operators live it.

Metrics, replicas that are compared and damaged, copies with new ids, kills in the middle of a
replication, and storages that are replaced one by one while clients work.
"""

import random
import shutil
import sqlite3
import time

import pytest
from harness.monitor import Monitor
from harness.neo import clusters, needs_neo
from harness.neo_rows import counts, differing, unfinished
from harness.waiting import WAIT_SECONDS, wait_for

pytestmark = [pytest.mark.zodium, needs_neo]

WORKERS = 4


@pytest.fixture
def cluster(tmp_path):
    """cluster(**shape): a cluster that is not started."""
    with clusters(tmp_path) as make:
        yield make


@pytest.fixture
def monitored(cluster):
    """monitored(**shape): a running cluster, and the monitor of each storage."""

    def start(**shape):
        made = cluster(**shape)
        monitors = [Monitor() for _ in made.storages]
        for number, monitor in enumerate(monitors):
            made.storages[number] = made.storage_node(number + 1, *monitor.options)
        made.start()
        return made, monitors

    return start


def wait_for_sample(monitor, name, condition, **labels):
    wait_for(lambda: condition(monitor.samples().of(name, **labels)), f"{name}{labels}")


# ------------------------------------------------------------------------ metrics


def test_metrics_tell_what_a_node_does(monitored):
    cluster, (monitor, other) = monitored(storages=2, partitions=4, replicas=1)
    client = cluster.client()
    client.call("fill", count=20)
    # The one that stored them has them in its cache.
    assert cluster.client().call("filled") == list(range(20))
    samples = monitor.samples()
    assert samples.of("zodium_node_operating") == 1
    assert samples.of("zodium_node_cells", state="UP_TO_DATE") == 4
    assert samples.of("zodium_node_connections", kind="client") == 2
    assert samples.of("zodium_node_connections", kind="master") == 1
    assert samples.of("zodium_node_commits_total") >= 20
    assert samples.of("zodium_node_stores_total") >= 40
    assert samples.of("zodium_node_votes_total") >= 20
    both = [one.samples().of("zodium_node_loads_total") for one in (monitor, other)]
    assert sum(both) >= 20
    assert samples.of("zodium_network_received_bytes_total") > 2000
    # Two clients; the node has dialled the master itself.
    assert samples.of("zodium_network_accepted_total") >= 2
    assert 2 <= samples.of("zodium_network_connections") <= 4
    assert samples.of("zodium_node_replication_lag_seconds") == 0
    code, _, body = monitor.fetch("/health")
    assert code == 200 and b'"ok"' in body
    shown = monitor.status()["node"]
    assert (shown["id"], shown["partitions"], len(shown["cells"])) == ("S1", 4, 4)
    # One goes, and has everything to fetch when it comes back.
    cluster.storages[0].kill()
    client.call("fill_many", transactions=5, objects=20)
    cluster.storages[0].start()
    cluster.wait_up_to_date(2)
    wait_for_sample(monitor, "zodium_node_cells_behind", lambda value: value == 0)
    samples = monitor.samples()
    assert samples.of("zodium_node_fetched_records_total") >= 100
    assert samples.of("zodium_node_fetched_transactions_total") >= 5
    assert samples.of("zodium_node_replication_lag_seconds") == 0
    assert other.samples().of("zodium_node_fed_bytes_total") > 5000


def test_health_follows_the_master(monitored):
    cluster, (monitor,) = monitored()
    assert monitor.fetch("/health")[0] == 200
    cluster.master_nodes[0].kill()
    wait_for(lambda: monitor.fetch("/health")[0] == 503, "the node misses the master")
    assert monitor.samples().of("zodium_node_operating") == 0
    cluster.master_nodes[0].start()
    wait_for(lambda: monitor.fetch("/health")[0] == 200, "the node operates again")


# ---------------------------------------------------------------- comparing replicas


@pytest.mark.parametrize("kinds", ["ours ours", "ours theirs", "theirs ours"])
def test_a_damaged_replica_becomes_corrupted(cluster, kinds):
    kinds = kinds.split()
    made = cluster(storages=2, partitions=2, replicas=1, marks_corrupted_cells=True)
    monitors = {number: Monitor() for number, kind in enumerate(kinds, 1) if kind == "ours"}
    made.storages = [
        made.storage_node(number, *monitors[number].options)
        if number in monitors
        else made.neo_storage_node(number)
        for number in (1, 2)
    ]
    made.start()
    client = made.client()
    client.call("fill", count=30)
    assert made.neoctl("check", "0:S1", "1:S1").returncode == 0
    # The master has the last node of a partition compare it.
    if kinds[1] == "ours":
        name = "zodium_node_checked_partitions_total"
        wait_for_sample(monitors[2], name, lambda value: value == 2)
    else:
        time.sleep(2)
    assert made.cells() == [["UP_TO_DATE"] * 2] * 2
    damaged = min(monitors)
    damage(made.database(damaged))
    reference = f"S{3 - damaged}"
    assert made.neoctl("check", f"0:{reference}", f"1:{reference}").returncode == 0
    wait_for(lambda: sum(made.cells(), []).count("CORRUPTED") == 1, "a cell is corrupted")
    # The other replica serves everything.
    assert made.client().call("filled") == list(range(30))
    # The admin may know it before the node does.
    monitor, name = monitors[damaged], "zodium_node_cells"
    wait_for(lambda: b"marked as corrupted" in monitor.fetch("/health")[2], "/health says it")
    wait_for_sample(monitor, name, lambda value: value == 1, state="CORRUPTED")


def damage(database):
    """Deletes a record, behind the node's back."""
    connection = sqlite3.connect(database, timeout=20)
    with connection:
        find = "SELECT partition, oid, tid FROM obj WHERE oid > 3 ORDER BY tid LIMIT 1"
        delete = "DELETE FROM obj WHERE partition = ? AND oid = ? AND tid = ?"
        key = connection.execute(find).fetchone()
        assert connection.execute(delete, key).rowcount == 1
    connection.close()


# ------------------------------------------------------------------- copies of nodes


def test_a_copy_of_a_node_gets_a_new_id_and_becomes_a_replica(cluster):
    made = cluster(storages=2, partitions=4)
    made.start()
    client = made.client()
    client.call("fill", count=20)
    source = made.storages[0]
    assert source.stop() == 0
    shutil.copy(made.database(1), made.database(3))
    source.start()
    made.wait_running()
    wait_for(lambda: made.nodes().count("RUNNING") == 2, "both storages run")
    client = made.client()
    client.call("set", a=1)
    copy = made.storage_node(3)
    # Its number is not given: the database has one.
    at = copy.words.index("--nid")
    copy.words[at : at + 2] = []
    once = made.storage_node(3, "--new-nid")
    once.words[at : at + 2] = []
    once.start()
    assert once.process.wait(WAIT_SECONDS) == 0, once.log()
    made.storages.append(copy)
    copy.start()
    wait_for(lambda: made.nodes().count("RUNNING") == 3, "the copy runs")
    wait_for(lambda: sum(made.cells(), []) == ["UP_TO_DATE"] * 6, "the copy is up to date")
    client.call("set", a=2)
    # The client hears of its commit before all storages do.
    wait_for(lambda: not any(map(unfinished, made.databases())), "all commits are unlocked")
    for storage in made.storages:
        assert storage.stop() == 0
    assert differing(made.databases()) == []


# ------------------------------------------------------------------ kills in between


def test_a_replication_ends_whatever_is_killed(cluster, tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    made = cluster(storages=2, partitions=1, replicas=1)
    made.start()
    client = made.client()
    source, target = made.storages
    target.kill()
    client.call("fill_many", transactions=60, objects=500)
    for _ in range(4):
        target.start()
        time.sleep(chance.uniform(0.3, 1.5))
        target.kill()
    target.start()
    time.sleep(chance.uniform(0.3, 1.0))
    for _ in range(2):
        source.kill()
        source.start()
        made.wait_running()
        time.sleep(chance.uniform(0.3, 1.0))
    made.wait_up_to_date(2)
    other = made.client()
    other.call("set", a=1)
    paths = made.databases()
    wait_for(lambda: not any(map(unfinished, paths)), "all commits are unlocked")
    for storage in made.storages:
        assert storage.stop() == 0
    assert differing(paths) == []
    transactions, records = counts(paths[1])
    assert transactions >= 61 and records >= 30_060


# ------------------------------------------------------------- what operators order


def test_replicas_are_equal_after_a_truncation_a_tweak_and_a_drop(cluster):
    made = cluster(storages=3, partitions=6, replicas=1)
    made.start()
    client = made.client()
    client.call("fill", count=20)
    last = client.call("last")
    client.call("set", a=1)
    made.truncate(last)
    wait_for(lambda: made.nodes().count("RUNNING") == 3, "all storages run")
    client = made.client()
    assert client.call("get") == {} and client.call("last") == last
    client.call("set", a=2)
    assert made.neoctl("tweak", "S3").returncode == 0
    wait_for(lambda: all("OUT_OF_DATE" not in row for row in made.cells()), "copied")
    client.call("set", b=3)
    assert made.neoctl("kill", "S3").returncode == 0
    assert made.storages[2].process.wait(WAIT_SECONDS) == 0
    assert made.neoctl("drop", "S3").returncode == 0
    made.wait_up_to_date(2)
    assert made.client().call("get") == {"a": 2, "b": 3}
    assert made.client().call("filled") == list(range(20))
    for storage in made.storages[:2]:
        assert storage.stop() == 0
    first, second = made.databases()[:2]
    assert differing([first, second]) == []
    assert counts(first) == counts(second)


def test_an_order_to_pack_some_objects_outlives_a_kill_of_all_nodes(cluster):
    made = cluster(storages=1, partitions=3)
    made.storages = [made.storage_node(1, "--disable-pack")]
    made.start()
    client = made.client()
    for value in range(3):
        client.call("set", a=value)
    client.call("order_pack_of_root")
    assert client.call("history") == 4
    client.close()
    # The master learns the order from the storage.
    made.storages[0].kill()
    made.master_nodes[0].kill()
    made.master_nodes[0].start()
    made.storages[0] = made.storage_node(1)
    made.storages[0].start()
    made.wait_running()
    client = made.client()
    wait_for(lambda: client.call("history") == 1, "the root is packed")
    assert client.call("get") == {"a": 2}


# --------------------------------------------------------------- rolling replacement


def test_storages_are_replaced_one_by_one_while_clients_work(cluster, tmp_path):
    made = cluster(storages=3, partitions=6, replicas=1)
    made.storages = [made.neo_storage_node(number) for number in (1, 2, 3)]
    made.start()
    made.client().call("fill", count=30)
    # What clients meet when NEO's own nodes are restarted in the same way.
    stock, counted = rolled(made, tmp_path / "stop-1", made.neo_storage_node, {})
    ours, counted = rolled(made, tmp_path / "stop-2", made.storage_node, counted)
    back, counted = rolled(made, tmp_path / "stop-3", made.neo_storage_node, counted)
    print(f"errors of clients: {stock=} {ours=} {back=}")
    assert set(ours) <= set(stock) and set(back) <= set(stock)
    # Both kinds side by side.
    made.storages[1].stop()
    made.storages[1] = made.storage_node(2)
    made.storages[1].start()
    made.wait_up_to_date(2)
    assert made.client().call("filled") == list(range(30))
    for storage in made.storages:
        storage.stop()
    assert differing([made.database(number) for number in (1, 2, 3)]) == []


def rolled(made, stop, node, counted):
    """Replaces each storage by another one on its database, while clients work.

    Gives the errors of the clients, and the count of each, of which nothing may be lost.
    """
    workers = [made.client() for _ in range(WORKERS)]
    for number, worker in enumerate(workers):
        worker.ask("work", name=f"worker-{number}", stop=str(stop))
    for place, storage in enumerate(list(made.storages)):
        time.sleep(1)
        storage.stop()
        made.storages[place] = node(place + 1)
        made.storages[place].start()
        wait_for(lambda: made.nodes().count("RUNNING") == 3, "all storages run")
        made.wait_up_to_date(2)
    time.sleep(1)
    stop.touch()
    errors, now = {}, made.client()
    for number, worker in enumerate(workers):
        acknowledged, commits, met = worker.answer()
        name = f"worker-{number}"
        assert commits > 20, f"{name} has made {commits} commits: {met}"
        found = now.call("counted")[name]
        # A commit that was not acknowledged may be there all the same.
        assert found >= acknowledged >= counted.get(name, 0)
        counted[name] = found
        for kind, count in met.items():
            errors[kind] = errors.get(kind, 0) + count
        worker.close()
    return errors, counted
