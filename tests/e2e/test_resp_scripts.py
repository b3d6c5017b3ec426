"""Scripts: what they may do, what they are answered, and how long they may take."""

import itertools
import threading
import time
from contextlib import ExitStack

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.harness.process import HOST, free_port
from tests.harness.resp import RespServer

ANSWERS_MIN = 5000


@pytest.fixture(scope="module")
def server():
    with RespServer(workers=2, options=["--no-balance"]) as server:
        yield server


def patient(port):
    """A client that waits for the end of a script. By itself it would send it again."""
    return redis.Redis(port=port, decode_responses=True, socket_timeout=None)


@pytest.fixture
def client(server):
    client = patient(server.port)
    client.flushall()
    yield client
    client.close()


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("return {1, 3.9, 'a', true, false, {2, nil, 3}}", [1, 3, "a", 1, None, [2]]),
        ("return redis.call('set', KEYS[1], ARGV[1])", "OK"),
        ("return redis.call('get', 'nokey') == false", 1),
        ("return {KEYS[1], ARGV[1], ARGV[2], #ARGV}", ["key", "one", "two", 2]),
        ("return redis.pcall('incr', 'x', 'y').err", "ERR Wrong number of args calling command"),
        ("return cjson.encode(cjson.decode('{\"a\":[1,2.5,null]}'))", '{"a":[1,2.5,null]}'),
        ("return {cmsgpack.unpack(cmsgpack.pack(1, 'x', {5, 6}))}", [1, "x", [5, 6]]),
        ("return {bit.band(12, 10), bit.lshift(1, 31)}", [8, -2147483648]),
        ("return redis.sha1hex('')", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    ],
)
def test_values_are_converted(client, script, answer):
    got = client.eval(script, 1, "key", "one", "two")
    assert got.startswith(answer) if answer == str(answer) else got == answer


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("return os.execute('true')", "attempt to call"),
        ("return io", "nonexistent global variable 'io'"),
        ("return require", "nonexistent global variable 'require'"),
        ("return dofile", "nonexistent global variable 'dofile'"),
        ("return getfenv", "nonexistent global variable 'getfenv'"),
        ("x = 1", "Attempt to modify a readonly table"),
        ("string.len = 1", "Attempt to modify a readonly table"),
        ("rawset(_G, 'x', 1)", "Attempt to modify a readonly table"),
        ("getmetatable('').__index = nil", "Attempt to modify a readonly table"),
        ("return loadstring('\\27Lua')()", "attempt to call"),
        ("return redis.call('blpop', 'x')", "Wrong number of args"),
        ("return redis.call('subscribe', 'x')", "not allowed from script"),
        ("return redis.call('eval', 'return 1', 0)", "not allowed from script"),
        ("return (", "Error compiling script"),
        ("return string.rep('x', 1000000000)", "not enough memory"),
        ("local t = {} while true do t[#t + 1] = {t} end", "not enough memory"),
    ],
)
def test_scripts_stay_in_their_sandbox(client, script, error):
    with pytest.raises(redis.ResponseError, match=error):
        client.eval(script, 0)
    assert client.eval("return #('x') + #KEYS", 0) == 1


def test_a_script_leaves_the_database_of_the_client(client):
    client.eval("redis.call('select', 3) redis.call('set', 'key', 'there')", 0)
    assert client.get("key") is None
    assert client.execute_command("SELECT", 3) and client.get("key") == "there"
    client.execute_command("SELECT", 0)


def test_no_script_is_seen_half(server, client):
    client.mset({"one": 0, "two": 0})
    add = client.register_script(
        "for _, key in ipairs({'one', 'two'}) do redis.call('incr', key) end"
    )
    ends = threading.Event()

    def write():
        own = redis.Redis(port=server.port)
        while not ends.is_set():
            add(client=own)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        end, seen = time.monotonic() + 0.5, set()
        while time.monotonic() < end or len(seen) <= 10:
            one, two = client.mget("one", "two")
            assert one == two
            seen.add(one)
            assert time.monotonic() < end + 60, "the scripts do not run"
    finally:
        ends.set()
        for writer in writers:
            writer.join()


