"""Clients together make the server hold no more than its memory limit: they wait, or are refused.

ZODIUM_TEST_LARGE=1 has a gigabyte of stores pending in a group of 256 MB,
instead of 256 MiB in 128 MiB.
"""

import os
import struct
import threading
import time

import pytest
from harness.memory_group import MemoryGroup
from harness.monitor import Monitor
from harness.vitals import memory_bytes
from harness.waiting import wait_for
from harness.wire import MAXTID, Z64, Closed, ErrorReply, Wire
from ZODB.utils import p64

LARGE = os.environ.get("ZODIUM_TEST_LARGE") == "1"
GROUP_BYTES = 256_000_000 if LARGE else 192 << 20
CLIENTS = 64 if LARGE else 16
CLIENT_BYTES = 16 << 20

pytestmark = pytest.mark.zodium


@pytest.fixture
def memory_group():
    try:
        group = MemoryGroup(GROUP_BYTES)
    except OSError as error:
        pytest.skip(f"no control group for memory can be made here: {error}")
    yield group
    group.remove()


def frames(wire, txn, first_oid, count, size):
    """Stores of new objects as one run of bytes."""
    marker = b"\xfe\xdc\xba\x98\x76\x54\x32\x10"
    body = wire.codec.encode((0, True, "storea", (marker, Z64, b"x" * size, txn)))
    head, tail = (struct.pack(">I", len(body)) + body).split(marker)
    return b"".join(head + p64(first_oid + number) + tail for number in range(count))


def begin(wire, txn):
    wire.notify("tpc_begin", txn, b"", b"", {}, None, " ")


# --------------------------------------------------------------------------- a group of its own


def test_pending_stores_of_many_clients_do_not_have_the_server_killed(
    memory_group, start_server, wire
):
    server = start_server(None, "--cache-size", "16MiB", prefix=memory_group.prefix)
    worker = wire(server, seconds=60)
    serial = worker.commit(1, [(p64(1), Z64, b"x")])
    writers = [Writer(server, number) for number in range(CLIENTS)]
    for writer in writers:
        writer.start()
    commits = slowest = 0
    while any(writer.is_alive() for writer in writers):
        begun = time.perf_counter()
        serial = worker.commit(2 + commits, [(p64(1), serial, b"x" * 100)])
        assert worker.call("loadBefore", p64(1), MAXTID)[1] == serial
        commits, slowest = commits + 1, max(slowest, time.perf_counter() - begun)
    pending = CLIENTS * CLIENT_BYTES >> 20
    print(f"{pending} MiB pending in {GROUP_BYTES >> 20} MiB, {commits} commits beside it")
    print(f"the slowest took {slowest:.2f} s; peak {memory_bytes(server, 'VmHWM') >> 20} MiB")
    assert server.is_running()
    assert commits > 0
    finish_all(writers, worker)


def finish_all(writers, worker):
    """Half of them commit, one after the other, and what they stored is there."""
    for writer in writers[::2]:
        assert writer.failure is None
        assert not writer.wire.call("vote", 7)
        writer.wire.call("tpc_finish", 7)
        data, _, _ = worker.call("loadBefore", p64(writer.oid), MAXTID)
        assert data == b"x" * writer.object_bytes
    for writer in writers[1::2]:
        writer.wire.call("tpc_abort", 7)
    for writer in writers:
        writer.wire.close()


class Writer(threading.Thread):
    """Stores its share, as one object or as many, and leaves the transaction open."""

    def __init__(self, server, number):
        super().__init__()
        self.wire = Wire(server.address, seconds=300)
        self.wire.register()
        self.oid = 1000 * (number + 1)
        self.objects = (1, 16, 256)[number % 3]
        self.object_bytes = CLIENT_BYTES // self.objects
        self.failure = None

    def run(self):
        try:
            begin(self.wire, 7)
            self.wire.send_raw(frames(self.wire, 7, self.oid, self.objects, self.object_bytes))
            self.wire.call("ping")
        except Exception as failure:  # told by the test
            self.failure = failure


# --------------------------------------------------------------------------- what is held


