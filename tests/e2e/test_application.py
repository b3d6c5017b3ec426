"""A ZODB application: four processes fill the same BTrees, and nothing is lost.

Conflicts are resolved by the stock client, or the transaction is tried again.
Afterwards the file alone, opened by the stock FileStorage, has every item.
"""

import subprocess
import sys
from pathlib import Path

import ZODB
import ZODB.FileStorage
from harness import files, filler

TESTS = Path(__file__).resolve().parents[1]
WORKERS = 4


def test_four_processes_fill_the_same_trees(tmp_path, start_server, encoding, scale):
    items = int(100_000 * scale) if encoding == "Z5" else int(20_000 * scale)
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    filler.prepare(*server.address)
    words = [sys.executable, "-m", "harness.filler", *map(str, server.address)]
    workers = [
        subprocess.Popen(
            [*words, str(number), str(WORKERS), str(items)],
            cwd=TESTS,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WORKERS)
    ]
    retries = [int(worker.communicate(timeout=300)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS
    print(f"tried again: {retries}")
    assert server.stop() == 0

    files.check(path)
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    with database.transaction() as connection:
        app = connection.root()["app"]
        assert app["count"]() == items
        assert list(app["by number"].items()) == [(n, filler.text_of(n)) for n in range(items)]
        assert dict(app["by name"]) == {filler.text_of(n): n for n in range(items)}
        app["by number"]._check()
        app["by name"]._check()
    database.close()


def test_a_reader_sees_what_another_client_has_committed(start_server, connect):
    server = start_server()
    writer, reader = ZODB.DB(connect(server)), ZODB.DB(connect(server, server_sync=True))
    for number in range(50):
        with writer.transaction() as connection:
            connection.root()["number"] = number
        with reader.transaction() as connection:
            assert connection.root()["number"] == number


def test_a_cache_that_was_away_is_brought_up_to_date(tmp_path, start_server, connect):
    """The client keeps its cache over a restart of itself, and of the server."""
    server = start_server(tmp_path / "Data.fs")
    cached = {"client": "kept", "var": str(tmp_path)}
    fill(connect(server, **cached), "old")
    fill(connect(server), "new")
    assert fill(connect(server, **cached)) == "new"
    server.stop()
    server = start_server(tmp_path / "Data.fs")
    assert fill(connect(server, **cached)) == "new"


def fill(storage, value=None):
    """Set the one value of an application, or read it; closes the storage."""
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        if value is not None:
            connection.root()["value"] = value
        found = connection.root()["value"]
    database.close()
    return found
