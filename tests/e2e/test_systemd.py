"""As a unit of systemd: told by sockets it is handed, telling it how it does."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from harness.process import free_port
from harness.wire import Wire

pytestmark = pytest.mark.zodium

SECONDS = 30
FIRST_DESCRIPTOR = 3

# Hands descriptors over as systemd does: from 3 on, with LISTEN_PID that of the server.
LAUNCHER = """
import os, sys
count = int(sys.argv[1])
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def launch(binary, tmp_path):
    """launch(path, *options, sockets=..., env=...): a server started as systemd starts one."""
    processes = []

    def start(path, *options, sockets=(), env=None):
        words = [sys.executable, "-c", LAUNCHER, str(len(sockets)), binary]
        if not sockets:
            words = [binary]
        words += ["serve", str(path), *options]
        descriptors = [os.dup(given.fileno()) for given in sockets]

        def arrange():
            # Out of the way first: one may stand where another has to go.
            spare = [os.dup2(each, 100 + number) for number, each in enumerate(descriptors)]
            for number, descriptor in enumerate(spare):
                os.dup2(descriptor, FIRST_DESCRIPTOR + number)

        log = open(tmp_path / f"server-{len(processes)}.log", "wb")
        process = subprocess.Popen(
            words,
            stdout=log,
            stderr=log,
            preexec_fn=arrange,
            close_fds=False,
            env={**os.environ, **(env or {})},
        )
        for descriptor in descriptors:
            os.close(descriptor)
        process.log = lambda: open(log.name).read()
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        print(process.log())


