"""Packs through the server: what the stock FileStorage makes of the same file, and no less.

Histories of a small application are packed by both; packs run beside commits,
and end with a kill at a random moment.
"""

import contextlib
import shutil
import threading
import time

import pytest
import transaction
import ZODB
import ZODB.FileStorage
from BTrees.OOBTree import OOBTree
from harness import files
from harness.committer import digest, promises_of
from harness.waiting import wait_for
from harness.wire import MAXTID, Closed, ErrorReply, Silent
from persistent.mapping import PersistentMapping
from persistent.TimeStamp import TimeStamp
from test_kill import CLIENTS, commit_until_killed
from ZEO.Exceptions import ServerException
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf
from ZODB.utils import z64

KILLS = 8
PACKS_MIN = 5


class Application:
    """Things below a BTree that come, change, refer to each other, and go."""

    def __init__(self, storage, random):
        self.random = random
        self.database = ZODB.DB(storage)
        self.manager = transaction.TransactionManager()
        self.connection = self.database.open(self.manager)
        self.things = self.connection.root().setdefault("things", OOBTree())
        self.commit()

    def commit(self):
        self.manager.commit()

    def close(self):
        self.connection.close()
        self.database.close()

    def work(self, count, undo=True):
        """Commit `count` random transactions."""
        for _ in range(count):
            kind = self.random.random()
            if undo and kind < 0.15:
                self.undo()
            elif kind < 0.2:
                self.commit_empty()
            else:
                for _ in range(self.random.randrange(1, 6)):
                    self.change()
                self.commit()

    def change(self):
        choose = self.random
        key = f"thing {choose.randrange(80)}"
        thing = self.things.get(key)
        if thing is None:
            self.things[key] = PersistentMapping(name=key, data=choose.randbytes(200))
        elif choose.random() < 0.3:
            del self.things[key]
        elif choose.random() < 0.5:
            thing["data"] = choose.randbytes(choose.randrange(500))
        else:
            thing["part"] = PersistentMapping(data=choose.randbytes(50))

    def commit_empty(self):
        self.manager.get().note("nothing")
        self.commit()

    def undo(self):
        """Undo the newest transaction: an older one could leave dangling references."""
        log = self.database.undoLog(0, 3)
        if len(log) < 3:
            return
        try:
            self.database.undo(log[0]["id"], self.manager.get())
            self.commit()
        except (UndoError, ServerException):
            # The latter is how the former comes from a server.
            self.manager.abort()


def between(one, other):
    """A time between two transactions, in seconds."""
    return (TimeStamp(one).timeTime() + TimeStamp(other).timeTime()) / 2


def packs_by_stock(path, times, gc=True):
    """The file after packs by the stock FileStorage; None if they have lost objects.

    A pack loses those that only an object needs which was garbage at the pack time and came back
    by an undo. The next pack then fails, since it does not find them.
    """
    storage = ZODB.FileStorage.FileStorage(str(path), pack_gc=gc)
    try:
        for pack_time in times:
            storage.pack(pack_time, referencesf)
    except KeyError:
        assert lost_objects(path)
        return None
    finally:
        storage.close()
    return None if lost_objects(path) else files.read(path)


def lost_objects(path):
    """The objects that records of a file refer to and that it does not have."""
    records = [record for txn in files.read(path) for record in txn.records if record.data]
    needed = {oid for record in records for oid in referencesf(record.data)}
    return needed - {record.oid for record in records}


@pytest.mark.zodium
@pytest.mark.parametrize("gc", [True, False], ids=["gc", "no-gc"])
def test_same_result_as_stock(tmp_path, start_server, connect, seeded, encoding, scale, gc):
    wanted = int(3 * scale)
    compared = 0
    for number in range(2 * wanted):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, stock = folder / "Data.fs", folder / "stock.fs"
        # Without gc the stock one trips over back pointers to what it has dropped.
        write_application(path, seeded, undo=gc)
        shutil.copy(path, stock)
        tids = [txn.tid for txn in files.read(path)]
        places = sorted(seeded.sample(range(1, len(tids)), 2))
        times = [between(tids[place - 1], tids[place]) for place in places] + [time.time()]
        server = start_server(path, *([] if gc else ["--no-pack-gc"]), encoding=encoding)
        client = connect(server)
        for pack_time in times:
            client.pack(pack_time)
            # A second one to the same time finds nothing to do.
            client.pack(pack_time)
        expected = packs_by_stock(stock, times, gc)
        packed = files.snapshot(client)
        client.close()
        assert server.stop() == 0
        files.check(path)
        assert not lost_objects(path)
        if expected is None:
            continue
        files.assert_same(packed, expected)
        assert path.read_bytes() == stock.read_bytes()
        compared += 1
        if compared == wanted:
            break
    assert compared == wanted


def write_application(path, random, undo=True):
    application = Application(ZODB.FileStorage.FileStorage(str(path)), random)
    application.work(150, undo)
    application.close()


