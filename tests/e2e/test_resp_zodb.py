"""Redis clients beside ZEO: keys that commits remove, commits as a stream, objects as keys."""

import random
import threading
import time

import pytest
import redis
from harness import files
from harness.process import HOST, free_port
from harness.tied import Both
from harness.waiting import wait_for
from harness.wire import Conflict

pytestmark = pytest.mark.zodium
OIDS = [files.oid_of(number) for number in range(1, 9)]
SECONDS, SECONDS_MAX = 2, 60


@pytest.fixture
def serve(start_server):
    """serve(*options): a server of ZEO and RESP, and the port of RESP."""

    def start(path=None, *options):
        port = free_port()
        return start_server(path, "--resp", f"{HOST}:{port}", *options), port

    return start


@pytest.fixture
def client(serve):
    server, port = serve()
    with Both(server, port) as client:
        yield client


@pytest.mark.parametrize("protocol", [2, 3])
def test_one_server_speaks_zeo_and_redis(serve, protocol):
    server, port = serve()
    with Both(server, port, protocol) as client:
        tid = client.write(OIDS[0], b"data")
        assert client.load(OIDS[0]) == (b"data", tid)
        assert client.keys.set("key", "value") and client.keys.get("key") == b"value"
        assert client.keys.execute_command("ZTID") == tid.hex().encode()
        with pytest.raises(redis.ResponseError):
            client.keys.shutdown()
        assert server.is_running()


def test_a_commit_removes_the_keys_that_are_tied_to_its_objects(client):
    one, other, third = OIDS[:3]
    for oid in (one, other, third):
        client.write(oid, b"0")
    assert client.cache("one", "1", one)
    assert client.cache("both", "1", one, other, words=["EX", 100])
    assert client.cache("third", "1", third)
    client.keys.rename("third", "renamed")
    client.keys.copy("renamed", "copied")
    client.keys.hset("hash", "field", 1)
    assert client.keys.execute_command("ZTIE", "hash", "0x1", "1:2") == 1
    assert client.keys.execute_command("ZTIE", "none", "1") == 0
    client.keys.expire("one", 100)
    client.keys.append("one", "2")
    client.write(other, b"1")
    assert client.keys.exists("one", "renamed", "copied") == 3
    assert client.keys.exists("both", "hash") == 0
    client.write(one, b"1")
    assert client.keys.get("one") is None
    # A key that was set anew is another one.
    client.keys.set("one", "untied")
    client.write(one, b"2")
    assert client.keys.get("one") == b"untied"
    client.write(third, b"1")
    assert sorted(client.keys.scan_iter()) == [b"one"]
    # Their memory is freed without a read.
    wait_for(lambda: client.keys.dbsize() <= 3, "at most 3 keys")


def test_a_value_of_an_older_view_is_refused(client):
    one, other = OIDS[:2]
    older = client.write(one, b"0")
    client.write(other, b"0")
    assert client.cache("key", "1", one, view=older), "another object was written since"
    assert client.cache("key", "2", one, other, view=older) is None
    assert client.keys.get("key") == b"1"
    newer = client.write(one, b"1")
    assert client.keys.get("key") is None
    assert client.cache("key", "3", one, view=older) is None
    assert client.cache("key", "4", one, view=newer)
    # So is one that the storage does not have.
    assert client.cache("key", "5", one, view=b"\xff" * 8) is None
    # A transaction of keys takes it too.
    with client.keys.pipeline() as pipe:
        pipe.execute_command("SET", "key", "5", "TIE", one.hex(), "AT", older.hex())
        pipe.get("key")
        assert pipe.execute() == [None, b"4"]
    # A value that is there already, and older than it should be, goes.
    client.keys.hset("hash", "field", 1)
    assert client.keys.execute_command("ZTIE", "hash", "1", "AT", older.hex()) == 0
    assert not client.keys.exists("hash")
    for words in (["TIE"], ["TIE", "x"], ["AT", "1"], ["TIE", "1", "AT"], ["TIE", "none:1"]):
        with pytest.raises((redis.ResponseError, redis.exceptions.NoPermissionError)):
            client.keys.execute_command("SET", "key", "6", *words)


def test_a_watched_key_that_a_commit_removes_has_changed(client):
    client.write(OIDS[0], b"0")
    client.cache("key", "1", OIDS[0])
    with client.keys.pipeline() as pipe:
        pipe.watch("key")
        pipe.multi()
        pipe.set("copy", "1")
        client.write(OIDS[0], b"1")
        with pytest.raises(redis.WatchError):
            pipe.execute()


