"""NEO clusters served to stock ZEO clients: `zodium serve neo://`."""

import contextlib
import signal
import subprocess
import threading
import time

import pytest
import transaction
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from harness.neo import CHECKOUT, clusters, needs_neo
from harness.neo_databases import opening, serving, set_values, values_of
from harness.process import HOST, ServerFailed, free_port
from harness.servers import BINARY
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.POSException import ConflictError, POSKeyError, ReadConflictError, ReadOnlyError
from ZODB.utils import p64

pytestmark = [pytest.mark.zodium, needs_neo]

PAIRS = [("a", "b"), ("b", "a")]


@pytest.fixture
def cluster(tmp_path):
    """cluster(stock=False, **shape): a running cluster; stock has storages of NEO/py."""
    with clusters(tmp_path) as make:

        def start(stock=False, **shape):
            one = make(**shape)
            if stock:
                one.storages = [one.neo_storage_node(n) for n in range(1, len(one.storages) + 1)]
            one.start()
            return one

        yield start


@pytest.fixture
def gateway(tmp_path):
    """gateway(cluster, *options): a server of the cluster."""
    with serving(tmp_path) as start:
        yield lambda cluster, *options, **url: start(cluster.url(**url), *options)


@pytest.fixture
def open_database():
    """open_database(server): a ZODB database over a stock ZEO client."""
    with opening() as open_one:
        yield open_one


def wait_values(database, expected):
    wait_for(lambda: values_of(database) == expected, expected)


@pytest.mark.parametrize("stock", [False, True])
def test_commits_of_others_are_read_and_invalidated(cluster, gateway, open_database, stock):
    one = cluster(stock, storages=2, partitions=3)
    writer = one.client()
    writer.call("set", a=1)
    database = open_database(gateway(one, "--read-only"), read_only=True)
    connection = database.open(transaction.TransactionManager(explicit=False))
    assert connection.root()["a"] == 1
    for number in range(2, 8):
        writer.call("set", a=number)

        def is_seen(number=number):
            connection.sync()
            return connection.root()["a"] == number

        wait_for(is_seen, f"the invalidation of {number}")
    with pytest.raises(ReadOnlyError):
        set_values(database, b=1)
    connection.close()