@pytest.mark.zodium  # The stock server refuses undos during a pack.
def test_pack_while_an_application_works(tmp_path, start_server, connect, seeded, encoding):
    server = start_server(tmp_path / "Data.fs", encoding=encoding)
    application = Application(connect(server), seeded)
    done = threading.Event()
    packs = []

    def pack():
        client = connect(server)
        while not done.is_set():
            client.pack(time.time())
            packs.append(time.time())

    packer = threading.Thread(target=pack)
    packer.start()
    try:
        application.work(300)
        while len(packs) <= PACKS_MIN and packer.is_alive():
            application.work(10)
    finally:
        done.set()
        packer.join()
    assert len(packs) > PACKS_MIN
    found = {key: dict(thing) for key, thing in application.things.items()}
    application.close()
    # Everything can be reached in a fresh cache, too.
    application = Application(connect(server), seeded)
    for key, thing in application.things.items():
        thing = dict(thing)
        assert thing.pop("part", {}) is not None
        assert thing["data"] == found.pop(key)["data"]
    assert not found
    application.close()
    assert server.stop() == 0
    files.check(tmp_path / "Data.fs")


@pytest.fixture
def journals(tmp_path):
    return [tmp_path / f"journal-{number}" for number in range(CLIENTS)]


@pytest.mark.zodium
def test_acknowledged_commits_survive_kill_during_packs(
    tmp_path, start_server, wire, seeded, journals, scale
):
    path = tmp_path / "Data.fs"
    for _ in range(int(KILLS * scale)):
        server = start_server(path, "--no-pack-gc")
        packer = threading.Thread(target=pack_until_killed, args=(server, wire))
        packer.start()
        commit_until_killed(server, journals, seeded)
        packer.join()
    client = wire(start_server(path))
    newest = {}
    for journal in journals:
        for tid, objects in promises_of(journal):
            for oid, sha in objects.items():
                newest[oid] = max((tid, sha), newest.get(oid, (z64, "")))
    assert len(newest) > CLIENTS
    for oid, (tid, sha) in newest.items():
        data, found, _ = client.call("loadBefore", oid, MAXTID)
        # A commit may be there that nobody was told of, but never an older one.
        assert found > tid or (found, digest(data)) == (tid, sha)
    files.read(path)


def pack_until_killed(server, wire):
    with contextlib.suppress(Closed, ConnectionError):
        client = wire(server, seconds=60)
        while True:
            client.call("pack", time.time(), 1)


def test_everybody_is_told_the_new_size(tmp_path, start_server, wire, seeded):
    path = tmp_path / "Data.fs"
    write_application(path, seeded)
    server = start_server(path)
    client, other = wire(server), wire(server, read_only=True)
    # Reading and packing is all that a read-only session may do.
    assert other.call("pack", time.time()) is None
    size = path.stat().st_size

    def infos(told):
        return [args for _, _, name, args in told.notices if name == "info"]

    # The client that packs is told before its answer. Those of other workers are told by these,
    # which may be a moment later.
    assert len(infos(other)) == 1
    deadline = time.monotonic() + 20
    while not infos(client):
        assert time.monotonic() < deadline
        assert client.call("ping") is None
    for told in (client, other):
        (info,) = infos(told)
        assert info[0]["size"] == size
        assert told.call("get_info")["size"] == size
    assert (tmp_path / "Data.fs.old").stat().st_size > size


def test_a_pack_that_nobody_waits_for(tmp_path, start_server, wire, seeded):
    path = tmp_path / "Data.fs"
    write_application(path, seeded)
    size = path.stat().st_size
    client = wire(start_server(path))
    assert client.call("pack", time.time(), 0) is None
    wait_for(lambda: client.call("get_info")["size"] < size, "the file is packed", 20)


@pytest.mark.zodium
def test_refused_packs(tmp_path, start_server, wire, seeded):
    path = tmp_path / "Data.fs"
    write_application(path, seeded)
    before = path.read_bytes()
    client = wire(start_server(path, "--read-only"), read_only=True)
    with pytest.raises(ErrorReply) as refused:
        client.call("pack", time.time())
    assert refused.value.args[0] == "ZODB.POSException.ReadOnlyError"
    for wrong in (None, "now", b"", []):
        with pytest.raises(ErrorReply):
            client.call("pack", wrong)
    assert path.read_bytes() == before


@pytest.mark.zodium
def test_one_pack_at_a_time(tmp_path, start_server, wire, seeded):
    """The first waits for an undo that has been voted; meanwhile a second is refused."""
    path = tmp_path / "Data.fs"
    write_application(path, seeded)
    server = start_server(path)
    client, undoer = wire(server), wire(server)
    undoer.notify("tpc_begin", 1, b"", b"", {}, None, " ")
    undoer.notify("undoa", client.call("undoLog", 0, 1)[0]["id"], 1)
    undoer.call("vote", 1)
    first = client.request("pack", time.time())
    with pytest.raises(Silent):
        client.reply(first, 0.5)
    with pytest.raises(ErrorReply) as refused:
        client.call("pack", time.time())
    name, arguments = refused.value.args
    assert name == "ZODB.FileStorage.FileStorage.FileStorageError"
    assert list(arguments) == ["Already packing"]
    undoer.call("tpc_abort", 1)
    assert client.reply(first) is None
