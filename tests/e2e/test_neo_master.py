"""Masters of ours with clients, admins, storages and masters of NEO/py."""

import time

import pytest
from harness.neo import Failed, clusters, needs_neo
from harness.waiting import WAIT_SECONDS, wait_for

pytestmark = [pytest.mark.zodium, needs_neo]

WORKERS = 2


@pytest.fixture
def make(tmp_path):
    """make(**shape): a cluster that does not run yet; its masters are ours."""
    with clusters(tmp_path) as make:

        def build(**shape):
            shape.setdefault("own_masters", range(1, shape.get("masters", 1) + 1))
            return make(**shape)

        yield build


def wait_committing(made):
    """Waits until each worker commits: it has counted twice, so the first was acknowledged."""
    observer = made.client(read_only=True)

    def are_committing():
        counts = observer.call("counted")
        return len(counts) == WORKERS and min(counts.values()) > 1

    wait_for(are_committing, "all workers commit")
    made.clients.remove(observer)
    observer.close()


def primary_of(made):
    """The process of the primary master; None while the admin knows none."""
    primary = made.neoctl("print", "primary").stdout.strip()
    lines = made.neoctl("print", "node", "master").stdout.splitlines() if primary else []
    addresses = [line.split("|")[2].strip() for line in lines if line.startswith(f"{primary} ")]
    found = [node for node in made.master_nodes if set(addresses) & set(node.words)]
    return found[0] if found else None


def test_clients_commit_undo_and_pack_on_storages_of_both_kinds(make):
    made = make(storages=2, partitions=3)
    made.storages[0] = made.neo_storage_node(1)
    made.start()
    one, other = made.client(), made.client()
    one.call("set", a=1)
    one.call("begin_set", a=2)
    other.call("get")
    other.call("begin_set", a=3)
    one.call("commit")
    with pytest.raises(Failed, match="ConflictError"):
        other.call("commit")
    one.call("undo")
    assert other.call("get") == {"a": 1}
    assert one.call("history") == 4
    # It returns when the pack is done.
    one.call("pack")
    assert one.call("history") == 1
    other.call("set", a=5)
    assert one.call("get") == {"a": 5}


def test_everything_is_killed_while_clients_commit(make, tmp_path):
    """What was voted is committed or dropped when the cluster comes back."""
    made, stop = make(storages=3, partitions=4, replicas=1), tmp_path / "stop"
    made.start()
    workers = [made.client() for _ in range(WORKERS)]
    for number, worker in enumerate(workers):
        worker.ask("work", name=f"worker-{number}", stop=str(stop))
    wait_committing(made)
    nodes = [*made.master_nodes, *made.storages]
    for node in nodes:
        node.process.kill()
    for node in nodes:
        node.process.wait()
        node.start()
    made.wait_running()
    finish(made, workers, stop)


@pytest.mark.parametrize("own_masters", [(1, 2), (1,)], ids=["ours", "mixed"])
def test_primary_masters_are_killed_while_clients_commit(make, tmp_path, own_masters):
    made = make(storages=2, partitions=4, replicas=1, masters=2, own_masters=own_masters)
    made.start()
    stop = tmp_path / "stop"
    workers = [made.client() for _ in range(WORKERS)]
    for number, worker in enumerate(workers):
        worker.ask("work", name=f"worker-{number}", stop=str(stop))
    wait_committing(made)
    for _ in range(2):
        time.sleep(0.3)
        killed = wait_for(lambda: primary_of(made), "a primary master")
        killed.kill()
        made.wait_running()
        killed.start()
        wait_for(
            lambda: made.neoctl("print", "node", "master").stdout.count("RUNNING") == 2,
            "the killed master is a secondary one",
        )
    finish(made, workers, stop)


def finish(made, workers, stop):
    """Ends the workers; nothing that was acknowledged to them may be lost."""
    time.sleep(0.3)
    stop.touch()
    answers = [worker.answer() for worker in workers]
    counted = made.client().call("counted")
    for number, (acknowledged, commits, errors) in enumerate(answers):
        assert commits > 0, errors
        # A commit that was not acknowledged may be there all the same.
        assert counted[f"worker-{number}"] >= acknowledged


