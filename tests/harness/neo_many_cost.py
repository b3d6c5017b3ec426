"""Time of loads from a NEO cluster: one by one, and many at once.

    PYTHONPATH=tests PYTHON -m harness.neo_many_cost

A cluster of ours with two storages.  Each round loads all objects past the client's cache, in each
of three ways.  Printed are milliseconds: median, least and most.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from harness import package
from harness.neo import OwnCluster

OBJECT_BYTES = 1000


def fill(storage, count):
    """Stores objects; their oids."""
    import transaction
    from ZODB.utils import z64

    choose = random.Random(1)
    oids = [storage.new_oid() for _ in range(count)]
    txn = transaction.Transaction()
    storage.tpc_begin(txn)
    for oid in oids:
        storage.store(oid, z64, choose.randbytes(OBJECT_BYTES), "", txn)
    storage.tpc_vote(txn)
    storage.tpc_finish(txn)
    return oids


def one_by_one(storage, oids, before):
    return [storage.loadBefore(oid, before) for oid in oids]


def load_many(storage, oids, before):
    return storage.load_many(oids, before)


def prefetch(storage, oids, before):
    storage.prefetch(oids, before)
    return one_by_one(storage, oids, before)


def measure(storage, count, rounds):
    from ZODB.utils import p64, u64

    oids = fill(storage, count)
    before = p64(u64(storage.lastTransaction()) + 1)
    ways = (one_by_one, load_many, prefetch)
    taken = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            storage.clear_cache()
            start = time.perf_counter()
            found = way(storage, oids, before)
            taken[way].append((time.perf_counter() - start) * 1000)
            assert all(found)
    for way, times in taken.items():
        median = statistics.median(times)
        print(f"{way.__name__:10}  {median:7.1f} ms ({min(times):.1f} to {max(times):.1f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    package.use()
    import zodium

    with tempfile.TemporaryDirectory() as folder:
        cluster = OwnCluster(Path(folder), storages=2, partitions=12)
        cluster.start()
        try:
            storage = zodium.NEOStorage(cluster.masters, cluster.name)
            measure(storage, options.objects, options.rounds)
            storage.close()
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
