"""Databases that refer to each other, and what can be reached in them, found without classes."""

from io import BytesIO

import transaction
import ZODB
from persistent.mapping import PersistentMapping
from ZODB._compat import PersistentUnpickler
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import z64


def open_files(folder, names, **options):
    """Databases of these names on files of these names; the first one, which knows the others."""
    databases = {}
    for name in names:
        storage = FileStorage(str(folder / f"{name}.fs"), pack_gc=False, **options)
        ZODB.DB(storage, databases=databases, database_name=name)
    return databases


def plant(databases, random, count=60):
    """A random graph over all databases, of which a part hangs loose afterwards."""
    manager = transaction.TransactionManager()
    first = next(iter(databases.values())).open(manager)
    connections = [first.get_connection(name) for name in databases]
    roots = [connection.root() for connection in connections]
    objects = []
    for number in range(count):
        connection = random.choice(connections)
        thing = PersistentMapping(number=number)
        connection.add(thing)
        objects.append(thing)
        for _ in range(random.randrange(3)):
            random.choice(objects)[f"r{random.randrange(3)}"] = random.choice(objects)
        random.choice(roots)[f"k{random.randrange(8)}"] = random.choice(objects)
        if random.random() < 0.3:
            manager.commit()
    manager.commit()
    for root in roots:
        for key in random.sample(list(root), len(root) // 2):
            del root[key]
    manager.commit()
    first.close()


def references(name, data):
    """(database, oid) of all strong references of a record in database `name`."""
    found = []
    unpickler = PersistentUnpickler(None, found.append, BytesIO(data))
    unpickler.noload()
    unpickler.noload()
    for reference in found:
        if isinstance(reference, list):
            if reference[0] in ("m", "n"):
                yield reference[1][0], reference[1][1]
        else:
            yield name, reference[0] if isinstance(reference, tuple) else reference


def current(storages):
    """{(database, oid): data} of all objects that are not deleted."""
    found = {}
    for name, storage in storages.items():
        following = None
        while True:
            oid, _, data, following = storage.record_iternext(following)
            found[name, oid] = data
            if following is None:
                break
    return found


def reachable(storages):
    """What the roots lead to; raises POSKeyError where a reference leads nowhere."""
    seen, waiting = set(), [(name, z64) for name in storages]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        name, oid = place
        waiting += references(name, storages[name].load(oid)[0])
    return seen


def is_there(storage, oid):
    try:
        storage.load(oid)
    except POSKeyError:
        return False
    return True