def test_without_a_storage_there_are_no_ties():
    from harness.resp import RespServer

    with RespServer() as server, redis.Redis(port=server.port) as keys:
        for words in (["SET", "key", "1", "TIE", "1"], ["ZTIE", "key", "1"], ["ZTID"]):
            with pytest.raises(redis.ResponseError, match="no storage"):
                keys.execute_command(*words)


def play(client, choose, is_on, counts):
    """Cache values of objects, change objects, and look for values that are too old."""
    while is_on():
        number = choose.randrange(len(OIDS))
        oid, key = OIDS[number], f"key{number}"
        if choose.random() < 0.15:
            try:
                client.write(oid, b"x")
            except Conflict:
                counts["conflicts"] += 1
        if choose.random() < 0.3:
            client.listen()
        # All keys: a reader meets a commit at any moment.
        known = [client.told.get(each, b"") for each in OIDS]
        with client.keys.pipeline(transaction=False) as pipe:
            for place in range(len(OIDS)):
                pipe.get(f"key{place}")
            values = pipe.execute()
        counts["reads"] += len(values)
        for value, least in zip(values, known):
            if value is not None:
                counts["hits"] += 1
                counts["stale"] += value < least
        if values[number] is None:
            # A value is the revision that it was computed from.
            view = client.view
            value = client.load(oid)[1]
            if choose.random() < 0.2:
                time.sleep(choose.random() / 500)
            counts["refused"] += client.cache(key, value, oid, view=view) is None


def test_a_client_that_knows_of_a_commit_never_reads_an_older_value(serve, seeded, scale):
    server, port = serve()
    players = [Both(server, port) for _ in range(4)]
    for oid in OIDS:
        players[0].write(oid, b"0")
    begin, failures = time.monotonic(), []
    counts = [dict.fromkeys(["reads", "hits", "stale", "refused", "conflicts"], 0) for _ in players]

    def total(name):
        return sum(count[name] for count in counts)

    def is_enough():
        return total("hits") > 100 * scale and total("refused") > 0

    def run(*args):
        try:
            play(*args)
        except Exception as failure:
            failures.append(failure)

    def is_on():
        seconds = time.monotonic() - begin
        is_over = seconds > SECONDS * scale and (is_enough() or seconds > SECONDS_MAX)
        return not is_over and not failures

    threads = [
        threading.Thread(target=run, args=(player, random.Random(seeded.random()), is_on, count))
        for player, count in zip(players, counts)
    ]
    for player in players:
        player.listen(0.2)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for player in players:
        player.close()
    if failures:
        raise failures[0]
    print({name: total(name) for name in counts[0]})
    assert total("stale") == 0
    assert is_enough(), counts


@pytest.mark.parametrize("protocol", [2, 3])
def test_each_commit_comes_once_and_in_order(serve, protocol):
    server, port = serve()
    clients = [Both(server, port, protocol) for _ in range(3)]
    clients[0].write(OIDS[-1], b"before")
    by_name, by_pattern = (client.keys.pubsub() for client in clients[:2])
    by_name.subscribe("zodb:1")
    by_pattern.psubscribe("zodb:*")
    for reader in (by_name, by_pattern):
        assert reader.get_message(timeout=30)["type"] in ("subscribe", "psubscribe")

    committed = []

    def commit(client, oids):
        for number in range(50):
            stores = [(oid, client.told.get(oid, b"\0" * 8), b"%d" % number) for oid in oids]
            committed.append((client.commit(*stores), oids))

    threads = [
        threading.Thread(target=commit, args=(client, OIDS[2 * at : 2 * at + 2]))
        for at, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [
        b" ".join(each.hex().encode() for each in (tid, *oids)) for tid, oids in sorted(committed)
    ]
    for reader in (by_name, by_pattern):
        found = []
        while len(found) < len(expected):
            message = reader.get_message(timeout=30)
            assert message, "a commit is missing"
            assert message["channel"] == b"zodb:1"
            found.append(message["data"])
        assert found == expected
        assert reader.get_message(timeout=0.1) is None
    with pytest.raises(redis.ResponseError):
        clients[0].keys.publish("zodb:1", "forged")
    with pytest.raises(redis.exceptions.NoPermissionError):
        clients[0].keys.execute_command("SUBSCRIBE", "zodb:none")
    for client in clients:
        client.close()
