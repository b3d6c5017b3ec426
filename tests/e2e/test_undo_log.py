"""The undo log of a long history, cold: newest first, filtered, old transactions undone.

ZODIUM_TEST_LARGE=1 takes a million transactions instead of 50,000, and then 20
of them must be listed within 10 ms.
"""

import base64
import os
import time

import pytest
from harness import files, longfile
from harness.wire import MAXTID

LARGE = os.environ.get("ZODIUM_TEST_LARGE") == "1"
TRANSACTIONS = 1_000_000 if LARGE else 50_000


def undo_id(number):
    return base64.b64encode(longfile.tid_of(number))


@pytest.fixture
def served(tmp_path, start_server):
    path = tmp_path / "Data.fs"
    longfile.write(path, TRANSACTIONS, TRANSACTIONS // 3)
    return start_server(path)


def timed(what, call, *args):
    started = time.perf_counter()
    answer = call(*args)
    seconds = time.perf_counter() - started
    print(f"{what}: {seconds * 1e3:.2f} ms of {TRANSACTIONS} transactions")
    return answer, seconds


@pytest.mark.zodium
def test_a_long_history(served, wire):
    client = wire(served, seconds=60)
    newest, seconds = timed("undoLog(0, 20)", client.call, "undoLog", 0, 20)
    wanted = [undo_id(TRANSACTIONS - 1 - number) for number in range(20)]
    assert [entry["id"] for entry in newest] == wanted
    if LARGE:
        assert seconds < 0.01
    found, _ = timed(
        "undoInfo, few match", client.call, "undoInfo", 0, -20, {"user_name": b"user 3"}
    )
    assert [entry["user_name"] for entry in found] == [b"user 3"] * 20
    wanted = {"user_name": b"nobody"}
    found, _ = timed("undoInfo, none matches", client.call, "undoInfo", 0, -20, wanted)
    assert list(found) == []


@pytest.mark.zodium
def test_old_transactions_are_found(served, wire):
    client = wire(served, seconds=60)
    middle = TRANSACTIONS // 2
    number, _ = timed(
        "iterator_start", client.call, "iterator_start", longfile.tid_of(middle), None
    )
    (tid, *_), _ = timed("iterator_next", client.call, "iterator_next", number)
    assert tid == longfile.tid_of(middle)
    # The last that wrote an object which nothing has changed since.
    old = TRANSACTIONS - TRANSACTIONS // 3 + 10
    client.notify("tpc_begin", 1, b"", b"", {}, None, " ")
    client.notify("undoa", undo_id(old), 1)
    timed("vote of an undo", client.call, "vote", 1)
    tid = client.call("tpc_finish", 1)
    oid = files.oid_of(old % (TRANSACTIONS // 3))
    assert client.call("loadBefore", oid, MAXTID)[1] == tid
    history, _ = timed("history", client.call, "history", oid, 3)
    assert [entry["tid"] for entry in history][:2] == [tid, longfile.tid_of(old)]


@pytest.mark.zodium
def test_a_search_ends_with_its_client_and_holds_nobody_up(served, wire):
    seekers = [wire(served) for _ in range(20)]
    for seeker in seekers:
        seeker.request("undoInfo", 0, -20, {"user_name": b"nobody"})
        seeker.close()
    other = wire(served, seconds=30)
    for number in range(50):
        assert other.call("loadBefore", files.oid_of(number), MAXTID)[2] is None
    assert len(other.call("undoLog", 0, 3)) == 3
