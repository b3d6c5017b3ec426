"""A configuration file of Valkey or Redis, read by `zodium resp` and `zodium serve`."""

import subprocess
import urllib.request
from contextlib import contextmanager

import pytest
import redis

from tests.harness.process import HOST, ServerProcess, free_port
from tests.harness.resp import PROGRAM

# What a package of Valkey installs, shortened, with some lines changed by a site.
SITE = """
# bind 192.168.1.100 10.0.0.1
bind {host} -::1
protected-mode yes
port {port}
tcp-backlog 511
timeout 300
tcp-keepalive 300
daemonize yes
supervised auto
loglevel notice
databases 16
save 3600 1 300 100
dbfilename dump.rdb
dir ./
requirepass "a secret"
maxmemory 2mb
maxmemory-policy allkeys-lru
notify-keyspace-events Ex
appendonly no
slowlog-max-len 64
"""


@contextmanager
def served(words, port, folder):
    server = ServerProcess([str(PROGRAM), *words], port, folder)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def site(tmp_path):
    port = free_port()
    path = tmp_path / "valkey.conf"
    path.write_text(SITE.format(host=HOST, port=port))
    return path, port


def test_a_server_starts_with_what_the_file_says(site, tmp_path):
    path, port = site
    with served(["resp", "-C", str(path)], port, tmp_path) as server:
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        client = redis.Redis(port=port, password="a secret", decode_responses=True)
        expected = {
            "timeout": "300",
            "maxmemory": str(2 << 20),
            "maxmemory-policy": "allkeys-lru",
            "notify-keyspace-events": "xE",
            "slowlog-max-len": "64",
        }
        assert {name: client.config_get(name)[name] for name in expected} == expected
        for number in range(4000):
            client.set(f"key{number}", "x" * 1000)
        assert client.info("memory")["used_memory"] < 2.1 * (1 << 20)
        with pytest.raises(redis.ResponseError, match="write it to .*valkey.conf"):
            client.config_rewrite()
        client.close()
        log = server.log()
    assert "without effect here: daemonize, dbfilename, dir, supervised, tcp-backlog" in log
    assert "they are in memory only" in log


def test_options_go_before_the_file(site, tmp_path):
    path, _ = site
    port = free_port()
    password = tmp_path / "password"
    password.write_text("another\n")
    words = ["resp", "-C", str(path), "-a", f"{HOST}:{port}"]
    words += ["--password-file", str(password), "--file", str(tmp_path / "keys.log")]
    with served(words, port, tmp_path) as server:
        client = redis.Redis(port=port, password="another")
        assert client.ping()
        client.close()
        log = server.log()
    assert "in memory only" not in log


def test_a_database_is_served_beside_it(site, tmp_path):
    path, port = site
    monitor = free_port()
    words = ["serve", str(tmp_path / "Data.fs"), "-a", f"{HOST}:{free_port()}"]
    words += ["--resp-config", str(path), "--monitor", f"{HOST}:{monitor}"]
    with served(words, port, tmp_path):
        client = redis.Redis(port=port, password="a secret", decode_responses=True)
        assert client.config_get("maxmemory") == {"maxmemory": str(2 << 20)}
        client.close()
        with urllib.request.urlopen(f"http://{HOST}:{monitor}/metrics") as answer:
            assert b"zodium_resp_" in answer.read()


@pytest.mark.parametrize(
    "line, told",
    [
        ("maxmemory lots", "valkey.conf:1: maxmemory: argument must be a memory value"),
        ("rename-command FLUSHALL ''", "valkey.conf:1: rename-command: commands cannot be"),
        ("bind 0.0.0.0", "Set requirepass, or bind 127.0.0.1"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path, line, told):
    path = tmp_path / "valkey.conf"
    path.write_text(line + "\n")
    words = [str(PROGRAM), "resp", "-C", str(path), "--workers", "1"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert told in ended.stderr
