"""Running a RESP server: limits of memory, idle clients, TLS, and what the monitor shows."""

import socket
import subprocess
import time

import pytest
import redis

from tests.harness.certificates import Site
from tests.harness.monitor import Monitor
from tests.harness.process import free_port
from tests.harness.resp import PROGRAM, RespServer, wait_for_blocked
from tests.harness.waiting import wait_for


@pytest.fixture(scope="module")
def monitor():
    return free_port()


@pytest.fixture(scope="module")
def server(monitor):
    with RespServer(options=["--monitor", f"127.0.0.1:{monitor}"]) as server:
        yield server


@pytest.fixture
def client(server):
    client = redis.Redis(port=server.port, decode_responses=True)
    client.flushall()
    client.client_unpause()
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory-policy", "noeviction")
    client.config_resetstat()
    yield client
    client.config_set("maxmemory", 0)
    client.close()


def fill(client, first, last, **options):
    with client.pipeline(transaction=False) as pipe:
        for number in range(first, last):
            pipe.set(f"key{number}", "x" * 1000, **options)
        return pipe.execute(raise_on_error=False)


def test_without_a_policy_more_memory_is_refused(client):
    fill(client, 0, 100)
    used = client.info("memory")["used_memory"]
    assert 100_000 < used < 150_000
    client.config_set("maxmemory", used + 10_000)
    answers = fill(client, 100, 200)
    assert isinstance(answers[-1], redis.exceptions.OutOfMemoryError)
    assert 100 < client.dbsize() < 115
    with pytest.raises(redis.ResponseError, match="maxmemory"), client.pipeline() as pipe:
        pipe.set("more", "x").execute()
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        client.eval("return redis.call('set', 'more', 'x')", 0)
    # Removing is allowed, and makes room.
    client.delete(*(f"key{number}" for number in range(50)))
    assert client.set("more", "x")


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_keys_make_room_for_new_ones(client, policy):
    client.config_set("maxmemory", 200_000, "maxmemory-policy", policy)
    assert all(answer is True for answer in fill(client, 0, 1000))
    assert 100 < client.dbsize() < 200
    assert client.info("memory")["used_memory"] < 202_000
    assert client.info("stats")["evicted_keys"] == 1000 - client.dbsize()


def test_the_keys_that_expire_first_go_first(client):
    fill(client, 0, 50)
    fill(client, 50, 100, ex=1000)
    fill(client, 100, 150, ex=100)
    used = client.info("memory")["used_memory"]
    client.config_set(
        "maxmemory", used, "maxmemory-policy", "volatile-ttl", "maxmemory-samples", 64
    )
    assert all(answer is True for answer in fill(client, 200, 230))
    left = [sum(client.exists(f"key{n}") for n in range(a, a + 50)) for a in (0, 50, 100)]
    # Samples are of all keys that expire: 64 of them miss those that go first once in 10^9 runs.
    assert left[:2] == [50, 50] and 15 < left[2] <= 21


def test_the_keys_that_are_used_least_go_first(client):
    client.config_set("lfu-log-factor", 0, "lfu-decay-time", 0)
    client.config_set("maxmemory-policy", "allkeys-lfu", "maxmemory-samples", 64)
    fill(client, 0, 100)
    for number in range(50):
        client.mget([f"key{number}"] * 3)
    assert [client.object("freq", key) for key in ("key0", "key60", "none")] == [8, 5, None]
    with pytest.raises(redis.ResponseError, match="An LFU maxmemory policy is selected"):
        client.object("idletime", "key0")
    client.config_set("maxmemory", client.info("memory")["used_memory"])
    assert all(answer is True for answer in fill(client, 200, 240))
    assert sum(client.exists(f"key{number}") for number in range(50)) == 50
    dump = client.dump("key0")
    client.restore("restored", 0, dump, frequency=77)
    assert client.object("freq", "restored") == 77
    client.config_set("maxmemory-policy", "noeviction")
    assert client.object("idletime", "key0") < 120
    with pytest.raises(redis.ResponseError, match="An LFU maxmemory policy is not selected"):
        client.object("freq", "key0")
    client.config_set("lfu-log-factor", 10, "lfu-decay-time", 1)


