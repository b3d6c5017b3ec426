"""Random histories: written through any storage, remembered transaction by transaction.

Key decision: the model is what an iteration must yield, so the comparison with a
file is plain equality.  All randomness comes from one seed.
"""

import pickle

from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

from .files import Record, Transaction, oid_of, plain, tid_after

TEXTS = ["", "joe", "Jürgen", "中文 and 🐍", "line\nbreak\0zero", "x" * 300]
EXTENSIONS = [
    {},
    {},
    {"note": "text", "Ünicode": "ключ"},
    {"int": -5, "long": 2**40, "float": 1.5, "none": None, "yes": True},
    {"bytes": b"\0\xff", "list": [1, [2, "three"]], "map": {"a": {"b": "c"}}},
]
LIMIT = 65535  # bytes of each kind of metadata
CLASS = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\x00."


class History:
    """The transactions written so far, and what they make current.

    With `once` each object is in a transaction once: the stock packer fails on back
    pointers to the second of two records.
    """

    def __init__(self, random, once=False):
        self.random, self.once = random, once
        self.taken = set()  # objects of the transaction that is being written
        self.transactions = []
        self.serials = {}  # oid -> tid of its current record, deletions too
        self.revisions = {}  # oid -> [(tid, data or None)], oldest first

    @property
    def last_tid(self):
        return self.transactions[-1].tid if self.transactions else z64

    def write(self, storage, count=1):
        """Commit `count` random transactions through `storage`."""
        for _ in range(count):
            self.taken = set()
            if self.transactions and self.random.random() < 0.2:
                self._restore(storage)
            else:
                self._store(storage)

    def data(self):
        """Some object's record: two pickles, as ZODB writes them."""
        size = self.random.choice([0, 1, 10, 100, 1000, 5000])
        return CLASS + pickle.dumps({"data": self.random.randbytes(size)}, 3)

    def _metadata(self):
        choose = self.random.choice
        user, description = choose(TEXTS), choose(TEXTS)
        extension = choose(EXTENSIONS)
        if self.random.random() < 0.02:
            user, description = "u" * LIMIT, "é" * (LIMIT // 2)
            extension = {"x": "y" * (LIMIT - 50)}
        return TransactionMetaData(user, description, extension)

    def _store(self, storage):
        """Stores of new and old objects, some twice, and deletions."""
        txn, records = self._metadata(), []
        storage.tpc_begin(txn)
        for _ in range(self.random.randrange(1, 9)):
            oid = self._some_oid()
            serial = self.serials.get(oid, z64)
            if serial != z64 and self.random.random() < 0.15:
                storage.deleteObject(oid, serial, txn)
                records.append((oid, None))
                continue
            for _ in range(1 if self.once else self.random.choice([1, 1, 1, 1, 2, 3])):
                data = self.data()
                storage.store(oid, serial, data, "", txn)
                records.append((oid, data))
        storage.tpc_vote(txn)
        tid = storage.tpc_finish(txn)
        self._remember(tid, " ", txn, [Record(oid, tid, data, None) for oid, data in records])

    def _restore(self, storage):
        """Records with tids of their own, as a copy from another storage has them."""
        txn, records = self._metadata(), []
        tid = tid_after(self.last_tid, self.random.randrange(1, 1 << 20))
        status = self.random.choice("  p")
        storage.tpc_begin(txn, tid, status)
        for _ in range(self.random.randrange(1, 6)):
            oid = self._some_oid()
            data, source = self._restored(oid)
            storage.restore(oid, tid, data, "", source, txn)
            records.append(Record(oid, tid, data, source))
        storage.tpc_vote(txn)
        assert storage.tpc_finish(txn) == tid
        self._remember(tid, status, txn, records)

    def _restored(self, oid):
        """(data, transaction it is already in): new, deleted, or an old revision."""
        kind = self.random.random()
        old = [(tid, data) for tid, data in self.revisions.get(oid, ()) if data is not None]
        if old and kind < 0.5:
            tid, data = self.random.choice(old)
            return data, tid
        return (None, None) if kind > 0.85 else (self.data(), None)

    def _some_oid(self):
        oid = self._any_oid()
        while self.once and oid in self.taken:
            oid = self._any_oid()
        self.taken.add(oid)
        return oid

    def _any_oid(self):
        known = len(self.serials)
        if known and self.random.random() < 0.6:
            return self.random.choice(list(self.serials))
        return oid_of(known if self.random.random() < 0.9 else self.random.randrange(1 << 40))

    def _remember(self, tid, status, txn, records):
        for record in records:
            self.serials[record.oid] = tid
        # The last record of an oid is the one a back pointer finds.
        for oid, data in {record.oid: record.data for record in records}.items():
            self.revisions.setdefault(oid, []).append((tid, data))
        self.transactions.append(
            Transaction(
                tid, status, txn.user, txn.description, plain(txn.extension), tuple(records)
            )
        )

    def current(self):
        """{oid: (data, tid)} of all objects that are not deleted."""
        return {
            oid: (revisions[-1][1], revisions[-1][0])
            for oid, revisions in self.revisions.items()
            if revisions[-1][1] is not None
        }
