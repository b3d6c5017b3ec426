"""The index file is a hint: right, missing or wrong, the data are the same.

Each side uses what the other side wrote, and neither believes a bad one. That ours reads an index
at all is tested in crates/filestorage, by the parts of the file that it does not read.
"""

import shutil

import pytest
import ZODB.FileStorage
from harness import files
from harness.history import History
from harness.wire import MAXTID


@pytest.fixture
def written(tmp_path, seeded):
    """(path, its history): a file with an index, written by the stock FileStorage."""
    path = tmp_path / "Data.fs"
    history = History(seeded)
    write_through_stock(path, history, 60)
    return path, history


def index_of(path):
    return path.with_name(path.name + ".index")


def write_through_stock(path, history, count):
    storage = ZODB.FileStorage.FileStorage(str(path))
    history.write(storage, count)
    storage.close()


def assert_served_whole(server, history, wire):
    client = wire(server)
    assert client.register_tid == history.last_tid
    for oid, (data, tid) in history.current().items():
        assert client.call("loadBefore", oid, MAXTID) == (data, tid, None)
    assert client.call("get_info")["length"] == len(history.serials)
    # New oids must be above all that the index should know of.
    (fresh,) = client.call("new_oids", 1)
    assert fresh > max(history.serials)


class WatchedFileStorage(ZODB.FileStorage.FileStorage):
    """Remembers what the stock code made of the index file."""

    def _restore_index(self):
        self.restored = super()._restore_index()
        return self.restored


def test_stock_uses_our_index(written, start_server, connect):
    path, history = written
    index_of(path).unlink()
    server = start_server(path)
    client = connect(server)
    history.write(client, 20)
    # The stock check of an index gives up on an oid that is twice in the last
    # transactions; end with one it can judge.
    finish_with_one_record(client, history)
    client.close()
    assert server.stop() == 0
    storage = WatchedFileStorage(str(path))
    found = {oid: storage.load(oid) for oid in history.current()}
    index, end, tid = storage.restored
    storage.close()
    assert end == path.stat().st_size
    assert tid == history.last_tid
    assert set(index.keys()) == set(history.serials)
    assert found == history.current()


def finish_with_one_record(storage, history):
    """Five transactions of one store each, which no restore follows."""
    for _ in range(5):
        txn = history._metadata()
        oid = files.oid_of(len(history.serials) + (1 << 41))
        data = history.data()
        storage.tpc_begin(txn)
        storage.store(oid, b"\0" * 8, data, "", txn)
        storage.tpc_vote(txn)
        tid = storage.tpc_finish(txn)
        history._remember(tid, " ", txn, [files.Record(oid, tid, data, None)])


def damage_nothing(index, history):
    pass


def damage_missing(index, history):
    index.unlink()


def damage_empty(index, history):
    index.write_bytes(b"")


def damage_cut(index, history):
    content = index.read_bytes()
    index.write_bytes(content[: history.random.randrange(1, len(content))])


def damage_garbage(index, history):
    index.write_bytes(history.random.randbytes(1000))


DAMAGES = [
    damage_nothing,
    damage_missing,
    damage_empty,
    damage_cut,
    damage_garbage,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__[7:])
def test_a_damaged_index_changes_nothing(written, start_server, wire, damage):
    path, history = written
    damage(index_of(path), history)
    server = start_server(path)
    assert_served_whole(server, history, wire)
    assert server.stop() == 0
    files.assert_same(files.read(path), history.transactions)


# The stock server looks at the last entries only, and serves the rest as they are.
@pytest.mark.zodium
def test_a_flipped_bit_in_the_index_changes_nothing(written, start_server, wire):
    path, history = written
    content = index_of(path).read_bytes()
    for _ in range(10):
        flipped = bytearray(content)
        flipped[history.random.randrange(len(content))] ^= 1 << history.random.randrange(8)
        index_of(path).write_bytes(flipped)
        server = start_server(path)
        assert_served_whole(server, history, wire)
        server.kill()


def test_an_older_index_changes_nothing(written, start_server, wire):
    path, history = written
    older = index_of(path).read_bytes()
    write_through_stock(path, history, 60)
    index_of(path).write_bytes(older)
    assert_served_whole(start_server(path), history, wire)


def test_an_index_newer_than_the_file_changes_nothing(tmp_path, written, start_server, wire):
    path, history = written
    earlier = tmp_path / "earlier"
    shutil.copy(path, earlier)
    transactions = len(history.transactions)
    newer = History(history.random)
    newer.transactions = list(history.transactions)
    newer.serials = dict(history.serials)
    write_through_stock(path, newer, 30)
    shutil.copy(earlier, path)
    assert len(files.read(path)) == transactions
    assert_served_whole(start_server(path), history, wire)


def test_an_index_of_another_file_changes_nothing(tmp_path, written, start_server, wire):
    path, history = written
    other = tmp_path / "other.fs"
    write_through_stock(other, History(history.random), 40)
    shutil.copy(index_of(other), index_of(path))
    assert_served_whole(start_server(path), history, wire)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__[7:])
def test_our_index_damaged_changes_nothing(tmp_path, seeded, start_server, connect, wire, damage):
    path = tmp_path / "Data.fs"
    history = History(seeded)
    server = start_server(path)
    client = connect(server)
    history.write(client, 40)
    client.close()
    server.stop()
    damage(index_of(path), history)
    assert_served_whole(start_server(path), history, wire)
