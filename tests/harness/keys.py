"""Keys of a server: random commands that change them, and all that they are."""

# A log has in which minute a consumer was seen.
SEEN = {b"seen-time", "seen-time"}


def snapshot(client, databases=range(16)):
    """All keys of a server, with their values, times and groups."""
    found = {}
    for database in databases:
        client.execute_command("SELECT", database)
        for key in client.keys("*"):
            found[database, key] = [kind := client.type(key), value_of(client, kind, key)]
            found[database, key].append(client.execute_command("PEXPIRETIME", key))
    client.execute_command("SELECT", 0)
    return found


def value_of(client, kind, key):
    if kind == b"stream":
        return stable(client.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    readers = {
        b"string": lambda: client.get(key),
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"hash": lambda: client.hgetall(key),
        b"zset": lambda: client.zrange(key, 0, -1, withscores=True),
    }
    return readers[kind]()


def stable(answer):
    """An answer of `XINFO STREAM FULL` without what passes with time, or is of one build only."""
    if isinstance(answer, dict):
        left_out = {b"radix-tree-keys", b"radix-tree-nodes", "radix-tree-keys", "radix-tree-nodes"}
        kept = {name: stable(each) for name, each in answer.items() if name not in left_out}
        seen = {name: minute_of(kept[name]) for name in kept if name in SEEN}
        return {**kept, **seen}
    if isinstance(answer, list):
        before = [None, *answer]
        return [
            minute_of(each) if is_seen_time(name) else stable(each)
            for name, each in zip(before, answer)
        ]
    return answer


def minute_of(time):
    return time - time % 60_000


def is_seen_time(name):
    return isinstance(name, bytes | str) and name in SEEN


def change(client, choose):
    """One random command, or a transaction or a script of several."""
    if choose.random() < 0.1:
        pipe = client.pipeline()
        for _ in range(choose.randrange(1, 4)):
            pipe.execute_command(*words(choose))
        return pipe.execute(raise_on_error=False)
    if choose.random() < 0.05:
        script = "redis.pcall(unpack(ARGV)); return redis.pcall('incr', KEYS[1])"
        return client.eval(script, 1, "scripted", *words(choose))
    return client.execute_command(*words(choose))


def words(choose):
    """The words of a random command."""
    return [part.format(**names(choose)) for part in choose.choice(COMMANDS).split()]


def names(choose):
    def of(kind):
        return f"{kind}{choose.randrange(6)}"

    return {
        "s": of("string"),
        "l": of("list"),
        "k": of("list"),
        "h": of("hash"),
        "m": of("set"),
        "n": of("set"),
        "z": of("zset"),
        "y": of("zset"),
        "x": of("stream"),
        "a": choose.choice(["string", "list", "hash", "set", "zset", "stream"]) + "0",
        "v": choose.choice(["", "a", "value" * 20, "12", "-7"]) or "empty",
        "f": choose.randrange(20),
        "i": choose.randrange(-5, 100),
        "d": round(choose.uniform(-9, 9), 3),
        "t": choose.choice([1, 20, 100_000]),
        "b": choose.randrange(3),
    }


COMMANDS = """\
SET {s} {v}
SET {s} {v} PX {t}
SET {s} {v} EX 1000 NX
SET {s} {v} KEEPTTL
SETRANGE {s} 3 {v}
APPEND {s} {v}
INCRBY {s} {i}
INCRBYFLOAT {s} {d}
GETEX {s} PX {t}
GETDEL {s}
SETBIT {s} {f} 1
BITOP XOR {s} string0 string1
BITFIELD {s} INCRBY i5 3 {i}
MSET {s} {v} string9 {v}
RPUSH {l} {f} {v}
LPUSH {l} {f}
LPOP {l} 2
RPOPLPUSH {l} {k}
LMOVE {l} {k} LEFT LEFT
BLPOP {l} {k} 0.001
BLMOVE {l} {k} LEFT RIGHT 0.001
LTRIM {l} 0 20
LREM {l} 0 {f}
LSET {l} 0 {v}
LINSERT {l} BEFORE {f} {v}
LMPOP 2 {l} {k} LEFT
HSET {h} {f} {v}
HINCRBY {h} {f} {i}
HINCRBYFLOAT {h} {f} {d}
HDEL {h} {f} 1 2
SADD {m} {f} {v} {i}
SPOP {m}
SPOP {m} 2
SREM {m} {f}
SMOVE {m} {n} {f}
SUNIONSTORE {m} {n} set1
SDIFFSTORE {m} {n} set1
SORT {m} BY nosort STORE {l}
SORT {m} ALPHA STORE {l}
ZADD {z} {d} {f} {i} {v}
ZINCRBY {z} {d} {f}
ZPOPMIN {z}
ZREM {z} {f}
ZUNIONSTORE {z} 2 {y} zset1 WEIGHTS 2 3
ZRANGESTORE {z} {y} 0 3
ZREMRANGEBYRANK {z} 20 -1
XADD {x} * {f} {v}
XADD {x} MAXLEN 20 * {f} {v} field other
XDEL {x} 0-1
XTRIM {x} MAXLEN ~ 5
XGROUP CREATE {x} group 0 MKSTREAM
XGROUP CREATECONSUMER {x} group {f}
XREADGROUP GROUP group {b} COUNT 2 STREAMS {x} >
XREADGROUP GROUP group {b} NOACK STREAMS {x} >
XREADGROUP GROUP group {b} BLOCK 1 COUNT 1 STREAMS {x} >
XAUTOCLAIM {x} group {b} 0 0 COUNT 2
XSETID {x} 9999999999999-0
XGROUP DESTROY {x} group
DEL {a}
RENAME {a} {s}
COPY {a} copied REPLACE
COPY {a} {a} DB 3 REPLACE
MOVE {a} 2
PEXPIRE {a} {t}
EXPIRE {a} 1000
PEXPIREAT {a} 99999999999999
PERSIST {a}
SWAPDB 2 3""".splitlines()


def many_commands(file, count=200_000):
    """An append-only file that sets so many keys."""
    with file.open("wb") as commands:
        for number in range(count):
            key = b"key:%d" % number
            commands.write(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$5\r\nhello\r\n" % (len(key), key))
    return file
