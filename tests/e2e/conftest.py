"""What every end-to-end test is given: a server, an encoding, a seed.

ZODIUM_SERVER_COMMAND   the server under test (harness/servers.py says more)
ZODIUM_TEST_SEED        replays a failed run
ZODIUM_TEST_SCALE       multiplies rounds, items and seconds; default 1
"""

import logging
import os
import random
import subprocess

import pytest
import transaction
import ZODB.FileStorage
from harness import package
from harness.damage import fill_covered
from harness.databases import write_database
from harness.process import crash_of
from harness.servers import BINARY, COMMAND, IS_ZODIUM, spawn, stock_server
from harness.silent_proxy import SilentProxy
from harness.waiting import WAIT_SECONDS
from harness.wire import Wire
from ZEO.ClientStorage import ClientStorage


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


@pytest.fixture(autouse=True)
def own_transaction():
    """What a test has joined to the thread's transaction, and left, is not the next one's."""
    yield
    manager = transaction.manager.manager
    manager.free(manager.get())


@pytest.fixture
def binary():
    return BINARY


@pytest.fixture
def run(request, binary):
    """run(*words, env={}): (exit code, standard output, standard error).

    It has RUN_SECONDS of the test's file, and the variables of `env` beside those of the tests.
    """

    def run_command(*words, env=None):
        words = [str(word) for word in (binary, *words)]
        seconds, env = request.module.RUN_SECONDS, {**os.environ, **(env or {})}
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=env)
        return done.returncode, done.stdout, done.stderr

    return run_command


@pytest.fixture
def run_bytes(request, binary):
    """As `run`, but run_bytes(*words, given=bytes) writes bytes, and its output is bytes."""

    def run_command(*words, given=b""):
        words = [str(word) for word in (binary, *words)]
        seconds = request.module.RUN_SECONDS
        done = subprocess.run(words, capture_output=True, input=given, timeout=seconds)
        return done.returncode, done.stdout, done.stderr.decode()

    return run_command


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
        server.kill()
    for server in servers:
        print(f"--- {server.log_path.name}\n{server.log_tail()}")
    # Also behind the last request of the test.
    assert list(filter(None, map(crash_of, servers))) == []


@pytest.fixture(params=["zodium", "stock"])
def either_server(request, tmp_path, start_server, encoding):
    """Zodium, then the stock server."""
    if request.param == "zodium":
        yield start_server(tmp_path / "Data.fs", encoding=encoding)
        return
    (tmp_path / "stock").mkdir()
    stock = stock_server(tmp_path / "stock", encoding)
    yield stock
    stock.kill()


@pytest.fixture
def logged():
    """What the package logs, from now on."""
    records, handler, logger = [], logging.Handler(), logging.getLogger("zodium")
    handler.emit = records.append
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


@pytest.fixture
def open_native():
    """open_native(address): a zodium.ClientStorage; closed with the test."""
    package.use()
    import zodium

    storages = []

    def open_one(address, wait_timeout=30, **options):
        storages.append(zodium.ClientStorage(address, wait_timeout=wait_timeout, **options))
        return storages[-1]

    yield open_one
    for storage in storages:
        storage.close()


@pytest.fixture
def warnings():
    """What the package warns of."""
    texts = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("zodium")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


@pytest.fixture
def open_storage(open_native):
    """open_storage(server): a client storage of ours; closed with the test."""
    return lambda server, **options: open_native(server.address, **options)


@pytest.fixture
def proxy(either_server):
    """A proxy before either server, which can fall silent."""
    proxy = SilentProxy(either_server.address)
    yield proxy
    proxy.close()


@pytest.fixture
def connect():
    """connect(server): a stock client; closed with the test."""
    clients = []

    def open_client(server, wait_timeout=30, **options):
        client = ClientStorage(server.address, wait=True, wait_timeout=wait_timeout, **options)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def wire():
    """wire(server): a raw client that has registered; closed with the test."""
    wires = []

    def open_wire(server, read_only=False, seconds=WAIT_SECONDS):
        opened = Wire(server.address, seconds=seconds)
        wires.append(opened)
        opened.register_tid = opened.register(read_only=read_only)
        return opened

    yield open_wire
    for opened in wires:
        opened.close()


@pytest.fixture
def path(tmp_path, seeded):
    """A data file with changes, undos and deletions, in part packed."""
    path = tmp_path / "Data.fs"
    write_database(path, seeded)
    return path


@pytest.fixture
def storage(path):
    """That file, as the stock FileStorage reads it."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    yield storage
    storage.close()


@pytest.fixture
def covered(tmp_path, start_server):
    """(path, oids): a file of the stock server, to which a server has added checksums."""
    path = tmp_path / "Data.fs"
    return path, fill_covered(path, start_server)


@pytest.fixture
def folder(tmp_path):
    """A blob directory."""
    return tmp_path / "blobs"


@pytest.fixture
def browser(tmp_path):
    """A real browser with an empty profile."""
    from harness.browser import open_browser

    opened = open_browser(tmp_path / "profile")
    yield opened
    opened.quit()


@pytest.fixture
def tiny_disk(tmp_path):
    """Words that run a command with 1 MB of disk at tmp_path/small, seen by it alone."""
    return mounting(tmp_path / "small", 'mount -t tmpfs -o size=1m tmpfs "$0"')


@pytest.fixture
def read_only_folder(tmp_path):
    """Words that run a command for which tmp_path/sealed is read-only, also for root."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"'
    return mounting(tmp_path / "sealed", mount)


def mounting(folder, mount):
    """Words that run a command after `mount`, which mounts something at the folder `$0`."""
    folder.mkdir()
    words = ["unshare", "-m", "sh", "-c", mount + ' && exec "$@"', str(folder)]
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("unshare is missing")
    if tried.returncode:
        pytest.skip(f"no right to mount a file system: {tried.stderr.strip()}")
    return words