def send(server, *lines):
    """A connection that has sent these lines, and whose answers are not yet read."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(b"".join(line.encode() + b"\r\n" for line in lines))
    return connection


def read_until(connection, end):
    got = b""
    while not got.endswith(end):
        more = connection.recv(1000)
        assert more, got
        got += more
    return got


def test_a_pause_of_writes_holds_writes_and_nothing_else(server, client):
    client.set("key", "old")
    assert client.client_pause(60_000, all=False)
    writers = [
        send(server, "GET key", "SET key new", "GET key"),
        send(server, "MULTI", "INCR counter", "EXEC"),
        send(server, "PUBLISH channel message"),
        send(server, "SET key"),  # refused at once: it has too few arguments
    ]
    assert read_until(writers[0], b"old\r\n") == b"$3\r\nold\r\n"
    assert b"wrong number" in read_until(writers[3], b"\r\n")
    wait_for_blocked(client, 3)
    assert client.get("key") == "old" and client.get("counter") is None
    assert client.eval("#!lua flags=no-writes\nreturn 7", 0) == 7
    facts = client.info("clients")
    assert facts["paused_actions"] == "write" and facts["paused_reason"] == "client_pause"
    # One that goes meanwhile is forgotten, and what it has sent is not executed.
    writers.pop(2).close()
    wait_for_blocked(client, 2)
    assert client.client_unpause()
    assert read_until(writers[0], b"new\r\n") == b"+OK\r\n$3\r\nnew\r\n"
    assert read_until(writers[1], b":1\r\n").endswith(b"+QUEUED\r\n*1\r\n:1\r\n")
    assert client.info("clients")["paused_actions"] == "none"
    wait_for_blocked(client, 0)
    for writer in writers:
        writer.close()


def test_a_pause_of_all_ends_by_itself(client):
    began = time.monotonic()
    client.client_pause(300)
    client.client_pause(1, all=False)  # does not make the first one shorter or weaker
    assert client.ping()
    # The server's clock is another one, but no slower.
    assert time.monotonic() - began > 0.25
    for wrong in (("x",), ("-1",), ("1", "some"), ("1", "all", "2")):
        with pytest.raises(redis.ResponseError):
            client.execute_command("CLIENT", "PAUSE", *wrong)


def test_calls_are_counted_by_command(client):
    client.config_resetstat()
    client.set("text", "x")
    for _ in range(40):
        client.get("text")
    with pytest.raises(redis.ResponseError):
        client.incr("text")
    with pytest.raises(redis.ResponseError):
        client.execute_command("GET")
    with client.pipeline() as pipe:
        pipe.get("text").execute()
    client.eval("return redis.call('get', 'text')", 0)
    client.client_getname()
    stats = client.info("commandstats")
    counts = ("calls", "rejected_calls", "failed_calls")

    def counted(name):
        return tuple(stats[f"cmdstat_{name}"][count] for count in counts)

    assert counted("get") == (42, 1, 0) and counted("set") == (1, 0, 0)
    assert counted("incrby") == (1, 0, 1)
    assert counted("multi") == counted("exec") == counted("eval") == (1, 0, 0)
    assert counted("client|getname") == (1, 0, 0)
    get = stats["cmdstat_get"]
    assert get["usec_per_call"] > 0 and abs(get["usec"] - 42 * get["usec_per_call"]) < 1
    client.config_resetstat()
    assert "cmdstat_get" not in client.info("commandstats")
    assert "cmdstat_info" not in client.info() and "cmdstat_info" in client.info("everything")


def test_memory_is_given_back(client):
    fill(client, 0, 20)
    client.rpush("list", *range(1000))
    client.hset("hash", mapping={str(n): n for n in range(1000)})
    client.zadd("zset", {str(n): n for n in range(1000)})
    client.sadd("set", *range(1000))
    client.xadd("stream", {"a": "b"})
    client.set("volatile", "x" * 1000, px=1)
    full = client.info("memory")["used_memory"]
    assert full > 100_000
    client.delete(*client.keys("*"))
    wait_for(lambda: client.info("memory")["used_memory"] == 0, "no memory is used")


def test_new_keys_are_announced(client):
    client.config_set("notify-keyspace-events", "KEAn")
    subscriber = client.pubsub()
    subscriber.psubscribe("__keyevent@0__:*")
    assert subscriber.get_message(timeout=30)["type"] == "psubscribe"
    client.set("key", 1)
    client.set("key", 2)
    client.incr("other")
    client.restore("key", 0, client.dump("other"), replace=True)
    got = [subscriber.get_message(timeout=30) for _ in range(7)]
    names = [(each["channel"].rpartition(":")[2], each["data"]) for each in got]
    assert names == [
        ("new", "key"),
        ("set", "key"),
        ("set", "key"),
        ("new", "other"),
        ("incrby", "other"),
        ("new", "key"),
        ("restore", "key"),
    ]
    client.config_set("notify-keyspace-events", "")
    subscriber.close()


def test_idle_clients_are_disconnected(server, client):
    idle = socket.create_connection(("127.0.0.1", server.port))
    idle.sendall(b"PING\r\n")
    assert idle.recv(100) == b"+PONG\r\n"
    client.config_set("timeout", 1)
    idle.settimeout(30)
    assert idle.recv(100) == b""
    client.config_set("timeout", 0)


def test_the_monitor_has_the_figures(client, monitor):
    client.mset({"one": 1, "two": 2})
    client.set("volatile", 1, ex=100)
    client.get("one")
    client.get("none")
    watching = Monitor(monitor)
    samples = watching.samples()
    assert (samples["zodium_resp_keys"], samples["zodium_resp_volatile_keys"]) == (3, 1)
    assert (samples["zodium_resp_hits_total"], samples["zodium_resp_misses_total"]) == (1, 1)
    assert samples["zodium_resp_commands_total"] >= 4
    assert samples["zodium_resp_data_bytes"] > 100
    assert watching.fetch("/health")[0] == 200


def test_the_monitor_tells_what_clients_have_not_read(server, client, monitor):
    watching = Monitor(monitor)
    client.set("large", "x" * (16 << 20))
    reader = socket.create_connection(("127.0.0.1", server.port))
    reader.sendall(b"GET large\r\n" * 4)

    def samples(found):
        names = ("zodium_network_unsent_bytes", "zodium_memory_held_bytes")
        return [found.of(name) for name in names]

    wait_for(lambda: min(samples(watching.samples())) > 4 << 20, "unread bytes")
    assert watching.samples().of("zodium_network_connections_limit") > 0
    reader.close()
    wait_for(lambda: samples(watching.samples()) == [0, 0], "that they are dropped")
    client.delete("large")


def test_tls_wants_certificates_of_both_sides(tmp_path):
    site = Site(tmp_path)
    certificate, key = site.authority.issue("client").write(tmp_path, "client")
    with RespServer(options=site.options()) as server:
        tls = {"ssl": True, "ssl_ca_data": site.authority.pem.decode(), "socket_timeout": 10}
        own = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        client = redis.Redis(host="localhost", port=server.port, **tls, **own)
        assert client.set("key", "value") and client.get("key") == b"value"
        for options in ({}, tls):
            options = {"socket_timeout": 10, **options}
            with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
                redis.Redis(host="localhost", port=server.port, **options).ping()


def test_a_part_of_the_options_for_tls_is_refused(tmp_path):
    words = Site(tmp_path).options()[:2]
    done = subprocess.run([PROGRAM, "resp", *words], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert done.stderr == "zodium: TLS needs both --ssl-certificate and --ssl-authenticate\n"


def test_keys_that_would_be_synced_need_a_file(tmp_path):
    with RespServer(options=["--sync", "always"]) as server:
        assert "there is no file of keys: they are in memory only" in server.log()
    with RespServer(options=["--sync", "always", "--file", str(tmp_path / "keys")]) as server:
        assert "no file of keys" not in server.log()
