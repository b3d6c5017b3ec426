"""What `zodium neo status`, /health and logs say of a NEO cluster in trouble."""

import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest
import ZODB
from harness.databases import change
from harness.monitor import Monitor
from harness.neo import OwnCluster, clusters
from harness.neo_databases import opening, serving, set_values, values_of
from harness.servers import BINARY
from harness.waiting import wait_for
from ZODB.FileStorage import FileStorage

pytestmark = pytest.mark.zodium
NOT_WELL = 3


@pytest.fixture
def make(tmp_path):
    with clusters(tmp_path, OwnCluster) as make:
        yield make


@pytest.fixture
def gateway(tmp_path):
    """gateway(cluster, *options): a server of the cluster."""
    with serving(tmp_path) as start:
        yield lambda cluster, *options: start(cluster.url(), *options)


@pytest.fixture
def open_database():
    """open_database(server): a ZODB database over a stock ZEO client."""
    with opening() as open_one:
        yield open_one


@pytest.fixture
def copy_into(tmp_path, seeded):
    """copy_into(cluster): commits some transactions."""
    path = tmp_path / "Data.fs"
    database = ZODB.DB(FileStorage(str(path)))
    for _ in range(5):
        change(database, seeded)
    database.close()
    words = [BINARY, "copy", path]
    return lambda cluster: subprocess.run([*words, cluster.url()], check=True, timeout=60)


def advice(cluster):
    """What there is to do, as `zodium neo status` says it."""
    found = json.loads(cluster.status("--json").stdout)
    assert found["is_well"] == (not found["advice"])
    return found["advice"]


def wait_advice(cluster, words):
    def found():
        return [line for line in advice(cluster) if words in line]

    return wait_for(found, words)[0]


def reasons(monitor):
    """The code of /health, and all that it says."""
    code, _, body = monitor.fetch("/health")
    return code, body.decode()


def wait_reasons(monitor, expected, words):
    """Waits until /health has this code, and says this: others may know it before."""

    def are_told():
        code, body = reasons(monitor)
        return code == expected and words in body

    wait_for(are_told, lambda: f"{expected}, {words!r}: {reasons(monitor)}")


def wait_logged(node, words):
    wait_for(lambda: words in node.log(), words)


def wait_logged_once(node, words):
    wait_logged(node, words)
    assert node.log().count(words) == 1


def test_a_hung_storage_is_named(make):
    cluster, monitors = make(storages=2, partitions=2, replicas=1), [Monitor(), Monitor()]
    cluster.master_nodes[0].words += monitors[0].options
    cluster.admin.words += monitors[1].options
    cluster.start()
    assert advice(cluster) == []
    hung = cluster.storages[1].process
    hung.send_signal(signal.SIGSTOP)
    line = wait_advice(cluster, "S2 has not answered")
    assert "`zodium neo ctl kill S2`" in line
    assert cluster.status().returncode == NOT_WELL
    for monitor in monitors:
        wait_reasons(monitor, 200, "S2 has not answered")
    wait_logged_once(cluster.master_nodes[0], "a storage does not answer")
    hung.send_signal(signal.SIGCONT)
    wait_for(lambda: advice(cluster) == [], "all is well again")


def test_a_storage_that_hangs_before_the_start_is_named(make):
    cluster, monitor = make(storages=2, partitions=2), Monitor()
    cluster.master_nodes[0].words += monitor.options
    cluster.start()
    first, second = cluster.storages
    first.kill()
    cluster.wait_state("RECOVERING")
    second.process.send_signal(signal.SIGSTOP)
    named = "S2 has not answered"
    line = wait_advice(cluster, named)
    assert "the cluster does not start meanwhile" in line
    assert named in reasons(monitor)[1]
    first.start()
    wait_advice(cluster, named)
    second.process.send_signal(signal.SIGCONT)
    cluster.wait_state("RUNNING")
    wait_for(lambda: advice(cluster) == [], "all is well")


def test_a_hung_primary_master_is_noticed(make):
    cluster, monitor = make(storages=1), Monitor()
    cluster.admin.words += monitor.options
    cluster.start()
    hung = cluster.master_nodes[0].process
    hung.send_signal(signal.SIGSTOP)
    status = cluster.status()
    assert status.returncode == NOT_WELL
    assert "the primary master does not answer" in " ".join(status.stdout.split())
    wait_reasons(monitor, 503, "the primary master has not answered for")
    hung.send_signal(signal.SIGCONT)
    wait_for(lambda: reasons(monitor)[0] == 200, "/health is 200")