def impatient(port):
    """Clients of both workers: one whose worker runs a script does not wait for it."""
    once = Retry(NoBackoff(), 0)
    return [
        redis.Redis(port=port, decode_responses=True, socket_timeout=0.2, retry=once)
        for _ in range(8)
    ]


def busy_one(clients):
    """A client whose worker says that the other one runs a script."""
    deadline = time.monotonic() + 60
    for client in itertools.cycle(clients):
        try:
            client.get("key")
        except redis.ResponseError as error:
            assert str(error).startswith("BUSY")
            return be_patient(client)
        except redis.TimeoutError:
            pass
        assert time.monotonic() < deadline


def be_patient(client):
    """Has a client wait for its answers, on the connection that it has."""
    connection = client.connection_pool.get_connection()
    connection._sock.settimeout(60)
    client.connection_pool.release(connection)
    return client


def test_a_long_script_can_be_killed(server, client):
    one, others = patient(server.port), impatient(server.port)
    client.config_set("busy-reply-threshold", 50)
    errors = []

    def loop():
        try:
            one.eval("while true do pcall(function() while true do end end) end", 0)
        except redis.ResponseError as error:
            errors.append(str(error))

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        other = busy_one(others)
        other.script_kill()
        thread.join(60)
    finally:
        client.config_set("busy-reply-threshold", 5000)
    assert "Script killed by user" in errors[0]
    assert other.get("key") is None
    with pytest.raises(redis.ResponseError, match="NOTBUSY"):
        other.script_kill()


@pytest.mark.parametrize("storages", [False, True])
def test_a_stop_waits_seconds_for_a_script(storages, start_server):
    with ExitStack() as stack:
        if storages:
            port = free_port()
            server = start_server(None, "--resp", f"{HOST}:{port}")
        else:
            server = stack.enter_context(RespServer(workers=2))
            port = server.port
        one = patient(port)

        def loop():
            with pytest.raises(redis.RedisError):
                one.eval("redis.call('set', 'k', 1) while true do end", 0)

        thread = threading.Thread(target=loop)
        thread.start()
        time.sleep(0.5)
        server.process.terminate()
        assert server.process.wait(20) == 0
        thread.join()


def test_a_script_that_has_written_is_not_killed(server, client):
    script = "redis.call('incr', 'n') local x = 0 while x < 5e7 do x = x + 1 end return x"
    answers, runs = set(), 0
    # A run ends by itself, perhaps before another worker has answered.
    while "UNKILLABLE" not in answers and runs < 20:
        one, others = patient(server.port), impatient(server.port)
        runs += 1
        thread = threading.Thread(target=one.eval, args=(script, 0))
        thread.start()
        for other in itertools.cycle(others):
            if not thread.is_alive():
                break
            try:
                other.script_kill()
            except redis.ResponseError as error:
                answers.add(str(error).split()[0])
            except redis.TimeoutError:
                pass
        thread.join()
    assert "UNKILLABLE" in answers
    assert client.get("n") == str(runs)


def test_scripts_and_sets_that_make_room_in_turns_are_not_refused(server, client):
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", used + 500_000, "maxmemory-policy", "allkeys-lru")
    begin, answers = time.monotonic(), []

    def is_over():
        seconds = time.monotonic() - begin
        return seconds > 2 and len(answers) > ANSWERS_MIN or seconds > 60

    def run(number, send):
        own, count = redis.Redis(port=server.port), 0
        while not is_over():
            pipe = own.pipeline(transaction=False)
            for _ in range(20):
                count += 1
                send(pipe, f"{number}-{count}")
            answers.extend(pipe.execute(raise_on_error=False))

    def send_script(pipe, key):
        pipe.eval("return redis.call('set', KEYS[1], ARGV[1])", 1, key, "x" * 100)

    def send_set(pipe, key):
        pipe.set(key, "x" * 100)

    sends = [send_script, send_set] * 3
    threads = [threading.Thread(target=run, args=one) for one in enumerate(sends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.config_set("maxmemory", 0, "maxmemory-policy", "noeviction")
    assert len(answers) > ANSWERS_MIN
    refused = [answer for answer in answers if answer not in (True, b"OK")]
    assert not refused, (len(refused), refused[0])
