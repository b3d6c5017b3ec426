"""A graph of objects as the packers see it, and random changes of it.

Key decision: the references of an object are read back from its record, so the graph needs no
model of its own: whatever state a file is put back to, the next changes fit it.  No object in
use refers to one that is not there; the stock packer fails on that.
"""

import struct

from ZODB.utils import p64, u64, z64

from .longfile import CLASS

HEAD = CLASS + b"\x80\x03("
REFERENCE_BYTES = 14
REFERENCES_MAX = 8


def record(children, filler):
    """The record of an object that refers to `children`."""
    references = b"".join(b"C\x08" + oid + b"h\x00\x86Q" for oid in children)
    return HEAD + references + b"B" + struct.pack("<I", len(filler)) + filler + b"t."


def children_of(data):
    found, at = [], len(HEAD)
    while data.startswith(b"C\x08", at):
        found.append(data[at + 2 : at + 10])
        at += REFERENCE_BYTES
    return found


class Graph:
    """The objects that can be reached from the root, and their serials."""

    def __init__(self, random, current, lengths):
        self.random, self.lengths = random, lengths
        self.current = {oid: found for oid, found in current.items() if found[0] is not None}
        self.next_oid = max((u64(oid) for oid in current), default=0) + 1
        self.loose = set()  # what nothing refers to any more
        self.live, todo = [], [z64] if z64 in self.current else []
        reached = set(todo)
        while todo:
            oid = todo.pop()
            self.live.append(oid)
            for child in children_of(self.current[oid][0]):
                if child not in reached and child in self.current:
                    reached.add(child)
                    todo.append(child)

    def filler(self):
        return self.random.randbytes(self.random.choice(self.lengths))

    def serial(self, oid):
        return self.current[oid][1] if oid in self.current else z64

    def planted(self, count):
        """Changes that create `count` objects, as a heap: object n refers to 2n + 1 and 2n + 2."""
        return {
            p64(n): record([p64(m) for m in (2 * n + 1, 2 * n + 2) if m < count], self.filler())
            for n in range(count)
        }

    def changed(self, count):
        """Changes of `count` objects at random: {oid: its new record, or None for a deletion}."""
        changes = {}
        for oid in self.random.sample(self.live, min(count, len(self.live))):
            if oid in self.loose:
                continue
            children = children_of(self.current[oid][0])
            kind = self.random.random()
            if kind < 0.15 and len(children) < REFERENCES_MAX:
                children.append(self._new(changes))
            elif kind < 0.25 and children:
                self._drop(children, changes)
            if oid not in changes:
                changes[oid] = record(children, self.filler())
        return changes

    def _new(self, changes):
        oid = p64(self.next_oid)
        self.next_oid += 1
        changes[oid] = record([], self.filler())
        return oid

    def _drop(self, children, changes):
        """Let go of a child without children: garbage for a pack, or deleted at once."""
        child = children[-1]
        found = self.current.get(child)
        if child in changes or found is None or children_of(found[0]):
            return
        children.pop()
        self.loose.add(child)
        if self.random.random() < 0.5:
            changes[child] = None

    def committed(self, changes, tid):
        for oid, data in changes.items():
            if oid not in self.current:
                self.live.append(oid)
            self.current[oid] = (data, tid)
            if data is None:
                del self.current[oid]
        if self.loose:
            self.live = [oid for oid in self.live if oid not in self.loose]
            self.loose = set()
