"""zodium.ClientStorage when what is told of a commit fails: no connection keeps old objects."""

import sys
import threading
import time

import pytest
import transaction
import ZODB
from harness import package
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData

package.use()

from zodium._commit import pending_of  # noqa: E402


def at_the_limit(call):
    """Call a function with as little of the stack left as it needs itself."""
    try:
        return at_the_limit(call)
    except RecursionError:
        return call()


@pytest.fixture
def storage(either_server, open_native, monkeypatch):
    # The client reports each failure.
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: None)
    return open_native(either_server.address)


@pytest.fixture
def one(storage):
    """An object with a value, in a connection of the storage."""
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["one"] = PersistentMapping(value="old")
    one = database.open(transaction.TransactionManager()).root()["one"]
    assert one["value"] == "old"
    return one


def voted(storage, oid, serial, data):
    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    storage.store(oid, serial, data, "", txn)
    storage.tpc_vote(txn)
    return txn


def test_a_thread_near_the_limit_of_recursion_that_reads_of_a_commit_leaves_no_old_object(
    either_server, storage, one, open_native
):
    (data, serial), other = storage.load(one._p_oid), open_native(either_server.address)
    theirs = voted(other, one._p_oid, serial, data.replace(b"old", b"new"))
    mine, ended = TransactionMetaData(), []
    storage.tpc_begin(mine)
    storage.store(one._p_oid, serial, data, "", mine)
    vote = pending_of(storage, mine).native.vote

    def wait_for_theirs():
        try:
            ended.append(at_the_limit(vote))
        except Exception as error:
            ended.append(error)

    # It waits for the other one, so this thread reads of its commit.
    waiting = threading.Thread(target=wait_for_theirs)
    waiting.start()
    wait_for(lambda: other.server_status()["waiting"], "a vote that waits")
    time.sleep(0.3)
    tid = other.tpc_finish(theirs)
    waiting.join()
    assert ended
    storage.tpc_abort(mine)
    wait_for(lambda: storage.lastTransaction() == tid, "the commit is told")
    one._p_jar.transaction_manager.begin()
    assert one["value"] == "new"


def test_a_commit_that_connections_could_not_be_told_of_is_told_again(storage, one):
    data, serial = storage.load(one._p_oid)
    told = []

    def fail(*_):
        raise RecursionError("as on a stack that is full")

    storage.invalidateTransaction = lambda tid, oids: told.append((tid, oids))
    storage.invalidateCache = fail
    tid = storage.tpc_finish(voted(storage, one._p_oid, serial, data), fail)
    wait_for(lambda: storage.lastTransaction() == tid, "the commit is told")
    assert told == [(tid, [one._p_oid])]


def test_a_storage_that_fails_at_news_of_a_commit_is_logged(
    either_server, storage, one, open_native, logged
):
    """A wrapper may be written for other versions of ZODB."""
    storage.invalidateTransaction = lambda: None
    (data, serial), other = storage.load(one._p_oid), open_native(either_server.address)
    other.tpc_finish(voted(other, one._p_oid, serial, data.replace(b"old", b"new")))
    storage.ping()
    [found] = [record for record in logged if record.exc_info]
    assert (found.name, found.levelname) == ("zodium.client", "ERROR")
    assert found.exc_info[0] is TypeError and "news of its server" in found.getMessage()
    one._p_jar.transaction_manager.begin()
    assert one["value"] == "new"
