"""Whole NEO databases: served to stock ZEO clients, and read by NEO/py's own adapter."""

import contextlib
import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest
import transaction
import ZODB
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import p64, u64

from harness.process import ServerProcess, command_words, free_port
from harness.servers import COMMAND

PROGRAM = Path(__file__).resolve().parents[2] / "crates/sql/tests/neoppod.py"


@contextlib.contextmanager
def serving(folder):
    """A function start(url, *options, prefix=()), which serves a database until the end."""
    servers = []

    def start(url, *options, prefix=()):
        port = free_port()
        words = command_words(COMMAND, options, path=url, port=port)
        servers.append(ServerProcess([*prefix, *words], port, folder))
        return servers[-1]

    yield start
    for server in servers:
        server.kill() if server.is_running() else None
        print(f"--- {server.log_path.name}\n{server.log()[-3000:]}")


@contextlib.contextmanager
def opening():
    """A function open_one(server, **options): a ZODB database over a stock client."""
    databases = []

    def open_one(server, **options):
        storage = ClientStorage(server.address, wait=True, wait_timeout=30, **options)
        databases.append(ZODB.DB(storage))
        return databases[-1]

    yield open_one
    for database in databases:
        database.close()


def set_values(database, **values):
    with database.transaction(note="values") as connection:
        connection.root().update(values)


def values_of(database):
    """What the root holds, less the objects of names that begin with an underscore."""
    with database.transaction() as connection:
        return {name: one for name, one in connection.root().items() if name[0] != "_"}


def run_neo(command, database, *arguments):
    """NEO/py's adapter and its end; None without a checkout."""
    checkout, python = os.environ.get("NEOPPOD"), os.environ.get("NEOPPOD_PYTHON")
    if not checkout or not python:
        print("SKIPPED: NEO/py does not read the database: set NEOPPOD and NEOPPOD_PYTHON")
        return None
    words = [python, str(PROGRAM), checkout, command, str(database), *arguments]
    return subprocess.run(words, capture_output=True, text=True)


def records_by_neo(database, command="read", *arguments):
    """{(oid, tid): SHA-1 of the data} as NEO's adapter reads them; None without a checkout."""
    run = run_neo(command, database, *arguments)
    if run is None:
        return None
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("R ")]
    return {
        (bytes.fromhex(oid), bytes.fromhex(tid)): sha for _, oid, tid, sha, _ in lines if sha != "-"
    }


def records_by_zeo(server):
    """The same as a stock client reads them."""
    storage = ClientStorage(server.address, wait=True, wait_timeout=30)
    try:
        return {
            (record.oid, record.tid): hashlib.sha1(record.data).hexdigest()
            for transaction in storage.iterator()
            for record in transaction
            if record.data is not None
        }
    finally:
        storage.close()


def commit_undo_and_pack(serve, open_database, **last):
    """Commits, undoes and packs, then sets `last`, and all is there after a restart.

    `serve` serves the database.  Gives its records; no server runs in the end.
    """
    server = serve()
    database = open_database(server)
    set_values(database, a=1, child=PersistentMapping(x=1))
    set_values(database, a=2)
    storage = database.storage
    root = p64(0)
    assert len(storage.history(root, size=10)) == 3
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    assert values_of(database)["a"] == 1
    first = storage.history(root, size=10)[-1]["tid"]
    assert storage.loadSerial(root, first)
    with database.transaction() as connection:
        lost = u64(connection.root()["child"]._p_oid)
        del connection.root()["child"]
    time.sleep(0.01)
    database.pack(time.time() + 1)
    assert values_of(database) == {"a": 1}
    assert len(storage.history(root, size=10)) == 1
    with pytest.raises(POSKeyError):
        storage.loadSerial(root, first)
    set_values(database, **last)
    server.stop()
    server = serve()
    database = open_database(server)
    assert values_of(database) == {"a": 1, **last}
    with pytest.raises(POSKeyError):
        database.storage.load(p64(lost))
    set_values(database, b=3)
    records = records_by_zeo(server)
    assert server.stop() == 0
    return records


def commit_through_kills(serve, open_database, rounds, random):
    """Kills the server after random commits: what was acknowledged is there.

    `serve` serves the database.  Gives the server that runs in the end.
    """
    acknowledged = {}

    def opened(server):
        database = open_database(server)
        values = values_of(database)
        assert {key: values.get(key) for key in acknowledged} == acknowledged
        return database

    for number in range(rounds):
        server = serve()
        database = opened(server)
        for step in range(random.randrange(3, 20)):
            values = {f"{number}.{step}": "x" * random.randrange(3000)}
            set_values(database, **values)
            acknowledged.update(values)
        server.kill()
        database.close()
    server = serve()
    opened(server)
    return server
