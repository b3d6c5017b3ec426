"""zodium gc on databases that refer to each other: at rest, and beside writers."""

import json
import random as randoms
import threading
import time
from contextlib import closing

import pytest
import transaction
import ZODB
from harness.databases import with_transaction
from harness.databases_together import current, is_there, open_files, plant, reachable
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileStorage
from ZODB.POSException import ConflictError
from ZODB.utils import p64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60
NAMES = ["one", "two"]
# Of the runs beside writers: an object that was held for longer is not referred to again, and the
# grace is what a commit may need after that.
GRACE_SECONDS = 3
HELD_SECONDS, HELD_SECONDS_MAX = 0.3, 1
WRITING_SECONDS, WRITING_SECONDS_MAX = 6, 60
DELETED_MIN = COMMITS_MIN = 10


@pytest.fixture
def planted(tmp_path, seeded):
    """Two packed files with garbage in them: their arguments, and how to open them."""
    databases = open_files(tmp_path, NAMES)
    plant(databases, seeded)
    for database in databases.values():
        database.pack(time.time() + 1)
        database.close()
    words = [f"{name}={tmp_path / name}.fs" for name in NAMES]

    def storages():
        return {name: FileStorage(str(tmp_path / f"{name}.fs")) for name in NAMES}

    return words, storages


def close_all(storages):
    for storage in storages.values():
        storage.close()


def garbage_of(storages):
    return set(current(storages)) - reachable(storages)


def printed(text):
    return {(line.split()[0], bytes.fromhex(line.split()[1])) for line in text.splitlines()}


def test_what_no_root_leads_to_is_deleted_and_nothing_else(run, planted):
    words, open_all = planted
    storages = open_all()
    everything, garbage = current(storages), garbage_of(storages)
    close_all(storages)
    code, out, said = run("gc", "--days", 0, "--dry-run", "-v", *words)
    assert (code, said) == (0, "")
    listed = "\n".join(out.splitlines()[: -len(NAMES)])
    assert printed(listed) == garbage
    # Nothing is older than a day.
    assert "0 of" in run("gc", *words)[1]
    code, out, said = run("gc", "--days", 0, "--json", *words)
    assert (code, said) == (0, "")
    summaries = [json.loads(line) for line in out.splitlines()]
    assert sum(summary["deleted"] for summary in summaries) == len(garbage)
    assert [summary["database"] for summary in summaries] == NAMES
    storages = open_all()
    for (name, oid), data in everything.items():
        assert is_there(storages[name], oid) == ((name, oid) not in garbage)
        assert (name, oid) in garbage or storages[name].load(oid)[0] == data
    assert reachable(storages) == set(everything) - garbage
    close_all(storages)
    again = run("gc", "--days", 0, "--json", *words)[1]
    assert all(json.loads(line)["garbage"] == 0 for line in again.splitlines())


def test_the_same_is_deleted_as_by_the_tool_of_before(run, planted, tmp_path):
    collector = pytest.importorskip("zc.zodbdgc")
    words, open_all = planted
    code, out, _ = run("gc", "--days", 0, "--dry-run", "-v", *words)
    assert code == 0
    config = tmp_path / "gc.conf"
    config.write_text(
        "".join(
            f"<zodb {name}>\n<filestorage>\npath {tmp_path / name}.fs\npack-gc false\n"
            f"</filestorage>\n</zodb>\n"
            for name in NAMES
        )
    )
    storages = open_all()
    everything = set(current(storages))
    close_all(storages)
    # Its scan ends at the beginning of this second, and it keeps what is younger.
    time.sleep(2)
    collector.gc(str(config), days=0)
    storages = open_all()
    deleted = {place for place in everything if not is_there(storages[place[0]], place[1])}
    close_all(storages)
    assert printed("\n".join(out.splitlines()[: -len(NAMES)])) == deleted


