"""Objects of a storage as keys of Redis clients: their records, and their states as data."""

import datetime
import json

import pytest
import redis
import ZODB
from BTrees.OOBTree import OOBTree
from harness.certificates import Site
from harness.process import HOST, ServerProcess, free_port
from harness.wire import Wire
from persistent.mapping import PersistentMapping
from ZODB.utils import p64, u64

pytestmark = pytest.mark.zodium


@pytest.fixture
def served(start_server, connect):
    """A database with a few objects, its tids, and a client in RESP3."""
    port = free_port()
    server = start_server(None, "--resp", f"{HOST}:{port}")
    database = ZODB.DB(connect(server))
    keys = redis.Redis(port=port, protocol=3)
    yield database, keys
    database.close()
    keys.close()


def fill(database):
    """The oid of an object with values of many kinds, and its two tids."""
    with database.transaction() as connection:
        root = connection.root()
        root["other"] = PersistentMapping()
        root["odd"] = odd = PersistentMapping()
        odd.title, odd.count, odd.raw = "Zürich", 2**70, b"\0\xff"
        odd.nested, odd.day = {"a": [1, None, (2.5, True)], 3: "x"}, datetime.date(2026, 11, 23)
        odd.other, odd.shared = root["other"], [odd.nested, odd.nested]
        root["tree"] = OOBTree({"key": 1})
    with database.transaction() as connection:
        odd = connection.root()["odd"]
        first = odd._p_serial
        odd.title = "Bern"
        oids = {name: u64(each._p_oid) for name, each in connection.root().items()}
    return oids, first, database.lastTransaction()


@pytest.mark.parametrize("protocol", [2, 3])
def test_an_object_is_read_as_its_record_and_as_data(served, protocol):
    database, keys = served
    oids, first, last = fill(database)
    if protocol == 2:
        keys = redis.Redis(port=keys.connection_pool.connection_kwargs["port"], protocol=2)
    name = f"zodb:1:{oids['odd']:x}"
    storage = database.storage
    assert keys.get(name) == storage.loadBefore(p64(oids["odd"]), p64(u64(last) + 1))[0]
    assert keys.get(f"{name}@{first.hex()}") == storage.loadSerial(p64(oids["odd"]), first)
    assert keys.get(f"{name}@{p64(u64(first) - 1).hex()}") is None
    assert keys.get("zodb:1:ffff") is None and keys.hgetall("zodb:1:ffff") == {}
    found = {name.decode(): value for name, value in keys.hgetall(name).items()}
    assert found.pop("$class") == b"persistent.mapping.PersistentMapping"
    values = {name: json.loads(value) for name, value in found.items()}
    assert values["title"] == "Bern" and values["count"] == {"$int": str(2**70)}
    assert values["raw"]["$bytes"] == "00ff" or "$object" in values["raw"]
    assert values["nested"] == {"$dict": [["a", [1, None, [2.5, True]]], [3, "x"]]}
    assert values["shared"] == [values["nested"]] * 2
    assert values["day"]["$object"] == {"$class": "datetime.date"}
    assert values["other"] == {
        "$ref": f"{oids['other']:016x}",
        "class": "persistent.mapping.PersistentMapping",
    }
    old = keys.hgetall(f"{name}@{first.hex()}")
    assert json.loads(old[b"title"]) == "Zürich"
    tree = keys.hgetall(f"zodb:1:{oids['tree']:x}")
    assert tree[b"$class"] == b"BTrees.OOBTree.OOBTree"
    assert json.loads(tree[b"$state"]) == [[[["key", 1]]]]


def test_objects_are_only_read(served):
    database, keys = served
    fill(database)
    for words in (
        ["SET", "zodb:1:1", "x"],
        ["DEL", "zodb:1:1"],
        ["GET", "zodb:1"],
        ["LLEN", "zodb:x"],
    ):
        with pytest.raises(redis.ResponseError):
            keys.execute_command(*words)
    with pytest.raises(redis.exceptions.NoPermissionError):
        keys.get("zodb:none:1")
    with pytest.raises(redis.ResponseError):
        keys.pipeline().get("zodb:1:0").execute()


