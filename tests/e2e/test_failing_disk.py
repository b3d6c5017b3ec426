"""Syncs and writes fail, space runs out, syncs take long: what clients and operators notice.

The server is the real one, its clients are stock; what fails is what it asks the system for
(harness/failing_disk.py), or a file system that is full.
"""

import errno
import json
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from harness import files
from harness.failing_disk import ALWAYS, FailingDisk
from harness.files import oid_of
from harness.monitor import Monitor
from harness.waiting import WAIT_SECONDS
from harness.wire import MAXTID, Z64
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError, StorageError

FAILED_EARLIER = "an earlier write failed"

pytestmark = pytest.mark.zodium


@pytest.fixture
def disk(tmp_path):
    return FailingDisk(tmp_path, tmp_path / "Data.fs")


@pytest.fixture
def monitor():
    return Monitor()


@pytest.fixture
def start(start_server, disk, monitor):
    """start(options): a server on the failing disk, with a monitor."""
    return lambda *options: start_server(
        disk.data_file, *monitor.options, *options, prefix=disk.prefix
    )


def commit(client, number, data):
    """Commit one new object; the tid."""
    txn = TransactionMetaData()
    client.tpc_begin(txn)
    try:
        client.store(oid_of(number), Z64, data, "", txn)
        client.tpc_vote(txn)
        return client.tpc_finish(txn)
    except StorageError:
        client.tpc_abort(txn)
        raise


def refusal(client, number, data=b"refused"):
    """Why a commit is refused."""
    with pytest.raises(StorageError) as refused:
        commit(client, number, data)
    return str(refused.value)


