"""zodium.NEOStorage on clusters of our nodes, and of NEO/py's."""

import datetime
import os
import signal
import textwrap
import threading
import time

import pytest
import transaction
import ZODB
import ZODB.config
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from harness import package
from harness.certificates import Authority
from harness.neo import Cluster, OwnCluster, needs_neo, running_clusters
from harness.neo_databases import set_values
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import (
    ConflictError,
    POSKeyError,
    ReadConflictError,
    ReadOnlyError,
    UndoError,
    Unsupported,
)
from ZODB.utils import p64, u64, z64

package.use()

import zodium  # noqa: E402
from zodium.exceptions import ClientDisconnected  # noqa: E402

pytestmark = pytest.mark.zodium


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory


@pytest.fixture(scope="module")
def shared_cluster(folders):
    """A cluster that the tests of this file commit to one after the other."""
    cluster = OwnCluster(folders.mktemp("cluster"), storages=2, partitions=3)
    cluster.start()
    yield cluster
    cluster.end()


@pytest.fixture
def start_cluster(tmp_path):
    """start_cluster(kind=OwnCluster, **shape): a cluster of its own."""
    with running_clusters(tmp_path, OwnCluster) as start:
        yield start


@pytest.fixture
def open_storage():
    """open_storage(cluster, **options): a zodium.NEOStorage, closed with the test."""
    storages = []

    def open_one(cluster, **options):
        files = dict(zip(("ca", "cert", "key"), cluster.tls or ()))
        options = {"wait_timeout": 30, **files, **options}
        storages.append(zodium.NEOStorage(cluster.masters, cluster.name, **options))
        return storages[-1]

    yield open_one
    for storage in storages:
        storage.close()


@pytest.fixture
def open_database(open_storage):
    def open_one(cluster, **options):
        return ZODB.DB(open_storage(cluster, **options))

    return open_one


def get(database, name):
    with database.transaction() as connection:
        return connection.root().get(name)


def commit(storage, *stores, deleted=(), checked=()):
    """Commits data by oid and serial."""
    txn = transaction.Transaction()
    storage.tpc_begin(txn)
    try:
        for oid, serial, data in stores:
            storage.store(oid, serial, data, "", txn)
        for oid, serial in deleted:
            storage.deleteObject(oid, serial, txn)
        for oid, serial in checked:
            storage.checkCurrentSerialInTransaction(oid, serial, txn)
        storage.tpc_vote(txn)
        return storage.tpc_finish(txn)
    finally:
        storage.tpc_abort(txn)


def test_commits_of_other_clients_are_invalidated_and_views_stay(shared_cluster, open_database):
    first, second = (open_database(shared_cluster) for _ in range(2))
    set_values(first, shown=PersistentMapping(n=1))
    manager = transaction.TransactionManager(explicit=True)
    connection = second.open(manager)
    manager.begin()
    assert connection.root()["shown"]["n"] == 1
    with first.transaction() as other:
        other.root()["shown"]["n"] = 2
    connection.cacheMinimize()
    assert connection.root()["shown"]["n"] == 1, "the view changed within a transaction"
    manager.commit()
    # Each transaction begins with a round trip to the master.
    manager.begin()
    assert connection.root()["shown"]["n"] == 2
    manager.commit()
    connection.close()


def test_conflicts_are_resolved_in_the_client_and_others_are_raised(shared_cluster, open_database):
    first, second = (open_database(shared_cluster) for _ in range(2))
    set_values(first, length=Length(), tree=OOBTree(), plain=PersistentMapping(n=0))
    managers = [transaction.TransactionManager(explicit=True) for _ in range(2)]
    connections = [db.open(tm) for db, tm in zip((first, second), managers)]
    for number, (connection, manager) in enumerate(zip(connections, managers)):
        manager.begin()
        connection.root()["length"].change(1)
        connection.root()["tree"][f"key {number}"] = number
    for manager in managers:
        manager.commit()
    for number, (connection, manager) in enumerate(zip(connections, managers)):
        manager.begin()
        assert connection.root()["length"]() == 2 and len(connection.root()["tree"]) == 2
        connection.root()["plain"]["n"] = number + 1
    managers[0].commit()
    with pytest.raises(ConflictError) as raised:
        managers[1].commit()
    assert raised.value.class_name == "persistent.mapping.PersistentMapping"
    managers[1].abort()
    for connection in connections:
        connection.close()


def test_two_threads_of_one_storage_commit_side_by_side(shared_cluster, open_database):
    database = open_database(shared_cluster)
    set_values(database, counters={n: Length() for n in range(2)}, both=Length())

    def count(number):
        for _ in range(20):
            with database.transaction() as connection:
                root = connection.root()
                root["counters"][number].change(1)
                root["both"].change(1)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with database.transaction() as connection:
        root = connection.root()
        assert [one() for one in root["counters"].values()] == [20, 20]
        assert root["both"]() == 40


