"""Keys that are tied to persistent objects.

Key decision: a value is sent with the view that it was computed at, the last transaction that its
connection shows. The server refuses it if one of the objects has changed since, so a slow
computation never puts an old value back.
"""

import weakref

from ZODB.DemoStorage import DemoStorage
from ZODB.utils import p64, u64


def view(connection):
    """Return the last transaction that a ZODB connection shows, as a tid."""
    # A historical connection shows the transactions before one.
    start = connection.before
    if start is None:
        # After a savepoint `_storage` has what the transaction has changed.
        storage = connection._normal_storage
        if storage._start is None:
            # Nothing was loaded yet: the view begins with the transaction.
            storage.poll_invalidations()
        start = storage._start
    return p64(u64(start) - 1)


def is_demo(connection):
    """Whether a connection shows what only a DemoStorage has, of which the server knows nothing."""
    storage = connection._normal_storage._storage
    while storage is not None and not isinstance(storage, DemoStorage):
        # What a wrapper is around.
        storage = getattr(storage, "base", None)
    return storage is not None


class Ties:
    """The objects that a value was computed from, and the view of their connection."""

    def __init__(self, objects=(), storage=None):
        self.oids = {}  # in the order of the objects
        self.connections = weakref.WeakSet()
        self.view = None
        self.limit = None  # the last transaction that the other cached values surely show
        self.storage = storage
        self.is_usable = True
        self.add(*objects)

    def add(self, *objects):
        """Add persistent objects of one connection."""
        for each in objects:
            connection = getattr(each, "_p_jar", None)
            if connection is None:
                # It is not stored yet, so that nothing could tell of its changes.
                self.is_usable = False
                continue
            if is_demo(connection):
                self.is_usable = False
            seen = view(connection)
            if self.view not in (None, seen):
                raise ValueError("a value is tied to objects of one connection and transaction")
            self.view = seen
            self.oids[each._p_oid] = None
            self.connections.add(connection)
        self.see_changes()

    def see_changes(self):
        """Give the value up if one of its connections has changes that are not committed."""
        if any(map(is_modified, self.connections)):
            # Other clients do not see them yet, and perhaps never will.
            self.is_usable = False

    def words(self):
        """Return the words of the option TIE of SET."""
        at = self.view if self.limit is None else min(self.view, self.limit)
        return ["TIE", *self.named(self.oids), "AT", at.hex()]

    def add_cached(self, oids, limit):
        """Add the objects of another cached value, which was current at a transaction."""
        self.oids.update(dict.fromkeys(oids))
        self.limit = limit if self.limit is None else min(self.limit, limit)

    def absorb(self, other):
        """Add what another value depends on that was computed meanwhile."""
        if None not in (self.view, other.view) and self.view != other.view:
            self.is_usable = False
        self.is_usable = self.is_usable and other.is_usable
        self.view = self.view or other.view
        self.connections.update(other.connections)
        self.oids.update(other.oids)
        if other.limit is not None:
            self.add_cached((), other.limit)

    def named(self, oids):
        """Return the names of objects on the server."""
        prefix = f"{self.storage}:" if self.storage else ""
        return [prefix + oid.hex() for oid in oids]


def set_tied(client, key, value, *objects, ex=None, storage=None):
    """Set a key until one of the objects changes, or for `ex` seconds; return whether it is set.

    It is not set if one of the objects has changed since the view of their connection, or if the
    transaction has changes that are not committed.
    """
    return send(client, key, value, Ties(objects, storage), ex)


def send(client, key, value, ties, ex=None):
    # The objects may have been changed after they were added.
    ties.see_changes()
    if not ties.is_usable:
        return False
    if not ties.oids:
        raise ValueError("a tied key needs at least one object")
    words = ["SET", key, value]
    if ex is not None:
        words += ["EX", ex]
    return bool(client.execute_command(*words, *ties.words()))


def is_modified(connection):
    """Whether a connection has changes that are not committed."""
    return bool(
        connection._registered_objects
        or connection._added
        or connection._savepoint_storage is not None
    )


def is_own(each):
    """Whether the transaction writes an object, as far as is known before its commit."""
    connection = each._p_jar
    saved = connection._savepoint_storage
    # What was added, or was changed before a savepoint, does not call itself changed.
    return bool(
        each._p_changed
        or each._p_oid in connection._added
        or saved is not None
        and each._p_oid in saved.index
    )
