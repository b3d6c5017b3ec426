"""Keys on disk: what comes back after a kill, a full disk, damage, a compaction."""

import contextlib
import errno
import json
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request

import pytest
import redis
from harness.failing_disk import ALWAYS, FailingDisk
from harness.keys import change, snapshot
from harness.process import HOST, ServerFailed, free_port
from harness.resp import RespServer
from harness.waiting import wait_for

pytestmark = pytest.mark.zodium
KILLS = 3
WRITERS = 4
SECONDS_MAX = 30


@pytest.fixture
def start(tmp_path):
    """start(sync, *options, prefix): a server that keeps its keys in one file."""
    with contextlib.ExitStack() as stack:

        def start(sync="everysec", *options, prefix=()):
            words = ["--file", str(tmp_path / "keys.log"), "--sync", sync, *options]
            return stack.enter_context(RespServer(workers=2, options=words, prefix=prefix))

        yield start


def connect(server, **options):
    return redis.Redis(HOST, server.port, socket_timeout=SECONDS_MAX, **options)


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def wait_until_counted(writers, enough=any):
    def have_counted():
        return enough(writer.counted > writer.first for writer in writers)

    wait_for(have_counted, f"{enough.__name__} of the writers have counted", SECONDS_MAX)


class Writer(threading.Thread):
    """Counts up in several ways until the server ends; `counted` is what was acknowledged."""

    def __init__(self, server, name, first):
        super().__init__(daemon=True)
        self.client = connect(server, retry=None)
        self.name, self.first, self.counted = name, first, first
        self.start()

    def run(self):
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            while True:
                number = self.counted + 1
                with self.client.pipeline() as pipe:
                    pipe.set(f"{self.name}:last", number).rpush(f"{self.name}:list", number)
                    pipe.zadd(f"{self.name}:zset", {number: number})
                    pipe.execute()
                self.counted = number


def test_nothing_acknowledged_is_lost_under_always(start, seeded):
    kills = 200 if os.environ.get("ZODIUM_TEST_LARGE") else KILLS
    counts = [0] * WRITERS
    for kill_number in range(kills):
        server = start("always")
        writers = [Writer(server, f"w{number}", counts[number]) for number in range(WRITERS)]
        wait_until_counted(writers, any if kill_number else all)
        time.sleep(seeded.random() / 20)
        kill(server)
        for writer in writers:
            writer.join()
        acknowledged = [writer.counted for writer in writers]
        server = start("always")
        with connect(server) as client:
            for number in range(WRITERS):
                last = int(client.get(f"w{number}:last") or 0)
                # The transaction on its way when the server was killed is there as a whole or not.
                assert acknowledged[number] <= last <= acknowledged[number] + 1
                assert client.llen(f"w{number}:list") == last
                assert client.zcard(f"w{number}:zset") == last
                counts[number] = last
        kill(server)
    assert min(counts) > 0


@pytest.mark.parametrize("sync", ["everysec", "always"])
def test_all_comes_back_as_it_was(start, seeded, sync):
    server = start(sync)
    with connect(server) as client:
        for number in range(1500):
            with contextlib.suppress(redis.ResponseError):
                change(client, seeded)
            if number == 1000:
                client.bgrewriteaof()
        wait_for(lambda: no_key_is_about_to_expire(client), "keys expired", SECONDS_MAX)
        # Acknowledged when all before it is on the device too.
        client.config_set("appendfsync", "always")
        client.set("last", 1)
        before = snapshot(client)
    assert len(before) > 20
    kill(server)
    server = start(sync)
    with connect(server) as client:
        assert snapshot(client) == before
        client.flushall()
        client.mset({str(number): number for number in range(1000)})
    # An orderly end.
    assert server.stop() == 0
    server = start("no")
    with connect(server) as client:
        assert client.dbsize() == 1000
        # Compacted, and what comes then.
        client.save()
        client.config_set("appendfsync", "always")
        client.append("1", "more")
    kill(server)
    with connect(start("no")) as client:
        assert (client.dbsize(), client.get("1"), client.get("2")) == (1000, b"1more", b"2")


def no_key_is_about_to_expire(client):
    times = [client.pttl(key) for key in client.keys("*")]
    return all(time < 0 or time > 5000 for time in times)


def test_the_end_of_a_torn_write_is_cut_and_damage_is_refused(start, tmp_path):
    file = tmp_path / "keys.log"
    server = start("always")
    with connect(server) as client:
        for number in range(20):
            client.set(f"key{number}", "value" * 10)
    kill(server)
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    server = start("always")
    with connect(server) as client:
        assert (client.dbsize(), client.get("key19")) == (19, None)
        client.set("key19", "again")
    assert "was cut off by a crash" in server.log()
    kill(server)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(ServerFailed, match=r"is damaged at byte \d+.*truncate -s \d+"):
        start("always")
    file.write_bytes(b"another file")
    with pytest.raises(ServerFailed, match="is no log of keys"):
        start("always")


def test_a_file_is_served_once(start):
    server = start()
    with pytest.raises(ServerFailed, match=f"in use by process {server.process.pid}"):
        start()