def test_storage_api(shared_cluster, open_storage):
    storage, other = (open_storage(shared_cluster) for _ in range(2))
    oid, serial = storage.new_oid(), z64
    tids = []
    for number in range(3):
        serial = commit(storage, (oid, serial, b"data %d" % number))
        tids.append(serial)
    assert storage.lastTransaction() == tids[-1] and storage.getTid(oid) == tids[-1]
    assert storage.load(oid) == (b"data 2", tids[2])
    assert storage.loadBefore(oid, tids[2]) == (b"data 1", tids[1], tids[2])
    assert storage.loadBefore(oid, tids[0]) is None
    assert storage.loadSerial(oid, tids[0]) == b"data 0"
    assert [one["tid"] for one in other.history(oid, size=10)] == tids[::-1]
    with pytest.raises(POSKeyError):
        storage.load(p64(1 << 62))
    with pytest.raises(ReadConflictError):
        commit(storage, (storage.new_oid(), z64, b"data"), checked=[(oid, tids[0])])
    with pytest.raises(ConflictError):
        commit(storage, (oid, tids[0], b"data"))
    # An undo, the undo of that, and one that is too late.
    undo_id = storage.undoLog(0, 1)[0]["id"]
    for expected in (b"data 1", b"data 2"):
        txn = transaction.Transaction()
        storage.tpc_begin(txn)
        storage.undo(storage.undoLog(0, 1)[0]["id"], txn)
        changed = storage.tpc_vote(txn)
        storage.tpc_finish(txn)
        assert changed == [oid] and storage.load(oid)[0] == expected
    commit(storage, (oid, storage.getTid(oid), b"later"))
    txn = transaction.Transaction()
    storage.tpc_begin(txn)
    storage.undo(undo_id, txn)
    with pytest.raises(UndoError):
        storage.tpc_vote(txn)
    storage.tpc_abort(txn)
    # The log.
    log = [one for one in other.iterator() if one.tid >= tids[0]]
    records = [(record.oid, record.data) for one in log for record in one]
    data = [b"data 0", b"data 1", b"data 2", b"data 1", b"data 2", b"later"]
    assert records == [(oid, one) for one in data]
    assert storage.record_iternext(oid)[:2] == (oid, storage.getTid(oid))
    # A pack is over when it returns.
    storage.pack(time.time() + 1)
    assert len(storage.history(oid, size=10)) == 1
    commit(storage, deleted=[(oid, storage.getTid(oid))])
    storage.clear_cache()
    with pytest.raises(POSKeyError):
        storage.load(oid)
    with pytest.raises(Unsupported):
        storage.storeBlob(oid, z64, b"data", "/nowhere", "", transaction.Transaction())
    assert u64(storage.new_oid()) > u64(oid)
    assert len(storage) >= 0 and storage.getSize() == 0 and storage.supportsUndo()
    storage.close()
    with pytest.raises(ClientDisconnected):
        storage.load(oid)


def test_extension_and_metadata_are_kept_exactly(shared_cluster, open_database, open_storage):
    database = open_database(shared_cluster)
    with database.transaction() as connection:
        connection.root()["noted"] = 1
        txn = connection.transaction_manager.get()
        txn.setUser("someone")
        txn.note("a note, ü")
        txn.setExtendedInfo("answer", (42, None))
    (last,) = open_storage(shared_cluster).undoLog(0, 1)
    assert last["user_name"] == b"/ someone" and last["description"] == "a note, ü".encode()
    assert last["answer"] == (42, None)


def test_an_extension_with_instances_is_kept_as_it_was_pickled(shared_cluster, open_storage):
    storage = open_storage(shared_cluster)
    txn = TransactionMetaData(extension={"tags": {1}, "when": datetime.date(2020, 1, 1)})
    storage.tpc_begin(txn)
    storage.store(storage.new_oid(), None, b"data", "", txn)
    storage.tpc_vote(txn)
    tid = storage.tpc_finish(txn)
    (found,) = storage.iterator(tid, tid)
    assert found.extension_bytes == txn.extension_bytes


def test_read_only_storages_refuse_to_write(shared_cluster, open_database, open_storage):
    set_values(open_database(shared_cluster), there=1)
    database = open_database(shared_cluster, read_only=True)
    assert get(database, "there") == 1
    with pytest.raises(ReadOnlyError):
        set_values(database, there=2)
    with pytest.raises(ReadOnlyError):
        open_storage(shared_cluster, read_only=True).new_oid()


