"""Commands that change nothing lock their keys to read them only: none may come upon a change.

A release ends with a panic if one does. So all of them are called with words by chance, among them
keys of each type, keys whose time is past, options and numbers.
"""

import random
import time

import pytest
import redis

from tests.harness.resp import RespServer

TRIES = 300
KEYS = ["text", "number", "list", "set", "hash", "zset", "stream", "past", "absent"]
NUMBERS = ["0", "1", "1", "-1", "2", "5", "3.5", "(1", "[a", "-", "+", "$", "*"]
OPTIONS = [
    *["limit", "match", "count", "withscores", "withvalues", "byscore", "bylex", "rev", "weights"],
    *["aggregate", "get", "set", "incrby", "u8", "i5", "overflow", "sat", "streams", "block", "by"],
    *["alpha", "desc", "nosort_*", "store", "keys", "full", "len", "idx", "bit", "byte", "group"],
]
# What chance hardly finds.
REQUESTS = [
    "xread streams stream 0",
    "xpending stream group - + 5",
    "xinfo consumers stream group",
    "zrangebylex zset - +",
]
# Scripts lock their keys to change them, and a server without a database has no tid.
OTHERS = {"eval_ro", "evalsha_ro", "ztid"}


# Settings with which a read has more to do: it notes uses, or the log keeps its answer back.
SETTINGS = {
    "plain": {},
    "with a log, a limit and news": {
        "maxmemory": "100mb",
        "maxmemory-policy": "allkeys-lfu",
        "notify-keyspace-events": "KEA",
    },
}


@pytest.fixture(params=SETTINGS)
def client(request, tmp_path):
    settings = SETTINGS[request.param]
    options = ["--file", str(tmp_path / "keys"), "--sync", "always"] if settings else []
    with RespServer(workers=2, options=options) as server:
        client = redis.Redis(port=server.port)
        for name, value in settings.items():
            client.config_set(name, value)
        # Answers as they are: they may be of any form.
        client.response_callbacks.clear()
        yield client


def fill(client):
    client.set("text", "some words")
    client.set("number", 5)
    client.rpush("list", "a", "b", "a", "1")
    client.sadd("set", "a", "b", "c")
    client.hset("hash", mapping={"a": 1, "b": "two"})
    client.zadd("zset", {"a": 1, "b": 2.5, "c": 2.5})
    client.xadd("stream", {"a": 1})
    client.xgroup_create("stream", "group", id="0")
    client.xreadgroup("group", "consumer", {"stream": ">"})
    client.set("past", "gone", px=1)
    time.sleep(0.01)


def reading(client):
    """Names of the commands, and of parts of commands, that only read."""
    found = []
    # The answer of COMMAND: name, arity, flags, places of keys, categories, tips, ..., subcommands.
    for row in client.execute_command("COMMAND INFO", *client.command_list()):
        for name, arity, flags in [row[:3], *(part[:3] for part in row[9])]:
            if b"readonly" in flags:
                found.append((name.decode().split("|"), abs(arity)))
    return found


def test_commands_that_only_read_change_nothing(client):
    fill(client)
    commands = reading(client)
    assert len(commands) > 75 and (["object", "freq"], 3) in commands, commands
    chance = random.Random(11)
    before = {key: client.dump(key) for key in KEYS}
    answered = set(OTHERS)
    for request in REQUESTS:
        client.execute_command(*request.split())
        answered |= {request.split()[0], " ".join(request.split()[:2])}
    for name, least in commands:
        for _ in range(TRIES):
            count = least - len(name) + chance.choice([0, 0, 1, 2, 3])
            words = [chance.choice(chance.choice([KEYS, NUMBERS, OPTIONS])) for _ in range(count)]
            if "block" in words:
                continue
            try:
                client.execute_command(*name, *words)
                answered.add(" ".join(name))
            except redis.ResponseError:
                pass
    assert client.ping()
    assert {key: client.dump(key) for key in KEYS} == before
    unanswered = {" ".join(name) for name, _ in commands} - answered
    assert not unanswered, " ".join(sorted(unanswered))
