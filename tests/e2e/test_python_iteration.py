"""zodium.ClientStorage reads ahead: iteration over transactions, records and objects.

What it gives is what ZEO's client gives, against Zodium and the stock server.
"""

import os
import time

import pytest
import transaction
import ZODB
from harness import package
from harness.relay import Relay
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.interfaces import (
    IPrefetchStorage,
    IStorageCurrentRecordIteration,
    IStorageIteration,
    IStorageRecordInformation,
    IStorageTransactionInformation,
)
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid, p64, u64, z64

package.use()

import zodium  # noqa: E402
from zodium.exceptions import ClientDisconnected  # noqa: E402

SMALL, LARGE = 60, 700  # transactions of a few records, and records of a large one


@pytest.fixture
def server(either_server):
    return either_server


def fill(storage):
    """Small transactions, a large one, an undo, a deletion; the database's root is oid 0."""
    database = ZODB.DB(storage)
    for number in range(SMALL):
        with database.transaction() as connection:
            connection.transaction_manager.get().note(f"number {number}")
            connection.transaction_manager.get().setUser(f"user{number % 3}")
            connection.transaction_manager.get().setExtendedInfo("key", number)
            root = connection.root()
            for place in range(number % 4 + 1):
                root[place] = PersistentMapping(text="x" * number)
    with database.transaction() as connection:
        many = connection.root()["many"] = PersistentMapping()
        for number in range(LARGE):
            many[number] = PersistentMapping(text=f"{number} " * (number % 50))
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    with database.transaction() as connection:
        connection.root()["last"] = [PersistentMapping(number=n) for n in range(2 * SMALL)]
    storage._db = None


def content(transactions):
    """All that an iterator says."""
    return [
        (
            one.tid,
            one.status,
            one.user,
            one.description,
            one.extension,
            [(record.oid, record.tid, record.data, record.data_txn) for record in one],
        )
        for one in transactions
    ]


@pytest.fixture
def filled(server, connect):
    fill(connect(server))
    return server


def test_what_is_iterated_is_what_stock_clients_see(filled, open_storage, connect):
    ours, stock = open_storage(filled), connect(filled)
    expected = content(stock.iterator())
    assert len(expected) == SMALL + 4
    assert any(record[3] for one in expected for record in one[5]), "a record that points back"
    assert content(ours.iterator()) == expected
    for first, last in ((0, 10), (30, 30), (SMALL - 2, SMALL + 3)):
        start, stop = expected[first][0], expected[last][0]
        assert content(ours.iterator(start, stop)) == expected[first : last + 1]
    assert content(ours.iterator(p64(u64(expected[-1][0]) + 1))) == []


def test_transactions_and_records_have_the_interfaces_of_zodb(filled, open_storage):
    storage = open_storage(filled)
    for interface in IStorageIteration, IStorageCurrentRecordIteration, IPrefetchStorage:
        assert interface.providedBy(storage)
    one = next(iter(storage.iterator()))
    assert IStorageTransactionInformation.providedBy(one)
    assert one.extension_bytes == b""
    record = next(iter(one))
    assert IStorageRecordInformation.providedBy(record)
    # As storages that encrypt or compress do.
    record.data = b"changed"
    assert record.data == b"changed"


def test_records_are_read_later_again_and_side_by_side(filled, open_storage, connect):
    storage = open_storage(filled)
    expected = content(connect(filled).iterator())
    # First all transactions, whose records nobody wants yet.
    later = list(storage.iterator())
    assert content(later) == expected
    assert content(reversed(later)) == expected[::-1]
    # Two iterators over one transaction, and the next one begun meanwhile.
    transactions = storage.iterator(expected[SMALL + 1][0])
    large = next(transactions)
    one, other = iter(large), iter(large)
    pairs = [(next(one).oid, next(other).oid) for _ in range(300)]
    following = next(transactions)
    pairs += [(record.oid, next(other).oid) for record in one]
    oids = [record[0] for record in expected[SMALL + 1][5]]
    assert pairs == list(zip(oids, oids))
    assert content([following]) == [expected[SMALL + 2]]


