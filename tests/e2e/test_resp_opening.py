"""While the keys in a file are being read: health says so, and no client is kept waiting."""

import contextlib
import socket
import subprocess

import pytest
from harness.keys import many_commands
from harness.monitor import Monitor
from harness.process import HOST, ServerProcess, free_port
from harness.resp import PROGRAM

pytestmark = pytest.mark.zodium
OPENING = 503


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A file of keys that takes a moment to read."""
    folder = tmp_path_factory.mktemp("keys")
    source = many_commands(folder / "many.aof", 300_000)
    words = [str(PROGRAM), "resp", "import", str(source), "--file", str(folder / "keys.log")]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "keys.log"


def watched(server, monitor):
    """Whether clients could connect, and what health said after it, until it is well."""
    seen, health = [], None
    while health != 200:
        assert server.is_running(), server.log()
        try:
            socket.create_connection((HOST, server.port), 5).close()
            is_connected = True
        except ConnectionRefusedError:
            is_connected = False
        health = None
        # Before it listens itself.
        with contextlib.suppress(ConnectionRefusedError):
            health = monitor.fetch("/health")[0]
        seen.append((is_connected, health))
    return seen


def assert_refuses_while_it_reads(seen):
    assert (False, OPENING) in seen
    # It listens a moment before it says that it serves.
    assert seen.count((True, OPENING)) < seen.count((False, OPENING)) / 4


def test_clients_of_zeo_connect_when_the_keys_are_read(keys, start_server):
    monitor = Monitor()
    options = ("--resp", f"{HOST}:{free_port()}", "--resp-file", str(keys), *monitor.options)
    server = start_server(None, *options, wait=False)
    assert_refuses_while_it_reads(watched(server, monitor))


def test_a_server_without_a_database_tells_that_it_reads_its_keys(keys, tmp_path):
    monitor, port = Monitor(), free_port()
    words = [str(PROGRAM), "resp", "-a", f"{HOST}:{port}", "--file", str(keys), *monitor.options]
    server = ServerProcess(words, port, tmp_path, wait=False)
    try:
        assert_refuses_while_it_reads(watched(server, monitor))
    finally:
        server.stop()