class Manager:
    """The end of the notify socket that systemd holds."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(SECONDS)

    def next(self):
        return self.socket.recv(4096).decode().splitlines()

    def until(self, wanted):
        """All that is told until something is `wanted`, that included."""
        told = []
        while wanted not in told:
            told += self.next()
        return told


@pytest.fixture
def manager(tmp_path):
    told = Manager(tmp_path / "notify")
    yield told
    told.socket.close()


# ------------------------------------------------------------------ socket activation


def test_a_tcp_socket_that_is_handed_over_is_used_instead_of_addresses(tmp_path, launch):
    other = free_port()
    with socket.create_server(("127.0.0.1", 0)) as given:
        address = given.getsockname()
        # Whoever comes before the server is there waits, and is served.
        early = socket.create_connection(address)
        server = launch(tmp_path / "Data.fs", "-a", f"127.0.0.1:{other}", sockets=[given])
        early.settimeout(SECONDS)
        assert early.recv(6) == b"\0\0\0\2Z5"
        early.close()
        with Wire(address) as client:
            client.register()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", other))
        server.terminate()
        assert server.wait(SECONDS) == 0
        # It is the manager's: the next connection waits for the next server.
        socket.create_connection(address).close()


def test_unix_and_tcp_sockets_are_handed_over_together(tmp_path, launch):
    path = tmp_path / "zeo.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.socket(socket.AF_UNIX) as second,
    ):
        second.bind(str(path))
        second.listen()
        server = launch(tmp_path / "Data.fs", sockets=[first, second])
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SECONDS)
            client.connect(str(path))
            assert client.recv(6) == b"\0\0\0\2Z5"
        with Wire(first.getsockname()) as client:
            client.register()
        server.terminate()
        assert server.wait(SECONDS) == 0
        assert path.exists(), "the manager made it, and keeps it"


def test_a_socket_of_no_use_is_refused(tmp_path, launch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        given.bind(("127.0.0.1", 0))
        server = launch(tmp_path / "Data.fs", sockets=[given])
        assert server.wait(SECONDS) == 1
    assert "LISTEN_FDS" in server.log()


# ------------------------------------------------------------------------ notices


def test_ready_is_told_when_it_can_be_connected_to(tmp_path, launch, manager):
    port = free_port()
    env = {"NOTIFY_SOCKET": str(manager.path)}
    server = launch(tmp_path / "Data.fs", "-a", f"127.0.0.1:{port}", env=env)
    assert "STATUS=serving 1 storage" in manager.until("READY=1")
    with Wire(("127.0.0.1", port)) as client:
        client.register()
    server.send_signal(signal.SIGUSR2)
    told = manager.until("READY=1")
    assert told[0] == "RELOADING=1" and told[1].startswith("MONOTONIC_USEC=")
    server.terminate()
    manager.until("STOPPING=1")
    assert server.wait(SECONDS) == 0


def test_a_server_of_keys_tells_that_it_reloads(binary, tmp_path, manager):
    words = [binary, "resp", "-a", f"127.0.0.1:{free_port()}", "--file", str(tmp_path / "keys")]
    server = subprocess.Popen(words, env={**os.environ, "NOTIFY_SOCKET": str(manager.path)})
    try:
        assert "STATUS=serving keys" in manager.until("READY=1")
        server.send_signal(signal.SIGUSR2)
        assert manager.until("READY=1")[0] == "RELOADING=1"
        server.terminate()
        manager.until("STOPPING=1")
        assert server.wait(SECONDS) == 0
    finally:
        server.kill()
        server.wait()


def test_a_start_that_fails_is_never_told_to_be_ready(tmp_path, launch, manager):
    path = tmp_path / "Data.fs"
    path.write_bytes(b"SQLite format 3\0")
    env = {"NOTIFY_SOCKET": str(manager.path)}
    server = launch(path, "-a", f"127.0.0.1:{free_port()}", env=env)
    assert server.wait(SECONDS) == 1
    manager.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.next()


# ---------------------------------------------------------------- nodes of NEO


@pytest.fixture
def launch_node(binary, tmp_path):
    """launch_node(env, kind): a node whose master, another one, is never there."""
    processes = []

    def start(env, kind="storage"):
        words = [binary, "neo", kind, "--cluster", "test"]
        own = f"127.0.0.1:{free_port()}"
        masters = f"127.0.0.1:{free_port()}"
        if kind == "master":
            masters += f" {own}"
        if kind == "storage":
            words += ["--adapter", "SQLite", "--database", str(tmp_path / "node.sqlite")]
            words += ["--wait", str(SECONDS)]
        words += ["--masters", masters, "--bind", own]
        processes.append(subprocess.Popen(words, env={**os.environ, **env}))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["storage", "master", "admin"])
def test_a_node_tells_how_far_it_is_and_that_its_thread_answers(launch_node, manager, kind):
    env = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"}
    node = launch_node(env, kind)
    manager.until("READY=1")
    if kind == "storage":
        manager.until("STATUS=looking for the primary master")
    for _ in range(4):
        manager.until("WATCHDOG=1")
    # Stopped, it does not answer, and nothing else feeds the watchdog.
    node.send_signal(signal.SIGSTOP)
    manager.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while True:
            manager.next()
    manager.socket.settimeout(SECONDS)
    node.send_signal(signal.SIGCONT)
    manager.until("WATCHDOG=1")
    node.terminate()
    manager.until("STOPPING=1")
    assert node.wait(SECONDS) == 0


def test_a_node_asks_for_time_while_it_waits_for_its_database(launch_node, manager):
    first = launch_node({"NOTIFY_SOCKET": str(manager.path)})
    manager.until("READY=1")
    launch_node({"NOTIFY_SOCKET": str(manager.path)})
    told = manager.until("EXTEND_TIMEOUT_USEC=30000000")
    assert "STATUS=waiting for the database, which is in use" in told
    assert "READY=1" not in told
    first.terminate()
    manager.until("READY=1")


def test_a_watchdog_without_a_limit_is_none(tmp_path, launch, manager):
    env = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "0"}
    server = launch(tmp_path / "Data.fs", "-a", f"127.0.0.1:{free_port()}", env=env)
    manager.until("READY=1")
    server.terminate()
    manager.until("STOPPING=1")
    assert server.wait(SECONDS) == 0


def test_the_watchdog_is_fed_while_workers_answer(tmp_path, launch, manager):
    env = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"}
    launch(tmp_path / "Data.fs", "-a", f"127.0.0.1:{free_port()}", env=env)
    for _ in range(4):
        manager.until("WATCHDOG=1")


def test_a_script_that_keeps_a_worker_from_answering_does_not_end_the_server(
    tmp_path, launch, manager
):
    port = free_port()
    env = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "500000"}
    options = ("-a", f"127.0.0.1:{free_port()}", "--resp", f"127.0.0.1:{port}", "--workers", "1")
    launch(tmp_path / "Data.fs", *options, env=env)
    manager.until("READY=1")
    script = "local start = os.clock() while os.clock() - start < 4 do end return 'done'"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(SECONDS)
        client.sendall(f'EVAL "{script}" 0\r\n'.encode())
        client.setblocking(False)
        # Two of them may have been on their way before.
        for _ in range(8):
            manager.until("WATCHDOG=1")
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(SECONDS)
        assert b"done" in client.recv(100)
