"""What a crash left at the end of a file: it is served as it was before, the tail is kept, and
the stock FileStorage takes the file again.  The stock server refuses most of these files.
"""

import random

import pytest
import ZODB
import ZODB.FileStorage
from harness import files

pytestmark = pytest.mark.zodium

OFFSETS = (0, 1, 17, 23, 100, 300)


@pytest.fixture
def written(tmp_path):
    """(path, its bytes, where its last transaction begins), written by the stock FileStorage."""
    path = tmp_path / "Data.fs"
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    with database.transaction() as connection:
        connection.root()["items"] = list(range(5))
    start = path.stat().st_size
    with database.transaction() as connection:
        connection.root()["items"] = [n * n for n in range(100)]
    database.close()
    for suffix in (".index", ".tmp", ".lock"):
        path.with_name("Data.fs" + suffix).unlink(missing_ok=True)
    return path, path.read_bytes(), start


def zeros(count):
    return bytes(count)


def ones(count):
    return b"\xff" * count


def noise(count):
    return random.Random(count).randbytes(count)


@pytest.mark.parametrize("garbage", [zeros, ones, noise])
@pytest.mark.parametrize("offset", OFFSETS)
def test_file_that_ends_in_garbage_is_served_as_it_was_before(
    written, start_server, connect, garbage, offset
):
    path, whole, start = written
    damaged = whole[: start + offset] + garbage(len(whole) - start - offset)
    path.write_bytes(damaged)
    server = start_server(path)
    database = ZODB.DB(connect(server))
    with database.transaction() as connection:
        assert connection.root()["items"] == list(range(5))
        connection.root()["items"] = "next"
    database.close()
    server.stop()

    warnings = [line for line in server.log().splitlines() if " WARN " in line]
    assert len(warnings) == 1 and "put an unfinished transaction aside" in warnings[0], warnings
    assert path.with_name("Data.fs.tr0").read_bytes() == damaged[start:]
    assert path.read_bytes()[:start] == whole[:start]
    files.check(path)
    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    with database.transaction() as connection:
        assert connection.root()["items"] == "next"
    database.close()
