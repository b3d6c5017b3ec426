"""Signals reach Python while zodium.ClientStorage waits: for an answer, a connection, a turn.

The server is stopped, so that nothing but the signal can end a wait.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import transaction
import ZODB
from harness import package
from harness.process import HOST, free_port
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.utils import maxtid, p64, u64, z64

package.use()

import zodium  # noqa: E402
from zodium.exceptions import OutcomeUnknown  # noqa: E402

# Far from what a signal takes, and from a wait that ends by itself.
PATIENCE = 15


class Handled(Exception):
    """What our handler raises."""


class Stopped(BaseException):
    """What a handler raises that stops its thread, as KeyboardInterrupt does."""


def raise_handled(number, frame):
    raise Handled(number)


def raise_stopped(number, frame):
    raise Stopped(number)


@contextlib.contextmanager
def signalled(number=signal.SIGUSR1, handler=raise_handled, after=0.3):
    """The signal comes while what is inside waits; it must not wait much longer."""
    before = signal.signal(number, handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), number))
    start = time.monotonic()
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(number, before)
    assert after <= time.monotonic() - start < PATIENCE


def store_one(storage, txn, oid, serial=z64, text="x"):
    state = b"(cpersistent.mapping\nPersistentMapping\nq\x01N." + b"}U\x01" + text.encode() + b"Ns."
    storage.store(oid, serial, state, "", txn)
    return state


@pytest.fixture
def storage(either_server, open_native):
    storage = open_native(either_server.address)
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["one"] = PersistentMapping()
    return storage


def test_ctrl_c_ends_a_wait_and_the_connection_goes_on(either_server, storage):
    peer, connections = storage._client.peer(), []
    storage.notify_disconnected = lambda: connections.append("lost")
    waits = [
        storage.ping,
        lambda: storage._call("loadBefore", z64, maxtid),
        lambda: storage.history(z64),
        lambda: list(storage.iterator()),
    ]
    with either_server.frozen():
        for wait in waits:
            with signalled(signal.SIGINT, signal.default_int_handler):
                with pytest.raises(KeyboardInterrupt):
                    wait()
    # What was asked for is answered now, to nobody.
    storage.ping()
    assert storage.load(z64)[1] == storage.getTid(z64)
    assert [len(list(one)) for one in storage.iterator()] == [1, 2]
    assert (storage._client.peer(), connections) == (peer, [])


def test_a_load_is_left_alone_and_the_next_one_gets_its_answer(either_server, open_native, storage):
    reader = open_native(either_server.address)
    with either_server.frozen():
        for _ in range(2):
            with signalled(), pytest.raises(Handled):
                reader.load(z64)
            with signalled(), pytest.raises(Handled):
                reader.loadBefore(z64, p64(u64(reader.lastTransaction()) + 1))
    assert reader.load(z64) == storage.load(z64)


def test_a_handler_that_raises_nothing_does_not_end_the_wait(either_server, storage):
    seen = []

    def handle(number, frame):
        # It may use the storage itself, for what is known already.
        seen.append(storage.lastTransaction())
        either_server.process.send_signal(signal.SIGCONT)

    with either_server.frozen(), signalled(handler=handle):
        storage.ping()
    assert seen == [storage.lastTransaction()]


def test_a_handler_may_ask_the_server_while_its_thread_waits(either_server, storage):
    seen = []

    def handle(number, frame):
        either_server.process.send_signal(signal.SIGCONT)
        seen.append(storage.getTid(z64))

    with either_server.frozen(), signalled(handler=handle):
        storage.ping()
    assert seen == [storage.load(z64)[1]]


def test_the_main_thread_is_interrupted_while_another_one_reads(either_server, storage):
    with either_server.frozen():
        other = threading.Thread(target=storage.ping)
        other.start()
        time.sleep(0.1)
        with signalled(), pytest.raises(Handled):
            storage.ping()
        assert other.is_alive()
    other.join(PATIENCE)
    assert not other.is_alive()


def test_a_wait_for_a_connection_ends():
    with signalled(), pytest.raises(Handled):
        zodium.ClientStorage((HOST, free_port()), wait_timeout=60)


def test_a_wait_for_ones_turn_to_commit_ends(storage):
    first, second = TransactionMetaData(), TransactionMetaData()
    storage.tpc_begin(first)
    with signalled(), pytest.raises(Handled):
        storage.tpc_begin(second)
    storage.tpc_abort(first)
    storage.tpc_begin(second)
    storage.tpc_abort(second)


def test_an_interrupted_vote_is_aborted_and_another_transaction_goes_through(
    either_server, storage
):
    txn, oid = TransactionMetaData(), storage.new_oid()
    storage.tpc_begin(txn)
    store_one(storage, txn, oid)
    with either_server.frozen():
        with signalled(), pytest.raises(Handled):
            storage.tpc_vote(txn)
    storage.tpc_abort(txn)
    commit(storage, oid)
    assert storage.load(oid)[1] == storage.lastTransaction()


def commit(storage, oid, serial=z64, text="x"):
    txn = TransactionMetaData()
    storage.tpc_begin(txn)
    store_one(storage, txn, oid, serial, text)
    storage.tpc_vote(txn)
    return storage.tpc_finish(txn)


def test_an_interrupted_finish_says_that_its_outcome_is_unknown_and_tells_when_asked(
    either_server, storage
):
    txn, oid = TransactionMetaData(), storage.new_oid()
    first = commit(storage, oid)
    finished, told = [], []
    storage.invalidateTransaction = lambda tid, oids: told.append((tid, oids))
    storage.tpc_begin(txn)
    data = store_one(storage, txn, oid, first, "y")
    storage.tpc_vote(txn)
    with either_server.frozen():
        with signalled(), pytest.raises(Handled) as raised:
            storage.tpc_finish(txn, finished.append)
        assert isinstance(raised.value.__cause__, OutcomeUnknown)
        assert "is not known" in str(raised.value.__cause__)
        # Asking waits for the answer, and can be interrupted too.
        with signalled(), pytest.raises(Handled):
            storage.outcome(raised.value)
    tid = storage.outcome(raised.value)
    assert tid == storage.outcome(raised.value.__cause__) == storage.lastTransaction() > first
    assert storage.load(oid) == (data, tid)
    # Nobody waited, so it is told as others' commits are: all connections take it in.
    assert (finished, told) == ([], [(tid, [oid])])
    assert commit(storage, oid, tid) > tid


def test_an_application_goes_on_after_an_interrupted_commit(either_server, storage):
    database = ZODB.DB(storage)
    connection = database.open()
    connection.root()["two"] = 2
    native = storage.tpc_finish

    def finish(txn, f):
        with either_server.frozen(), signalled():
            return native(txn, f)

    storage.tpc_finish = finish
    with pytest.raises(Handled) as raised:
        connection.transaction_manager.commit()
    connection.transaction_manager.abort()
    del storage.tpc_finish
    assert storage.outcome(raised.value) == storage.lastTransaction()
    connection.transaction_manager.begin()
    assert connection.root()["two"] == 2
    connection.root()["two"] = 3
    connection.transaction_manager.commit()


# The server is stopped while one thread waits for the first transaction.
ITERATES = """
import json, os, signal, sys, threading, time
from pathlib import Path
import zodium

