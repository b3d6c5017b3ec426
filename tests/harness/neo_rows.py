"""The rows of NEO's databases, by partition: replicas must have the same.

Read after an orderly stop, or while a node runs: SQLite lets other processes read.
"""

import contextlib
import hashlib
import sqlite3

TRANSACTIONS = """
    SELECT tid, packed, oids, user, description, ext, ttid FROM trans
    WHERE partition = ? ORDER BY tid
"""
RECORDS = """
    SELECT obj.oid, obj.tid, obj.value_tid, data.hash, data.compression, data.value
    FROM obj LEFT JOIN data ON data.id = obj.data_id
    WHERE obj.partition = ? ORDER BY obj.oid, obj.tid
"""
UP_TO_DATE = -1


class Rows:
    """What one database has."""

    def __init__(self, path):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            self.node = int(self.setting(connection, "nid"))
            cells = connection.execute("SELECT partition, nid, tid FROM pt").fetchall()
            self.states = {(partition, node): tid for partition, node, tid in cells}
            own = sorted(partition for partition, node in self.states if node == self.node)
            self.partitions = {partition: self.read(connection, partition) for partition in own}
        connection.close()

    @staticmethod
    def setting(connection, name):
        find = "SELECT value FROM config WHERE name = ?"
        return connection.execute(find, (name,)).fetchone()[0]

    @staticmethod
    def read(connection, partition):
        """Counts and a sum of all rows of a partition."""
        sums = []
        for query in (TRANSACTIONS, RECORDS):
            rows = connection.execute(query, (partition,)).fetchall()
            sums.append((len(rows), hashlib.sha1(repr(rows).encode()).hexdigest()))
        return sums


def differing(paths):
    """The partitions whose replicas differ: (partition, node, its rows, node, its rows)."""
    found, first = [], {}
    for rows in map(Rows, paths):
        for partition, sums in rows.partitions.items():
            if rows.states[partition, rows.node] != UP_TO_DATE:
                continue
            other, others = first.setdefault(partition, (rows.node, sums))
            if others != sums:
                found.append((partition, other, others, rows.node, sums))
    return found


def unfinished(path):
    """How many rows a database has of transactions between vote and unlock."""
    uri = f"file:{path}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        count = "SELECT (SELECT COUNT(*) FROM ttrans) + (SELECT COUNT(*) FROM tobj)"
        return connection.execute(count).fetchone()[0]


def counts(path):
    """How many transactions and records a database has in all its partitions."""
    sums = Rows(path).partitions.values()
    return tuple(sum(partition[kind][0] for partition in sums) for kind in (0, 1))
