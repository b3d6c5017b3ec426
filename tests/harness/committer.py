"""A client process that commits until the server goes away, and keeps a journal.

    python -m harness.committer HOST PORT CLIENT SEED JOURNAL

Key decision: a line is added to the journal only after tpc_finish has returned,
so every line is a promise the server made.  It names the transaction, and for
each object its oid and the digest of what was stored.
"""

import hashlib
import random
import sys

from harness.wire import MAXTID, Z64, Closed, ErrorReply, Wire

OWN_OIDS = 40  # objects of one client
LARGE = 200_000  # bytes; some transactions are larger than any buffer


def main(host, port, client, seed, journal):
    choose = random.Random(int(seed) * 1000 + int(client))
    with open(journal, "a", buffering=1) as promises:
        try:
            with Wire((host, int(port)), seconds=60) as wire:
                wire.register()
                commit_forever(wire, int(client), choose, promises)
        except (Closed, ConnectionError):
            pass


def commit_forever(wire, client, choose, promises):
    oids = [((client + 1) << 32 | number).to_bytes(8, "big") for number in range(OWN_OIDS)]
    serials = {oid: current_serial(wire, oid) for oid in oids}
    for txn in range(1, 1 << 30):
        stores = []
        for oid in choose.sample(oids, choose.randrange(1, 6)):
            size = LARGE if choose.random() < 0.02 else choose.randrange(1, 2000)
            stores.append((oid, serials[oid], choose.randbytes(size)))
        tid = wire.commit(txn, stores, b"client %d" % client, b"transaction %d" % txn)
        digests = " ".join(f"{oid.hex()}:{digest(data)}" for oid, _, data in stores)
        promises.write(f"{tid.hex()} {digests}\n")
        serials.update((oid, tid) for oid, _, _ in stores)


def current_serial(wire, oid):
    try:
        return wire.call("loadBefore", oid, MAXTID)[1]
    except ErrorReply:
        return Z64


def digest(data):
    return hashlib.sha1(data).hexdigest()


def promises_of(journal):
    """[(tid, {oid: digest})] of a journal; a torn last line was never promised."""
    found = []
    for line in journal.read_text().splitlines(True):
        if line.endswith("\n"):
            tid, *objects = line.split()
            pairs = (entry.split(":") for entry in objects)
            found.append((bytes.fromhex(tid), {bytes.fromhex(oid): sha for oid, sha in pairs}))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
