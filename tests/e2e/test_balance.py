"""Few workers serve many clients; connections move to others under load, and no client notices."""

import concurrent.futures
import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import ZODB
import ZODB.FileStorage
from harness import files, filler
from harness.monitor import Monitor
from harness.wire import MAXTID, Z64, Wire

TESTS = Path(__file__).resolve().parents[1]
PROCESSES = 2
ITEMS = 4_000
READERS = 4
LARGE = b"L" * 100_000
AT_ONCE = 20  # requests of a reader in flight: the server always has some


@pytest.fixture
def balanced(monkeypatch, start_server, tmp_path):
    """A server with four workers that balances, as by default; and its monitor."""
    monkeypatch.delenv("ZODIUM_NO_BALANCE")
    monitor = Monitor()
    return start_server(tmp_path / "Data.fs", "--workers=4", *monitor.options), monitor


def read_all_the_time(address, oid, going):
    with Wire(address, seconds=60) as wire:
        wire.register()
        while going.is_set():
            for request in [wire.request("loadBefore", oid, MAXTID) for _ in range(AT_ONCE)]:
                data, _, _ = wire.reply(request)
                assert data == LARGE


@contextlib.contextmanager
def readers(address):
    """Several connections that read a large object all the time."""
    with Wire(address) as wire:
        wire.register()
        oid = wire.call("new_oids")[0]
        wire.commit(1, [(oid, Z64, LARGE)])
    going = threading.Event()
    going.set()
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        reading = [pool.submit(read_all_the_time, address, oid, going) for _ in range(READERS)]
        try:
            yield
        finally:
            going.clear()
        for one in reading:
            one.result()


def test_clients_move_to_other_workers_under_load(balanced, tmp_path):
    server, monitor = balanced
    filler.prepare(*server.address)
    words = [sys.executable, "-m", "harness.filler", *map(str, server.address)]
    fillers = [
        subprocess.Popen([*words, str(n), str(PROCESSES), str(ITEMS)], cwd=TESTS)
        for n in range(PROCESSES)
    ]
    try:
        with readers(server.address):
            monitor.wait_until(lambda status: status["network"]["moved"] >= 2, seconds=120)
            assert [process.wait(timeout=300) for process in fillers] == [0] * PROCESSES
    finally:
        for process in fillers:
            process.kill()
    assert server.stop() == 0

    files.check(tmp_path / "Data.fs")
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(tmp_path / "Data.fs")))
    with database.transaction() as connection:
        app = connection.root()["app"]
        assert list(app["by number"].items()) == [(n, filler.text_of(n)) for n in range(ITEMS)]
        assert dict(app["by name"]) == {filler.text_of(n): n for n in range(ITEMS)}
    database.close()


def test_connections_stay_where_they_are_without_balancing(monkeypatch, start_server, tmp_path):
    monkeypatch.setenv("ZODIUM_NO_BALANCE", "1")
    monitor = Monitor()
    server = start_server(tmp_path / "Data.fs", "--workers=4", *monitor.options)
    with readers(server.address):
        after = monitor.status()["network"]["bytes_sent"] + 400 * len(LARGE)
        status = monitor.wait_until(lambda s: s["network"]["bytes_sent"] > after, seconds=120)
        assert status["network"]["moved"] == 0