def test_configuration_and_uri_open_the_cluster(shared_cluster, tmp_path):
    text = f"""
        %import zodium.neo
        <zodb>
          <NEOStorage>
            master_nodes {shared_cluster.masters}
            name {shared_cluster.name}
            compress zlib=5
            read-only yes
            cache-size 5MB
            logfile {tmp_path}/client.log
          </NEOStorage>
        </zodb>
    """
    database = ZODB.config.databaseFromString(textwrap.dedent(text))
    assert database.storage.isReadOnly() and database.storage.is_connected()
    database.close()
    assert "connected" in (tmp_path / "client.log").read_text()
    from zodium.neo.zodburi import resolve

    masters = shared_cluster.masters.replace(" ", ",")
    uri = f"neo://{shared_cluster.name}@{masters}?cache-size=5MB&read_only=1&cache_size=7"
    factory, options = resolve(f"{uri}&connection_pool_size=3")
    assert options == {"connection_pool_size": "3"}
    storage = factory()
    assert storage.isReadOnly()
    storage.close()
    with pytest.raises(ValueError, match="CLUSTER@HOST"):
        resolve("neo://nothing")
    with pytest.raises(ValueError, match="ignore-wrong-checksum"):
        zodium.NEOStorage(masters, shared_cluster.name, ignore_wrong_checksum=True)


def test_many_objects_are_loaded_at_once_and_ahead(shared_cluster, open_storage):
    writer = open_storage(shared_cluster)
    oids = [writer.new_oid() for _ in range(300)]
    commit(writer, *((oid, z64, b"data of " + oid) for oid in oids))
    first = writer.lastTransaction()
    commit(writer, (oids[0], first, b"later"))
    after = p64(u64(writer.lastTransaction()) + 1)
    storage = open_storage(shared_cluster)
    before = p64(u64(first) + 1)
    for tid in (before, after):
        expected = [writer.loadBefore(oid, tid) for oid in oids]
        assert storage.load_many([*oids, p64(1 << 60)], tid) == [*expected, None]
    assert storage.load_many(oids[:1], first) == [None]
    storage.clear_cache()
    storage.prefetch(oids, after)
    assert [storage.loadBefore(oid, after) for oid in oids] == expected


def test_a_cluster_that_is_not_there_is_an_error_within_the_time_to_wait():
    with pytest.raises(ClientDisconnected, match="no connection|primary master"):
        zodium.NEOStorage("127.0.0.1:1", "nowhere", wait_timeout=0.001)


def test_a_forked_child_connects_by_itself(shared_cluster, open_database):
    database = open_database(shared_cluster)
    set_values(database, parent=1)
    child = os.fork()
    if child == 0:
        try:
            assert get(database, "parent") == 1
            set_values(database, child=1)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    set_values(database, parent=2)
    assert get(database, "child") == 1


class Alarm(Exception):
    pass


def test_a_signal_ends_the_wait_for_a_silent_storage(start_cluster, open_storage):
    cluster = start_cluster()
    storage = open_storage(cluster, cache_size=0)
    oid = storage.new_oid()
    commit(storage, (oid, z64, b"data"))

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    silent = cluster.storages[0].process
    silent.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            storage.load(oid)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        silent.send_signal(signal.SIGCONT)
    assert storage.load(oid)[0] == b"data"


def test_commits_go_on_at_the_next_primary_master_with_tls(start_cluster, open_database, tmp_path):
    authority = Authority("authority")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    tls = [str(tmp_path / "ca.pem"), *map(str, authority.issue("node").write(tmp_path, "node"))]
    cluster = start_cluster(masters=2, tls=tls)
    database = open_database(cluster)
    set_values(database, n=1)
    primary = int(cluster.ctl("print", "primary").stdout.strip()[1:])
    cluster.master_nodes[primary - 1].kill()

    def is_committed():
        try:
            set_values(database, n=2)
        except (ClientDisconnected, ConflictError):
            return False
        return True

    wait_for(is_committed, "a commit at the other master")
    assert get(database, "n") == 2


@needs_neo
@pytest.mark.parametrize("stock", [False, True])
def test_it_works_beside_neos_client(start_cluster, open_database, stock):
    class Mixed(Cluster):
        def __init__(self, folder, **shape):
            super().__init__(folder, **shape)
            if stock:
                count = len(self.storages)
                self.storages = [self.neo_storage_node(n) for n in range(1, count + 1)]

    cluster = start_cluster(kind=Mixed, storages=2, partitions=3, replicas=1)
    database = open_database(cluster)
    set_values(database, a=1)
    client = cluster.client()
    assert client.call("get")["a"] == 1
    client.call("set", b=2)
    assert get(database, "b") == 2
    database.undo(database.undoLog(0, 1)[0]["id"], transaction.get())
    transaction.commit()
    assert get(database, "b") is None
    assert "b" not in client.call("get")
