"""The command line: what it explains, what it refuses, and how it ends.

A refusal is one clear line on stderr and exit status 1; never a stack trace, and
never a file touched.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from harness.certificates import Site
from harness.process import HOST, ServerProcess, free_port
from harness.waiting import wait_for
from harness.wire import Z64, Wire

pytestmark = pytest.mark.zodium

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60  # a refusal that takes longer is none


@pytest.fixture
def zodium(binary):
    """zodium(*words): run the command to its end."""

    def run(*words, program=binary, **options):
        return subprocess.run(
            [program, *map(str, words)], capture_output=True, text=True, timeout=SECONDS, **options
        )

    return run


@pytest.fixture
def refusal(zodium):
    """refusal(path, *options): the one line with which serving `path` is refused."""

    def refused(path, *options, **how):
        if "-a" not in options:
            options = ("-a", f"127.0.0.1:{free_port()}", *options)
        return one_line(zodium("serve", path, *options, **how))

    return refused


def one_line(done):
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1, done.stderr
    assert len(lines) == 1, done.stderr
    assert "panicked" not in lines[0]
    return lines[0]


def committed(path, start_server, count=5):
    """A file with `count` transactions of one object each, closed; its size after each."""
    server = start_server(path)
    sizes = [path.stat().st_size]
    with Wire(server.address) as wire:
        wire.register()
        for number in range(count):
            wire.commit(number, [(number.to_bytes(8, "big"), Z64, b"data %d" % number)])
            sizes.append(path.stat().st_size)
    assert server.stop() == 0
    return sizes


# --------------------------------------------------------------------- explaining


def test_help_names_the_commands(zodium):
    for words in ((), ("--help",), ("-h",)):
        done = zodium(*words)
        said = done.stdout + done.stderr
        assert "serve" in said and "Usage:" in said
    assert zodium("--help").returncode == 0


def test_help_of_serve_names_every_option(zodium):
    done = zodium("serve", "--help")
    assert done.returncode == 0
    for option in (
        "--address",
        "--msgpack",
        "--read-only",
        "--workers",
        "--invalidation-queue-size",
        "--invalidation-age",
        "--transaction-timeout",
        "--client-conflict-resolution",
        "--message-size-max",
        "--log-format",
    ):
        assert option in done.stdout
    assert "127.0.0.1:8100" in done.stdout
    # Short help is short: one line an option, not a manual.
    assert len(zodium("serve", "-h").stdout) < len(done.stdout)


def test_version(zodium):
    """Two builds of the same version are told apart."""
    done = zodium("--version")
    found = re.fullmatch(r"zodium ([\d.]+)( \([0-9a-f]{10,}\))?\n", done.stdout)
    assert done.returncode == 0 and found, done.stdout
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True)
    assert found[2] or git.returncode != 0, "built from a checkout"


@pytest.mark.parametrize(
    "words",
    [
        ("srve",),
        ("serve",),
        ("serve", "-f", "a.fs", "-f", "b.fs", "--storage-name", "main"),
        ("serve", "Data.fs", "--no-such-option"),
        ("serve", "Data.fs", "--workers", "none"),
        ("serve", "Data.fs", "-a", "not an address"),
        ("serve", "Data.fs", "-a", "127.0.0.1:99999"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_explained(zodium, tmp_path, words):
    done = zodium(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "error:" in done.stderr and "--help" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_serve_says_where_what_and_how_to_connect(tmp_path, start_server):
    path = tmp_path / "Data.fs"
    committed(path, start_server)
    server = start_server(path)
    with Wire(server.address) as wire:
        last = wire.register()
    said = server.log()
    assert str(path) in said and f"127.0.0.1:{server.port}" in said
    assert "5 objects" in said and last.hex() in said
    assert "import ZEO" in said and f"ZEO.DB(('127.0.0.1', {server.port}))" in said


def test_the_greeting_names_a_storage_that_is_not_the_usual_one(tmp_path, start_server):
    server = start_server(tmp_path / "Data.fs", "--storage-name", "main")
    # It listens before it greets.
    assert server.stop() == 0
    assert f"ZEO.DB(('127.0.0.1', {server.port}), storage='main')" in server.log()


# --------------------------------------------------------------------- refusing


def test_missing_directory(tmp_path, refusal):
    said = refusal(tmp_path / "nowhere" / "Data.fs")
    assert str(tmp_path / "nowhere") in said and "director" in said
    assert not (tmp_path / "nowhere").exists()


def test_path_is_a_directory(tmp_path, refusal):
    assert str(tmp_path) in refusal(tmp_path)


def test_unreadable_file(tmp_path, start_server, refusal, nobody):
    path = tmp_path / "Data.fs"
    committed(path, start_server)
    path.chmod(0)
    said = refusal(path, **nobody())
    assert f"{path}: " in said and "ermission" in said
    assert "runs as user nobody (65534)" in said and "belongs to" in said and "mode 0000" in said
    assert "--read-only" not in said, "that would not help"


def test_a_folder_without_rights_is_named(tmp_path, refusal, nobody):
    folder = tmp_path / "var"
    folder.mkdir()
    how = nobody()
    folder.chmod(0o500)
    said = refusal(folder / "Data.fs", **how)
    assert f"the folder {folder} belongs to" in said and "mode 0500" in said


def test_a_missing_configuration(tmp_path, zodium):
    path = tmp_path / "zeo.conf"
    for words in (["serve", "-C", path], ["config", "check", path], ["pack", "-C", path]):
        said = one_line(zodium(*words))
        assert f"{path}: there is no such configuration file" in said
        assert "zodium serve Data.fs" in said


def test_read_only_file(tmp_path, start_server, refusal, nobody):
    path = tmp_path / "Data.fs"
    committed(path, start_server)
    path.chmod(0o444)
    said = refusal(path, **nobody())
    assert str(path) in said and "--read-only" in said


def test_a_database_in_sqlite_that_may_only_be_read(
    tmp_path, start_server, zodium, refusal, nobody
):
    committed(tmp_path / "Data.fs", start_server)
    database = f"sqlite://{tmp_path}/db.sqlite"
    done = zodium("copy", tmp_path / "Data.fs", database)
    assert done.returncode == 0, done.stderr
    how = nobody()
    (tmp_path / "db.sqlite").chmod(0o444)
    said = refusal(database, **how)
    assert "cannot open for writing: the file or its folder is read-only" in said


@pytest.fixture
def nobody(tmp_path, binary):
    """nobody(): how to run without root's right to open everything, on what is here now."""
    user = 65534

    def become():
        if os.getuid() != 0:
            return {}
        # The program itself may lie where only root can go.
        program = shutil.copy(binary, tmp_path / "zodium")
        # Up to the system's folder for temporary files, which everybody may enter.
        for parent in tmp_path.parents:
            if parent.stat().st_mode & 0o005 == 0o005:
                break
            parent.chmod(0o755)
        for name in [tmp_path, *tmp_path.iterdir()]:
            os.chown(name, user, user)
        return {"user": user, "group": user, "program": program}

    return become