def test_what_operators_do(make):
    made = make(storages=1, partitions=4, masters=2)
    made.start()
    client = made.client()
    client.call("fill", count=5)
    made.storages.append(made.storage_node(2))
    made.storages[1].start()
    wait_for(lambda: "PENDING" in made.nodes(), "S2 is pending")
    commands = [["add", "all"], ["tweak", "-n", "S1"], ["tweak", "S1"], ["drop", "S1"]]
    results = made.neoctl_each(commands)
    assert [code for code, _, _ in results] == [0, 0, 0, 1], results
    assert results[0][1] == "Nodes added: S2\n"
    assert results[1][1] == results[2][1] == "S1 R UUUU\nS2 R OOOO\n"
    assert "a running node must be stopped" in results[3][2]
    wait_for(lambda: made.neoctl("print", "pt").stdout.endswith("S2 R UUUU\n"), "S2 has all")
    assert made.neoctl("kill", "S1").stdout == "state changed\n"
    assert made.storages[0].process.wait(WAIT_SECONDS) == 0
    assert made.neoctl("drop", "S1").stdout == "node permanently removed\n"
    client.call("set", a=1)
    last = client.call("last")
    client.call("set", a=2)
    made.truncate(last)
    client = made.client()
    assert client.call("get") == {"a": 1}
    assert client.call("filled") == list(range(5))
    wait_for(
        lambda: made.neoctl("print", "node", "master").stdout.count("RUNNING") == 2,
        "a secondary master",
    )
    assert made.neoctl("set", "cluster", "STOPPING").stdout == "Cluster state changed\n"
    for node in [made.storages[1], *made.master_nodes]:
        assert node.process.wait(WAIT_SECONDS) == 0


def test_a_truncation_is_over_also_for_a_storage_without_cells(make):
    made = make(storages=1, partitions=2)
    made.start()
    client = made.client()
    client.call("set", a=1)
    last = client.call("last")
    client.call("set", a=2)
    made.storages.append(made.storage_node(2))
    made.storages[1].start()
    wait_for(lambda: "PENDING" in made.nodes(), "S2 is pending")
    made.truncate(last)
    made.client().call("set", b=1)
    for node in made.master_nodes:
        node.kill()
        node.start()
    made.wait_running()
    assert made.client().call("get") == {"a": 1, "b": 1}


def stop_in_order(made):
    """All cells stay up to date. Clients would begin with other nodes."""
    while made.clients:
        made.clients.pop().close()
    assert made.neoctl("set", "cluster", "STOPPING").returncode == 0
    for node in [*made.storages, *made.master_nodes, made.admin]:
        wait_for(lambda node=node: not node.is_running(), f"{node.name} ends")


def start_after(made, new):
    """Starts the cluster again, with a new storage before the old ones."""
    made.storages.append(new)
    for node in [*made.master_nodes, made.admin, new]:
        node.start()
    wait_for(lambda: made.nodes().count("STORAGE") == 1, "the new storage is there")
    for node in made.storages[:-1]:
        node.start()


@pytest.mark.parametrize("are_old_ones_ours", [True, False], ids=["ours", "NEO/py"])
def test_a_new_storage_that_comes_first_is_none_of_the_old_ones(make, are_old_ones_ours):
    made = make(storages=2, partitions=2)
    if not are_old_ones_ours:
        made.storages = [made.neo_storage_node(number) for number in (1, 2)]
    made.start()
    made.client().call("set", a=1)
    stop_in_order(made)
    # Of NEO/py, so that it gets the id of an old one, and keeps it when it is refused.
    new = made.neo_storage_node(3)
    place = new.words.index("--nid")
    del new.words[place : place + 2]
    start_after(made, new)
    made.wait_running()
    assert made.client().call("get") == {"a": 1}
    assert made.cells() == [["UP_TO_DATE"]] * 2
    assert "refusing a storage that has no partition table" in made.master_nodes[0].log()


def test_storages_of_ours_do_not_join_a_cluster_that_was_created_in_place_of_theirs(make):
    made = make(storages=1, partitions=2, own_masters=(), autostart=1)
    made.wait_autostarted("RUNNING")
    made.client().call("set", a=1)
    for _ in range(2):
        # The table gets later than that of a new cluster.
        assert made.neoctl("set", "replicas", "0").returncode == 0
    stop_in_order(made)
    old = made.storages[0]
    new = made.neo_storage_node(2)
    start_after(made, new)
    wait_for(lambda: "does not follow table" in old.log(), "the old storage refuses")
    new.kill()
    made.storages.pop()
    for node in made.master_nodes:
        node.kill()
        node.start()
    made.wait_running()
    assert made.client().call("get") == {"a": 1}
