"""The order of messages under load: what keeps the caches of all clients right.

Writers commit, readers load without pause, watchers only ask where the database
is.  Each checks every message it gets; afterwards all of them must have been told
of the same transactions.
"""

import threading
import time

from harness import files
from harness.observer import PIPELINE, Observer, content
from harness.wire import MAXTID, Z64, Silent

SECONDS = 4
SECONDS_MAX = 60  # for a machine that does little in that time
SHARED = [files.oid_of(number) for number in range(20)]


class Load:
    """Threads that run until the time is over and there were enough commits, or one has failed."""

    def __init__(self, server, seeded, seconds, commits=0):
        self.server = server
        self.random = seeded
        self.end, self.latest = (time.monotonic() + limit for limit in (seconds, SECONDS_MAX))
        self.commits_left = commits
        self.failures = []
        self.threads = []
        self.observers = []
        self.acknowledged = Z64  # the highest tid any writer has been given
        self.lock = threading.Lock()

    def is_on(self):
        end = self.latest if self.commits_left > 0 else self.end
        return time.monotonic() < end and not self.failures

    def start(self, work, name, *args):
        observer = Observer(self.server.address, name)
        self.observers.append(observer)

        def run():
            try:
                work(self, observer, *args)
            except Exception as failure:
                self.failures.append(failure)

        self.threads.append(threading.Thread(target=run, name=name))

    def run(self):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(2 * SECONDS_MAX)
        if self.failures:
            raise self.failures[0]

    def acknowledge(self, tid):
        with self.lock:
            self.acknowledged = max(self.acknowledged, tid)
            self.commits_left -= 1


def write(load, observer, oids, choices):
    """Commit to one's own oids; each transaction stores several of them."""
    wire, serials = observer.wire, {oid: load.first for oid in oids}
    number = 0
    while load.is_on():
        number += 1
        chosen = choices.sample(oids, choices.randrange(1, len(oids) + 1))
        wire.notify("tpc_begin", number, b"", b"", {}, None, " ")
        for oid in chosen:
            wire.notify("storea", oid, serials[oid], content(oid, number), number)
        assert len(observer.call("vote", number)) == 0
        tid = observer.call("tpc_finish", number)
        observer.announce_own(tid, chosen)
        load.acknowledge(tid)
        serials.update(dict.fromkeys(chosen, tid))


def read(load, observer, choices):
    """Keep many loads of current revisions in flight."""
    while load.is_on():
        while len(observer.waiting) < PIPELINE:
            observer.load(choices.choice(SHARED))
        observer.take()
    while observer.waiting:
        observer.take()


def watch(load, observer, choices):
    """What is acknowledged to one client is known to all that ask afterwards."""
    while load.is_on():
        acknowledged = load.acknowledged
        if choices.random() < 0.5:
            last = observer.call("lastTransaction")
            assert last >= acknowledged, "lastTransaction is behind an acknowledged commit"
        else:
            observer.call("ping")
        assert observer.told >= acknowledged, "answered before an acknowledged commit was told"


def check_pairs(load, observer, choices):
    """Who is told of a transaction can load it, and all of it."""
    while load.is_on():
        try:
            message_id, told = observer.take(0.5)
        except Silent:
            continue  # The writers may have ended already.
        if message_id is not None or len(told) != 2:
            continue
        tid, oids = told
        for oid in oids:
            data, start, _ = observer.call("loadBefore", oid, files.tid_after(tid))
            assert start == tid, "told of a transaction that cannot be loaded"
            assert data[:8] == oid


def settle(load):
    """Every observer's announcements, once nothing more is under way."""
    for observer in load.observers:
        observer.call("ping")
    return {observer.name: observer.tids for observer in load.observers}