@pytest.mark.parametrize("kind", ["writes", "syncs"])
def test_reads_go_on_while_the_disk_is_full(start, tmp_path, kind):
    disk = FailingDisk(tmp_path, tmp_path / "keys.log")
    server = start("always", prefix=disk.prefix)
    client = connect(server)
    client.set("key", "value")
    disk.set(error=errno.ENOSPC, **{kind: ALWAYS})
    # What was on its way when it filled is not acknowledged.
    with pytest.raises(redis.ConnectionError):
        connect(server, retry=None).set("unknown", 1)
    with pytest.raises(redis.ResponseError, match="MISCONF Errors writing to the AOF file"):
        client.set("key", "other")
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        client.pipeline().set("key", "other").execute()
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        client.eval("return redis.call('set', KEYS[1], 1)", 1, "key")
    assert client.get("key") == b"value"
    assert client.info("persistence")["aof_last_write_status"] == "err"
    disk.set()

    def accepts():
        try:
            return client.set("key", "later")
        except redis.ResponseError:
            return False

    wait_for(accepts, "writes are accepted", SECONDS_MAX)
    kill(server)
    with connect(start("always")) as client:
        assert client.get("key") == b"later"


def test_a_stop_tells_what_could_not_be_written(start, tmp_path):
    disk = FailingDisk(tmp_path, tmp_path / "keys.log")
    monitor = f"{HOST}:{free_port()}"
    server = start("everysec", "--monitor", monitor, prefix=disk.prefix)
    client = connect(server)
    client.set("kept", "value")
    client.config_set("appendfsync", "always")
    client.set("kept", "value")
    client.config_set("appendfsync", "everysec")
    assert health(monitor)[0] == 200
    disk.set(error=errno.ENOSPC, writes=ALWAYS)
    assert client.set("lost", "value")

    def is_refused():
        with contextlib.suppress(redis.ResponseError):
            client.delete("none")
            return False
        return True

    wait_for(is_refused, "commands that write are refused", SECONDS_MAX)
    code, reasons = health(monitor)
    assert code == 503 and "keys.log: No space left on device" in str(reasons)
    expected = ["zodium_resp_file_healthy 0", 'zodium_resp_refused_total{reason="file"} 1']

    def is_told():
        samples = read(f"http://{monitor}/metrics")[1].decode()
        return all(sample in samples for sample in expected)

    wait_for(is_told, "the metrics tell it", SECONDS_MAX)
    assert server.stop() == 1
    assert re.search(r"\d+ bytes of changes could not be written to .*keys.log", server.log())
    disk.set()
    with connect(start("everysec")) as client:
        assert client.keys() == [b"kept"]


def read(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def health(monitor):
    code, body = read(f"http://{monitor}/health")
    return code, json.loads(body)["reasons"]


def test_a_change_is_not_seen_before_it_is_on_the_device(start, tmp_path):
    """Answers wait under `always`: to writes, and to reads of what is being written."""
    disk = FailingDisk(tmp_path, tmp_path / "keys.log")
    server = start("always", prefix=disk.prefix)
    with connect(server) as client, connect(server) as other:
        client.mset({"key": "old", "other": "value"})
        disk.set(sync_seconds=0.5)
        writing = client.connection_pool.get_connection()
        reading = other.connection_pool.get_connection()
        began = time.monotonic()
        writing.send_command("SET", "key", "new")
        reading.send_command("GET", "key")
        value = reading.read_response()
        took = time.monotonic() - began
        # Either it came before the write, or it waited for its sync.
        assert value == b"old" or took >= 0.4
        assert writing.read_response() == b"OK" and time.monotonic() - began >= 0.4
        client.connection_pool.release(writing)
        other.connection_pool.release(reading)


def test_the_log_is_compacted_under_load(start, tmp_path):
    server = start()
    file = tmp_path / "keys.log"
    writers = [Writer(server, f"w{number}", 0) for number in range(2)]
    with connect(server) as client:
        client.mset({f"key{number}": number for number in range(5000)})
        for _ in range(200):
            client.mset({f"key{number}": "x" * 20 for number in range(200)})
        for _ in range(3):
            assert client.save()
        client.config_set("appendfsync", "always")
        before = file.stat().st_size
        assert client.save()
        assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"
        assert client.lastsave()
        client.set("last", 1)
    kill(server)
    for writer in writers:
        writer.join()
    assert before < 4_000_000
    with connect(start("always")) as client:
        assert client.get("key0") == b"x" * 20 and client.get("key4999") == b"4999"
        for number, writer in enumerate(writers):
            last = int(client.get(f"w{number}:last"))
            assert writer.counted <= last <= writer.counted + 1
            assert client.llen(f"w{number}:list") == last


def test_settings_tell_where_keys_are(start, tmp_path):
    with connect(start("always")) as client:
        expected = {"appendonly": "yes", "appendfsync": "always", "appendfilename": "keys.log"}
        assert client.config_get("append*") == expected
        assert client.config_get("dir") == {"dir": str(tmp_path)}
        client.config_set("appendfsync", "everysec")
        with pytest.raises(redis.ResponseError):
            client.config_set("appendonly", "no")
        assert client.info("persistence")["aof_enabled"] == 1
    with RespServer() as server, connect(server) as client:
        with pytest.raises(redis.ResponseError, match="in memory only"):
            client.bgsave()
        assert client.info("persistence")["aof_enabled"] == 0
