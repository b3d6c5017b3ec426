"""A connection that is made while a commit is being told misses nothing."""

import threading

import pytest
import transaction
import ZODB
from harness import package
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData

package.use()

# Seconds for what nothing should hinder.
PATIENCE = 30
# Seconds that a new connection gets to read the state before the commit.
HEAD_START = 0.5


@pytest.fixture
def server(tmp_path, start_server):
    return start_server(tmp_path / "Data.fs")


class Telling:
    """A database whose connections were told of a commit, before the telling ends."""

    def __init__(self, storage):
        self.storage, self.database = storage, ZODB.DB(storage)
        self.has_told, self.may_end = threading.Event(), threading.Event()
        with self.database.transaction() as connection:
            one = connection.root()["one"] = PersistentMapping(value="old")
        self.oid = one._p_oid
        # It stays open, so that the pool has none for the next.
        connection = self.database.open(transaction.TransactionManager())
        assert connection.root()["one"]["value"] == "old"
        adapter = self.database._mvcc_storage
        self.tell, adapter.invalidate = adapter.invalidate, self.tell_slowly

    def tell_slowly(self, tid, oids):
        self.tell(tid, oids)
        self.has_told.set()
        self.may_end.wait(PATIENCE)

    def commit(self, storage):
        """Change the object by a storage."""
        data, serial = storage.load(self.oid)
        txn = TransactionMetaData()
        storage.tpc_begin(txn)
        storage.store(self.oid, serial, data.replace(b"old", b"new"), "", txn)
        storage.tpc_vote(txn)
        if storage is self.storage:
            storage.tpc_finish(txn, lambda tid: self.tell_slowly(tid, [self.oid]))
        else:
            storage.tpc_finish(txn)


@pytest.mark.parametrize("own", [False, True], ids=["by another client", "by its own client"])
def test_it_sees_the_commit_at_its_next_transaction(open_native, server, own):
    told = Telling(open_native(server.address))
    values, has_read, may_read_again = [], threading.Event(), threading.Event()

    def read():
        manager = transaction.TransactionManager()
        connection = told.database.open(manager)
        values.append(connection.root()["one"]["value"])
        has_read.set()
        may_read_again.wait(PATIENCE)
        manager.begin()
        values.append(connection.root()["one"]["value"])

    storage = told.storage if own else open_native(server.address)
    threads = [threading.Thread(target=told.commit, args=[storage]), threading.Thread(target=read)]
    threads[0].start()
    assert told.has_told.wait(PATIENCE)
    threads[1].start()
    has_read.wait(HEAD_START)
    told.may_end.set()
    threads[0].join(PATIENCE)
    told.storage.ping()
    may_read_again.set()
    threads[1].join(PATIENCE)
    assert values[-1] == "new", values
