"""Caches of clients: the server tells them which keys have changed."""

import threading

import pytest
import redis
from harness import files
from harness.process import HOST, free_port
from harness.tied import Both
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from tests.harness.resp import RespServer
from tests.harness.waiting import wait_for

ROUNDS = 300


class Cache:
    """A RESP3 connection with a cache of its own: what comes unasked removes from it."""

    def __init__(self, port, *options):
        self.cached = {}
        self.pushes = []
        # Pushes are read here, not by a handler of redis-py.
        self.connection = redis.Connection(host=HOST, port=port, protocol=3, decode_responses=True)
        self.connection.connect()
        self.connection._parser.set_invalidation_push_handler(self.take)
        self.connection._parser.set_pubsub_push_handler(self.take)
        self.id = self.ask("CLIENT", "ID")
        if options != ("OFF",):
            assert self.ask("CLIENT", "TRACKING", "ON", *options) == "OK"

    def take(self, push):
        self.pushes.append(push)
        if push[0] == "invalidate":
            for key in push[1] or list(self.cached):
                self.cached.pop(key, None)

    def ask(self, *words):
        self.connection.send_command(*words)
        return self.connection.read_response(push_request=False)

    def get(self, key):
        if key not in self.cached:
            # What came before the answer is about older values.
            value = self.ask("GET", key)
            self.cached[key] = value
        return self.cached[key]

    def told(self):
        """What has come since it was asked last."""
        self.ask("PING")
        pushes, self.pushes = self.pushes, []
        return pushes

    def close(self):
        self.connection.disconnect()


@pytest.fixture(scope="module")
def server():
    with RespServer(workers=2, options=["--no-balance"]) as server:
        yield server


@pytest.fixture
def other(server):
    with redis.Redis(port=server.port, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def cache(server, other):
    made = []

    def make(*options):
        made.append(Cache(server.port, *options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_client_is_told_of_keys_that_it_has_read(cache, other):
    reader = cache()
    other.mset({"read": 1, "unread": 1})
    reader.get("read")
    other.incr("unread")
    assert reader.told() == []
    other.incr("read")
    assert reader.told() == [["invalidate", ["read"]]]
    other.incr("read")
    assert reader.told() == [], "once for each read"
    for change in (
        lambda: other.delete("read"),
        lambda: other.rename("unread", "read"),
        lambda: other.eval("redis.call('incr', KEYS[1])", 1, "read"),
        lambda: other.pexpire("read", 1),
    ):
        reader.ask("GET", "read")
        change()
        assert ["invalidate", ["read"]] in reader.told()
    reader.ask("GET", "none")
    other.flushall()
    assert reader.told() == [["invalidate", None]]
    info = other.info()
    assert (info["tracking_clients"], info["tracking_total_keys"]) == (1, 0)
    assert reader.ask("CLIENT", "TRACKING", "OFF") == "OK"
    assert other.info("clients")["tracking_clients"] == 0


def test_options_say_which_keys(cache, other):
    opt_in, opt_out, own = cache("OPTIN"), cache("OPTOUT"), cache("NOLOOP")
    names = cache("BCAST", "PREFIX", "a:", "PREFIX", "b:")
    opt_in.ask("GET", "a:1")
    opt_in.ask("CLIENT", "CACHING", "YES")
    opt_in.ask("GET", "a:2")
    opt_out.ask("GET", "a:1")
    opt_out.ask("CLIENT", "CACHING", "NO")
    opt_out.ask("GET", "a:2")
    for key in ("a:1", "a:2"):
        own.ask("GET", key)
    own.ask("SET", "a:1", 0)
    other.mset({"a:1": 1, "a:2": 1, "c:1": 1})
    assert opt_in.told() == [["invalidate", ["a:2"]]]
    assert opt_out.told() == [["invalidate", ["a:1"]]]
    assert own.told() == [["invalidate", ["a:2"]]]
    assert names.told() == [["invalidate", ["a:1"]], ["invalidate", ["a:1", "a:2"]]]


def test_another_connection_may_get_the_messages(cache, other):
    target = cache("OFF")
    reader = cache("REDIRECT", target.id)
    assert reader.ask("CLIENT", "GETREDIR") == target.id
    reader.ask("GET", "key")
    other.set("key", 1)
    assert (reader.told(), target.told()) == ([], [["invalidate", ["key"]]])
    reader.ask("GET", "key")
    target.close()
    wait_for(lambda: len(other.client_list()) <= 2, "that the target is gone")
    other.set("key", 2)
    assert "broken_redirect" in reader.ask("CLIENT", "TRACKINGINFO")["flags"]


def test_a_cache_is_never_older_than_what_its_user_knows(cache, other):
    """Readers on other workers: after a write is acknowledged, and they have asked anything."""
    readers = [cache(*options) for options in ((), ("BCAST",), ())]
    for number in range(ROUNDS):
        other.set("key", number)
        for reader in readers:
            reader.told()
            assert reader.get("key") == str(number)


def test_a_cache_agrees_with_the_server_after_writers_have_ended(server, cache, other):
    reader = cache()
    ends = threading.Event()

    def write(name):
        with redis.Redis(port=server.port) as client:
            while not ends.is_set():
                with client.pipeline() as pipe:
                    pipe.incr("one").incr("two").incr(name).execute()

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    try:
        for _ in range(ROUNDS):
            for key in ("one", "two", "a", "b"):
                reader.get(key)
    finally:
        ends.set()
        for writer in writers:
            writer.join()
    reader.told()
    for key in ("one", "two", "a", "b"):
        assert reader.get(key) == other.get(key)


def test_the_cache_of_redis_py_is_told(server, other, monkeypatch):
    # redis-py takes caches with servers of one name only, so not with a stock Valkey either.
    monkeypatch.setattr(CacheProxyConnection, "DEFAULT_SERVER_NAME", "valkey")
    config = CacheConfig()
    with redis.Redis(
        port=server.port, protocol=3, cache_config=config, decode_responses=True
    ) as client:
        other.set("key", "old")
        assert client.get("key") == client.get("key") == "old"
        assert len(client.get_cache().collection) == 1
        other.set("key", "new")
        # It takes messages before it answers from its cache, as soon as they have come.
        wait_for(lambda: client.get("key") == "new", "the new value", pause=0)


def test_a_commit_tells_caches_of_keys_that_are_tied(start_server):
    port = free_port()
    server = start_server(None, "--resp", f"{HOST}:{port}")
    oid = files.oid_of(1)
    with Both(server, port) as client:
        client.write(oid, b"0")
        client.cache("tied", "1", oid)
        client.keys.set("other", 1)
        reader = Cache(port)
        assert (reader.get("tied"), reader.get("other")) == ("1", "1")
        client.write(oid, b"1")
        assert reader.told() == [["invalidate", ["tied"]]]
        assert reader.get("tied") is None
        reader.close()
