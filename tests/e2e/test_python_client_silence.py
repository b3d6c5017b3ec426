"""zodium.ClientStorage and peers that vanish without a word, which no FIN or RST tells of."""

import threading
import time

import pytest
import ZODB
from harness import package
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

package.use()

from zodium.exceptions import ClientDisconnected, OutcomeUnknown  # noqa: E402

SILENCE = 1.5
# The silence, and what a busy machine adds to it.
PATIENCE = SILENCE + 10
STATE = b"cpersistent.mapping\nPersistentMapping\n.}U\x04dataU\x05%bs."


@pytest.fixture
def storage(proxy, open_native):
    storage = open_native(proxy.address, silence_timeout=SILENCE)
    with ZODB.DB(storage).transaction() as connection:
        connection.root()["one"] = PersistentMapping()
    return storage


def test_a_connection_that_nobody_uses_is_found_dead_and_replaced(
    proxy, storage, open_native, either_server
):
    peer_committed = ZODB.DB(open_native(either_server.address))
    start = time.monotonic()
    proxy.fall_silent()
    wait_for(lambda: not storage.is_connected(), "disconnected", PATIENCE)
    assert time.monotonic() - start > SILENCE / 3
    with peer_committed.transaction() as connection:
        connection.root()["one"] = 2
    proxy.speak()
    # Until then what is in the cache is served, as ZEO's client does.
    wait_for(storage.is_connected, "connected again", PATIENCE)
    assert storage.load(z64)[1] == storage.getTid(z64) == peer_committed.storage.lastTransaction()


def test_who_waits_for_an_answer_is_told(proxy, storage):
    proxy.fall_silent()
    start = time.monotonic()
    with pytest.raises(ClientDisconnected, match="said nothing"):
        storage.ping()
    assert time.monotonic() - start < PATIENCE
    proxy.speak()
    storage.ping()


def test_a_load_outlives_it(proxy, storage):
    oid = storage.new_oid()
    proxy.fall_silent()
    loaded = []

    def load():
        with pytest.raises(KeyError) as raised:
            storage.load(oid)
        loaded.append(raised.value.args[0])

    loader = threading.Thread(target=load)
    loader.start()
    wait_for(lambda: not storage.is_connected(), "disconnected", PATIENCE)
    proxy.speak()
    loader.join(PATIENCE)
    assert loaded == [oid]


def test_a_server_that_takes_its_time_is_waited_for(open_native, either_server):
    # A busy machine must not keep the server from saying that for so long.
    silence = 2 * SILENCE
    first, second = (open_native(either_server.address, silence_timeout=silence) for _ in range(2))
    losses = []
    second.notify_disconnected = lambda: losses.append("lost")
    oid, one, other = first.new_oid(), TransactionMetaData(), TransactionMetaData()
    for storage, txn in (first, one), (second, other):
        storage.tpc_begin(txn)
        storage.store(oid, z64, STATE % b"first", "", txn)
    first.tpc_vote(one)
    # It gets the object when the first one is over; meanwhile nothing is said to it but that the
    # server is there.
    voter = threading.Thread(target=second.tpc_vote, args=(other,))
    voter.start()
    voter.join(2 * silence)
    assert voter.is_alive()
    first.tpc_abort(one)
    voter.join(PATIENCE)
    assert not voter.is_alive()
    second.tpc_finish(other)
    assert losses == []


def lose_a_finish(proxy, storage, reaches_the_server, oid, text):
    """The OutcomeUnknown of a transaction, once the storage is connected again."""
    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    storage.store(oid, z64, STATE % text, "", txn)
    storage.tpc_vote(txn)
    if reaches_the_server:
        proxy.fall_silent_after(b"tpc_finish")
    else:
        proxy.fall_silent()
    with pytest.raises(OutcomeUnknown, match="ask for its outcome") as raised:
        storage.tpc_finish(txn)
    storage.tpc_abort(txn)
    proxy.speak()
    storage.ping()
    return raised.value


def test_a_lost_answer_to_a_finish_is_asked_for(proxy, storage):
    oid = storage.new_oid()
    error = lose_a_finish(proxy, storage, True, oid, b"first")
    tid = storage.outcome(error)
    assert tid == storage.getTid(oid)
    assert storage.load(oid) == (STATE % b"first", tid)


def test_a_finish_that_was_not_heard_was_not_committed(proxy, storage, either_server, open_native):
    oid = storage.new_oid()
    error = lose_a_finish(proxy, storage, False, oid, b"first")
    assert storage.outcome(error) is None
    with pytest.raises(KeyError):
        storage.load(oid)
    # What another client stores is not taken for it, but a pack could have removed it before.
    other, txn = open_native(either_server.address), TransactionMetaData()
    proxy.close()
    other.tpc_begin(txn)
    other.store(oid, z64, STATE % b"other", "", txn)
    other.tpc_vote(txn)
    other.tpc_finish(txn)
    with pytest.raises(OutcomeUnknown):
        other.outcome(error)


def test_nothing_to_tell_it_by_is_said(proxy, storage, open_native):
    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    storage.tpc_vote(txn)
    proxy.fall_silent()
    with pytest.raises(OutcomeUnknown) as raised:
        storage.tpc_finish(txn)
    proxy.speak()
    with pytest.raises(OutcomeUnknown):
        storage.outcome(raised.value)
    with pytest.raises(ValueError, match="no OutcomeUnknown"):
        storage.outcome(ValueError())
