"""Running a RESP server: limits of memory, idle clients, TLS, and what the monitor shows."""

import socket
import time
import urllib.request

import pytest
import redis

from tests.harness.certificates import Site
from tests.harness.process import free_port
from tests.harness.resp import RespServer


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
    fill(client, 0, 500)
    fill(client, 500, 1000, ex=1000)
    fill(client, 1000, 1500, ex=100)
    used = client.info("memory")["used_memory"]
    client.config_set(
        "maxmemory", used, "maxmemory-policy", "volatile-ttl", "maxmemory-samples", 64
    )
    assert all(answer is True for answer in fill(client, 2000, 2300))
    left = [sum(client.exists(f"key{n}") for n in range(a, a + 500)) for a in (0, 500, 1000)]
    # Of the keys that a sample finds: each is of one of 64 stripes, which has eight of a kind.
    assert left[0] == 500 and left[1] > left[2] + 100


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
    deadline = time.monotonic() + 5
    while client.info("memory")["used_memory"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.info("memory")["used_memory"] == 0


def test_new_keys_are_announced(client):
    client.config_set("notify-keyspace-events", "KEAn")
    subscriber = client.pubsub()
    subscriber.psubscribe("__keyevent@0__:*")
    subscriber.get_message(timeout=5)
    client.set("key", 1)
    client.set("key", 2)
    client.incr("other")
    got = [subscriber.get_message(timeout=5) for _ in range(5)]
    names = [(each["channel"].rpartition(":")[2], each["data"]) for each in got]
    assert names == [
        ("new", "key"),
        ("set", "key"),
        ("set", "key"),
        ("new", "other"),
        ("incrby", "other"),
    ]
    client.config_set("notify-keyspace-events", "")
    subscriber.close()


def test_idle_clients_are_disconnected(server, client):
    idle = socket.create_connection(("127.0.0.1", server.port))
    idle.sendall(b"PING\r\n")
    assert idle.recv(100) == b"+PONG\r\n"
    client.config_set("timeout", 1)
    idle.settimeout(10)
    assert idle.recv(100) == b""
    client.config_set("timeout", 0)


def test_the_monitor_has_the_figures(client, monitor):
    client.mset({"one": 1, "two": 2})
    client.set("volatile", 1, ex=100)
    client.get("one")
    client.get("none")
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if line.startswith("zodium_resp_"))
    assert samples["zodium_resp_keys"] == "3" and samples["zodium_resp_volatile_keys"] == "1"
    assert samples["zodium_resp_hits_total"] == "1" and samples["zodium_resp_misses_total"] == "1"
    assert int(samples["zodium_resp_commands_total"]) >= 4
    assert int(samples["zodium_resp_data_bytes"]) > 100
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/health", timeout=10) as answer:
        assert answer.status == 200


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