def test_messages_keep_their_order_under_load(start_server, wire, seeded, encoding, scale):
    server = start_server(encoding=encoding)
    first = wire(server).commit(1, [(oid, Z64, content(oid, 0)) for oid in SHARED])
    load = Load(server, seeded, SECONDS * scale, commits=51)
    load.first = load.acknowledged = first
    writers = 4
    for number in range(writers):
        choices = type(seeded)(seeded.random())
        load.start(write, f"writer {number}", SHARED[number::writers], choices)
    for number in range(4):
        load.start(read, f"reader {number}", type(seeded)(seeded.random()))
    load.start(watch, "watcher", type(seeded)(seeded.random()))
    load.start(check_pairs, "loader", type(seeded)(seeded.random()))
    load.run()
    announced = settle(load)
    complete = announced["reader 0"]
    assert len(complete) > 50, "hardly any commits: the test says nothing"
    for name, tids in announced.items():
        assert tids == complete, f"{name} was told of {len(tids)}, not of {len(complete)}"
    assert [txn.tid for txn in files.read(server_file(server))][1:] == complete
    for observer in load.observers:
        observer.close()


def server_file(server):
    return server.log_path.with_name("Data.fs")


def test_a_new_session_is_told_of_nothing_old(start_server, wire, seeded, scale):
    """No announcement is at or below the tid that register has returned."""
    server = start_server()
    first = wire(server).commit(1, [(oid, Z64, content(oid, 0)) for oid in SHARED])
    load = Load(server, seeded, SECONDS / 2 * scale)
    load.first = load.acknowledged = first
    for number in range(2):
        load.start(write, f"writer {number}", SHARED[number::2], type(seeded)(seeded.random()))
    load.start(come_and_go, "visitor")
    load.run()


def come_and_go(load, observer):
    """Connect again and again, while others commit; gaps would be lost for good."""
    while load.is_on():
        visitor = Observer(load.server.address, "visitor")
        for _ in range(3):
            visitor.call("ping")
        missed = visitor.call("getInvalidations", visitor.registered)
        if missed is not None:
            assert missed[0] >= visitor.registered
        visitor.close()


def test_getInvalidations_leaves_no_gap(start_server, wire, seeded, scale):
    """What happened between a session's end and the next one's start is told."""
    server = start_server()
    writer = wire(server)
    first = writer.commit(1, [(oid, Z64, content(oid, 0)) for oid in SHARED])
    serials = dict.fromkeys(SHARED, first)
    for number in range(2, 60):
        gone = wire(server)
        left_at = gone.register_tid
        gone.close()
        changed = set()
        for step in range(seeded.randrange(4)):
            chosen = seeded.sample(SHARED, 3)
            txn = number * 10 + step
            stores = [(oid, serials[oid], content(oid, number)) for oid in chosen]
            serials.update(dict.fromkeys(chosen, writer.commit(txn, stores)))
            changed.update(chosen)
        back = wire(server)
        last, oids = back.call("getInvalidations", left_at)
        assert last == max(serials.values())
        assert set(oids) == changed


def test_conflicting_writers_lose_no_update(start_server, wire, seeded, encoding, scale):
    """A counter that eight clients raise, each by load, store and conflict: no gap."""
    server = start_server(encoding=encoding)
    counter = files.oid_of(7)
    wire(server).commit(1, [(counter, Z64, content(counter, 0))])
    load = Load(server, seeded, SECONDS * scale, commits=11)
    load.first = load.acknowledged = Z64
    raised = []
    for number in range(8):
        load.start(raise_counter, f"client {number}", counter, raised)
    load.run()
    data, _, _ = wire(server).call("loadBefore", counter, MAXTID)
    assert int.from_bytes(data[8:], "big") == len(raised) > 10
    assert sorted(raised) == list(range(1, len(raised) + 1))


def raise_counter(load, observer, counter, raised):
    wire, txn = observer.wire, 0
    while load.is_on():
        txn += 1
        data, serial, _ = observer.call("loadBefore", counter, MAXTID)
        number = int.from_bytes(data[8:], "big") + 1
        wire.notify("tpc_begin", txn, b"", b"", {}, None, " ")
        wire.notify("storea", counter, serial, content(counter, number), txn)
        if observer.call("vote", txn):
            observer.call("tpc_abort", txn)
            continue
        tid = observer.call("tpc_finish", txn)
        observer.announce_own(tid, [counter])
        load.acknowledge(tid)
        raised.append(number)
