"""Zodium and the stock FileStorage open one file in turns: commits, undos, packs.

After each turn both read the same transactions, record by record, and what was there
before is unchanged but for what a pack drops; that is what the stock packer drops,
but for deletions of what is dropped too.

ROUNDS    turns; ZODIUM_TEST_LARGE=1 takes 1000
"""

import os
import shutil

import pytest
from harness import files
from harness.history import History
from persistent.TimeStamp import TimeStamp
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorage, FileStorageError
from ZODB.FileStorage.fspack import PackError
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf
from ZODB.utils import maxtid

IS_LONG = os.environ.get("ZODIUM_TEST_LARGE") == "1"
ROUNDS = int(os.environ.get("ROUNDS") or (1000 if IS_LONG else 16))
TRANSACTIONS_MAX = 120  # then a pack is due, so that long runs stay quick
COUNTED = ["commits", "undos", "undo errors", "packs", "packs of ours alone"]
NOTHING_TO_PACK = ("already been packed", "no changes")


class Turns:
    """One file, what is known to be in it, and what was done to it."""

    def __init__(self, path, seeded):
        self.path, self.random = path, seeded
        self.history = History(seeded, once=True)
        self.snapshot = []
        self.is_packed = False  # since it was learned
        self.counts = {
            "commits": 0,
            "undos": 0,
            "undo errors": 0,
            "packs": 0,
            "packs of ours alone": 0,
        }

    def take(self, storage):
        """One side's turn."""
        for _ in range(self.random.randrange(1, 4)):
            choice = self.random.random()
            if choice < 0.7 or not self.snapshot:
                count = self.random.randrange(1, 4)
                self.history.write(storage, count)
                self.counts["commits"] += count
            elif choice < 0.9:
                self.undo(storage)
            else:
                self.pack(storage)
            self.learn(storage)
        if len(self.snapshot) > TRANSACTIONS_MAX:
            self.pack(storage)
            self.learn(storage)

    def learn(self, storage):
        """What is in the file now, which must be what was there, and more."""
        found = files.snapshot(storage)
        if not self.is_packed:
            files.assert_same(found[: len(self.snapshot)], self.snapshot)
        self.is_packed = False
        self.snapshot, self.history.transactions = found, list(found)
        self.history.serials, self.history.revisions = {}, {}
        for transaction in found:
            for record in transaction.records:
                self.history.serials[record.oid] = record.tid
                revisions = self.history.revisions.setdefault(record.oid, [])
                revisions.append((record.tid, record.data))

    def undo(self, storage):
        log = storage.undoLog(0, 20)
        if not log:
            return
        txn = TransactionMetaData("undoer", "undo")
        storage.tpc_begin(txn)
        try:
            storage.undo(self.random.choice(log)["id"], txn)
            storage.tpc_vote(txn)
        except UndoError:
            storage.tpc_abort(txn)
            self.counts["undo errors"] += 1
            return
        storage.tpc_finish(txn)
        self.counts["undos"] += 1

    def pack(self, storage):
        """Pack to some moment; the stock packer does the same to a copy, and comes out the same.

        It fails on some back pointers to what it drops.  Then only ours packs.
        """
        tid = self.random.choice(self.snapshot[len(self.snapshot) // 2 :]).tid
        moment = TimeStamp(tid).timeTime()
        copy = self.path.with_name("copy.fs")
        shutil.copy(self.path, copy)
        packed = open_stock(copy)
        try:
            is_packed = pack(packed, moment)
            expected = files.snapshot(packed) if is_packed else None
        except (AssertionError, PackError):
            is_packed, expected = not isinstance(storage, FileStorage), None
            self.counts["packs of ours alone"] += is_packed
        finally:
            packed.close()
            for left in self.path.parent.glob("copy.fs*"):
                left.unlink()
        if is_packed:
            pack(storage, moment)
            self.is_packed = True
            self.counts["packs"] += 1
        if expected:
            found = files.snapshot(storage)
            assert current(found) == current(expected)
            files.assert_same(essence(found), essence(expected))


def essence(snapshot):
    """Transactions without what packers may drop or not: packed deletions that nothing tells of.

    The stock packer keeps those that a later undo leads to.
    """
    kept = []
    for transaction in snapshot:
        records = [
            record if record.data is not None else record._replace(data_txn=None)
            for record in transaction.records
            if record.data is not None or transaction.status != "p"
        ]
        if records:
            kept.append(transaction._replace(records=tuple(records)))
    return kept


def current(snapshot):
    """{oid: data} of what is not deleted."""
    last = {record.oid: record.data for txn in snapshot for record in txn.records}
    return {oid: data for oid, data in last.items() if data is not None}


def pack(storage, moment):
    """False when there was nothing to pack."""
    try:
        storage.pack(moment, referencesf)
    except FileStorageError as error:
        if isinstance(error, PackError):
            raise
        assert any(text in str(error) for text in NOTHING_TO_PACK), error
        return False
    return True


def open_stock(path, read_only=False):
    return FileStorage(str(path), read_only=read_only, pack_gc=False)


def loads(storage, oids):
    """What a storage answers for each object: (data, serial), or no such object."""
    found = {}
    for oid in sorted(oids):
        try:
            found[oid] = storage.loadBefore(oid, maxtid)
        except KeyError:
            found[oid] = KeyError
    return found


def assert_stock_agrees(turns, oids, expected_loads):
    storage = open_stock(turns.path, read_only=True)
    try:
        files.assert_same(files.snapshot(storage), turns.snapshot)
        assert loads(storage, oids) == expected_loads
    finally:
        storage.close()


@pytest.mark.zodium
def test_both_write_undo_and_pack_one_file_in_turns(tmp_path, start_server, connect, seeded):
    path = tmp_path / "Data.fs"
    turns = Turns(path, seeded)
    for number in range(ROUNDS):
        encoding = "M5" if number % 4 == 0 else "Z5"
        server = start_server(path, "--no-pack-gc", encoding=encoding)
        client = connect(server)
        turns.take(client)
        oids = set(turns.history.serials)
        client.close()
        expected = loads(connect(server), oids)  # by a client that has nothing in its cache
        assert server.stop() == 0
        assert_stock_agrees(turns, oids, expected)
        storage = open_stock(path)
        turns.take(storage)
        storage.close()
        if number % 10 == 0:
            files.check(path)
    files.check(path)
    print(f"{ROUNDS} rounds: {turns.counts}")