def test_heads_alone_are_read_and_then_records_again(filled, open_storage, connect):
    storage = open_storage(filled)
    expected = content(connect(filled).iterator())
    for wanted in (3, 10, 40, SMALL + 1):
        seen = []
        for number, one in enumerate(storage.iterator()):
            assert one.tid == expected[number][0]
            if number >= wanted:
                seen += content([one])
        assert seen == expected[wanted:]


def test_an_iterator_does_not_see_what_is_committed_meanwhile(filled, open_storage):
    storage = open_storage(filled)
    seen = storage.iterator()
    first = next(seen)
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["late"] = 1
    late = storage.lastTransaction()
    tids = [one.tid for one in seen]
    assert len(tids) == SMALL + 3
    assert late not in tids
    assert [one.tid for one in storage.iterator(late)] == [late]
    assert first.tid < tids[0]


def test_iterators_that_are_left_in_the_middle_do_not_stay_open(filled, open_storage):
    storage = open_storage(filled)
    for _ in range(1100):
        iterator = storage.iterator()
        next(iter(next(iterator)))
    assert len(content(storage.iterator())) == SMALL + 4


def test_a_copy_is_the_same_byte_for_byte(tmp_path, filled, open_storage, connect):
    with_more = TransactionMetaData(b"user", b"text", {"key": "text", "more": [1, 2.5, None]})
    stock = connect(filled)
    stock.tpc_begin(with_more)
    stock.tpc_vote(with_more)
    stock.tpc_finish(with_more)
    copy = FileStorage(str(tmp_path / "copy.fs"))
    copy.copyTransactionsFrom(open_storage(filled))
    assert content(copy.iterator()) == content(stock.iterator())
    copy.close()


def test_the_end_of_the_connection_is_told_each_time(tmp_path, start_server, open_storage, connect):
    server = start_server(tmp_path / "Data.fs")
    fill(connect(server))
    storage = open_storage(server)
    heads, records = storage.iterator(), storage.iterator()
    next(heads), next(iter(next(records)))
    server.kill()
    for lost in heads, records:
        for _ in range(2):
            with pytest.raises(ClientDisconnected):
                for _ in range(10_000):
                    next(lost)


def test_a_server_that_was_restarted_is_iterated_on_from_the_last_transaction(
    tmp_path, start_server, open_storage, connect
):
    server = start_server(tmp_path / "Data.fs")
    fill(connect(server))
    expected = content(connect(server).iterator())
    storage = open_storage(server)
    seen = content(one for one, _ in zip(storage.iterator(), range(5)))
    server.stop()
    wait_for(lambda: not storage.is_connected(), "disconnected", 20)
    words = server.words
    again = type(server)(words, server.port, tmp_path)
    start_server.servers.append(again)
    wait_for(storage.is_connected, "connected again", 20)
    seen += content(storage.iterator(p64(u64(seen[-1][0]) + 1)))
    assert seen == expected


def test_a_closed_storage_says_so(filled, open_storage):
    storage = open_storage(filled)
    iterator = storage.iterator()
    next(iterator)
    storage.close()
    with pytest.raises(ClientDisconnected):
        for _ in range(10_000):
            next(iterator)
    with pytest.raises(ClientDisconnected):
        storage.iterator()


def test_a_pack_does_not_disturb_an_iterator(filled, open_storage, connect):
    storage = open_storage(filled)
    expected = content(connect(filled).iterator())
    iterator = storage.iterator()
    seen = content(one for one, _ in zip(iterator, range(3)))
    connect(filled).pack(time.time() + 1)
    seen += content(iterator)
    # zip has taken one more than it gave.
    assert seen == [*expected[:3], *expected[4:]]


def test_an_iterator_stays_with_the_process_that_began_it(filled, open_storage):
    iterator = open_storage(filled).iterator()
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except ClientDisconnected:
            del iterator
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(content(iterator)) == SMALL + 3


def walk(storage):
    """All objects, as record_iternext gives them."""
    following, found = None, []
    while True:
        oid, tid, data, following = storage.record_iternext(following)
        found.append((oid, tid, data))
        if following is None:
            return found