def commit_once_possible(client, number, data, seconds=WAIT_SECONDS):
    """Commit as soon as that is not refused for an earlier failure; the tid."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return commit(client, number, data)
        except StorageError as refused:
            assert FAILED_EARLIER in str(refused)
            assert time.monotonic() < deadline, "commits stay refused"
        time.sleep(0.05)


def health(monitor):
    """Code and complaints of the health page."""
    code, _, body = monitor.fetch("/health")
    return code, " ".join(json.loads(body)["reasons"])


def wait_for_health(monitor, code, words, seconds=WAIT_SECONDS):
    """Waits until the health page has this code, and complaints that fit `words`; gives them."""
    deadline = time.monotonic() + seconds
    while True:
        found = health(monitor)
        if found[0] == code and re.search(words, found[1]):
            return found[1]
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def write_figures(monitor):
    """Write failures and reopenings that are counted."""
    samples = monitor.samples()
    return samples["zodium_write_failures_total"], samples["zodium_reopenings_total"]


def complaints(server):
    """What the log tells as a warning or an error."""
    return [line for line in server.log().splitlines() if re.search(" (WARN|ERROR) ", line)]


def assert_holds(path, expected):
    """The file holds these objects, each by the transaction of this tid, and nothing else."""
    files.check(path)
    found = {
        record.oid: (record.data, txn.tid) for txn in files.read(path) for record in txn.records
    }
    assert found == {oid_of(number): revision for number, revision in expected.items()}


@pytest.mark.parametrize(
    "failure",
    [{"syncs": 1}, {"writes": 1}, {"writes": 1, "error": errno.ENOSPC}],
    ids=["sync", "write", "full"],
)
def test_what_fails_once_is_refused_and_commits_go_on_without_a_restart(
    disk, monitor, start, connect, failure
):
    server = start()
    client = connect(server)
    kept = {1: (b"before", commit(client, 1, b"before"))}
    disk.set(**failure)
    reason = refusal(client, 2)
    assert str(disk.data_file) in reason and "os error" in reason
    assert disk.failures_left() == (0, 0)
    reader = connect(server)
    assert reader.loadBefore(oid_of(1), MAXTID) == (*kept[1], None), "reads go on"
    kept[3] = b"after", commit_once_possible(client, 3, b"after")
    assert write_figures(monitor) == (1, 1)
    assert health(monitor) == (200, "")
    with pytest.raises(POSKeyError):
        connect(server).loadBefore(oid_of(2), MAXTID)
    (line,) = complaints(server)
    assert "commits are refused from now on, reads go on; the file will be reopened in 1 s" in line
    assert "reopened the file after a failed write, commits are taken again" in server.log()
    server.kill()
    assert_holds(disk.data_file, kept)
    client = connect(start())
    with pytest.raises(POSKeyError):
        client.loadBefore(oid_of(2), MAXTID)
    assert client.loadBefore(oid_of(3), MAXTID) == (*kept[3], None)


def test_while_syncs_fail_commits_are_refused_and_everybody_is_told_why(
    disk, monitor, start, connect
):
    server = start()
    client = connect(server)
    kept = {1: (b"before", commit(client, 1, b"before"))}
    disk.set(syncs=ALWAYS)
    refusal(client, 2)
    assert FAILED_EARLIER in refusal(client, 3)
    told = wait_for_health(monitor, 503, "reopening failed [1-9][0-9]* times")
    assert "storage 1 refuses commits since a write failed" in told
    assert "the file will be reopened in" in told
    assert FAILED_EARLIER in refusal(client, 4)
    assert connect(server).loadBefore(oid_of(1), MAXTID) == (*kept[1], None)
    assert write_figures(monitor) == (1, 0)
    assert monitor.samples()["zodium_storage_healthy"] == 0
    assert any("not reopened, commits stay refused" in line for line in complaints(server))
    disk.set()
    kept[5] = b"after", commit_once_possible(client, 5, b"after")
    assert write_figures(monitor) == (1, 1)
    assert health(monitor) == (200, "")
    assert server.stop() == 0
    assert_holds(disk.data_file, kept)


def test_without_reopening_commits_stay_refused_until_the_operator_asks(
    disk, monitor, start, connect
):
    server = start("--no-reopen")
    client = connect(server)
    kept = {1: (b"before", commit(client, 1, b"before"))}
    disk.set(syncs=1)
    refusal(client, 2)
    time.sleep(1.5)  # by itself it would have been reopened after one second
    assert FAILED_EARLIER in refusal(client, 3)
    code, told = health(monitor)
    assert code == 503 and "send SIGUSR1" in told
    server.process.send_signal(signal.SIGUSR1)
    kept[4] = b"after", commit_once_possible(client, 4, b"after")
    assert write_figures(monitor) == (1, 1)
    assert "SIGUSR1, reopening the file" in server.log()
    disk.set(syncs=1)
    refusal(client, 5)
    assert server.stop() == 0
    assert_holds(disk.data_file, kept)
    server = start("--no-reopen")
    kept[6] = b"after a restart", commit(connect(server), 6, b"after a restart")
    assert server.stop() == 0
    assert_holds(disk.data_file, kept)


def test_what_the_device_has_lost_is_named_and_commits_stay_refused(disk, monitor, start, connect):
    server = start()
    client = connect(server)
    kept = {1: (b"before", commit(client, 1, b"before"))}
    position = disk.data_file.read_bytes().index(b"before")
    # Always: the file must not be reopened before it is changed.
    disk.set(syncs=ALWAYS)
    refusal(client, 2)
    put(disk.data_file, position, b"B")
    disk.set()
    told = wait_for_health(monitor, 503, "the device does not hold")
    assert re.search(r"position \d+|offset \d+|at \d+", told), told
    assert "send SIGUSR1" in told
    assert FAILED_EARLIER in refusal(client, 3)
    assert connect(server).loadBefore(oid_of(1), MAXTID) == (*kept[1], None), "from memory"
    put(disk.data_file, position, b"b")
    server.process.send_signal(signal.SIGUSR1)
    kept[4] = b"after", commit_once_possible(client, 4, b"after")
    assert server.stop() == 0
    assert_holds(disk.data_file, kept)


def put(path, position, data):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_full_disk_refuses_votes_of_stock_clients_and_goes_on_when_there_is_room(
    tmp_path, tiny_disk, monitor, start_server, connect
):
    path = tmp_path / "small" / "Data.fs"
    server = start_server(path, *monitor.options, prefix=tiny_disk)
    small = Path(f"/proc/{server.process.pid}/root{path.parent}")
    (small / "ballast").write_bytes(bytes(600_000))
    client = connect(server)
    kept = {1: (b"small", commit(client, 1, b"small"))}
    for number in range(2, 100):
        data = bytes(50_000)
        try:
            kept[number] = data, commit(client, number, data)
        except StorageError as refused:
            assert "no space left" in str(refused)
            break
    else:
        pytest.fail("the disk never became full")
    assert connect(server).loadBefore(oid_of(1), MAXTID) == (*kept[1], None)
    code, told = health(monitor)
    assert code == 503 and "no space left" in told
    for _ in range(5):
        assert "no space left" in refusal(client, 101, data)
    (small / "ballast").unlink()
    kept[100] = data, commit(client, 100, data)
    (said,) = complaints(server)
    assert " WARN " in said and "no space left" in said and str(path) in said
    assert server.log().count("there is space again, commits are accepted") == 1
    assert write_figures(monitor) == (0, 0), "a full disk is no failure"
    assert health(monitor) == (200, "")
    copy = tmp_path / "copy.fs"
    copy.write_bytes((small / "Data.fs").read_bytes())
    assert server.stop() == 0
    assert_holds(copy, kept)


def test_reads_do_not_wait_for_slow_syncs_and_nobody_is_timed_out(
    disk, monitor, start, connect, wire
):
    """Syncs take longer than a transaction may between vote and finish."""
    sync_seconds, clients_count = 1.2, 8
    server = start("--transaction-timeout=1")
    clients = [connect(server) for _ in range(clients_count)]
    commit(clients[0], 1, b"read by all")
    disk.set(sync_seconds=sync_seconds)
    tids = []
    threads = [
        threading.Thread(target=lambda each: tids.append(commit(*each)), args=[each])
        for each in zip(clients, range(2, 2 + clients_count), [b"slow"] * clients_count)
    ]
    for thread in threads:
        thread.start()
    reader, seconds = wire(server), []
    while any(thread.is_alive() for thread in threads):
        started = time.monotonic()
        reader.call("loadBefore", oid_of(1), MAXTID)
        seconds.append(time.monotonic() - started)
        time.sleep(0.001)
    assert len(set(tids)) == clients_count
    p99 = sorted(seconds)[len(seconds) * 99 // 100]
    print(f"p99 of {len(seconds)} reads: {p99 * 1000:.2f} ms")
    syncs = monitor.samples()["zodium_sync_duration_seconds_count"]
    assert syncs <= 1 + 4, "commits that wait share a sync"
    # A read that waited for a sync would be one for each sync.
    assert len(seconds) > 10 * syncs
    assert complaints(server) == []
    assert server.stop() == 0
