"""Loads of what is not in memory: through the workers' rings (io_uring), and by threads.

The file is taken out of the system's memory, and the server has no cache of its own.
"""

import concurrent.futures
import contextlib
import threading
import time

import pytest
import ZODB.FileStorage
from harness import rings
from harness.damage import flip
from harness.monitor import Monitor
from harness.wire import MAXTID, Wire
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64

pytestmark = pytest.mark.zodium

SIZES = [100, 3_000, 5_000, 20_000, 100_000]
LARGE = 600_000  # threads read it, whatever reads the rest
OBJECTS = 120
CLIENTS = 6  # each asks for all objects at once, which is more than a ring takes

needs_rings = pytest.mark.skipif(not rings.are_allowed(), reason="io_uring is forbidden here")


def data_of(number, round=0):
    size = LARGE if number == OBJECTS - 1 else SIZES[number % len(SIZES)]
    return (b"%d %d;" % (number, round) * size)[:size]


def store_all(storage, round=0, serials=None):
    """A revision of each object, in two transactions; their serials."""
    stored = {}
    for numbers in (range(OBJECTS // 2), range(OBJECTS // 2, OBJECTS)):
        txn = TransactionMetaData()
        storage.tpc_begin(txn)
        for number in numbers:
            serial = serials[number] if serials else b"\0" * 8
            storage.store(p64(number), serial, data_of(number, round), "", txn)
        storage.tpc_vote(txn)
        stored.update(dict.fromkeys(numbers, storage.tpc_finish(txn)))
    return stored


@pytest.fixture
def path(tmp_path, start_server):
    """A file of two revisions of each object, which a server has covered with checksums."""
    path, monitor = tmp_path / "Data.fs", Monitor()
    storage = ZODB.FileStorage.FileStorage(str(path))
    store_all(storage, 1, store_all(storage))
    storage.close()
    first = start_server(path, *monitor.options)
    monitor.wait_until(
        lambda status: (
            status["storages"][0]["checksums"]["covered_bytes"]
            == status["storages"][0]["size_bytes"]
        )
    )
    first.stop()
    return path


def evict(path):
    for suffix in (".index", ".checksums"):
        with contextlib.suppress(FileNotFoundError):
            rings.evict(path.with_name(path.name + suffix))
    if not rings.evict(path):
        pytest.skip("this file system keeps its files in memory")


def serve(start_server, path, how, *options, **how_started):
    words = ("--cache-size=0", f"--cold-reads={how}", *options)
    return start_server(path, *words, **how_started)


def load_all(server, before=MAXTID):
    """Asks for all objects at once; the answers in order, of errors what the server says."""
    with Wire(server.address) as wire:
        wire.register()
        asked = [wire.request("loadBefore", p64(number), before) for number in range(OBJECTS)]
        answers = {}
        while len(answers) < OBJECTS:
            number, _, name, args = wire.receive()
            if name == ".reply":
                answers[number] = args
        return [answers[number] for number in asked]


def check(answers, round=1, but=()):
    for number, answer in enumerate(answers):
        assert number in but or answer[0] == data_of(number, round), number


@needs_rings
@pytest.mark.parametrize("how", ["auto", "ring", "threads"])
def test_what_is_not_in_memory_is_read_as_asked(path, start_server, how):
    server = serve(start_server, path, how)
    before = rings.reads_of(server.process.pid)
    evict(path)
    answers = load_all(server)
    check(answers)
    used = rings.reads_of(server.process.pid) - before
    assert (used > 0) == (how != "threads")
    evict(path)
    # Revisions before those: the newer ones are looked at first.
    check(load_all(server, answers[0][1]), round=0)
    assert server.stop() == 0


def test_without_io_uring_threads_read_or_the_server_says_why_not(path, start_server):
    server = serve(start_server, path, "auto", prefix=rings.WITHOUT)
    evict(path)
    check(load_all(server))
    assert server.stop() == 0
    refused = serve(start_server, path, "ring", prefix=rings.WITHOUT, wait=False)
    assert refused.process.wait(30) != 0
    assert "--cold-reads=auto" in refused.log()


@needs_rings
def test_a_damaged_record_is_an_error_and_the_others_are_read(path, start_server):
    position = path.read_bytes().rindex(data_of(7, 1))
    flip(path, position + 11)
    server = serve(start_server, path, "ring")
    evict(path)
    answers = load_all(server)
    check(answers, but=[7])
    assert "checksum" in str(answers[7])
    server.stop()
    by_threads = serve(start_server, path, "threads")
    assert load_all(by_threads)[7] == answers[7]


@needs_rings
def test_loads_of_many_clients_are_answered_while_packs_replace_the_file(path, start_server):
    server = serve(start_server, path, "ring", "--no-pack-gc")
    packed = threading.Event()

    def load_until_packed():
        while True:
            is_last = packed.is_set()
            check(load_all(server))
            if is_last:
                return

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load_until_packed) for _ in range(CLIENTS)]
        try:
            with Wire(server.address, seconds=60) as wire:
                wire.register()
                for _ in range(3):
                    # There is something to pack.
                    _, serial, _ = wire.call("loadBefore", p64(0), MAXTID)
                    wire.commit(b"t", [(p64(0), serial, data_of(0, 1))])
                    rings.evict(path, tries=1)
                    wire.call("pack", time.time(), True)
                    rings.evict(path, tries=1)
        finally:
            packed.set()
        for client in clients:
            client.result(60)
    assert server.stop() == 0


@needs_rings
def test_connections_that_end_during_their_loads_harm_no_others(path, start_server):
    server = serve(start_server, path, "ring")
    for _ in range(5):
        evict(path)
        leaving = Wire(server.address)
        leaving.register()
        for number in range(OBJECTS):
            leaving.request("loadBefore", p64(number), MAXTID)
        leaving.reset()
        check(load_all(server))
    evict(path)
    with Wire(server.address) as last:
        last.register()
        for number in range(OBJECTS):
            last.request("loadBefore", p64(number), MAXTID)
        assert server.stop() == 0