def test_port_in_use(tmp_path, refusal):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(tmp_path / "Data.fs", "-a", address)
    assert f"cannot listen on {address}: " in said and "in use" in said
    assert "Another process listens there" in said and "another address" in said


def test_the_port_of_the_monitor_in_use(tmp_path, refusal):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(tmp_path / "Data.fs", "--monitor", address)
        with_port_only = refusal(tmp_path / "Data.fs", "--monitor", address.split(":")[1])
    assert f"monitor on {address}" in said and "Another process listens there" in said
    assert with_port_only == said


def test_an_address_of_another_machine(tmp_path, refusal):
    said = refusal(tmp_path / "Data.fs", "-a", "192.0.2.1:8100")
    assert "192.0.2.1:8100" in said and "no such address" in said


def test_a_command_that_does_not_exist_suggests_none_that_does_something_else(zodium):
    done = zodium("repozo", "Data.fs")
    assert done.returncode == 2
    assert "'repozo'" in done.stderr and "zodium backup --format repozo" in done.stderr
    assert "pack'" not in done.stderr
    assert "'pack'" in zodium("pakc").stderr


# --------------------------------------------------------------------- exposure


def warnings_of_exposure(server):
    return [line for line in server.log().splitlines() if "without TLS beyond" in line]


@pytest.mark.parametrize("host, is_exposed", [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_neo_node_beyond_this_machine_without_tls_is_warned_of(binary, host, is_exposed):
    words = [binary, "neo", "master", "--cluster", "c", "--bind", f"{host}:{free_port()}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as node:
        line = node.stderr.readline()
        node.terminate()
        assert ("without TLS beyond" in line) == is_exposed, line


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_an_address_beyond_this_machine_without_tls_is_warned_of(tmp_path, binary, host):
    """One line for all such addresses."""
    port, other = free_port(), free_port()
    words = [binary, "serve", str(tmp_path / "Data.fs"), "-a", f"127.0.0.1:{port}"]
    server = ServerProcess([*words, "-a", f"{host}:{other}"], port, tmp_path)
    # It listens a moment before it says so.
    server.stop()
    (said,) = warnings_of_exposure(server)
    assert " WARN " in said and f":{other}" in said and f":{port}" not in said
    assert "--ssl-certificate" in said and "-a 127.0.0.1" in said


def test_loopback_sockets_and_tls_are_not_warned_of(tmp_path, binary):
    site, port = Site(tmp_path), free_port()
    words = [binary, "serve", str(tmp_path / "Data.fs")]
    local = ["-a", f"127.0.0.1:{port}", "-a", str(tmp_path / "socket")]
    for more in (local, ["-a", f"0.0.0.0:{port}", *site.options()]):
        server = ServerProcess([*words, *more], port, tmp_path)
        server.stop()
        assert "listening" in server.log() and warnings_of_exposure(server) == []


# --------------------------------------------------------------------- strangers


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"POST /metrics HTTP/1.0"])
def test_http_is_recognised_and_answered(start_server, request_line):
    server = start_server()
    with socket.create_connection(server.address, SECONDS) as stranger:
        stranger.sendall(request_line + b"\r\nHost: localhost\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while received := stranger.recv(1000):
                answer += received
    assert b"HTTP/1.1 400 " in answer and b"This port is for ZEO clients" in answer
    (said,) = [line for line in server.log().splitlines() if "disconnecting" in line]
    assert "speaks HTTP" in said and "--monitor" in said and "127.0.0.1" in said


@pytest.mark.parametrize(
    "first, what", [(b"*1\r\n$4\r\nPING\r\n", "speaks RESP"), (b"SSH-2.0-x\r\n", "speaks SSH")]
)
def test_strangers_are_named_in_the_log(start_server, first, what):
    server = start_server()
    with socket.create_connection(server.address, SECONDS) as stranger:
        stranger.sendall(first)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1000):
                pass
    (said,) = [line for line in server.log().splitlines() if "disconnecting" in line]
    assert what in said and "is announced" not in said


def test_not_a_filestorage(tmp_path, refusal):
    path = tmp_path / "Data.fs"
    path.write_bytes(b"SQLite format 3\0" + bytes(1000))
    said = refusal(path)
    assert str(path) in said and "FileStorage" in said
    assert f"it is an SQLite database: give sqlite://{path}" in said
    assert path.read_bytes() == b"SQLite format 3\0" + bytes(1000)


def test_shorter_than_its_magic(tmp_path, refusal):
    path = tmp_path / "Data.fs"
    path.write_bytes(b"PK")
    assert "FileStorage" in refusal(path)
    assert path.read_bytes() == b"PK"


def test_begun_and_not_finished_is_begun_again(tmp_path, start_server):
    """A crash while the file was made leaves part of its magic, and nothing to lose."""
    path = tmp_path / "Data.fs"
    path.write_bytes(b"FS")
    assert start_server(path).stop() == 0
    assert path.read_bytes() == b"FS30"


@pytest.mark.parametrize("index", ["index", "no index"])
def test_damage_in_the_middle_is_named(tmp_path, start_server, refusal, index):
    """With an index all records, which are sound, are served."""
    path = tmp_path / "Data.fs"
    sizes = committed(path, start_server)
    index_path = path.with_name("Data.fs.index")
    if index == "no index":
        index_path.unlink()
    content = bytearray(path.read_bytes())
    content[sizes[3] + 8 : sizes[3] + 16] = b"\xff" * 8  # the length of the fourth
    path.write_bytes(content)
    if index == "no index":
        said = refusal(path)
    else:
        server = start_server(path)
        with Wire(server.address) as wire:
            wire.register()
            for number in range(5):
                assert load(wire, number)[0] == b"data %d" % number
        said = server.log()
        assert server.stop() == 0
    assert str(path) in said and str(sizes[3]) in said
    assert any(tool in said for tool in ("zodium ", "fsrecover", "repozo")), "what to run next"
    assert path.read_bytes() == content


def load(wire, number):
    return wire.call("loadBefore", number.to_bytes(8, "big"), b"\x7f" + b"\xff" * 7)


# --------------------------------------------------------------------- read-only


def test_read_only_serves_and_refuses_to_write(tmp_path, start_server):
    path = tmp_path / "Data.fs"
    committed(path, start_server)
    before = {name: name.read_bytes() for name in tmp_path.glob("Data.fs*")}
    server = start_server(path, "--read-only")
    with Wire(server.address) as wire:
        wire.register(read_only=True)
        assert wire.call("loadBefore", Z64, b"\x7f" + b"\xff" * 7)[0] == b"data 0"
    assert server.stop() == 0
    assert {name: name.read_bytes() for name in tmp_path.glob("Data.fs*")} == before


def test_read_only_of_a_missing_file_serves_an_empty_database(tmp_path, start_server, wire):
    """As the stock server does, but without making the file."""
    options = ("--read-only", "--blob-dir", str(tmp_path / "blobs"))
    server = start_server(tmp_path / "Data.fs", *options)
    client = wire(server, read_only=True)
    assert client.register_tid == Z64
    assert not (tmp_path / "blobs").exists()
    assert "no such file" in server.log()
    assert server.stop() == 0
    assert list(tmp_path.glob("Data.fs*")) == []


# --------------------------------------------------------------------- sockets, logs


def test_unix_socket(tmp_path, binary):
    address = tmp_path / "zeo.sock"
    words = [binary, "serve", tmp_path / "Data.fs", "-a", address]
    for _ in range(2):  # the second start finds what a killed server has left
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            announced = first_bytes(address, process)
        finally:
            process.kill()
            process.wait()
        assert announced == b"\0\0\0\2Z5"
    assert address.exists()


def test_a_unix_socket_is_kept_while_storages_are_opened(tmp_path, binary):
    """Until its killed owner is gone: by then the socket and its lock file are in nobody's way."""
    address = tmp_path / "zeo.sock"
    # A cluster that is not there is waited for.
    nowhere = f"neo://nowhere@{HOST}:{free_port()}?wait=60"
    opening = subprocess.Popen(
        [binary, "serve", nowhere, "-a", address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        wait_for(address.with_suffix(".sock.lock").exists, "the lock", 20)
        words = [binary, "serve", tmp_path / "Data.fs", "-a", address]
        said = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert said.returncode == 1
        assert f"another server has locked {address}.lock" in said.stderr
        assert not (tmp_path / "Data.fs").exists()
        assert opening.poll() is None
    finally:
        opening.kill()
        opening.communicate()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert first_bytes(address, process) == b"\0\0\0\2Z5"
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
    assert list(tmp_path.glob("zeo.sock*")) == []


def first_bytes(address, process):
    def answer():
        assert process.poll() is None
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(SECONDS)
                client.connect(str(address))
                return client.recv(6, socket.MSG_WAITALL)

    return wait_for(answer, "the socket answers")


def test_json_logs_are_one_object_a_line(tmp_path, start_server):
    server = start_server(tmp_path / "Data.fs", "--log-format", "json")
    with Wire(server.address) as wire:
        wire.register()
    assert server.stop() == 0
    events = [json.loads(line) for line in server.log().splitlines()]
    assert events
    for event in events:
        assert {"timestamp", "level", "message"} <= event.keys()
    assert any(str(tmp_path / "Data.fs") in str(event.values()) for event in events)


def test_a_message_over_the_limit_closes_its_connection(tmp_path, start_server, wire):
    server = start_server(tmp_path / "Data.fs", "--message-size-max", "64KiB")
    client, other = wire(server), wire(server)
    client.notify("set_client_label", "x" * 60_000)
    assert client.call("ping") is None
    client.send_raw((1 << 17).to_bytes(4, "big"))
    assert client.socket.recv(1) == b""
    assert other.call("ping") is None


def closed_pipe():
    """The writing end of a pipe that nothing reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "wb")


def full_device():
    return open("/dev/full", "wb")


@pytest.mark.parametrize("output", [closed_pipe, full_device])
@pytest.mark.parametrize("command", ["serve", "resp", "explore"])
def test_a_server_serves_on_when_its_greeting_cannot_be_written(tmp_path, binary, command, output):
    path = tmp_path / "Data.fs"
    path.write_bytes(b"FS30")
    words = [command] if command == "resp" else [command, path]
    port = free_port()
    with output() as stdout:
        server = subprocess.Popen(
            [binary, *words, "-a", f"127.0.0.1:{port}"], stdout=stdout, stderr=subprocess.PIPE
        )
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            assert server.poll() is None and time.monotonic() < deadline, server.returncode
            time.sleep(0.02)
        server.terminate()
        _, said = server.communicate(timeout=SECONDS)
    finally:
        server.kill()
    assert server.returncode == 0, said
    assert b"panicked" not in said


def test_toml_is_not_converted(tmp_path, zodium):
    path = tmp_path / "a.toml"
    path.write_text('[server]\naddress = "8100"\n[[storage]]\npath = "Data.fs"\n')
    done = zodium("config", "convert", path)
    assert done.returncode == 1 and done.stdout == ""
    assert f"{path} is TOML already: `zodium config show {path}` prints it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words", ["completions bash", "config show {}", "config check {}", "config convert {}"]
)
def test_a_closed_pipe_is_no_error(tmp_path, binary, words):
    configuration = tmp_path / "zeo.conf"
    path = tmp_path / "Data.fs"
    configuration.write_text(
        f"<zeo>\naddress 127.0.0.1:8100\n</zeo>\n<filestorage>\npath {path}\n</filestorage>\n"
    )
    with closed_pipe() as stdout:
        command = [binary, *words.format(configuration).split()]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_that_cannot_be_printed_ends_with_its_code(tmp_path, binary):
    with full_device() as stderr:
        command = [binary, "info", tmp_path / "none.fs"]
        assert subprocess.run(command, stderr=stderr, timeout=SECONDS).returncode == 2
    with full_device() as stdout:
        command = [binary, "healthcheck", "--json", f"127.0.0.1:{free_port()}"]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 1 and b"cannot write to standard output" in done.stderr


def test_a_level_that_does_not_exist_is_refused_in_the_environment_too(tmp_path, zodium):
    words = ("serve", tmp_path / "Data.fs", "-a", f"127.0.0.1:{free_port()}")
    done = zodium(*words, env={**os.environ, "ZODIUM_LOG": "warning"})
    assert done.returncode == 2
    assert "none of error, warn, info, debug, trace, off" in done.stderr
    assert list(tmp_path.iterdir()) == []
