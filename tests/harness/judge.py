"""The judge of a data file: the stock FileStorage reads all of it, and trusts nothing beside it.

Key decision: the judge opens the file through a symbolic link in a folder of its own, so that it
builds its index from the log and leaves no file beside the data.
"""

import contextlib
import logging
import os

from ZODB.FileStorage.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex
from ZODB.POSException import POSKeyError


class Complaints(logging.Handler):
    """What the stock FileStorage logs of a file that it opens all the same."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def complaints():
    handler, logger = Complaints(), logging.getLogger("ZODB.FileStorage")
    logger.addHandler(handler)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)


class Truth:
    """What a full read found.  `problem` says why the file is not sound; "" when it is."""

    is_torn = False  # All that is wrong is an unfinished tail, as a crash leaves it.

    def __init__(self, path):
        self.size = os.path.getsize(path)
        self.problem = ""
        self.starts, self.tids = [], []  # of each transaction
        self.current = {}  # oid -> (data or None, tid)
        self.index = {}  # as `entries` gives it

    @property
    def is_sound(self):
        return not self.problem


def read(path, folder):
    """Read every transaction and every record, and load every object, as the stock server does."""
    truth = Truth(path)
    link = folder / "judged.fs"
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(path)
    try:
        with complaints() as found:
            storage = FileStorage(str(link), read_only=True)
    except Exception as error:
        truth.problem = f"the stock FileStorage does not open it: {error!r}"
        return truth
    if found:
        truth.problem = f"the stock FileStorage finds {len(found)} faults in it: {found[0]}"
    try:
        _read(storage, truth)
    except Exception as error:
        truth.problem = f"the stock FileStorage does not read it: {error!r}"
    finally:
        storage.close()
    return truth


def _read(storage, truth):
    for transaction in storage.iterator():
        truth.starts.append(transaction._tpos)
        truth.tids.append(transaction.tid)
        for record in transaction:
            truth.current[record.oid] = (record.data, record.tid)
    truth.index = entries(storage._index)
    for oid in storage._index:
        try:
            found = storage.load(oid)
        except POSKeyError:
            found = (None, truth.current[oid][1])
        if found != truth.current[oid]:
            truth.problem = f"object {oid.hex()} is loaded as another revision than the last"
            return
    if storage.getSize() != truth.size:
        truth.is_torn = True
        truth.problem = f"an unfinished tail from {storage.getSize()} to {truth.size}"


def entries(index):
    """The entries of a stock index, in a form that is fast to compare."""
    return {prefix: bucket.toString() for prefix, bucket in index._data.items()}


def index_beside(path):
    """(position up to which it holds, entries) of the index file of `path`, or None."""
    try:
        loaded = fsIndex.load(f"{path}.index")
    except FileNotFoundError:
        return None
    return loaded["pos"], entries(loaded["index"])
