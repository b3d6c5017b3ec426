"""A raw client that checks, message by message, what order a server keeps.

The stock client stores a load that says "current" in its cache and trusts that an
invalidation will end it; so the order of messages on one connection is what keeps
caches right.  Key decision: the checks see only what that client would see, and
speak up at the first message that would have broken its cache.
"""

from .wire import ERROR, MAXTID, Wire

PIPELINE = 32  # requests a reader keeps in flight


class OutOfOrder(AssertionError):
    """A message came that the contract of the protocol rules out."""


class Observer:
    """One connection; every message that comes in is checked."""

    def __init__(self, address, name):
        self.name = name
        self.wire = Wire(address, seconds=30)
        self.told = self.registered = self.wire.register()
        self.invalidated = {}  # oid -> the last tid that was announced for it
        self.seen = {}  # oid -> start of the last load that said "current"
        self.tids = []  # all that was announced, own commits included
        self.waiting = {}  # message id -> oid of a load

    def close(self):
        self.wire.close()

    def load(self, oid):
        """Ask for the current revision, without waiting."""
        self.waiting[self.wire.request("loadBefore", oid, MAXTID)] = oid

    def call(self, name, *args):
        """A call; all that comes before its reply is checked."""
        message_id = self.wire.request(name, *args)
        while True:
            found, value = self.take()
            if found == message_id:
                return value

    def take(self, seconds=None):
        """(message id or None, value) of the next message, checked."""
        found, flag, name, args = self.wire.receive(seconds)
        if name == "invalidateTransaction":
            self._check_announcement(args[0], args[1])
            return None, args
        if name != ".reply":
            return None, args
        if flag == ERROR:
            raise OutOfOrder(f"{self.name}: error reply {args}")
        oid = self.waiting.pop(found, None)
        if oid is not None:
            self._check_load(oid, *args)
        return found, args

    def announce_own(self, tid, oids):
        """The reply of tpc_finish tells its client what others learn by invalidation."""
        self._check_announcement(tid, oids)

    def _check_announcement(self, tid, oids):
        if tid <= self.told:
            raise OutOfOrder(f"{self.name}: told of {tid.hex()} after {self.told.hex()}")
        self.told = tid
        self.tids.append(tid)
        for oid in oids:
            self.invalidated[oid] = tid

    def _check_load(self, oid, data, start, end):
        said = self.invalidated.get(oid, self.registered)
        if end is None and oid in self.invalidated and start < said:
            raise OutOfOrder(
                f"{self.name}: {oid.hex()} of {start.hex()} is said to be current, "
                f"after it was invalidated by {said.hex()}"
            )
        if start < self.seen.get(oid, start):
            raise OutOfOrder(f"{self.name}: {oid.hex()} went back to {start.hex()}")
        if end is None:
            self.seen[oid] = start
        if data[:8] != oid:
            raise OutOfOrder(f"{self.name}: {oid.hex()} holds the data of another object")


def content(oid, number):
    """Data that say whose they are."""
    return oid + number.to_bytes(8, "big")
