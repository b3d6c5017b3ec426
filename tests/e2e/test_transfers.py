"""Clients move money between accounts while their server is killed, stopped, frozen, exchanged.

Every transaction must be there wholly or not at all, once, and must be there when a client
was told so; harness/bank.py judges the log, harness/teller.py are the clients.

ZODIUM_TEST_LARGE=1    200 kills with up to 64 clients, and an hour of counting
KILLS                  how often the server is killed in each test that kills it
COUNT_SECONDS          how long counters are counted
ZODIUM_PREVIOUS_COMMAND  another version, as ZODIUM_SERVER_COMMAND; else the stock server
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import bank, files
from harness.process import STOP_SECONDS
from harness.servers import BINARY, COMMAND, IS_ZODIUM, STOCK_SERVER, spawn
from harness.waiting import wait_for
from harness.wire import Wire

TESTS = Path(__file__).resolve().parents[1]
IS_LONG = os.environ.get("ZODIUM_TEST_LARGE") == "1"
KILLS = int(os.environ.get("KILLS") or (200 if IS_LONG else 5))
SECONDS = float(os.environ.get("COUNT_SECONDS") or (3600 if IS_LONG else 2))
PREVIOUS = os.environ.get("ZODIUM_PREVIOUS_COMMAND") or f"{STOCK_SERVER} -C {{config}}"
PROCESSES = 4
ACCOUNTS = 400
FOREVER = 1e6  # seconds: until the server goes away
TIMEOUT_SECONDS = 3  # of clients that run on a busy machine
STALL_SECONDS = 60  # without any commit: nothing moves any more


class Tellers:
    """Client processes, and the bank that judges what they were told."""

    def __init__(self, folder, accounts=ACCOUNTS, clients=16, seed=0, options=()):
        self.bank = bank.Bank(accounts)
        self.clients = clients
        self.journals = [folder / f"journal-{number}" for number in range(PROCESSES)]
        self.processes = []
        share = clients // PROCESSES
        for number, journal in enumerate(self.journals):
            words = [number * share, share, accounts, seed, journal, *options]
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "harness.teller", *map(str, words)],
                    cwd=TESTS,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )

    def open_accounts(self, server, random):
        with Wire(server.address) as wire:
            wire.register()
            bank.open_accounts(wire, self.bank.accounts, random)
        for journal in self.journals:
            journal.touch()

    def send(self, server, seconds=FOREVER):
        """All clients go to this server."""
        for process in self.processes:
            process.stdin.write(f"{server.address[0]} {server.port} {seconds}\n")
            process.stdin.flush()

    def gather(self):
        """Wait until all clients are back; their counts so far."""
        told = [json.loads(process.stdout.readline()) for process in self.processes]
        return {key: sum(counts[key] for counts in told) for key in told[0]} | {
            "longest": max(counts["longest"] for counts in told)
        }

    def wait_for_work(self, count, since=None):
        """Return when `count` more transactions were acknowledged than at `since`."""
        size = self.written() if since is None else since
        bytes_min = count * 100  # a line has more
        wait_for(lambda: self.written() - size >= bytes_min, "acknowledgements", STALL_SECONDS)

    def written(self):
        return sum(journal.stat().st_size for journal in self.journals)

    def judge(self, path):
        self.bank.read(path)
        self.bank.compare(self.journals)

    def judge_served(self, server, random):
        """The server has what the log has: all books, and some accounts."""
        books = [bank.book(client) for client in range(self.clients)]
        accounts = [bank.account(n) for n in random.sample(range(self.bank.accounts), 8)]
        with Wire(server.address) as wire:
            last = wire.register()
            # The stock server may name a tid that it has cut off: of an unfinished transaction.
            is_stock = STOCK_SERVER in server.words
            assert last >= self.bank.last if is_stock else last == self.bank.last
            self.bank.compare_served(wire, books + accounts)

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            assert process.wait(30) == 0


@pytest.fixture
def tellers(tmp_path, seeded):
    """tellers(clients, ...): client processes; ended with the test."""
    started = []

    def start(**how):
        started.append(Tellers(tmp_path, seed=seeded.randrange(1 << 20), **how))
        return started[-1]

    yield start
    for each in started:
        for process in each.processes:
            process.kill()
            process.wait()


@pytest.fixture
def serve(tmp_path):
    """serve(command, *options): a server on this test's file, killed with the test."""
    servers = []

    def start(command=COMMAND, *options):
        servers.append(spawn(command, tmp_path / "Data.fs", options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
    print(servers[-1].log_tail())


def assert_whole(path, tellers):
    """Read anew from its beginning, by the stock tools and by our own."""
    files.check(path)
    anew = Tellers.__new__(Tellers)
    anew.bank, anew.journals = bank.Bank(tellers.bank.accounts), tellers.journals
    anew.judge(path)
    assert anew.bank.digests == tellers.bank.digests
    if IS_ZODIUM:
        checked = subprocess.run([BINARY, "check", str(path)], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def kill_again_and_again(path, serve, tellers, commands, random):
    """(seconds from each start to its first answer) over KILLS kills."""
    starts = []
    server = serve(commands[0])
    tellers.open_accounts(server, random)
    for number in range(1, KILLS + 1):
        tellers.send(server)
        tellers.wait_for_work(random.randrange(20, 100))
        time.sleep(random.uniform(0, 0.02))
        server.kill()
        counts = tellers.gather()
        tellers.judge(path)
        before = time.monotonic()
        server = serve(commands[number % len(commands)])
        with Wire(server.address) as wire:
            wire.register()
        starts.append(time.monotonic() - before)
        tellers.judge_served(server, random)
    tellers.close()
    assert server.stop() == 0
    tellers.judge(path)
    print(
        f"{KILLS} kills, {len(tellers.bank.digests)} transactions, {counts}, "
        f"slowest start {max(starts):.2f} s"
    )
    return counts


def test_nothing_is_lost_or_half_done_however_often_the_server_is_killed(
    tmp_path, serve, tellers, seeded
):
    path = tmp_path / "Data.fs"
    clients = 64 if IS_LONG else 16
    group = tellers(clients=clients, options=("--cuts", "0.02"))
    counts = kill_again_and_again(path, serve, group, [COMMAND], seeded)
    assert_whole(path, group)
    assert counts["acknowledged"] >= 20 * KILLS
    assert group.bank.sum() == ACCOUNTS * bank.BALANCE


@pytest.mark.zodium
def test_versions_that_serve_one_file_in_turns_keep_each_others_promises(
    tmp_path, serve, tellers, seeded
):
    path = tmp_path / "Data.fs"
    group = tellers(clients=8)
    kill_again_and_again(path, serve, group, [COMMAND, PREVIOUS], seeded)
    assert_whole(path, group)


def test_a_finish_whose_answer_was_lost_is_done_once_or_never(tmp_path, serve, tellers, seeded):
    """Half of all clients hang up right after their finish, and ask what became of it."""
    path = tmp_path / "Data.fs"
    server = serve()
    group = tellers(clients=16, options=("--cuts", "0.5"))
    group.open_accounts(server, seeded)
    group.send(server, 2)
    counts = group.gather()
    group.judge(path)
    group.judge_served(server, seeded)
    print(counts)
    assert 0 < counts["there"] <= counts["asked"]
    assert group.bank.transfers() == counts["acknowledged"] + counts["there"]
    assert server.stop() == 0
    assert_whole(path, group)


def test_many_clients_in_opposite_orders_neither_deadlock_nor_lose_a_count(
    tmp_path, serve, tellers, seeded
):
    path = tmp_path / "Data.fs"
    server = serve()
    group = tellers(accounts=8, clients=64, options=("--counters",))
    group.open_accounts(server, seeded)
    group.send(server, SECONDS)
    counts = group.gather()
    group.judge(path)
    group.judge_served(server, seeded)
    print(counts)
    assert group.bank.transfers() == counts["acknowledged"] == group.bank.promised
    assert counts["longest"] < SECONDS + STALL_SECONDS
    assert_nothing_is_locked(server, group)
    assert server.stop() == 0
    assert_whole(path, group)


def assert_nothing_is_locked(server, group):
    """One transaction over all accounts is voted at once."""
    with Wire(server.address) as wire:
        wire.register()
        names = [bank.account(number) for number in range(group.bank.accounts)]
        stores = [(oid, bank.found(wire, oid)[1], b"0 ") for oid in names]
        assert not bank.is_refused(wire, 1, stores, b"")
        wire.call("tpc_abort", 1)


@pytest.mark.zodium
def test_a_stop_under_load_answers_or_aborts_what_is_under_way(tmp_path, serve, tellers, seeded):
    path = tmp_path / "Data.fs"
    server = serve()
    group = tellers(clients=32)
    group.open_accounts(server, seeded)
    for _ in range(2):
        group.send(server)
        group.wait_for_work(60)
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS) == 0
        group.gather()
        group.judge(path)
        index = path.with_name("Data.fs.index")
        assert index.stat().st_mtime_ns >= path.stat().st_mtime_ns
        server = serve()
        assert "building" not in server.log()
        group.judge_served(server, seeded)
    group.close()
    assert server.stop() == 0
    assert_whole(path, group)


def test_a_frozen_server_goes_on_where_it_was(tmp_path, serve, tellers, seeded):
    path = tmp_path / "Data.fs"
    # The stock server's own option; both count from the vote on.
    timeout = f"--transaction-timeout={TIMEOUT_SECONDS}"
    server = serve(COMMAND, *([timeout] if IS_ZODIUM else []))
    group = tellers(clients=16)
    group.open_accounts(server, seeded)
    group.send(server)
    for frozen in [0.2, 30 if IS_LONG else 2 * TIMEOUT_SECONDS]:
        group.wait_for_work(30)
        with server.frozen():
            time.sleep(frozen)
            size = group.written()
        group.wait_for_work(60, size)
    server.process.terminate()
    assert server.process.wait(STOP_SECONDS) == 0
    counts = group.gather()
    print(counts)
    assert "transaction timeout" not in server.log(), "no client was slow"
    group.judge(path)
    assert_whole(path, group)