address, server = json.loads(sys.argv[1]), int(sys.argv[2])
storage = zodium.ClientStorage(tuple(address), wait_timeout=30)


class Handled(Exception):
    pass


def signalled(handler):
    def handle(number, frame):
        try:
            handler()
        finally:
            os.kill(server, signal.SIGCONT)

    signal.signal(signal.SIGUSR1, handle)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()


iterator = storage.iterator()
os.kill(server, signal.SIGSTOP)
# When all its threads are.
tasks = list(Path(f"/proc/{server}/task").iterdir())
while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks):
    time.sleep(0.01)
"""

ADVANCED_BY_A_HANDLER = """
refusals = []

def advance():
    try:
        next(iterator)
    except RuntimeError as error:
        refusals.append(str(error))
        # What it is told to do instead; it waits for the server as well.
        os.kill(server, signal.SIGCONT)
        refusals.append(next(storage.iterator()).tid.hex())

signalled(advance)
first = next(iterator).tid.hex()
print(json.dumps([refusals, first, [one.tid.hex() for one in iterator]]))
"""

WAITED_FOR_BY_TWO_THREADS = """
def interrupt():
    raise Handled

taken = []
other = threading.Thread(target=lambda: taken.append(next(iterator).tid.hex()))
other.start()
time.sleep(0.2)
signalled(interrupt)
try:
    next(iterator)
except Handled:
    taken.append("interrupted")
