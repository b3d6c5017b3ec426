"""Limits on what a client asks for: it waits or is told, and others go on (docs/limits.md)."""

import pytest
from harness import longfile
from harness.monitor import Monitor
from harness.vitals import memory_bytes
from harness.waiting import WAIT_SECONDS
from harness.wire import MAXTID, Z64, ErrorReply, Wire
from ZODB.utils import p64

pytestmark = pytest.mark.zodium


def replies(wire, asked):
    """What each request was answered, in whatever order."""
    answers = {}
    while len(answers) < len(asked):
        number, _, name, answer = wire.receive()
        if name == ".reply":
            answers[number] = answer
    assert set(answers) == set(asked)
    return answers


def test_iterators_of_a_client_are_limited(start_server, wire):
    greedy, other = (wire(server) for server in [start_server()] * 2)
    asked = [greedy.request("iterator_start", None, None) for _ in range(1001)]
    answers = replies(greedy, asked)
    refused = [answer for answer in answers.values() if not isinstance(answer, int)]
    assert len(refused) == 1
    assert "more than 1000 iterators" in str(refused)
    greedy.notify("iterator_gc", [0])
    greedy.call("iterator_start", None, None)
    other.call("iterator_start", None, None)


def test_new_oids_are_given_a_hundred_at_a_time(start_server, wire):
    client = wire(start_server())
    assert len(client.call("new_oids", 1_000_000)) == 100


def test_what_is_listed_in_one_answer_is_limited(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    longfile.write(path, 100_002, 1)
    client = wire(start_server(path), seconds=60)
    for asked in (("undoLog", 0, 1_000_000), ("history", p64(0), 1_000_000)):
        with pytest.raises(ErrorReply, match="at most 100000"):
            client.call(*asked)
    assert len(client.call("undoLog", 50_000, -1000)) == 1000
    assert len(client.call("history", p64(0), 1000)) == 1000


def test_undo_searches_wait_their_turn_and_hold_nobody_up(tmp_path, start_server, wire):
    path = tmp_path / "Data.fs"
    longfile.write(path, 30_000, 10)
    server = start_server(path)
    other = wire(server)
    searchers = [wire(server, seconds=60) for _ in range(10)]
    nobody = {"user_name": b"nobody at all"}
    asked = [[s.request("undoInfo", 0, -20, nobody) for _ in range(3)] for s in searchers]
    for _ in range(100):
        other.call("loadBefore", p64(1), MAXTID)
    for searcher, requests in zip(searchers, asked):
        assert all(len(found) == 0 for found in replies(searcher, requests).values())


def test_requests_under_way_are_limited_and_so_is_what_they_answer(start_server, wire):
    server = start_server(None, "--cache-size", "0")
    writer = wire(server, seconds=60)
    size = 256 << 10
    serial = writer.commit(1, [(p64(1), Z64, b"x" * size)])
    greedy = wire(server, seconds=60)
    requests = [greedy.request("loadSerial", p64(1), serial) for _ in range(1200)]
    for _ in range(20):
        writer.call("loadBefore", p64(1), MAXTID)
    # Each waits with its answer: 64 at most, and not 1,000.
    assert memory_bytes(server, "VmHWM") < 150 << 20
    assert all(len(data) == size for data in replies(greedy, requests).values())


def test_names_of_strangers_are_shortened(start_server):
    server = start_server()
    with Wire(server.address) as stranger:
        with pytest.raises(ErrorReply) as refused:
            stranger.register("x" * 50_000)
        assert len(str(refused.value)) < 200
        stranger.notify("y" * 50_000)
        stranger.socket.settimeout(WAIT_SECONDS)
        assert stranger.socket.recv(1) == b""
    assert len(server.log()) < 5000


def test_what_a_client_calls_itself_is_shortened(start_server, wire):
    monitor = Monitor()
    client = wire(start_server(None, *monitor.options))
    client.call("set_client_label", "ö" * 30_000)
    # That which looked whether the server listens may not have gone yet.
    status = monitor.wait_until(lambda status: len(status["connections"]) == 1)
    assert status["connections"][0]["label"] == "ö" * 200
