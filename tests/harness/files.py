"""What the stock FileStorage says about a data file: the judge of every test.

Key decision: a file is compared as what its iteration yields, transaction by
transaction and record by record, back pointers included.
"""

from typing import NamedTuple, Optional

import ZODB.FileStorage
import ZODB.scripts.fstest
from ZODB.utils import p64, u64


class Record(NamedTuple):
    oid: bytes
    tid: bytes
    data: Optional[bytes]  # None: the object is deleted
    data_txn: Optional[bytes]  # the transaction a back pointer leads to


class Transaction(NamedTuple):
    tid: bytes
    status: str
    user: bytes
    description: bytes
    extension: dict
    records: tuple


def tids_of(path):
    """The tids of a data file."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    tids = [transaction.tid for transaction in storage.iterator()]
    storage.close()
    return tids


def snapshot(storage, start=None):
    """All transactions of any storage that can be iterated, from tid `start` on."""
    return [
        Transaction(
            txn.tid,
            txn.status,
            txn.user,
            txn.description,
            plain(txn.extension),
            tuple(Record(rec.oid, rec.tid, rec.data, rec.data_txn) for rec in txn),
        )
        for txn in storage.iterator(start)
    ]


def plain(value):
    """`value` with lists for tuples: msgpack makes no difference between them."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def read(path, start=None):
    """The transactions of the file at `path`, as the stock FileStorage reads them."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    try:
        return snapshot(storage, start)
    finally:
        storage.close()


def check(path):
    """Raise what the stock fstest finds wrong with the file at `path`."""
    ZODB.scripts.fstest.check(str(path))


def assert_same(found, expected):
    """Fail with the first transaction that differs, not with megabytes."""
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            raise AssertionError(f"transaction {number}: {difference(one, other)}")
    assert len(found) == len(expected), f"{len(found)} transactions, expected {len(expected)}"


def difference(one, other):
    for field, left, right in zip(Transaction._fields, one, other):
        if field == "records" and left != right:
            for position, (found, expected) in enumerate(zip(left, right)):
                if found != expected:
                    return f"record {position}: {short(found)}, expected {short(expected)}"
            return f"{len(left)} records, expected {len(right)}"
        if left != right:
            return f"{field}: {short(left)}, expected {short(right)}"


def short(value):
    if isinstance(value, Record):
        return f"Record({', '.join(short(field) for field in value)})"
    text = value.hex() if isinstance(value, bytes) and len(value) == 8 else repr(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


def oid_of(number):
    return p64(number)


def tid_after(tid, ticks=1):
    """The tid `ticks` of 14 ns after `tid`."""
    return p64(u64(tid) + ticks)
