"""Starting, stopping, and who may open the file: locks, signals, torn tails."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import zc.lockfile
import ZODB.FileStorage
from harness import files
from harness.process import START_SECONDS, ServerFailed
from harness.servers import COMMAND, IS_ZODIUM, STOCK_SERVER, spawn
from harness.waiting import wait_for
from harness.wire import MAXTID, Z64, Closed, ErrorReply, Wire

STOP_SECONDS = 15  # before the harness would kill it
STARTED_SECONDS = START_SECONDS
RUNZEO = f"{STOCK_SERVER} -C {{config}}"
TRANSACTION_HEADER = 23  # bytes


def commit(server, count, wire=None):
    """Commit `count` transactions of one object each; their tids."""
    with wire or Wire(server.address) as client:
        client.register()
        stores = ((files.oid_of(number), Z64, b"data %d" % number) for number in range(count))
        return [client.commit(number, [store]) for number, store in enumerate(stores)]


# ------------------------------------------------------------------------ the lock


def test_a_second_server_is_refused_and_told_the_owner(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    first = start_server(path)
    with pytest.raises(ServerFailed) as refused:
        second = start_server(path)
        # It may have listened for a moment before it looked at the file.
        second.process.wait(STARTED_SECONDS)
        raise ServerFailed(second.log())
    assert "lock" in str(refused.value).lower()
    assert str(first.process.pid) in str(refused.value) or not IS_ZODIUM
    assert wire(first).call("ping") is None


def test_the_stock_storage_is_refused_while_the_server_serves(tmp_path, start_server):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    with pytest.raises(zc.lockfile.LockError):
        ZODB.FileStorage.FileStorage(str(path))
    owner = path.with_name("Data.fs.lock").read_text().splitlines()[0]
    assert owner.split() == [str(server.process.pid)]
    ZODB.FileStorage.FileStorage(str(path), read_only=True).close()
    server.stop()
    ZODB.FileStorage.FileStorage(str(path)).close()


def test_the_server_is_refused_while_the_stock_storage_is_open(tmp_path, start_server):
    path = tmp_path / "Data.fs"
    storage = ZODB.FileStorage.FileStorage(str(path))
    try:
        server = start_server(path, wait=False)
        assert server.process.wait(STARTED_SECONDS) != 0
        assert "lock" in server.log().lower()
        assert str(os.getpid()) in server.log() or not IS_ZODIUM
    finally:
        storage.close()


@pytest.mark.zodium
@pytest.mark.parametrize(
    ("first", "second"),
    [(COMMAND, COMMAND), (COMMAND, RUNZEO), (RUNZEO, COMMAND)],
    ids=["zodium-zodium", "zodium-stock", "stock-zodium"],
)
def test_a_second_server_is_refused_and_the_first_commits_on(tmp_path, first, second):
    path = tmp_path / "Data.fs"
    serving = spawn(first, path)
    try:
        with Wire(serving.address) as client:
            client.register()
            tid = Z64
            for number in range(1 if second == RUNZEO else 3):
                tid = client.commit(number, [(Z64, tid, b"%d" % number)])
                refused = spawn(second, path, wait=False)
                assert refused.process.wait(STARTED_SECONDS) != 0
                assert "lock" in refused.log().lower()
            assert client.call("loadBefore", Z64, MAXTID) == (b"%d" % number, tid, None)
    finally:
        serving.kill()
    files.check(path)


def test_a_killed_server_leaves_no_lock(tmp_path, start_server):
    path = tmp_path / "Data.fs"
    start_server(path).kill()
    assert commit(start_server(path), 1)


# ----------------------------------------------------------------------- stopping


# The stock server leaves what was voted and not finished at the end of the file.
@pytest.mark.zodium
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_under_load_ends_it_in_time_with_the_index_saved(
    tmp_path, start_server, seeded, number
):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    acknowledged, threads = [], []
    for client in range(4):
        thread = threading.Thread(target=commit_until_closed, args=(server, client, acknowledged))
        thread.start()
        threads.append(thread)
    wait_for(lambda: len(acknowledged) > 10, "some commits")
    time.sleep(seeded.uniform(0, 0.5))
    asked = time.monotonic()
    server.process.send_signal(number)
    assert server.process.wait(STOP_SECONDS) == 0
    assert time.monotonic() - asked < STOP_SECONDS
    for thread in threads:
        thread.join(20)
    found = files.read(path)
    assert {txn.tid for txn in found} >= set(acknowledged)
    files.check(path)
    # The index is whole: it reaches to the end of the file.
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    index, end, last = storage._restore_index()
    storage.close()
    assert (end, last) == (path.stat().st_size, found[-1].tid)
    assert len(index) == len({record.oid for txn in found for record in txn.records})


def commit_until_closed(server, client, acknowledged):
    oid, serial = files.oid_of(client), Z64
    try:
        with Wire(server.address, seconds=30) as wire:
            wire.register()
            for number in range(1 << 20):
                serial = wire.commit(number, [(oid, serial, b"data %d" % number)])
                acknowledged.append(serial)
    except (Closed, ConnectionError, ErrorReply):
        pass


def test_a_stop_with_idle_and_half_open_clients_is_quick(tmp_path, start_server, wire):
    server = start_server(tmp_path / "Data.fs")
    wire(server)
    half_open = Wire(server.address, handshake=False)
    begun = wire(server)
    begun.notify("tpc_begin", 1, b"", b"", {}, None, " ")
    begun.notify("storea", Z64, Z64, b"never finished", 1)
    begun.call("vote", 1)
    asked = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - asked < STOP_SECONDS
    half_open.close()
    assert files.read(tmp_path / "Data.fs") == []


def test_the_second_start_serves_the_same(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    tids = commit(server, 5)
    server.stop()
    client = wire(start_server(path))
    assert client.register_tid == tids[-1]
    for number, tid in enumerate(tids):
        loaded = client.call("loadBefore", files.oid_of(number), MAXTID)
        assert loaded == (b"data %d" % number, tid, None)


# ------------------------------------------------------------------------ torn tails


def torn(path, start_server, cut):
    """A file whose last transaction is cut `cut` bytes short; (tids, bytes left over)."""
    server = start_server(path)
    with Wire(server.address) as wire:
        wire.register()
        tids = [wire.commit(1, [(Z64, Z64, b"whole")])]
        whole = path.stat().st_size
        tids.append(wire.commit(2, [(files.oid_of(1), Z64, b"torn" * 10)]))
    server.kill()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - cut])
    path.with_name("Data.fs.index").unlink(missing_ok=True)
    return tids, whole, content[whole : len(content) - cut]


@pytest.mark.parametrize("cut", [1, 8, 9, 30, 90, 100])
def test_an_unfinished_tail_is_kept_aside_and_cut(tmp_path, start_server, wire, cut):
    path = tmp_path / "Data.fs"
    tids, whole, tail = torn(path, start_server, cut)
    client = wire(start_server(path))
    assert client.register_tid in tids
    assert path.stat().st_size == whole
    if len(tail) >= TRANSACTION_HEADER:  # less says nothing of a transaction
        assert path.with_name("Data.fs.tr0").read_bytes() == tail
    with pytest.raises(ErrorReply):
        client.call("loadBefore", files.oid_of(1), MAXTID)
    after = client.commit(3, [(files.oid_of(1), Z64, b"again")])
    assert [txn.tid for txn in files.read(path)] == [tids[0], after]


def test_a_voted_transaction_that_was_not_finished_is_cut(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    tids, whole, _ = torn(path, start_server, 0)
    with open(path, "r+b") as data:
        data.seek(whole + 16)
        data.write(b"c")
    client = wire(start_server(path))
    assert client.register_tid in tids
    assert path.stat().st_size == whole


def test_tails_of_several_crashes_are_all_kept(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    for number in range(3):
        path.unlink(missing_ok=True)
        torn(path, start_server, 1)
        wire(start_server(path)).call("ping")
        # The lock is the running server's: end it before the next round.
        for server in start_server.servers:
            server.kill()
        assert path.with_name(f"Data.fs.tr{number}").exists()


# ------------------------------------------------------------------------ full disk


def test_a_full_disk_refuses_commits_and_goes_on(tmp_path, tiny_disk, start_server, wire):
    """Reads go on, nothing is half there, and commits work again when there is room."""
    server = start_server(tmp_path / "small" / "Data.fs", prefix=tiny_disk)
    small = Path(f"/proc/{server.process.pid}/root{tmp_path}/small")
    ballast = small / "ballast"
    ballast.write_bytes(bytes(600_000))
    client = wire(server)
    first = client.commit(1, [(Z64, Z64, b"small")])
    assert fill(client), "the disk never became full"
    other = wire(server)
    assert other.call("loadBefore", Z64, MAXTID) == (b"small", first, None)
    ballast.unlink()
    tid = wire(server).commit(2, [(files.oid_of(99_999), Z64, b"room again" * 1000)])
    copy = tmp_path / "copy.fs"
    copy.write_bytes((small / "Data.fs").read_bytes())
    assert server.stop() == 0
    files.check(copy)
    assert files.read(copy)[-1].tid == tid


def fill(client):
    """Commit 50 kB at a time until that is refused; the refusal."""
    for number in range(1, 100):
        txn = 100 + number
        client.notify("tpc_begin", txn, b"", b"", {}, None, " ")
        client.notify("storea", files.oid_of(number), Z64, bytes(50_000), txn)
        try:
            client.call("vote", txn)
        except ErrorReply as refused:
            client.call("tpc_abort", txn)
            return refused
        client.call("tpc_finish", txn)
    return None