@pytest.mark.parametrize("stock", [False, True])
def test_both_kinds_of_clients_commit(cluster, gateway, open_database, stock):
    one = cluster(stock, storages=2, partitions=5, replicas=1)
    database = open_database(gateway(one))
    set_values(database, a=1, _large=PersistentMapping(data="x" * 300_000))
    native = one.client()
    assert native.call("get") == {"a": 1}
    native.call("set", b=2)
    wait_values(database, {"a": 1, "b": 2})
    for number in range(20):
        set_values(database, **{f"_{number}": PersistentMapping(n=number)})
    native.call("get")
    with database.transaction() as connection:
        assert connection.root()["_large"]["data"] == "x" * 300_000
        assert connection.root()["_7"]["n"] == 7
    words = [BINARY, "check", "--references", "--pickles", "--json", one.url()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and '"damages":0' in done.stdout


def test_history_undo_iteration_and_pack(cluster, gateway, open_database):
    one = cluster(storages=2, partitions=3)
    database = open_database(gateway(one))
    for number in range(1, 4):
        set_values(database, a=number)
    storage = database.storage
    assert len(storage.history(p64(0), size=10)) == 4
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    assert values_of(database) == {"a": 2}
    assert one.client().call("get") == {"a": 2}
    # The undo of the creation of an object, and of that undo.
    set_values(database, _new=PersistentMapping(n=1))
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    assert values_of(database) == {"a": 2}
    counts = [len(list(records)) for records in storage.iterator()]
    assert len(counts) == 7 and counts[-1] == 2
    database.pack(time.time() + 1)
    assert len(storage.history(p64(0), size=10)) == 1
    assert values_of(database) == {"a": 2}


def test_objects_are_deleted(cluster, gateway, open_database):
    one = cluster(partitions=2)
    database = open_database(gateway(one))
    set_values(database, _one=PersistentMapping(n=1))
    with database.transaction() as connection:
        oid, serial = connection.root()["_one"]._p_oid, connection.root()["_one"]._p_serial
        del connection.root()["_one"]
    storage = database.storage
    txn = transaction.Transaction()
    storage.tpc_begin(txn)
    storage.deleteObject(oid, storage.load(oid)[1] or serial, txn)
    storage.tpc_vote(txn)
    storage.tpc_finish(txn)
    storage._cache.clear()
    with pytest.raises(POSKeyError):
        storage.load(oid)


def test_conflicts_between_gateways_are_found_and_resolved(cluster, gateway, open_database):
    one = cluster(storages=2, partitions=2)
    first, second = (open_database(gateway(one)) for _ in range(2))
    set_values(first, length=Length(), tree=OOBTree(), plain=PersistentMapping(n=0))
    wait_for(lambda: "plain" in values_of(second), "the objects")
    connections = [
        database.open(transaction.TransactionManager(explicit=False))
        for database in (first, second)
    ]
    for connection in connections:
        connection.sync()
    for number, connection in enumerate(connections):
        connection.root()["length"].change(1)
        connection.root()["tree"][f"key {number}"] = number
    for connection in connections:
        connection.transaction_manager.commit()
    for connection in connections:
        connection.sync()

        def is_whole(connection=connection):
            connection.sync()
            root = connection.root()
            return root["length"]() == 2 and len(root["tree"]) == 2

        wait_for(is_whole, "both changes")
    for connection in connections:
        connection.root()["plain"]["n"] += 1
    connections[0].transaction_manager.commit()
    with pytest.raises(ConflictError):
        connections[1].transaction_manager.commit()
    for connection in connections:
        connection.transaction_manager.abort()
        connection.close()


def test_objects_that_were_read_must_be_current(cluster, gateway, open_database):
    one = cluster(storages=2, partitions=2)
    first, second = (open_database(gateway(one)) for _ in range(2))
    set_values(first, read=PersistentMapping(n=0), written=PersistentMapping(n=0))
    wait_for(lambda: "written" in values_of(second), "the objects")
    connection = second.open(transaction.TransactionManager(explicit=False))
    root = connection.root()
    connection.readCurrent(root["read"])
    root["read"]["n"], root["written"]["n"] = root["read"]["n"], 1
    root["read"]._p_invalidate()
    connection.readCurrent(root["read"])
    connection.transaction_manager.commit()
    connection.readCurrent(root["read"])
    root["written"]["n"] = 2
    with first.transaction() as other:
        other.root()["read"]["n"] = 5
    with pytest.raises((ReadConflictError, ConflictError)):
        connection.transaction_manager.commit()
    connection.transaction_manager.abort()
    connection.close()


@pytest.mark.parametrize("stock", [False, True])
def test_transactions_that_wait_for_each_other_go_on(
    cluster, gateway, open_database, seeded, stock
):
    """Two gateways move amounts between two objects in opposite order."""
    one = cluster(stock, storages=2, partitions=2, replicas=1)
    databases = [open_database(gateway(one)) for _ in range(2)]
    set_values(databases[0], a=PersistentMapping(n=0), b=PersistentMapping(n=0))
    wait_for(lambda: "b" in values_of(databases[1]), "the objects")
    moved, failed = [0, 0], []

    def move(number):
        manager = transaction.TransactionManager(explicit=False)
        connection = databases[number].open(manager)
        end = time.monotonic() + 3
        try:
            while time.monotonic() < end or not moved[number]:
                try:
                    manager.begin()
                    source, target = (connection.root()[name] for name in PAIRS[number])
                    source["n"], target["n"] = source["n"] - 1, target["n"] + 1
                    manager.commit()
                    moved[number] += 1
                    # The other one has its turn.
                    time.sleep(seeded.uniform(0, 0.05))
                except ConflictError:
                    manager.abort()
        except Exception as error:
            failed.append(error)
        connection.close()

    threads = [threading.Thread(target=move, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a commit waits for ever"
    assert not failed and min(moved) > 0
    with one_view(databases[0]) as root:
        assert (root["a"]["n"], root["b"]["n"]) == (moved[1] - moved[0], moved[0] - moved[1])


@contextlib.contextmanager
def one_view(database):
    """The root, as of the last transaction of the cluster."""
    set_values(database, _touched=time.time())
    with database.transaction() as connection:
        yield connection.root()


def test_replica_takes_over_from_a_killed_storage(cluster, gateway, open_database):
    one = cluster(storages=2, partitions=4, replicas=1)
    database = open_database(gateway(one))
    for number in range(10):
        set_values(database, **{f"k{number}": number})
    one.storages[0].kill()
    database.cacheMinimize()
    database.storage._cache.clear()
    expected = {f"k{number}": number for number in range(10)}
    assert values_of(database) == expected
    for number in range(5):
        set_values(database, again=number)
    one.storages[0].start()
    one.wait_up_to_date(2)
    one.storages[1].kill()
    set_values(database, again="more")
    assert one.client().call("get") == {**expected, "again": "more"}


def test_nothing_acknowledged_is_lost_with_the_primary_master(cluster, gateway, open_database):
    one = cluster(storages=2, partitions=2, masters=2)
    database = open_database(gateway(one))
    set_values(database, count=0)
    acknowledged, is_over, failures = [0], threading.Event(), []

    def count():
        number = 0
        while not is_over.is_set():
            number += 1
            try:
                set_values(database, count=number)
                acknowledged[0] = number
            except Exception as error:
                failures.append(error)
                time.sleep(0.05)

    counting = threading.Thread(target=count)
    counting.start()
    for round_ in range(2):
        before = acknowledged[0]
        wait_for(lambda before=before: acknowledged[0] > before + 5, "commits")
        primary = one.master_nodes[round_ % 2]
        primary.kill()
        before = acknowledged[0]
        wait_for(lambda before=before: acknowledged[0] > before + 5, "commits again")
        primary.start()
        wait_for(
            lambda: one.neoctl("print", "node", "master").stdout.count("RUNNING") == 2,
            "the killed master is a secondary one",
        )
    is_over.set()
    counting.join(30)
    # An update that failed may have been committed; the last one that did not is there.
    found = one.client().call("get")["count"]
    assert acknowledged[0] <= found <= acknowledged[0] + 1, failures
    wait_values(database, {"count": found})


def test_commits_while_a_gateway_is_away_are_invalidated(cluster, gateway, open_database):
    one = cluster(partitions=2, masters=1)
    database = open_database(gateway(one))
    set_values(database, a=1)
    assert values_of(database) == {"a": 1}
    one.master_nodes[0].kill()
    one.master_nodes[0].start()
    wait_for(lambda: one.nodes().count("PENDING") + one.nodes().count("RUNNING"), "the storage")
    one.neoctl("start")
    one.wait_running()
    one.client().call("set", a=2)
    wait_values(database, {"a": 2})


def test_cluster_with_tls(cluster, gateway, open_database):
    names = ("ca.crt", "node.crt", "node.key")
    tls = tuple(f"{CHECKOUT}/neo/tests/{name}" for name in names)
    one = cluster(tls=tls)
    database = open_database(gateway(one))
    set_values(database, a=1)
    assert one.client().call("get") == {"a": 1}


def test_what_is_wrong_is_said(cluster, gateway, tmp_path):
    one = cluster()
    for options, words in [
        ({"name": "other", "query": "wait=1"}, "invalid cluster name"),
        ({"query": "colour=red"}, "no parameter"),
    ]:
        with pytest.raises(ServerFailed, match=words):
            gateway(one, **options)
    with pytest.raises(ServerFailed, match="no blobs"):
        gateway(one, "--blob-dir", str(tmp_path / "blobs"))
    one.masters = f"{HOST}:{free_port()}"
    with pytest.raises(ServerFailed, match="no primary master") as failed:
        gateway(one, query="wait=1")
    assert "looking for the primary master" in str(failed.value)


def test_a_gateway_to_a_truncated_cluster_ends_though_it_has_later_commits(
    cluster, gateway, open_database
):
    one = cluster(partitions=2)
    client = one.client()
    client.call("set", a=1)
    kept = client.call("last")
    client.call("set", a=2)
    server = gateway(one)
    database = open_database(server)
    assert values_of(database) == {"a": 2}
    # It does not notice before others have committed.
    server.process.send_signal(signal.SIGSTOP)
    one.truncate(kept)
    one.client().call("set", b=1)
    server.process.send_signal(signal.SIGCONT)
    wait_for(lambda: "it was truncated" in server.log(), "the gateway says so")
    with pytest.raises(Exception, match="truncated"):
        open_database(server, cache_size=0).storage.load(p64(0))
