"""Redis clients: redis-py in both versions of the protocol, and pipes of many commands."""

import os
import re
import signal
import socket
import threading

import pytest
import redis

from tests.harness.process import HOST, STOP_SECONDS, free_port
from tests.harness.resp import RespServer, wait_for_blocked
from tests.harness.waiting import wait_for


@pytest.fixture(scope="module")
def server():
    with RespServer(workers=2) as server:
        yield server


@pytest.fixture(params=[2, 3])
def client(server, request):
    client = redis.Redis(port=server.port, protocol=request.param, decode_responses=True)
    client.flushall()
    yield client
    client.close()


def test_each_type_of_value_comes_back(client):
    client.set("text", "value", ex=100)
    assert client.get("text") == "value" and 90 < client.ttl("text") <= 100
    client.hset("hash", mapping={"a": 1, "b": 2})
    assert client.hgetall("hash") == {"a": "1", "b": "2"}
    client.rpush("list", *range(5))
    assert client.lrange("list", 1, -2) == ["1", "2", "3"]
    client.sadd("set", "a", "b")
    assert set(client.smembers("set")) == {"a", "b"}
    client.zadd("zset", {"one": 1, "half": 0.5})
    pairs = client.zrange("zset", 0, -1, withscores=True)
    assert [tuple(pair) for pair in pairs] == [("half", 0.5), ("one", 1.0)]
    assert sorted(client.scan_iter(count=2)) == ["hash", "list", "set", "text", "zset"]
    assert client.info("server")["redis_version"] == "7.2.4"


def test_large_values_are_whole(client):
    value = os.urandom(3 << 20).hex()
    client.set("large", value)
    assert client.get("large") == value
    assert client.getrange("large", 100, 109) == value[100:110]
    words = [str(number) for number in range(100_000)]
    client.rpush("many", *words)
    assert client.lrange("many", 0, -1) == words


def test_a_pipe_is_answered_in_order(client):
    with client.pipeline(transaction=False) as pipe:
        for number in range(5000):
            pipe.set(f"key{number}", number)
            pipe.get(f"key{number}")
        answers = pipe.execute()
    assert answers[1::2] == [str(number) for number in range(5000)]
    assert client.dbsize() == 5000


# Reads of both keys in one piece, and what such a read is answered.
READS_AT_ONCE = 1000
READ = b"*3\r\n$4\r\nMGET\r\n$3\r\none\r\n$3\r\ntwo\r\n"
BOTH = re.compile(rb"\*2\r\n\$\d+\r\n(\d+)\r\n\$\d+\r\n(\d+)\r\n")


def read_both(connection):
    """What many reads of both keys saw, in order."""
    connection.sendall(READ * READS_AT_ONCE)
    received, lines = bytearray(), 0
    # An answer has five lines.
    while lines < 5 * READS_AT_ONCE:
        received += (piece := connection.recv(1 << 20))
        lines += piece.count(b"\n")
    seen = BOTH.findall(received)
    assert len(seen) == READS_AT_ONCE
    return seen


def test_no_transaction_is_seen_half(server, scale):
    """100,000 reads; with ZODIUM_TEST_SCALE=1000 there are 100 million."""
    redis.Redis(port=server.port).mset({"one": 0, "two": 0})
    ends = threading.Event()

    def write():
        own = redis.Redis(port=server.port)
        number = 0
        while not ends.is_set():
            number += 1
            with own.pipeline() as pipe:
                pipe.set("one", number).set("two", number).execute()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    values, reads = set(), 0
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            while reads < 100_000 * scale:
                seen = read_both(connection)
                reads += len(seen)
                halves = [pair for pair in seen if pair[0] != pair[1]]
                assert not halves, (reads, halves)
                values.update(one for one, _ in seen)
    finally:
        ends.set()
        for writer in writers:
            writer.join()
    print(f"{reads} reads saw {len(values)} transactions")
    assert len(values) > 10