def test_an_older_table_is_named_and_what_a_start_with_it_gives_up(make, copy_into):
    cluster, monitor = make(storages=2, partitions=1, replicas=1), Monitor()
    cluster.admin.words += monitor.options
    cluster.start()
    first, second = cluster.storages
    first.kill()
    wait_advice(cluster, "S1 is down")
    # Commits wait until a storage has the newer table: without them, the cluster may stop before.
    copy_into(cluster)
    second.kill()
    cluster.wait_state("RECOVERING")
    first.start()
    line = wait_advice(cluster, "the cluster ran with table")
    assert "lack what was committed since" in line
    wait_advice(cluster, "start S2. Only if they are lost for ever")
    wait_reasons(monitor, 503, "the cluster ran with table")
    wait_logged(cluster.master_nodes[0], "older than that which the cluster ran with")
    # The master has forgotten it, and the admin has not.
    first.kill()
    cluster.master_nodes[0].kill()
    cluster.master_nodes[0].start()
    wait_advice(cluster, "start S1, S2")
    first.start()
    assert wait_advice(cluster, "the cluster ran with table").endswith("up to date then: S2")


def test_a_start_that_gives_commits_up_is_told_until_copies_are_compared(make, copy_into):
    cluster = make(storages=2, partitions=1, replicas=1)
    cluster.start()
    first, second = cluster.storages
    first.stop()
    wait_advice(cluster, "S1 is down")
    copy_into(cluster)
    second.kill()
    cluster.wait_state("RECOVERING")
    first.start()
    wait_advice(cluster, "up to transaction")
    wait_for(lambda: cluster.ctl("start").returncode == 0, "the cluster starts")
    wait_advice(cluster, "was started without transactions that were committed")
    wait_logged(cluster.master_nodes[0], "starts without transactions that were committed")
    # It should have been erased before.
    second.start()
    cluster.wait_up_to_date(2)
    wait_advice(cluster, "was started without transactions that were committed")
    assert cluster.ctl("check", ":").returncode == 0
    wait_advice(cluster, "copies that differ, of partition 0")
    wait_advice(cluster, "was started without transactions that were committed")
    second.stop()
    subprocess.run([*second.words, "--reset"], check=True, timeout=60)
    second.start()
    cluster.wait_up_to_date(2)
    assert cluster.ctl("check", ":").returncode == 0
    wait_for(lambda: advice(cluster) == [], "all is well")


def test_a_storage_that_is_refused_each_second_is_named_and_logged_once(make):
    cluster = make(storages=2, partitions=2, replicas=1)
    cluster.start()
    first, second = cluster.storages
    second.stop()
    wait_advice(cluster, "S2 is down")
    first.stop()
    subprocess.run([*first.words, "--reset"], check=True, timeout=60)
    first.start()
    second.start()
    wait_advice(cluster, "S1 is refused each time that it comes: it has no partition table")
    refused = "the master refused a request"
    wait_for(lambda: first.log().count(refused) >= 4, "it comes again and again")
    assert cluster.master_nodes[0].log().count("refusing a storage") == 1
    assert cluster.master_nodes[0].log().count("INFO accepting a node node=S1") <= 2
    assert not [line for line in advice(cluster) if "S1 is down" in line]
    first.stop()
    wait_for(
        lambda: not [line for line in advice(cluster) if "S1 is refused" in line], "it is gone"
    )


def test_a_backup_that_is_put_in_the_place_of_an_open_database_is_what_a_node_starts_with(
    make, copy_into
):
    cluster = make(storages=1)
    cluster.start()
    [node] = cluster.storages
    path = Path(cluster.database(1))
    backup, log = path.with_suffix(".backup"), Path(f"{path}-wal.replaced")
    assert node.stop() == 0
    shutil.copy(path, backup)
    node.start()
    cluster.wait_running()
    copy_into(cluster)
    backup.rename(path)
    assert node.stop() == 1
    assert log.stat().st_size > 0 and f"Its log is now {log}" in node.log()
    node.start()
    wait_logged(node, "there is the log of an earlier file")
    cluster.wait_running()
    assert node.stop() == 0
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT COUNT(*) FROM trans").fetchone() == (0,)


