"""A command does the same by every route to the keys.

Each command that writes is given to four servers: as it is, in a transaction, in a script, and
parked for a ZODB transaction. Afterwards all four have the same keys, and they have them again when
their logs are read. ZODIUM_TEST_SEED replays.
"""

import pytest
import redis
from harness.files import oid_of
from harness.keys import COMMANDS, names, snapshot
from harness.process import HOST, free_port
from harness.resp import RespServer
from harness.tied import Both
from harness.wire import Z64

pytestmark = pytest.mark.zodium
ROUNDS = 200
# No key is tied to it.
OBJECT = oid_of(9)
# Keys that are tied to objects which are not there do not come back.
TIED = [oid_of(1), oid_of(2)]
# Effects that are chosen by chance, or depend on the time.
VARYING = ["SPOP", " * ", "{t}"]
VARYING_COMMANDS = {"spop"}
# Commands that `harness.keys` has not, or not without chance and time.
MORE = """\
BLMPOP 0.001 2 {l} {k} LEFT
BRPOP {l} 0.001
BRPOPLPUSH {l} {k} 0.001
BZMPOP 0.001 2 {z} {y} MIN
BZPOPMAX {z} 0.001
BZPOPMIN {z} {y} 0.001
DECR {s}
DECRBY {s} {i}
EXPIREAT {a} 99999999999
EXPIRE {a} -1
FLUSHALL
FLUSHDB
GETEX {s} EX 100000
GETSET {s} {v}
HMSET {h} {f} {v} 1 {v}
HSETNX {h} {f} {v}
INCR {s}
LPUSHX {l} {f}
MSETNX {s} {v} string9 {v}
PSETEX {s} 100000000 {v}
PEXPIRE {s} 100000000
PUBLISH channel {v}
RENAMENX {a} {s}
RESTORE {s} 0 {dump} REPLACE
RESTORE {l} 100000000 {dump}
RPOP {l}
RPUSHX {l} {f}
SETEX {s} 100000 {v}
SETNX {s} {v}
SINTERSTORE {m} {n} set1
SORT {l} ALPHA LIMIT 0 3 GET # STORE {k}
UNLINK {a} {s}
XACK {x} group {f}-1
XADD {x} {f}-1 {f} {v}
XADD {x} MAXLEN 5 {i}-* field {v}
XCLAIM {x} group {b} 0 {f}-1 FORCE
XCLAIM {x} group {b} 0 1-1 2-1 JUSTID
ZDIFFSTORE {z} 2 {y} zset1
ZDISCARD {v}
ZDISCARD token
ZINTERSTORE {z} 2 {y} zset1 AGGREGATE MAX
ZMPOP 2 {z} {y} MAX COUNT 2
ZPOPMAX {z} 2
ZREMRANGEBYLEX {z} [1 (7
ZREMRANGEBYSCORE {z} -1 1
ZTIE {a} 1
SET {s} {v} TIE 2""".splitlines()
TEMPLATES = [each for each in COMMANDS if not any(word in each for word in VARYING)] + MORE
# What `DUMP` answers for the string "value".
DUMP = b"\x00\x05value\x0b\x00\xe8)|K<5r\xe7"


class Route:
    """A server, and one way to have it execute commands."""

    def __init__(self, start_server, folder, name):
        folder.mkdir()
        self.name, self.folder, self.start_server = name, folder, start_server
        self.start()
        self.both.commit(*((oid, Z64, b"data") for oid in TIED))

    def start(self):
        port = free_port()
        options = ["--resp", f"{HOST}:{port}", "--resp-file", str(self.folder / "keys.log")]
        options += ["--resp-sync", "always", "--workers", "2"]
        self.server = self.start_server(self.folder / "Data.fs", *options)
        self.both = Both(self.server, port, protocol=2)

    def start_again(self):
        self.both.close()
        self.server.process.kill()
        self.server.process.wait()
        self.start()

    def execute(self, commands):
        return getattr(self, self.name)(commands)

    def ask(self, words):
        try:
            return self.both.keys.execute_command(*words)
        except redis.ResponseError as error:
            return str(error)

    def as_it_is(self, commands):
        for words in commands:
            self.ask(words)

    def in_a_transaction(self, commands):
        self.ask_together(["MULTI"], *commands, ["EXEC"])

    def in_a_script(self, commands):
        for words in commands:
            self.ask(["EVAL", "return redis.pcall(unpack(ARGV))", "0", *words])

    def with_a_commit(self, commands):
        parked = self.ask_together(["MULTI"], *commands, ["ZEXEC", "token"])[-1]
        assert parked == len(commands), parked
        self.both.write(OBJECT, b"data", extension={"zodium.exec": "token"})

    def ask_together(self, *requests):
        connection = self.both.keys.connection_pool.get_connection()
        try:
            connection.send_packed_command(connection.pack_commands(requests))
            return [self.answer(connection) for _ in requests]
        finally:
            self.both.keys.connection_pool.release(connection)

    def answer(self, connection):
        try:
            return connection.read_response()
        except redis.ResponseError as error:
            return error

    def keys(self):
        return snapshot(self.both.keys)


def different(found, expected):
    """The keys that are not the same in both."""
    pairs = {key: (found.get(key), expected.get(key)) for key in {**found, **expected}}
    return {key: pair for key, pair in pairs.items() if not is_same(*pair)}


def is_same(one, other):
    """Whether values are equal, but for times that differ by the moment of a command."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[each], other[each]) for each in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, int) and isinstance(other, int) and min(one, other) > 1e12:
        return abs(one - other) <= 60_000
    return one == other


def random_words(choose):
    """A random command."""
    chosen = names(choose)
    words = choose.choice(TEMPLATES).split()
    return [DUMP if word == "{dump}" else word.format(**chosen) for word in words]


def test_a_command_does_the_same_by_every_route(start_server, tmp_path, seeded, scale):
    ways = ["as_it_is", "in_a_transaction", "in_a_script", "with_a_commit"]
    routes = [Route(start_server, tmp_path / way, way) for way in ways]
    most = 0
    for number in range(int(ROUNDS * scale)):
        commands = [random_words(seeded) for _ in range(seeded.choice([1, 1, 2, 5]))]
        for route in routes:
            route.execute(commands)
        first, *others = [route.keys() for route in routes]
        most = max(most, len(first))
        for way, keys in zip(ways[1:], others):
            assert different(keys, first) == {}, f"{way}, round {number}, {commands}"
        if number % 50 == 49:
            for route in routes:
                route.start_again()
                again = different(route.keys(), first)
                assert again == {}, f"{route.name}, read again after round {number}"
    assert most > 8


def test_each_command_that_writes_has_a_template():
    with RespServer() as server, redis.Redis(port=server.port) as keys:
        writing = {name for name, known in keys.command().items() if "write" in known["flags"]}
    assert writing <= {template.split()[0].lower() for template in TEMPLATES} | VARYING_COMMANDS
