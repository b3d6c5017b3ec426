"""A cache that zodium.ClientStorage keeps: from one process to the next, and from server to server.

A proxy sees what is asked of the server: loads, and what has changed since.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import ZODB
from harness import package
from harness.silent_proxy import SilentProxy
from persistent.mapping import PersistentMapping

package.use()

OBJECTS = 50

READER = f"""
    import json, logging, sys, zodium
    logging.basicConfig(stream=sys.stderr)
    database = zodium.DB((sys.argv[1], int(sys.argv[2])), **json.loads(sys.argv[3]))
    with database.transaction() as connection:
        print(sum(connection.root()[number]["value"] for number in range({OBJECTS})))
    database.close()
"""


@pytest.fixture
def database(either_server, connect):
    """A stock client's, that writes what is to be cached."""
    database = ZODB.DB(connect(either_server))
    with database.transaction() as connection:
        for number in range(OBJECTS):
            connection.root()[number] = PersistentMapping(value=1)
    return database


@pytest.fixture
def read(proxy):
    """read(**options): another process reads all; what it found, noted and asked."""

    def read_all(**options):
        before = len(proxy.requests)
        command = [sys.executable, "-c", textwrap.dedent(READER), *map(str, proxy.address)]
        ended = subprocess.run(
            [*command, json.dumps(options)], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 0, ended.stderr
        asked = proxy.requests[before:]
        counts = {name: asked.count(name.encode()) for name in ("loadBefore", "getInvalidations")}
        return int(ended.stdout), ended.stderr, counts["loadBefore"], counts["getInvalidations"]

    return read_all


@pytest.mark.parametrize("named", [False, True])
def test_the_next_process_loads_what_has_changed_only(tmp_path, database, read, named):
    options = {"client": "app", "var": str(tmp_path)}
    if named:
        options = {"cache": str(tmp_path / "kept")}
    path = tmp_path / ("kept.zodium" if named else "app-1.zodium")
    # The root, and the objects.
    assert read(**options) == (OBJECTS, "", OBJECTS + 1, 0)
    assert path.exists()
    assert read(**options) == (OBJECTS, "", 0, 0)
    with database.transaction() as connection:
        connection.root()[3]["value"] = 101
    assert read(**options) == (OBJECTS + 100, "", 1, 1)
    assert read(**options) == (OBJECTS + 100, "", 0, 0)


def test_a_damaged_cache_is_set_aside_and_noted(tmp_path, database, read):
    options, path = {"cache": str(tmp_path / "kept")}, tmp_path / "kept.zodium"
    read(**options)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    total, noted, loads, _ = read(**options)
    assert (total, loads) == (OBJECTS, OBJECTS + 1)
    assert "WARNING:zodium.client:the saved cache is not used" in noted
    assert "damaged" in noted and str(path) in noted
    assert path.with_name("kept.zodium.damaged").read_bytes() == damaged
    assert read(**options)[1:] == ("", 0, 0)


def test_two_processes_do_not_share_a_file(tmp_path, proxy, database, read, open_native):
    options = {"cache": str(tmp_path / "kept")}
    ours = ZODB.DB(open_native(proxy.address, **options))
    total, noted, loads, _ = read(**options)
    assert (total, loads) == (OBJECTS, OBJECTS + 1)
    assert f"in use by process {os.getpid()}" in noted
    ours.close()


def test_a_closed_storage_leaves_its_file_though_a_forked_child_lives(
    tmp_path, proxy, database, open_native, logged
):
    options = {"cache": str(tmp_path / "kept")}
    ours = open_native(proxy.address, **options)
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        ours.close()
        open_native(proxy.address, **options)
        assert [record for record in logged if record.levelno >= logging.WARNING] == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_another_address_of_the_same_data_keeps_the_cache(
    proxy, either_server, database, open_native
):
    storage = open_native(proxy.address)
    ours = ZODB.DB(storage)

    def read_all():
        with ours.transaction() as connection:
            return sum(connection.root()[number]["value"] for number in range(OBJECTS))

    assert read_all() == OBJECTS
    storage.new_addr(either_server.address)
    storage.ping()
    # Through the other way; this one sees nothing of it.
    with database.transaction() as connection:
        connection.root()[3]["value"] = 101
    seen = len(proxy.requests)
    storage.ping()
    assert read_all() == OBJECTS + 100
    assert len(proxy.requests) == seen
    with database.transaction() as connection:
        connection.root()[4]["value"] = 101
    storage.new_addr([proxy.address])
    storage.ping()
    assert read_all() == OBJECTS + 200
    asked = proxy.requests[seen:]
    assert asked.count(b"loadBefore") <= 1


def test_what_changed_between_two_servers_is_asked_for(
    tmp_path, start_server, connect, open_native
):
    """The second server is started on the file of the first, after others have committed."""
    first = start_server(tmp_path / "Data.fs")
    with ZODB.DB(connect(first)).transaction() as connection:
        for number in range(OBJECTS):
            connection.root()[number] = PersistentMapping(value=1)
    storage = open_native(first.address, wait_timeout=60)
    ours = ZODB.DB(storage)
    with ours.transaction() as connection:
        assert sum(connection.root()[number]["value"] for number in range(OBJECTS)) == OBJECTS
    first.stop()
    second = start_server(tmp_path / "Data.fs")
    with ZODB.DB(connect(second)).transaction() as connection:
        connection.root()[3]["value"] = 101
    proxy = SilentProxy(second.address)
    storage.new_addr(proxy.address)
    storage.ping()
    with ours.transaction() as connection:
        total = sum(connection.root()[number]["value"] for number in range(OBJECTS))
    assert total == OBJECTS + 100
    assert proxy.requests.count(b"getInvalidations") == 1
    assert proxy.requests.count(b"loadBefore") == 1
    proxy.close()