def test_all_objects_are_walked_through_and_each_is_current(filled, open_storage, connect):
    storage, stock = open_storage(filled), connect(filled)
    # An object whose creation was undone is an error, until it is packed away.
    with pytest.raises(POSKeyError):
        walk(storage)
    with pytest.raises(POSKeyError):
        walk(stock)
    stock.pack(time.time() + 1)
    expected = walk(stock)
    assert len(expected) > SMALL
    assert walk(storage) == expected
    # What was committed is seen by the next step, whatever was read ahead.
    database = ZODB.DB(storage)
    oid, _, _, following = storage.record_iternext()
    assert oid == z64
    with database.transaction() as connection:
        connection.get(following)["changed"] = True
    assert storage.record_iternext(following)[1] == database.lastTransaction()


def test_walking_through_no_objects_is_an_error(tmp_path, server, open_storage):
    with pytest.raises(ValueError):
        open_storage(server).record_iternext()


def relayed(relay):
    return zodium.ClientStorage(relay.address, wait_timeout=30)


@pytest.mark.parametrize("how", ["load_many", "prefetch", "connection"])
def test_a_thousand_objects_are_one_round_trip(server, connect, how):
    database = ZODB.DB(connect(server))
    with database.transaction() as connection:
        root = connection.root()
        for number in range(1000):
            root[number] = PersistentMapping(number=number)
    with database.transaction() as connection:
        oids = [connection.root()[number]._p_oid for number in range(1000)]
    before = p64(u64(database.lastTransaction()) + 1)
    with Relay(server) as relay:
        storage = relayed(relay)
        read = ZODB.DB(storage)
        with read.transaction() as connection:
            objects = [connection.root()[number] for number in range(1000)]
            seen = relay.seen(b"loadBefore")
            relay.hold_for(b"loadBefore", 1000)
            if how == "load_many":
                assert all(storage.load_many(oids, before))
            elif how == "prefetch":
                storage.prefetch(oids, before)
                assert all(storage.loadBefore(oid, before) for oid in oids)
            else:
                connection.prefetch(objects)
                assert [one["number"] for one in objects] == list(range(1000))
            assert relay.seen(b"loadBefore") == seen + 1000
        read.close()


def test_of_many_those_that_do_not_exist_are_none(server, connect, open_storage):
    ZODB.DB(connect(server))
    storage = open_storage(server)
    (root, nothing), before = storage.load_many([z64, p64(77)], maxtid), z64
    assert root == storage.loadBefore(z64, maxtid)
    assert nothing is None
    assert storage.load_many([z64], before) == [None]


def test_a_thousand_records_are_few_requests(tmp_path, start_server, connect):
    server = start_server(tmp_path / "Data.fs")
    fill(connect(server))
    expected = content(connect(server).iterator())
    with Relay(server) as relay:
        storage = relayed(relay)
        assert content(storage.iterator()) == expected
        assert relay.seen(b"iterator_start") == 1
        assert relay.seen(b"zodium_iterator_read") < 40
        assert relay.seen(b"iterator_record_next") == 0
        connect(server).pack(time.time() + 1)
        storage.ping()
        assert len(walk(storage)) > SMALL
        assert relay.seen(b"zodium_objects_read") < 12
        storage.close()


@pytest.mark.zodium
def test_requests_of_one_iterator_are_answered_in_their_order(
    tmp_path, start_server, connect, wire
):
    server = start_server(tmp_path / "Data.fs")
    fill(connect(server))
    expected = content(connect(server).iterator())
    client = wire(server)
    number = client.call("iterator_start", None, None)
    asked = [client.request("iterator_next", number) for _ in range(SMALL + 2)]
    heads = [client.reply(one) for one in asked]
    assert [head[0] for head in heads] == [one[0] for one in expected[: SMALL + 2]]
    # What comes after it is of the iterator as it is then.
    start = client.request("iterator_record_start", number, expected[SMALL + 1][0])
    records = client.reply(start)
    asked = [client.request("iterator_record_next", records) for _ in range(500)]
    oids = [client.reply(one)[0] for one in asked]
    assert oids == [record[0] for record in expected[SMALL + 1][5]][:500]
    # Given back while it is asked: what was asked is answered somehow, and it is gone.
    asked = [client.request("iterator_record_next", records) for _ in range(50)]
    client.notify("iterator_gc", [records])
    answered = set()
    while len(answered) < 50:
        answered.add(client.receive()[0])
    assert answered == set(asked)
    error = client.request("iterator_record_next", records)
    assert "KeyError" in str(client.receive()), error