def test_concurrent_counts_with_watch_lose_nothing(server, client):
    def count():
        own = redis.Redis(port=server.port)
        for _ in range(100):
            own.transaction(lambda pipe: (pipe.multi(), pipe.incr("n"))[-1], "n")

    def compare_and_set():
        own = redis.Redis(port=server.port)
        for _ in range(100):
            own.transaction(
                lambda pipe: pipe.set("n", int(pipe_get(pipe)) + 1), "n", value_from_callable=True
            )

    def pipe_get(pipe):
        value = pipe.get("n") or 0
        pipe.multi()
        return value

    threads = [threading.Thread(target=each) for each in (count, compare_and_set) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == "400"


def test_clients_that_vanish_while_they_wait_lose_no_task(server, client, scale):
    """Half of the workers of a queue are cut off; each task reaches one that is left, or stays."""
    count = int(30 * scale)
    going = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    for one in going:
        one.sendall(b"BLPOP queue 0\r\n")
    for waiting in (count, 0):
        wait_for_blocked(client, waiting)
        for one in going:
            one.close()
    taken = []

    def work():
        own = redis.Redis(port=server.port, decode_responses=True, socket_timeout=None)
        # A lost task may be an "end".
        while (task := own.blpop("queue", timeout=30)) is not None and task[1] != "end":
            taken.append(task[1])

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(300):
        client.rpush("queue", number)
    client.rpush("queue", *["end"] * len(workers))
    for worker in workers:
        worker.join()
    assert sorted(map(int, taken)) == list(range(300))


def test_subscribers_get_the_messages_of_a_publisher_in_order(server, client):
    subscribers = [redis.Redis(port=server.port, protocol=3).pubsub() for _ in range(3)]
    for subscriber in subscribers:
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=30)["type"] == "subscribe"
    for number in range(500):
        assert client.publish("news", number) == 3
    for subscriber in subscribers:
        got = [subscriber.get_message(timeout=30)["data"] for _ in range(500)]
        assert [int(each) for each in got] == list(range(500))


def test_each_entry_of_a_stream_reaches_one_consumer_that_waits(server, client):
    client.xgroup_create("stream", "group", mkstream=True)
    taken, is_over = [], threading.Event()

    def consume(name):
        own = redis.Redis(port=server.port, decode_responses=True, protocol=2)
        entries = ends = None
        # Until nothing comes after all entries were added.
        while entries or not ends:
            ends = is_over.is_set()
            entries = own.xreadgroup("group", name, {"stream": ">"}, count=5, block=500)
            for entry, fields in entries[0][1] if entries else ():
                taken.append(int(fields["n"]))
                assert own.xack("stream", "group", entry) == 1

    threads = [threading.Thread(target=consume, args=(f"c{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        client.xadd("stream", {"n": number}, maxlen=1000)
    is_over.set()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(200))
    assert client.xpending("stream", "group")["pending"] == 0
    assert client.xinfo_groups("stream")[0]["lag"] == 0


def test_a_reader_of_a_stream_gets_what_comes_after_it(server, client):
    client.xadd("stream", {"n": "old"})
    got = []

    def read():
        own = redis.Redis(port=server.port, decode_responses=True, protocol=2, socket_timeout=None)
        got.extend(own.xread({"stream": "$"}, block=60_000)[0][1])

    thread = threading.Thread(target=read)
    thread.start()
    wait_for_blocked(client, 1)
    client.xadd("stream", {"n": "new"})
    thread.join()
    assert [fields for _, fields in got] == [{"n": "new"}]


def test_what_is_not_there_is_refused(client):
    with pytest.raises(redis.ResponseError, match="unknown command 'PFADD'"):
        client.pfadd("key", "x")
    with pytest.raises(redis.ResponseError, match="has no other value"):
        client.config_set("appendonly", "yes")


def test_a_password_is_asked_for(tmp_path):
    path = tmp_path / "password"
    path.write_text("secret\n")
    with RespServer(options=["--password-file", str(path)]) as server:
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=server.port).ping()
        assert redis.Redis(port=server.port, password="secret").ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=server.port, password="wrong").ping()


@pytest.mark.parametrize("beside_storage", [False, True])
def test_another_password_is_read_at_a_reload(tmp_path, start_server, beside_storage):
    path = tmp_path / "password"
    path.write_text("secret\n")
    if beside_storage:
        port = free_port()
        options = ("--resp", f"{HOST}:{port}", "--resp-password-file", str(path))
        check_reload(start_server(None, *options), port, path)
    else:
        with RespServer(options=["--password-file", str(path)]) as server:
            check_reload(server, server.port, path)


def check_reload(server, port, path):
    def is_taken(password):
        try:
            return redis.Redis(port=port, password=password).ping()
        except redis.AuthenticationError:
            return False

    stays = redis.Redis(port=port, password="secret")
    assert stays.ping()
    path.write_text("")
    server.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: "the old one stays in use" in server.log(), "the reload fails")
    assert is_taken("secret")
    path.write_text("another\n")
    server.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: is_taken("another"), "the new password")
    assert not is_taken("secret") and stays.ping()


def test_shutdown_ends_the_process():
    with RespServer() as server:
        redis.Redis(port=server.port).shutdown(nosave=True)
        assert server.process.wait(STOP_SECONDS) == 0
