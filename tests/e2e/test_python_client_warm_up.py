"""The warm-up of zodium.ClientStorage: what one run loaded first, the next one prefetches.

A proxy sees what is asked of the server. It keeps its address, as the list is that of one.
"""

import threading

import pytest
import ZODB
import ZODB.config
from harness import own_files, package
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping
from ZODB.utils import p64, u64
from zodburi import resolve_uri

package.use()

OBJECTS = 300
OBJECTS_MAX = 10_000
PATIENCE_SECONDS = 60


@pytest.fixture
def writer(either_server, connect):
    """A stock client's database."""
    return filled(connect(either_server))


def filled(storage):
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        for number in range(OBJECTS):
            connection.root()[number] = PersistentMapping(value=1)
    return database


def change(database, number, value):
    with database.transaction() as connection:
        connection.root()[number]["value"] = value


@pytest.fixture
def opened(proxy, open_native, tmp_path):
    """opened(): a database with a warm-up list."""

    def open_one(**options):
        return ZODB.DB(open_native(proxy.address, **{"warm_up": tmp_path / "list", **options}))

    return open_one


def values(database):
    """Each is loaded by a request of its own, if it must be."""
    with database.transaction() as connection:
        return [connection.root()[number]["value"] for number in range(OBJECTS)]


def record(opened):
    database = opened()
    assert values(database) == [1] * OBJECTS
    database.close()


def loads(proxy):
    return proxy.requests.count(b"loadBefore")


def wait_for_loads(proxy, count):
    def seen():
        return f"{loads(proxy)} of {count} loads were requested"

    wait_for(lambda: loads(proxy) >= count, seen, PATIENCE_SECONDS, pause=0.001)


def test_the_second_opening_has_asked_for_all_before_the_application_does(proxy, writer, opened):
    record(opened)
    # The root too.
    assert loads(proxy) == OBJECTS + 1
    database = opened()
    wait_for_loads(proxy, 2 * (OBJECTS + 1))
    assert values(database) == [1] * OBJECTS
    assert loads(proxy) == 2 * (OBJECTS + 1)


def test_what_others_commit_beside_the_warm_up_is_shown(proxy, writer, opened):
    record(opened)
    expected = [1] * OBJECTS
    for turn in range(5):
        changes = [0, turn, OBJECTS // 2, OBJECTS - 1]
        committer = threading.Thread(
            target=lambda changes=changes, turn=turn: [
                change(writer, number, f"turn {turn}") for number in changes
            ]
        )
        committer.start()
        database = opened()
        for number in changes:
            expected[number] = f"turn {turn}"
        found = values(database)
        assert all(one in (1, new) or one.startswith("turn") for one, new in zip(found, expected))
        committer.join()
        database.storage.ping()
        assert values(database) == expected
        database.close()


def test_a_list_of_another_database_costs_requests_only(
    tmp_path, proxy, writer, opened, start_server, connect
):
    record(opened)
    other = start_server(tmp_path / "other.fs")
    with ZODB.DB(connect(other)).transaction() as connection:
        connection.root()["text"] = "of the other database"
    proxy.target = other.address
    before = loads(proxy)
    database = opened()
    wait_for_loads(proxy, before + OBJECTS + 1)
    with database.transaction() as connection:
        assert dict(connection.root()) == {"text": "of the other database"}


def test_a_damaged_list_is_logged_and_replaced(tmp_path, writer, opened, warnings):
    record(opened)
    path = tmp_path / "list"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    record(opened)
    (warning,) = warnings
    assert "the warm-up list is not used" in warning and "checksum" in warning
    assert path.read_bytes() == whole


def test_a_list_that_cannot_be_kept_is_logged(tmp_path, writer, opened, warnings):
    (tmp_path / "file").write_text("no folder")
    database = opened(warm_up=tmp_path / "file" / "list")
    assert values(database) == [1] * OBJECTS
    database.close()
    reading, saving = warnings
    assert "the warm-up list cannot be read" in reading
    assert "cannot save the warm-up list" in saving


def test_a_list_has_ten_thousand_objects_at_most(tmp_path, start_server, open_native):
    server = start_server(tmp_path / "Data.fs")
    storage = open_native(server.address, warm_up=tmp_path / "list")
    storage.load_many([p64(oid) for oid in range(OBJECTS_MAX + 500)], storage.lastTransaction())
    storage.close()
    _, entries = own_files.warm_up(tmp_path / "list")
    assert list(entries) == list(range(OBJECTS_MAX))


def test_the_list_is_as_documented(tmp_path, start_server, open_native):
    server = start_server(tmp_path / "Data.fs")
    database = filled(open_native(server.address, client="app", var=str(tmp_path)))
    database.close()
    host, port = server.address

    def run(*numbers):
        database = ZODB.DB(open_native(server.address, client="app", var=str(tmp_path)))
        with database.transaction() as connection:
            found = [connection.root()[number] for number in numbers]
            oids = [u64(one._p_oid) for one in found if one["value"]]
        database.close()
        return [0, *oids], own_files.warm_up(tmp_path / "app-1.zodium.warm-up")

    (root, four, two, three), (source, entries) = run(4, 2, 3)
    assert source.startswith("storage 1 of ") and source.endswith(f":{port}")
    assert list(entries.items()) == [(root, 0), (four, 0), (two, 0), (three, 0)]
    # A run that loads half of them: the others age, and leave after the fourth one.
    for age in (1, 2, 3):
        expected = [(root, 0), (three, 0), (four, age), (two, age)]
        assert list(run(3)[1][1].items()) == expected
    assert list(run(3)[1][1].items()) == [(root, 0), (three, 0)]


@pytest.mark.parametrize("given", ["section", "uri"])
def test_configurations_name_the_list(tmp_path, start_server, given):
    server = start_server(tmp_path / "Data.fs")
    host, port = server.address
    path = tmp_path / "list"
    if given == "section":
        text = f"<zodium>\nserver {host}:{port}\nwarm-up {path}\n</zodium>"
        database = ZODB.config.databaseFromString(f"%import zodium\n<zodb>\n{text}\n</zodb>")
    else:
        factory, options = resolve_uri(f"zodium://{host}:{port}?warm_up={path}")
        database = ZODB.DB(factory(), **options)
    with database.transaction() as connection:
        connection.root()["number"] = 1
    database.close()
    assert own_files.warm_up(path)[1] == {0: 0}


def test_no_list_is_kept_beside_the_cache_if_it_is_off(tmp_path, start_server, open_native):
    server = start_server(tmp_path / "Data.fs")
    for off in (False, "off"):
        ZODB.DB(open_native(server.address, cache=tmp_path / "kept", warm_up=off)).close()
    assert not (tmp_path / "kept.zodium.warm-up").exists()
    ZODB.DB(open_native(server.address, cache=tmp_path / "kept")).close()
    assert (tmp_path / "kept.zodium.warm-up").exists()