def test_nothing_is_deleted_without_a_database_that_is_referred_to(run, planted, seeded):
    words, _ = planted
    assert run("gc", "--days", 0, words[0], "--ignore", "two")[0] == 0
    code, out, said = run("gc", "--days", 0, words[1])
    assert (code, out) == (2, "") and "database 'one'" in said.replace('"', "'")
    assert run("gc", *words[:1], words[0])[0] == 2
    assert run("gc", "a.fs", "b.fs")[0] == 2


def test_nothing_is_deleted_where_references_cannot_be_read(run, tmp_path):
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        storage = database.storage
        with_transaction(storage, lambda txn: storage.store(p64(77), p64(0), b"?", "", txn))
    size = path.stat().st_size
    code, out, said = run("gc", "--days", 0, path)
    assert (code, out) == (1, "") and "000000000000004d" in said
    assert path.stat().st_size == size


class Writer(threading.Thread):
    """Moves objects about, drops them, and refers to them again after a while."""

    def __init__(self, addresses, seed, is_over):
        super().__init__()
        self.random, self.is_over, self.failure = randoms.Random(seed), is_over, None
        databases = {}
        for name, address in zip(NAMES, addresses):
            storage = ClientStorage(address, wait=True)
            ZODB.DB(storage, databases=databases, database_name=name)
        self.databases, self.commits = databases, 0

    def run(self):
        try:
            while not self.is_over.is_set():
                self.step()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            for database in self.databases.values():
                database.close()

    def step(self):
        random, manager = self.random, transaction.TransactionManager()
        connection = self.databases[NAMES[0]].open(manager)
        try:
            roots = [connection.get_connection(name).root() for name in NAMES]
            source, target = random.choice(roots), random.choice(roots)
            key = random.choice(["a", "b", "c", "d", "e", "f"])
            held, since = source.pop(key, None), time.monotonic()
            if random.random() < 0.5:
                manager.commit()
                time.sleep(random.random() * HELD_SECONDS)
            is_late = time.monotonic() - since > HELD_SECONDS_MAX
            if held is None or is_late or random.random() < 0.3:
                held = PersistentMapping(child=PersistentMapping(n=self.commits))
            elif random.random() < 0.5:
                held = PersistentMapping(child=held, n=0)
            while isinstance(held.get("child"), PersistentMapping) and random.random() < 0.4:
                held = held["child"]
            target[random.choice(["a", "b", "c", "d", "e", "f"])] = held
            manager.commit()
            self.commits += 1
        except ConflictError:
            manager.abort()
        finally:
            connection.close()


def test_nothing_in_use_is_deleted_beside_writers(run, tmp_path, start_server, seeded):
    databases = open_files(tmp_path, NAMES)
    for database in databases.values():
        database.close()
    servers = [start_server(tmp_path / f"{name}.fs") for name in NAMES]
    addresses = [server.address for server in servers]
    is_over, begin = threading.Event(), time.monotonic()
    writers = [Writer(addresses, seeded.random(), is_over) for _ in range(3)]
    for writer in writers:
        writer.start()
    days = GRACE_SECONDS / 86400
    words = [f"{name}={server.url}" for name, server in zip(NAMES, servers)]
    deleted = 0

    def is_enough():
        return deleted > DELETED_MIN and all(one.commits > COMMITS_MIN for one in writers)

    try:
        while (seconds := time.monotonic() - begin) < WRITING_SECONDS or not is_enough():
            assert seconds < WRITING_SECONDS_MAX, (deleted, [one.commits for one in writers])
            code, out, said = run("gc", "--days", f"{days:.7f}", "--json", *words)
            assert (code, said) == (0, "")
            deleted += sum(json.loads(line)["deleted"] for line in out.splitlines())
    finally:
        is_over.set()
        for writer in writers:
            writer.join()
    assert [writer.failure for writer in writers] == [None] * len(writers)
    for server in servers:
        server.stop()
    storages = {name: FileStorage(str(tmp_path / f"{name}.fs")) for name in NAMES}
    assert reachable(storages)
    close_all(storages)