def test_copies_that_differ_are_not_well(make, copy_into):
    cluster = make(storages=2, partitions=1, replicas=1)
    cluster.start()
    copy_into(cluster)
    cluster.storages[1].stop()
    # Before that its cells would be taken for up to date below.
    wait_advice(cluster, "S2 is down")
    with contextlib.closing(sqlite3.connect(cluster.database(2))) as database:
        # No transaction, whose absence would be noticed at the start.
        database.execute("DELETE FROM obj WHERE tid = (SELECT min(tid) FROM obj)")
        database.commit()
    cluster.storages[1].start()
    cluster.wait_up_to_date(2)
    wait_for(lambda: advice(cluster) == [], "all is well")
    assert cluster.ctl("check", ":").returncode == 0
    line = wait_advice(cluster, "copies that differ, of partition 0")
    assert "in S1, S2" in line
    assert cluster.status().returncode == NOT_WELL


def test_backups_of_which_nothing_is_known_are_not_well(make):
    cluster, monitor = make(storages=1, monitors=["copy"]), Monitor()
    cluster.admin.words += [*cluster.monitored, *monitor.options]
    cluster.start()
    wait_advice(cluster, "nothing is known of the backup cluster copy")
    assert cluster.status().returncode == NOT_WELL
    wait_reasons(monitor, 200, "the admin of the backup cluster copy is not connected")


def test_a_gateway_says_that_the_primary_master_hangs(make, gateway):
    cluster, monitor = make(storages=1), Monitor()
    cluster.start()
    gateway(cluster, *monitor.options)
    monitor.wait_serving()
    hung = cluster.master_nodes[0].process
    hung.send_signal(signal.SIGSTOP)
    words = "the primary master of the NEO cluster"
    # Nothing is asked of it but by the gateway itself.
    wait_reasons(monitor, 503, words)
    hung.send_signal(signal.SIGCONT)
    wait_for(lambda: reasons(monitor)[0] == 200, "/health is 200")


def test_a_gateway_that_was_given_one_master_finds_the_next_primary(make, tmp_path, open_database):
    cluster = make(storages=1, masters=2)
    cluster.start()
    primary = int(cluster.ctl("print", "primary").stdout.strip().removeprefix("M"))
    given = cluster.masters.split()[primary - 1]
    with serving(tmp_path) as start:
        database = open_database(start(f"neo://{cluster.name}@{given}?wait=20"))
        set_values(database, a=1)
        cluster.master_nodes[primary - 1].kill()
        set_values(database, a=2)
        assert values_of(database) == {"a": 2}


def test_a_gateway_says_why_it_takes_no_commits(make, gateway):
    cluster, monitor = make(storages=1), Monitor()
    cluster.start()
    server = gateway(cluster, *monitor.options)
    monitor.wait_serving()
    assert reasons(monitor)[0] == 200
    cluster.storages[0].kill()
    reason = "takes no clients, since the cluster does not run"
    wait_for(lambda: reason in reasons(monitor)[1], reason)
    code, body = reasons(monitor)
    assert code == 503 and "storage 1 refuses commits: the NEO cluster" in body
    assert "a write failed" not in body
    wait_logged_once(server, reason)
    cluster.storages[0].start()
    wait_for(lambda: reasons(monitor)[0] == 200, "/health is 200")


def test_a_gateway_names_a_storage_that_does_not_answer(make, gateway, open_database):
    cluster, monitor = make(storages=1), Monitor()
    cluster.start()
    server = gateway(cluster, *monitor.options)
    database = open_database(server)
    set_values(database, a=1)
    hung = cluster.storages[0].process
    hung.send_signal(signal.SIGSTOP)
    commit = threading.Thread(target=set_values, args=[database], kwargs={"a": 2})
    commit.start()
    wait_for(lambda: "a storage does not answer" in server.log(), "the log names the storage")
    wait_reasons(monitor, 200, "has not answered for")
    assert "S1 at" in reasons(monitor)[1]
    hung.send_signal(signal.SIGCONT)
    commit.join()
    wait_for(lambda: "has not answered" not in reasons(monitor)[1], "it answers again")
    assert server.log().count("a storage does not answer") == 1
    assert values_of(database) == {"a": 2}
