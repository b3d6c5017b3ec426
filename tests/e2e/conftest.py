"""What every end-to-end test is given: a server, an encoding, a seed.

ZODIUM_SERVER_COMMAND   the server under test, with {path}, {port} and {options};
                        default: the release binary.  For the stock server:
                        "$PWD/.venv/bin/runzeo -C {config}"
ZODIUM_TEST_SEED        replays a failed run
ZODIUM_TEST_SCALE       multiplies rounds, items and seconds; default 1
"""

import logging
import os
import random
import shlex
import sys
from pathlib import Path

import pytest
from ZEO.ClientStorage import ClientStorage

from harness.process import DEFAULT_COMMAND, ServerProcess, command_words, free_port
from harness.wire import Wire

COMMAND = os.environ.get("ZODIUM_SERVER_COMMAND") or DEFAULT_COMMAND
BINARY = shlex.split(COMMAND)[0]
IS_ZODIUM = Path(BINARY).name == "zodium"
STOCK_SERVER = str(Path(sys.executable).with_name("runzeo"))


def pytest_configure(config):
    # The stock client warns of every object that is stored twice at once.
    logging.getLogger().addHandler(logging.NullHandler())
    config.addinivalue_line("markers", "zodium: is about Zodium's own command line or promises")


def pytest_report_header():
    return f"server: {COMMAND}"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("zodium") and not IS_ZODIUM:
            item.add_marker(pytest.mark.skip(reason="about Zodium itself"))


@pytest.fixture
def binary():
    return BINARY


@pytest.fixture
def scale():
    return float(os.environ.get("ZODIUM_TEST_SCALE") or 1)


@pytest.fixture
def seeded(request):
    """A random source; a failure shows its seed and how to replay it."""
    seed = int(os.environ.get("ZODIUM_TEST_SEED") or random.randrange(1 << 32))
    print(f"replay: ZODIUM_TEST_SEED={seed} make e2e PYTEST='-k {request.node.originalname}'")
    return random.Random(seed)


@pytest.fixture(params=["Z5", "M5"])
def encoding(request):
    return request.param


@pytest.fixture
def start_server(tmp_path):
    """start_server(path, *options, encoding="Z5"): a server that serves `path`."""
    servers = []

    def start(path=None, *options, encoding="Z5", wait=True, prefix=()):
        path = path or tmp_path / "Data.fs"
        server = spawn(COMMAND, path, options, encoding, wait, prefix)
        servers.append(server)
        return server

    start.servers = servers
    yield start
    for server in servers:
        if server.is_running():
            server.kill()
    for server in servers:
        print(f"--- {server.log_path.name}\n{server.log_tail()}")


def spawn(command, path, options=(), encoding="Z5", wait=True, prefix=()):
    """A server started by `command`, after the words of `prefix`, on the file at `path`."""
    path, port = Path(path), free_port()
    options = [*options, *(["--msgpack"] if encoding == "M5" else [])]
    # Not beside the file: a test may mount another file system there.
    config = path.parents[1] / f"server-{port}.conf"
    config.write_text(zconfig(path, port, options))
    words = command_words(command, options, path=path, port=port, config=config)
    return ServerProcess([*prefix, *words], port, path.parent, wait=wait)


def zconfig(path, port, options):
    """What the stock server reads; it leaves conflicts to clients as Zodium does."""
    flags = "".join(f"  {option.lstrip('-')} true\n" for option in options)
    return (
        f"<zeo>\n  address 127.0.0.1:{port}\n  client-conflict-resolution true\n{flags}</zeo>\n"
        f"<filestorage 1>\n  path {path}\n</filestorage>\n"
    )


def stock_server(folder, encoding):
    return spawn(f"{STOCK_SERVER} -C {{config}}", folder / "Data.fs", (), encoding)


@pytest.fixture
def connect():
    """connect(server): a stock client; closed with the test."""
    clients = []

    def open_client(server, **options):
        client = ClientStorage(server.address, wait=True, wait_timeout=30, **options)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def wire():
    """wire(server): a raw client that has registered; closed with the test."""
    wires = []

    def open_wire(server, read_only=False, seconds=10):
        opened = Wire(server.address, seconds=seconds)
        wires.append(opened)
        opened.register_tid = opened.register(read_only=read_only)
        return opened

    yield open_wire
    for opened in wires:
        opened.close()