def test_a_transaction_of_countless_small_stores_is_refused_at_its_vote(start_server, wire):
    monitor = Monitor()
    server = start_server(None, *monitor.options, "--memory-limit", "4MiB")
    greedy, other = wire(server, seconds=60), wire(server)
    begin(greedy, 7)
    for part in range(10):
        greedy.send_raw(frames(greedy, 7, 1000 + 10_000 * part, 10_000, 1))
    greedy.call("ping")
    serial = other.commit(1, [(p64(1), Z64, b"small")])
    with pytest.raises(ErrorReply) as refused:
        greedy.call("vote", 7)
    name, (text,) = refused.value.args
    assert name == "ZODB.POSException.StorageSystemError"
    assert "memory-limit" in text and "4194304" in text
    assert server.log().count("a transaction is refused, since the memory limit") == 1
    # It may go on, and has left nothing.
    greedy.commit(8, [(p64(2), Z64, b"small")])
    assert other.commit(2, [(p64(1), serial, b"again")])
    assert monitor.samples()["zodium_memory_limit_bytes"] == 4 << 20
    held = "zodium_memory_held_bytes"
    wait_for(lambda: monitor.samples()[held] == 0, "nothing is held")


def test_transactions_that_nobody_finishes_are_put_aside_when_memory_is_short(start_server, wire):
    monitor = Monitor()
    server = start_server(None, *monitor.options, "--memory-limit", "8MiB")
    holders = [wire(server, seconds=60) for _ in range(20)]
    for number, holder in enumerate(holders):
        begin(holder, 7)
        holder.send_raw(frames(holder, 7, 1000 * (number + 1), 40, 64 << 10))
        holder.call("ping")
    assert monitor.samples()["zodium_memory_held_bytes"] < 8 << 20
    for holder in holders:
        assert not holder.call("vote", 7)
        holder.call("tpc_finish", 7)


def test_a_message_larger_than_the_memory_limit_ends_its_connection(start_server, wire):
    server = start_server(None, "--memory-limit", "1MiB")
    wire(server).commit(1, [(p64(1), Z64, b"x" * (900 << 10))])
    large = wire(server)
    large.send_raw(struct.pack(">I", (1 << 20) + 1) + b"x" * 100)
    with pytest.raises(Closed):
        large.receive_frame()
    assert str(1 << 20) in server.log()


def test_who_has_not_registered_gets_no_room_for_large_messages(start_server):
    server = start_server()
    with Wire(server.address) as stranger:
        stranger.send_raw(struct.pack(">I", (64 << 10) + 1) + b"x" * 100)
        with pytest.raises(Closed):
            stranger.receive_frame()


@pytest.mark.parametrize("method", ["ping", "undoInfo", "tpc_begin", "iterator_gc"])
def test_only_what_carries_data_may_be_long(start_server, wire, method):
    server = start_server()
    long = wire(server)
    long.notify(method, b"x" * (2 << 20))
    with pytest.raises(Closed):
        long.receive_frame()
    assert f"{method} with a message of" in server.log()


def test_messages_that_come_slowly_are_taken(start_server, wire):
    # Long enough for the handshake on a busy machine; the message takes longer.
    server = start_server(None, "--handshake-timeout", "2")
    slow = wire(server)
    message = frames(slow, 7, 1000, 1, 200_000)
    begin(slow, 7)
    for start in range(0, len(message), len(message) // 9):
        slow.send_raw(message[start : start + len(message) // 9])
        time.sleep(0.25)
    assert not slow.call("vote", 7)
    slow.call("tpc_finish", 7)


# --------------------------------------------------------------------------- who does not read


def test_invalidations_that_are_not_read_end_the_connection_and_nobody_elses(
    start_server, wire, tmp_path
):
    # A socket whose buffers the system keeps small.
    path = str(tmp_path / "socket")
    server = start_server(None, "--memory-limit", "8MiB", "-a", path)
    writer, reader = wire(server, seconds=60), wire(server)
    deaf = Wire(path)
    deaf.register()
    rounds = 0
    while "does not read" not in server.log():
        assert rounds < 100
        begin(writer, rounds)
        writer.send_raw(frames(writer, rounds, 1_000_000 * (rounds + 1), 20_000, 1))
        assert not writer.call("vote", rounds)
        tid = writer.call("tpc_finish", rounds)
        assert reader.call("loadBefore", p64(1_000_000 * (rounds + 1)), MAXTID)[1] == tid
        rounds += 1
    print(f"ended after {rounds} invalidations of 20,000 objects")
    with pytest.raises(Closed):
        while True:
            deaf.receive_frame()
    deaf.close()
    assert len([n for n in reader.notices if n[2] == "invalidateTransaction"]) == rounds
    assert memory_bytes(server, "VmHWM") < 256 << 20
