"""A small ZODB application, as a new user would write it: it fills BTrees.

    python -m harness.filler HOST PORT WORKER WORKERS ITEMS

Each worker adds the keys that are its own modulo the number of workers, so that
all of them write the same buckets, and retries what conflicts.
"""

import sys

import transaction
import ZODB
from BTrees.Length import Length
from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import ConflictError

BATCH = 200  # items of one transaction


def open_database(host, port):
    return ZODB.DB(ClientStorage((host, int(port)), wait_timeout=30))


def prepare(host, port):
    """Create the application's objects."""
    database = open_database(host, port)
    with database.transaction("create the application") as connection:
        connection.root()["app"] = app = PersistentMapping()
        app["by number"] = LOBTree()
        app["by name"] = OOBTree()
        app["count"] = Length()
    database.close()


def text_of(number):
    return f"item {number}"


def main(host, port, worker, workers, items):
    """Add the worker's share; print how often it had to try again."""
    database = open_database(host, port)
    numbers = range(int(worker), int(items), int(workers))
    retries = 0
    for start in range(0, len(numbers), BATCH):
        while not add(database, numbers[start : start + BATCH]):
            retries += 1
    database.close()
    print(retries)


def add(database, numbers):
    """Add items in one transaction; False if it conflicted with another."""
    try:
        with database.transaction() as connection:
            app = connection.root()["app"]
            for number in numbers:
                app["by number"][number] = text_of(number)
                app["by name"][text_of(number)] = number
            app["count"].change(len(numbers))
            transaction.get().note("items")
    except ConflictError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