other.join()
print(json.dumps(sorted(taken)))
"""


def iterated(server, program):
    """What a program says that iterates over a stopped server. One that hangs is ended."""
    given = [json.dumps(server.address), str(server.process.pid)]
    words = [sys.executable, "-c", ITERATES + program, *given]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_handler_that_advances_the_iterator_of_its_own_thread_is_refused(either_server, storage):
    commit(storage, storage.new_oid())
    tids = [one.tid.hex() for one in storage.iterator()]
    refusals, first, rest = iterated(either_server, ADVANCED_BY_A_HANDLER)
    assert "iterator is already in use" in refusals[0] and refusals[1] == tids[0]
    assert [first, *rest] == tids


def test_a_wait_for_another_threads_read_of_an_iterator_ends(either_server, storage):
    tids = [one.tid.hex() for one in storage.iterator()]
    assert iterated(either_server, WAITED_FOR_BY_TWO_THREADS) == sorted([tids[0], "interrupted"])


def finish_when_waited_for(storage, txn):
    """Finish a transaction when the vote of another one has reached the server."""
    wait_for(lambda: storage.server_status()["waiting"], "a vote that waits", PATIENCE)
    # The thread that votes begins to read.
    time.sleep(0.3)
    storage.tpc_finish(txn)


def test_connections_miss_no_commit_when_a_handler_raises_while_they_are_told(
    either_server, storage, open_native
):
    database = ZODB.DB(storage)
    with database.transaction() as writing:
        writing.root()["one"]["value"] = "old"
    connection = database.open(transaction.TransactionManager())
    one = connection.root()["one"]
    assert one["value"] == "old"
    (data, serial), oid = storage.load(one._p_oid), one._p_oid
    other, theirs, ours = open_native(either_server.address), TransactionMetaData(), []
    other.tpc_begin(theirs)
    other.store(oid, serial, data.replace(b"old", b"new"), "", theirs)
    other.tpc_vote(theirs)
    tell, before = storage._db.invalidate, signal.signal(signal.SIGUSR1, raise_handled)

    def tell_with_a_signal(tid, oids):
        ours.append(threading.current_thread())
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(1000):
            pass
        tell(tid, oids)

    storage._db.invalidate = tell_with_a_signal
    finish = threading.Thread(target=finish_when_waited_for, args=[other, theirs])
    mine = TransactionMetaData()
    storage.tpc_begin(mine)
    storage.store(oid, serial, data, "", mine)
    finish.start()
    try:
        # It waits for the other one, so this thread reads of its commit.
        with pytest.raises(Handled):
            storage.tpc_vote(mine)
    finally:
        finish.join()
        signal.signal(signal.SIGUSR1, before)
    storage.tpc_abort(mine)
    assert ours == [threading.main_thread()]
    connection.transaction_manager.begin()
    assert one["value"] == "new"


@contextlib.contextmanager
def commits_of(storage):
    """Another client commits all the time."""
    serial, oid, is_over = z64, storage.new_oid(), threading.Event()

    def commit_on():
        nonlocal serial
        while not is_over.is_set():
            serial = commit(storage, oid, serial)

    committer = threading.Thread(target=commit_on)
    committer.start()
    try:
        yield
    finally:
        is_over.set()
        committer.join(PATIENCE)


@pytest.mark.parametrize("raised", [Handled, Stopped])
def test_a_handler_raises_in_the_call_that_it_interrupts_and_in_no_later_one(
    either_server, storage, open_native, seeded, raised
):
    ran = []

    def handle(number, frame):
        ran.append(number)
        raise raised(number)

    before, interrupted = signal.signal(signal.SIGALRM, handle), 0
    try:
        with commits_of(open_native(either_server.address)):
            for _ in range(300):
                ran.clear()
                try:
                    signal.setitimer(signal.ITIMER_REAL, seeded.uniform(0.001, 0.006))
                    while not ran:
                        storage.history(z64)
                except raised:
                    interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # A wait of more than a tick asks what handlers have raised.
    with either_server.frozen():
        resumed = threading.Timer(0.3, either_server.process.send_signal, [signal.SIGCONT])
        resumed.start()
        storage.ping()
    assert interrupted == 300


@pytest.fixture(params=[raise_handled, raise_stopped])
def raises(request):
    return request.param


@contextlib.contextmanager
def signal_when_told(storage, handler):
    """Sends this process a signal when the main thread tells the connections of a commit."""
    told, tell, before = [], storage.invalidateTransaction, signal.getsignal(signal.SIGUSR1)

    def tell_with_a_signal(tid, oids):
        tell(tid, oids)
        if threading.current_thread() is threading.main_thread():
            told.append(tid)
            os.kill(os.getpid(), signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, handler)
    storage.invalidateTransaction = tell_with_a_signal
    try:
        yield told
    finally:
        del storage.invalidateTransaction
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_raises_while_its_thread_tells_of_a_commit_ends_the_call(
    either_server, storage, open_native, raises
):
    with ZODB.DB(storage).transaction() as connection:
        one = connection.root()["one"]
        one["value"] = "old"
    data, serial = storage.load(one._p_oid)
    other = open_native(either_server.address)
    theirs, mine = TransactionMetaData(), TransactionMetaData()
    other.tpc_begin(theirs)
    other.store(one._p_oid, serial, data.replace(b"old", b"new"), "", theirs)
    other.tpc_vote(theirs)
    storage.tpc_begin(mine)
    storage.store(one._p_oid, serial, data, "", mine)
    finish = threading.Thread(target=finish_when_waited_for, args=[other, theirs])
    finish.start()
    # It waits for the other one, so this thread reads of its commit.
    with signal_when_told(storage, raises) as told, pytest.raises((Handled, Stopped)):
        storage.tpc_vote(mine)
    finish.join()
    storage.tpc_abort(mine)
    assert told == [other.lastTransaction()]
    storage.ping()


def test_a_handler_that_raises_before_the_answer_to_a_finish_tells_that_it_is_committed(
    tmp_path, start_server, open_native, raises
):
    # With the stock server nobody else can commit between a vote and its finish.
    server = start_server(tmp_path / "Data.fs")
    storage, other = open_native(server.address), open_native(server.address)
    oid, serial = storage.new_oid(), z64
    for number in itertools.count():
        txn = TransactionMetaData()
        storage.tpc_begin(txn)
        store_one(storage, txn, oid, serial, str(number))
        storage.tpc_vote(txn)
        theirs = commit(other, other.new_oid())
        try:
            with signal_when_told(storage, raises) as told:
                serial = storage.tpc_finish(txn)
        except (Handled, Stopped) as error:
            ended = error
            break
        # The thread in the background was faster to read of the other's commit.
        assert not told and number < 1000
    assert told == [theirs]
    tid = storage.outcome(ended)
    assert tid == storage.getTid(oid) > theirs
    assert storage.load(oid)[1] == tid == storage.lastTransaction()
    assert isinstance(ended.__cause__, OutcomeUnknown)
    assert commit(storage, oid, tid) > tid


@pytest.mark.parametrize("where", ["_after_commit", "_end"])
def test_a_handler_that_raises_after_the_answer_to_a_finish_tells_that_it_is_committed(
    storage, raises, where
):
    txn, oid, method = TransactionMetaData(), storage.new_oid(), getattr(storage, where)

    def with_a_signal(*arguments):
        method(*arguments)
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(1000):
            pass

    storage.tpc_begin(txn)
    store_one(storage, txn, oid)
    storage.tpc_vote(txn)
    before = signal.signal(signal.SIGUSR1, raises)
    setattr(storage, where, with_a_signal)
    try:
        with pytest.raises((Handled, Stopped)) as raised:
            storage.tpc_finish(txn)
    finally:
        delattr(storage, where)
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(raised.value.__cause__, OutcomeUnknown)
    assert storage.outcome(raised.value) == storage.getTid(oid)
    commit(storage, storage.new_oid())


def test_a_handler_that_raises_as_the_connections_are_told_of_a_finish_tells_that_it_is_committed(
    storage, raises
):
    txn, oid = TransactionMetaData(), storage.new_oid()

    class Native:
        def __init__(self, native):
            self.native = native

        def finish(self, tell, otherwise):
            def tell_with_a_signal(tid):
                os.kill(os.getpid(), signal.SIGUSR1)
                tell(tid)

            return self.native.finish(tell_with_a_signal, otherwise)

    storage.tpc_begin(txn)
    store_one(storage, txn, oid)
    storage.tpc_vote(txn)
    pending = txn.data(storage)
    pending.native = Native(pending.native)
    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with pytest.raises((Handled, Stopped)) as raised:
            storage.tpc_finish(txn)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert storage.outcome(raised.value) == storage.getTid(oid)


def test_a_handler_that_raises_while_blobs_are_taken_in_after_a_commit_is_heard(storage):
    txn, oid = TransactionMetaData(), storage.new_oid()

    class Blobs:
        def committed(self, blobs, tid):
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(1000):
                pass

    storage.tpc_begin(txn)
    store_one(storage, txn, oid)
    storage.tpc_vote(txn)
    storage._blobs, txn.data(storage).blobs = Blobs(), [(oid, "absent")]
    before = signal.signal(signal.SIGUSR1, raise_handled)
    try:
        with pytest.raises(Handled) as raised:
            storage.tpc_finish(txn)
    finally:
        storage._blobs = None
        signal.signal(signal.SIGUSR1, before)
    assert storage.outcome(raised.value) == storage.getTid(oid)
