"""A client dies at each point of a transaction: nothing stays locked, nothing is half done.

It hangs up, resets the connection, or falls silent; another client then commits to the
same objects, at once or when the transaction timeout is over.
"""

import contextlib
import time

import pytest
from harness import files
from harness.wire import MAXTID, Z64, ErrorReply, Silent, Wire

pytestmark = pytest.mark.zodium

TIMEOUT = 2  # seconds that a silent client may hold locks
WIRE_SECONDS = 30  # a reply that takes longer fails the test
LONG_TIMEOUT = 2 * WIRE_SECONDS  # locks that are freed by this one come too late for the test
TXN = 7
POINTS = ["begun", "stored once", "stored twice", "vote sent", "voted", "waiting", "finish sent"]
LOCKED_POINTS = {"vote sent", "voted", "waiting"}


@pytest.fixture(params=["tcp", "unix"])
def transport(request):
    return request.param


@pytest.fixture
def start(tmp_path, start_server, encoding, transport):
    """start(seconds of transaction timeout): (server, the address that clients use)."""

    def started(timeout):
        socket = tmp_path / "zeo.sock"
        options = (f"--transaction-timeout={timeout}", "-a", str(socket))
        server = start_server(None, *options, encoding=encoding)
        return server, socket if transport == "unix" else server.address

    return started


class Case:
    """One client that goes as far as a point and dies there; two objects of its own."""

    def __init__(self, address, number, point):
        self.address, self.point = address, point
        self.oids = [files.oid_of(100 * number + 1), files.oid_of(100 * number + 2)]
        self.before = self.connect()
        self.serials = [self.before.commit(1, [(oid, Z64, b"old")]) for oid in self.oids]
        self.other = self.connect()
        self.victim = self.connect()

    def connect(self):
        wire = Wire(self.address, seconds=WIRE_SECONDS)
        wire.register()
        return wire

    def begin(self, wire, data, count=2):
        wire.notify("tpc_begin", TXN, b"", b"", {}, None, " ")
        for oid, serial in list(zip(self.oids, self.serials))[:count]:
            wire.notify("storea", oid, serial, data, TXN)

    def vote(self, wire):
        self.begin(wire, b"before")
        assert len(wire.call("vote", TXN)) == 0

    def go(self):
        wire, point = self.victim, self.point
        if point == "waiting":
            # Just before: it must not be this one whose time is over.
            self.vote(self.before)
        self.since = time.monotonic()
        self.begin(wire, b"dead", POINTS.index(point) if point in POINTS[:3] else 2)
        if point in ("vote sent", "waiting"):
            wire.request("vote", TXN)
        elif point in ("voted", "finish sent"):
            assert len(wire.call("vote", TXN)) == 0
        else:
            wire.notify("set_client_label", "not heard of again")
        if point == "waiting":
            with pytest.raises(Silent):
                wire.reply(wire.last_id, 0.05)
        if point == "finish sent":
            wire.request("tpc_finish", TXN)

    def let_go(self):
        """Who held the locks before it gives them up: it is the next in the queue."""
        if self.point == "waiting":
            self.before.call("tpc_abort", TXN)

    def next_commit(self):
        """Another client commits to the same objects; seconds since the victim began."""
        while True:
            # Both as of one moment: a finish that was sent may come through between two loads.
            now = files.tid_after(self.other.call("lastTransaction"))
            loads = [self.other.call("loadBefore", oid, now) for oid in self.oids]
            found = {data for data, _, _ in loads}
            assert found in ({b"old"}, {b"dead"}), "wholly or not at all"
            assert found == {b"old"} or self.point == "finish sent"
            stores = [(oid, load[1], b"new") for oid, load in zip(self.oids, loads)]
            # A finish that was sent may come through at any time until the locks are free.
            with contextlib.suppress(ErrorReply):
                if self.try_commit(stores):
                    return time.monotonic() - self.since

    def try_commit(self, stores):
        self.other.notify("tpc_begin", TXN, b"", b"", {}, None, " ")
        for oid, serial, data in stores:
            self.other.notify("storea", oid, serial, data, TXN)
        if self.other.call("vote", TXN):
            self.other.call("tpc_abort", TXN)
            return False
        self.other.call("tpc_finish", TXN)
        return True

    def close(self):
        for wire in (self.before, self.other, self.victim):
            wire.close()


@pytest.mark.parametrize("way", ["FIN", "RST"])
def test_what_a_client_held_is_free_as_soon_as_its_connection_is_gone(
    tmp_path, start, encoding, transport, way
):
    server, address = start(timeout=LONG_TIMEOUT)
    slowest = 0
    for number, point in enumerate(POINTS):
        case = Case(address, number, point)
        case.go()
        (case.victim.close if way == "FIN" else case.victim.reset)()
        case.let_go()
        took = case.next_commit()
        slowest = max(slowest, took)
        case.close()
    print(f"{encoding} {transport} {way}: the next commit at most {slowest * 1000:.1f} ms later")
    assert_whole(tmp_path, server)


def test_what_a_silent_client_held_is_free_when_its_time_is_over(
    tmp_path, start, encoding, transport
):
    server, address = start(timeout=TIMEOUT)
    cases = [Case(address, number, point) for number, point in enumerate(POINTS)]
    for case in cases:
        case.go()
        case.let_go()
    # First those that never held anything: nobody waits for them.
    for case in sorted(cases, key=lambda case: case.point in LOCKED_POINTS):
        took = case.next_commit()
        if case.point in LOCKED_POINTS:
            assert took > TIMEOUT * 0.9, case.point
            print(f"{encoding} {transport} {case.point}: free after {took:.3f} s")
    for case in cases:
        case.close()
    assert_whole(tmp_path, server)


def assert_whole(tmp_path, server):
    assert server.stop() == 0
    path = tmp_path / "Data.fs"
    files.check(path)
    for transaction in files.read(path):
        if transaction.records[0].data == b"dead":
            assert len(transaction.records) == 2


@pytest.mark.parametrize("stopped", [0.3, 3])
def test_a_stop_of_the_server_is_not_held_against_its_clients(
    tmp_path, start_server, wire, stopped
):
    """What a client has sent in time is done, however long the server did not look."""
    server = start_server(None, "--transaction-timeout=2")
    holder, waiter = wire(server), wire(server)
    for client in (holder, waiter):
        client.notify("tpc_begin", TXN, b"", b"", {}, None, " ")
        client.notify("storea", Z64, Z64, b"data", TXN)
    assert len(holder.call("vote", TXN)) == 0
    waiting = waiter.request("vote", TXN)
    with server.frozen():
        finishing = holder.request("tpc_finish", TXN)
        time.sleep(stopped)
    tid = holder.reply(finishing)
    (conflict,) = waiter.reply(waiting)
    assert conflict["serials"][0] == tid
    waiter.call("tpc_abort", TXN)
    assert waiter.call("loadBefore", Z64, MAXTID) == (b"data", tid, None)
