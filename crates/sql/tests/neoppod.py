"""Writes and reads databases with NEO/py's own adapter.

neoppod.py CHECKOUT write PATH PARTITIONS DEDUP     creates a database with some transactions
neoppod.py CHECKOUT unfinished PATH                 leaves a voted transaction and a locked one
neoppod.py CHECKOUT continue PATH                   commits one more, an undo, and packs
neoppod.py CHECKOUT read PATH                       only reads
neoppod.py CHECKOUT migrate PATH                    opens, which migrates

CHECKOUT is a checkout of NEO/py. A PATH of mysql:TEXT is a database on a server, with the text that
NEO's adapter takes. Each prints what the database holds then: a line for each
transaction and record, sorted, numbers and bytes in hexadecimal digits.

Needs the packages msgpack and six; for a server PyMySQL too.
"""

import hashlib
import sys
import types
import zlib

sys.path.insert(0, sys.argv[1])

from neo.lib.protocol import ZERO_TID, CellStates  # noqa: E402
from neo.lib.util import p64, u64  # noqa: E402
from neo.storage.database import buildDatabaseManager  # noqa: E402

FIRST_TID = 0x03E0000000000000
# As the master numbers them: ttid and tid in one partition.
STEP = 1 << 20


class Database:
    def __init__(self, path, dedup=False):
        self.is_on_server = path.startswith("mysql:")
        adapter = "MySQL" if self.is_on_server else "SQLite"
        self.manager = buildDatabaseManager(adapter, (path.removeprefix("mysql:"),))
        self.manager.lock.acquire()
        self.manager.setup(dedup=dedup)

    def assign(self, partitions):
        manager = self.manager
        manager.setUUID(1)
        manager.setName("test")
        app = types.SimpleNamespace(last_pack_id=ZERO_TID, disable_drop_partitions=True)
        cells = [(partition, 1, CellStates.UP_TO_DATE) for partition in range(partitions)]
        manager.changePartitionTable(app, 1, 0, cells, reset=True)
        manager.commit()

    def vote(self, tid, records, user=b"user"):
        """Records: (oid, data), (oid, None) for a deletion, (oid, tid) for an undo."""
        manager, kept = self.manager, []
        ttid = p64(tid - manager.np)
        for oid, data in records:
            oid, value_tid, checksum, compression = p64(oid), None, None, 0
            if isinstance(data, int):
                value_tid, data = p64(data), b""
            elif data is not None:
                compressed = zlib.compress(data)
                if len(compressed) < len(data):
                    compression, data = 1, compressed
                checksum = hashlib.sha1(data).digest()
            data_id = manager.holdData(checksum, oid, data, compression, value_tid)
            kept.append((oid, data_id, value_tid))
        oids = [oid for oid, _, _ in kept]
        transaction = (oids, user, b"description", b"", False, ttid)
        manager.storeTransaction(ttid, kept, transaction)
        manager.commit()
        return ttid

    def commit(self, tid, records, user=b"user"):
        ttid = self.vote(tid, records, user)
        self.manager.lockTransaction(p64(tid), ttid, None)
        self.manager.unlockTransaction(p64(tid), ttid, True, True, False)
        self.manager.commit()
        return tid

    def last(self):
        tid = self.manager.getLastIDs()[0]
        return u64(tid) if tid else FIRST_TID

    def next(self):
        return self.last() + STEP * self.manager.np

    def rows(self, query):
        if self.is_on_server:
            return self.manager.query(query.encode())
        return self.manager.query(query).fetchall()

    def show(self):
        manager, lines = self.manager, []
        for (tid,) in self.rows("SELECT tid FROM trans"):
            oids, user, description, ext, packed, _, _ = manager.getTransaction(p64(tid))
            records = [self.record(oid, tid) for oid in oids]
            records = [record for record in records if record]
            if records or not oids:
                texts = (text.hex() for text in (user, description, ext, b"".join(oids)))
                lines.append(f"T {tid:016x} {','.join(texts)} {packed:d}")
            lines += records
        for line in sorted(lines):
            print(line)
        orphans = set(manager.getOrphanList()).difference(manager._uncommitted_data)
        assert not orphans, "data without a record"

    def record(self, oid, tid):
        found = self.manager.getObject(oid, p64(tid))
        if not found:
            return None
        _, _, compression, checksum, data, value_tid = found
        if checksum is None:
            text = "-"
        else:
            assert hashlib.sha1(data).digest() == checksum, "the hash of data is wrong"
            text = hashlib.sha1(zlib.decompress(data) if compression else data).hexdigest()
        value_tid = "-" if value_tid is None else value_tid.hex()
        return f"R {oid.hex()} {tid:016x} {text} {value_tid}"


def write(path, partitions, dedup):
    database = Database(path, dedup == "1")
    database.assign(int(partitions))
    commit, data = database.commit, bytes(range(256)) * 2
    commit(FIRST_TID * database.manager.np, [(0, b"root"), (1, data), (2, data), (9, b"x" * 5000)])
    second = commit(database.next(), [(1, b"other"), (7, b"random" * 3)], b"another \xff user")
    commit(database.next(), [(2, None), (1, b"third")])
    commit(database.next(), [(1, second)])
    commit(database.next(), [])
    return database


def unfinished(path):
    database = Database(path)
    locked = database.next()
    ttid = database.vote(locked, [(1, b"locked"), (30, b"new")])
    database.manager.lockTransaction(p64(locked), ttid, None)
    database.vote(locked + STEP * database.manager.np, [(2, b"only voted")])
    return database


def go_on(path):
    database = Database(path)
    manager = database.manager
    tid = database.commit(database.next(), [(1, b"by NEO"), (40, b"forty")])
    database.commit(database.next(), [(1, b"by NEO again")])
    undone = database.last()
    _, previous, is_current = manager.findUndoTID(p64(1), None, p64(undone), None)
    assert u64(previous) == tid and is_current
    database.commit(database.next(), [(1, u64(previous))])
    for partition in range(manager.np):
        manager._pack(partition, 0, tid, 1000)
    manager.commit()
    return database


command, arguments = sys.argv[2], sys.argv[3:]
commands = {"write": write, "unfinished": unfinished, "continue": go_on}
commands.get(command, Database)(*arguments).show()
