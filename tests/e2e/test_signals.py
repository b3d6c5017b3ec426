"""Signals, the pid file and log files, as runzeo's users and logrotate expect them."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from harness.process import ServerProcess
from harness.servers import BINARY
from harness.waiting import wait_for
from harness.wire import Z64, Closed, Wire

pytestmark = pytest.mark.zodium

SECONDS = 30


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 1)],
    ids=["SIGTERM", "SIGINT", "SIGHUP"],
)
def test_the_exit_code_tells_whether_to_start_again(tmp_path, start_server, wire, number, code):
    """runzeo's: a hang-up is a failure, so that what supervises it starts it anew."""
    path = tmp_path / "Data.fs"
    server = start_server(path)
    client = wire(server)
    client.commit(1, [(Z64, Z64, b"data")])
    server.process.send_signal(number)
    assert server.process.wait(SECONDS) == code
    with pytest.raises((Closed, ConnectionError)):
        client.call("ping")
    assert path.with_name("Data.fs.index").exists(), "closed in order"


def test_a_stop_is_heeded_while_storages_are_opened(tmp_path, start_server):
    """Process 1 of a container ignores what it has not asked for, so asking comes first."""
    path = tmp_path / "Data.fs"
    assert start_server(path).stop() == 0
    index = path.with_name("Data.fs.index")
    index.unlink()
    os.mkfifo(index)  # reading it waits for a writer, who never comes
    server = start_server(path, wait=False)
    wait_for(lambda: caught(server.process.pid, signal.SIGTERM), "SIGTERM is asked for", SECONDS)
    time.sleep(0.2)
    assert server.is_running()
    server.process.terminate()
    assert server.process.wait(SECONDS) == 0


def test_a_stop_is_heeded_while_an_address_is_looked_up(tmp_path):
    aliases = tmp_path / "aliases"
    os.mkfifo(aliases)  # glibc reads it for names without a dot, and waits for a writer
    env = {"HOSTALIASES": str(aliases)}
    words = [BINARY, "serve", str(tmp_path / "Data.fs"), "-a", "nosuchhost:0"]
    server = ServerProcess(words, 0, tmp_path, env=env, wait=False)
    try:
        wait_for(lambda: caught(server.process.pid, signal.SIGTERM), server.log, SECONDS)
        time.sleep(0.2)
        if not server.is_running():
            pytest.skip("this machine looks names up in another way")
        server.process.terminate()
        assert server.process.wait(SECONDS) == 0
    finally:
        server.kill()


def caught(pid, number):
    """Whether a process handles a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
    return bool(mask >> (number - 1) & 1)


# ------------------------------------------------------------------------ pid file


def test_the_pid_file_is_there_while_it_serves(tmp_path, start_server):
    pid_file = tmp_path / "zeo.pid"
    pid_file.write_text("99999999\n")  # left by a server that was killed
    server = start_server(tmp_path / "Data.fs", "--pid-file", str(pid_file))
    wait_for(lambda: pid_file.read_text() == f"{server.process.pid}\n", pid_file.read_text, SECONDS)
    assert server.stop() == 0
    assert not pid_file.exists()


def test_the_pid_file_is_there_until_all_is_closed(tmp_path, start_server, wire):
    """A script that waits until it is gone may start the next server."""
    pid_file, log = tmp_path / "zeo.pid", tmp_path / "zeo.log"
    options = ("--pid-file", str(pid_file), "--log-file", str(log))
    server = start_server(tmp_path / "Data.fs", *options)
    wire(server).commit(1, [(Z64, Z64, b"data")])
    server.process.terminate()
    end = time.monotonic() + SECONDS
    while pid_file.exists():
        assert time.monotonic() < end
    assert "stopped" in log.read_text()
    assert server.process.wait(SECONDS) == 0


def test_a_pid_file_that_cannot_be_written_stops_the_start(tmp_path, start_server):
    pid_file = tmp_path / "nowhere" / "zeo.pid"
    server = start_server(tmp_path / "Data.fs", "--pid-file", str(pid_file), wait=False)
    assert server.process.wait(SECONDS) == 1
    assert str(pid_file) in server.log()


# ------------------------------------------------------------------------ sockets


def test_a_socket_that_was_removed_is_made_again_on_sigusr2(tmp_path, start_server, wire):
    path = tmp_path / "zeo.sock"
    server = start_server(tmp_path / "Data.fs", "-a", str(path))
    assert wire(server).call("ping") is None
    path.unlink()
    server.process.send_signal(signal.SIGUSR2)
    wait_for(path.exists, "the socket", SECONDS)
    wait_for(lambda: "another program has removed the socket" in server.log(), "a line", SECONDS)
    with Wire(str(path)) as client:
        client.register("1")
        assert client.call("ping") is None
    assert server.stop() == 0
    assert not path.exists()


# ------------------------------------------------------------------------ log files


def test_log_files_are_opened_anew_on_sigusr2(tmp_path, start_server, wire):
    log, moved = tmp_path / "zeo.log", tmp_path / "zeo.log.1"
    server = start_server(tmp_path / "Data.fs", "--log-file", str(log))
    wait_for(lambda: "listening" in log.read_text(), "what is logged at start", SECONDS)
    log.rename(moved)
    server.process.send_signal(signal.SIGUSR2)
    wait_for(log.exists, "the new file", SECONDS)
    wait_for(lambda: "SIGUSR2" in log.read_text(), "the first line of the new file", SECONDS)
    length = moved.stat().st_size
    assert wire(server).call("ping") is None
    assert server.stop() == 0
    assert "stopped" in log.read_text()
    assert moved.stat().st_size == length


def test_log_files_that_are_copied_and_cut_go_on_from_their_beginning(tmp_path, start_server):
    log = tmp_path / "zeo.log"
    server = start_server(tmp_path / "Data.fs", "--log-file", str(log))
    wait_for(lambda: "listening" in log.read_text(), "what is logged at start", SECONDS)
    os.truncate(log, 0)
    assert server.stop() == 0
    assert log.read_bytes()[:1] not in (b"", b"\0")


def test_lines_go_to_several_places(tmp_path, start_server):
    log = tmp_path / "zeo.log"
    options = ("--log-file", str(log), "--log-file", "STDERR", "--log-format", "json")
    server = start_server(tmp_path / "Data.fs", *options)
    assert server.stop() == 0
    assert log.read_text() == server.log()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["message"] for event in events][-1] == "stopped"
    assert any(event.get("address") == f"127.0.0.1:{server.port}" for event in events)


def test_why_a_start_failed_is_in_the_log_file_too(tmp_path, start_server):
    path, log = tmp_path / "Data.fs", tmp_path / "zeo.log"
    path.write_bytes(b"SQLite format 3\0")
    server = start_server(path, "--log-file", str(log), wait=False)
    assert server.process.wait(SECONDS) == 1
    assert "not a FileStorage" in log.read_text()
    assert len(server.log().splitlines()) == 1


def test_nothing_is_coloured_that_nobody_looks_at(tmp_path, start_server):
    server = start_server(tmp_path / "Data.fs")
    assert server.stop() == 0
    assert "\x1b" not in server.log()


def test_a_server_that_never_answered_leaves_nothing_behind(tmp_path, start_server):
    pid_file = tmp_path / "zeo.pid"
    path = tmp_path / "Data.fs"
    path.write_bytes(b"SQLite format 3\0")
    server = start_server(path, "--pid-file", str(pid_file), wait=False)
    assert server.process.wait(SECONDS) == 1
    assert not pid_file.exists()
    with pytest.raises(OSError):
        Wire(server.address)
