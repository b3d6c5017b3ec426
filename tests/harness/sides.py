"""Those that write a data file in random histories: Zodium, the stock server, stock FileStorage.

Key decision: each gives the same few calls (commit, undo, pack), so that a history is a sequence
of calls whoever serves.  Servers are talked to by the raw client: it loads 10,000 objects in the
time in which a real client loads 1,000.
"""

import time

from persistent.TimeStamp import TimeStamp
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage.FileStorage import FileStorage, FileStorageError
from ZODB.FileStorage.fspack import PackError
from ZODB.POSException import UndoError
from ZODB.serialize import referencesf

from .wire import MAXTID, ErrorReply, Wire, framed

WINDOW = 200  # loads under way at once
WAIT_SECONDS = 60
NO_SUCH_OBJECT = "ZODB.POSException.POSKeyError"


class Served:
    """A file that a server has, through one connection."""

    def __init__(self, server):
        self.server = server
        self.wire = Wire(server.address, seconds=WAIT_SECONDS)
        self.wire.register()
        self.transactions = 0

    def close(self):
        self.wire.close()

    def load_all(self, oids):
        """{oid: (data, tid), or the name of an error}, asked for many at a time."""
        found, oids = {}, list(oids)
        for start in range(0, len(oids), WINDOW):
            asked = {}
            frames = []
            for oid in oids[start : start + WINDOW]:
                self.wire.last_id += 1
                asked[self.wire.last_id] = oid
                call = (self.wire.last_id, False, "loadBefore", (oid, MAXTID))
                body = self.wire.codec.encode(call)
                frames.append(framed(body))
            self.wire.send_raw(b"".join(frames))
            while asked:
                message, _, name, args = self.wire.receive()
                if name == ".reply" and message in asked:
                    found[asked.pop(message)] = args and args[:2]
        return found

    def begin(self, changes, serial):
        self.transactions += 1
        frames = []
        for name, args in [
            ("tpc_begin", (self.transactions, *metadata_of(changes), {}, None, " ")),
            *(
                ("deleteObject", (oid, serial(oid), self.transactions))
                if data is None
                else ("storea", (oid, serial(oid), data, self.transactions))
                for oid, data in changes.items()
            ),
        ]:
            body = self.wire.codec.encode((0, True, name, args))
            frames.append(framed(body))
        self.wire.send_raw(b"".join(frames))

    def vote(self):
        conflicts = self.wire.call("vote", self.transactions)
        assert not conflicts, f"conflicts in a commit that has none: {conflicts}"

    def commit(self, changes, serial):
        """The transaction's tid."""
        self.begin(changes, serial)
        self.vote()
        return self.wire.call("tpc_finish", self.transactions)

    def commit_and_do_not_wait(self, changes, serial):
        self.begin(changes, serial)
        self.vote()
        self.wire.request("tpc_finish", self.transactions)

    def undo(self, choose):
        """Undo one of the last transactions; whether that was possible."""
        chosen = choose(self.wire.call("undoLog", 0, 10))
        if not chosen:
            return False
        self.transactions += 1
        self.wire.notify("tpc_begin", self.transactions, b"", b"", {}, None, " ")
        self.wire.notify("undoa", chosen["id"], self.transactions)
        try:
            self.wire.call("vote", self.transactions)
        except ErrorReply:
            self.wire.call("tpc_abort", self.transactions)
            return False
        self.wire.call("tpc_finish", self.transactions)
        return True

    def pack(self, moment):
        """Whether there was something to pack."""
        try:
            self.wire.call("pack", moment, True)
        except ErrorReply:
            return False
        return True

    def pack_and_do_not_wait(self, moment):
        self.wire.request("pack", moment, True)


class Opened:
    """A file that the stock FileStorage has open in this process."""

    def __init__(self, path, has_gc):
        self.storage = FileStorage(str(path), pack_gc=has_gc)

    def close(self):
        self.storage.close()

    def crash(self):
        """End without a farewell: the index is not saved."""
        self.storage._file.close()
        self.storage._lock_file.close()
        self.storage._tfile.close()
        self.storage._files.close()

    def commit(self, changes, serial):
        transaction = TransactionMetaData(*metadata_of(changes))
        self.storage.tpc_begin(transaction)
        for oid, data in changes.items():
            if data is None:
                self.storage.deleteObject(oid, serial(oid), transaction)
            else:
                self.storage.store(oid, serial(oid), data, "", transaction)
        self.storage.tpc_vote(transaction)
        return self.storage.tpc_finish(transaction)

    def undo(self, choose):
        chosen = choose(self.storage.undoLog(0, 10))
        if not chosen:
            return False
        transaction = TransactionMetaData()
        self.storage.tpc_begin(transaction)
        try:
            self.storage.undo(chosen["id"], transaction)
            self.storage.tpc_vote(transaction)
        except UndoError:
            self.storage.tpc_abort(transaction)
            return False
        self.storage.tpc_finish(transaction)
        return True

    def pack(self, moment):
        try:
            self.storage.pack(moment, referencesf)
        except (FileStorageError, PackError, KeyError, AssertionError):
            # Nothing to pack, or the stock packer's own limits.
            return False
        return True


def metadata_of(changes):
    """User and description of a transaction; some have none."""
    if len(changes) % 3 == 0:
        return b"", b""
    return b"editor", b"/site/page" + b"/part" * (len(changes) % 4)


def moment_of(tid):
    return TimeStamp(tid).timeTime()


def now():
    return time.time()
