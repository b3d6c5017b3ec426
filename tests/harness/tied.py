"""A client with both connections to a server: ZEO, and Redis beside it.

Key decision: it knows of a commit only by what its ZEO connection has told it, as a cache of
ZODB's would. What it finds in the other connection must never be older than that.
"""

import redis

from .wire import MAXTID, Z64, Closed, Silent, Wire


class Both:
    def __init__(self, server, port, protocol=3):
        self.wire = Wire(server.address, seconds=30)
        self.view = self.wire.register()
        self.keys = redis.Redis(port=port, protocol=protocol)
        self.told = {}  # oid -> the last commit of it that this client knows of
        self.transactions = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.wire.close()
        self.keys.close()

    def listen(self, seconds=0.0):
        """Take the invalidations that have come."""
        try:
            while True:
                self.wire.notices.append(self.wire.receive(max(seconds, 0.0005)))
        except (Silent, BlockingIOError):
            self.take_notices()

    def take_notices(self):
        for _, _, name, args in self.wire.notices:
            if name == "invalidateTransaction":
                tid, oids = args
                self.know(tid, oids)
        self.wire.notices.clear()

    def know(self, tid, oids):
        self.view = max(self.view, tid)
        self.told.update((oid, tid) for oid in oids)

    def load(self, oid):
        """(data, serial) in the view of this client."""
        data, serial, _ = self.wire.call("loadBefore", oid, following(self.view))
        self.take_notices()
        return data, serial

    def commit(self, *stores, extension=None):
        """Store (oid, serial, data); the tid. Raises Conflict."""
        self.transactions += 1
        try:
            tid = self.wire.commit(self.transactions, stores, extension=extension)
        except Exception as error:
            if not isinstance(error, Closed):
                self.wire.call("tpc_abort", self.transactions)
            self.take_notices()
            raise
        self.take_notices()
        self.know(tid, [oid for oid, _, _ in stores])
        return tid

    def write(self, oid, data, **options):
        """Store the next revision of an object, whatever the one before is."""
        return self.commit((oid, self.current(oid), data), **options)

    def current(self, oid):
        try:
            return self.wire.call("loadBefore", oid, MAXTID)[1]
        except Exception:
            return Z64

    def cache(self, key, value, *oids, view=None, words=()):
        """Whether the server took a value that was computed at a view, by default this one's."""
        view = (self.view if view is None else view).hex()
        oids = [oid.hex() for oid in oids]
        return self.keys.execute_command("SET", key, value, "TIE", *oids, "AT", view, *words)


def following(tid):
    return (int.from_bytes(tid, "big") + 1).to_bytes(8, "big")
