"""Files with many objects or transactions, written as bytes: ZODB would take minutes.

`doc:FileStorage/format.py` of ZODB describes them.  Every object is reachable:
object n refers to 2n + 1 and 2n + 2, as in a heap.
"""

import struct

from persistent.TimeStamp import TimeStamp
from ZODB.utils import p64, u64

CLASS = b"\x80\x03cpersistent.list\nPersistentList\nq\x00."
FIRST_TID = u64(TimeStamp(2020, 1, 1, 0, 0, 0).raw())
TICKS = 1 << 24  # a quarter of a second


def tid_of(number):
    return p64(FIRST_TID + number * TICKS)


def data_of(number, objects, filler):
    """The record of an object, with references to two more."""
    children = [oid for oid in (2 * number + 1, 2 * number + 2) if oid < objects]
    references = b"".join(b"C\x08" + p64(oid) + b"h\x00\x86Q" for oid in children)
    state = references + b"B" + struct.pack("<I", filler) + b"." * filler
    return CLASS + b"\x80\x03(" + state + b"t."


def write(path, transactions, objects=None, filler=20):
    """One record each: all objects in their order, and then again from the first on."""
    objects = objects or transactions
    positions = {}
    pieces, position = [b"FS30"], 4
    with open(path, "wb") as file:
        for number in range(transactions):
            oid = number % objects
            data = data_of(oid, objects, filler)
            tid = tid_of(number)
            user = b"user %d" % (number % 7)
            header = 23 + len(user)
            length = header + 42 + len(data)
            pieces += [
                tid,
                struct.pack(">QcHHH", length, b" ", len(user), 0, 0),
                user,
                p64(oid),
                tid,
                struct.pack(">QQHQ", positions.get(oid, 0), position, 0, len(data)),
                data,
                struct.pack(">Q", length),
            ]
            if objects < transactions:
                positions[oid] = position + header
            position += length + 8
            if len(pieces) > 100_000:
                file.write(b"".join(pieces))
                pieces = []
        file.write(b"".join(pieces))