def test_what_is_not_in_memory_is_answered_in_order(served):
    """Large records are decoded by jobs; requests behind them wait for them."""
    database, keys = served
    with database.transaction() as connection:
        connection.root()["large"] = large = PersistentMapping()
        large.text = "x" * 1_000_000
    oid = u64(large._p_oid)
    with keys.pipeline(transaction=False) as pipe:
        for number in range(20):
            pipe.set("key", number).hgetall(f"zodb:1:{oid:x}").get("key")
        answers = pipe.execute()
    assert [int(answer) for answer in answers[2::3]] == list(range(20))
    assert all(len(answer[b"text"]) == 1_000_002 for answer in answers[1::3])
    # A client that goes meanwhile leaves nothing behind.
    for _ in range(5):
        one = redis.Redis(port=keys.connection_pool.connection_kwargs["port"])
        connection = one.connection_pool.get_connection()
        connection.send_command("HGETALL", f"zodb:1:{oid:x}")
        connection.disconnect()
    assert keys.ping()


def park(client, token, words):
    """Have a command take effect with the transaction of a token."""
    client.execute_command("MULTI")
    client.execute_command(*words)
    return client.execute_command("ZEXEC", token)


def test_storages_of_others_are_not_there(tmp_path, binary):
    site = Site(tmp_path)
    config, port, resp = tmp_path / "zodium.toml", free_port(), free_port()
    storages = "".join(
        f'[[storage]]\nname = "{name}"\npath = "{tmp_path}/{name}.fs"\n{allow}'
        for name, allow in {"all": "", "hers": 'allow = ["alice"]\n'}.items()
    )
    config.write_text(
        f'[server]\naddress = "{HOST}:{port}"\nresp-address = ["{HOST}:{resp}"]\n[server.tls]\n'
        f'certificate = "{site.certificate}"\nkey = "{site.key}"\n'
        f'authenticate = "{site.trusted}"\n{storages}'
    )
    server = ServerProcess([binary, "serve", "-C", str(config)], port, tmp_path)
    holders = {name: site.authority.issue(name) for name in ("alice", "bob")}
    clients = {}
    for name, holder in holders.items():
        certificate, key = holder.write(tmp_path, name)
        (tmp_path / "ca.pem").write_bytes(site.authority.pem)
        clients[name] = redis.Redis(
            port=resp,
            ssl=True,
            ssl_certfile=str(certificate),
            ssl_keyfile=str(key),
            ssl_ca_certs=str(tmp_path / "ca.pem"),
            ssl_check_hostname=False,
        )
    alice, bob = clients["alice"], clients["bob"]
    streams = [client.pubsub() for client in (alice, bob)]
    try:
        for stream in streams:
            stream.psubscribe("zodb:*")
            assert stream.get_message(timeout=30)["type"] == "psubscribe"
        tids = {}
        for name in ("all", "hers"):
            with Wire(server.address, ssl=site.context(holders["alice"])) as wire:
                wire.register(name)
                tids[name] = wire.commit(1, [(p64(1), p64(0), b"data")]).hex().encode()
        assert alice.get("zodb:hers:1") == bob.get("zodb:all:1") == b"data"
        assert alice.set("key", "1") and alice.execute_command("ZTIE", "key", "hers:1") == 1
        for words in (
            ["GET", "zodb:hers:1"],
            ["HGETALL", "zodb:hers:1"],
            ["SUBSCRIBE", "zodb:hers"],
            ["SET", "key", "1", "TIE", "hers:1"],
            ["ZTIE", "key", "hers:1"],
            ["ZTID", "hers"],
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                bob.execute_command(*words)
        for stream, expected in zip(streams, (set(tids.values()), {tids["all"]})):
            messages = [stream.get_message(timeout=30) for _ in expected]
            assert {message["data"].split()[0] for message in messages} == expected
            assert stream.get_message(timeout=0.5) is None
        # Nor for commands that take effect with a transaction; those of others do.
        for words in (["SET", "later", "1", "TIE", "hers:1"], ["ZTIE", "key", "hers:1"]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                park(bob, b"of bob", words)
        assert park(alice, b"of alice", ["SET", "later", "1", "TIE", "hers:1"]) == 1
        with pytest.raises(redis.ResponseError, match="the token is in use"):
            park(bob, b"of alice", ["SET", "later", "2"])
        with Wire(server.address, ssl=site.context(holders["alice"])) as wire:
            wire.register("all")
            wire.commit(1, [(p64(2), p64(0), b"data")], extension={"zodium.exec": "of alice"})
        assert alice.get("later") == b"1"
    finally:
        for stream in streams:
            stream.close()
        server.stop()
