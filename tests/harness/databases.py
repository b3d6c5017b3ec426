"""Random databases that ZODB itself wrote, for the tools that read databases."""

import contextlib
import time

import transaction
import ZODB
from BTrees.OOBTree import OOBTree
from persistent.list import PersistentList
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSError
from ZODB.utils import p64

USERS = ["", "jürgen", "o'neil", 'a "b"\t\\', "日本 cafe\u0301\xa0\u2028", "x" * 60]
CLASSES = [PersistentMapping, PersistentList, OOBTree]


def write_database(path, random, count=40, odd=True):
    """`count` transactions: changes, undos, deletions, in part packed. `odd`: metadata of bytes
    that are no text too."""
    database = ZODB.DB(FileStorage(str(path)))
    try:
        for number in range(count):
            if number == count // 3:
                time.sleep(0.001)
                database.pack(time.time())
            # The stock pack fails at deletions, and at many an undo.
            weights = [8, 3, 1] if number >= count // 3 else [1, 0, 0]
            random.choices([change, undo, delete], weights)[0](database, random)
        if odd:
            store_raw(database.storage, random)
    finally:
        database.close()


def change(database, random):
    manager = transaction.TransactionManager()
    connection = database.open(manager)
    try:
        change_some(connection, manager, random)
        manager.commit()
    except POSError:
        # An object that was deleted, of which connections are not told.
        manager.abort()
    connection.close()


def commit_change(database, random):
    """Commits a random change; its tid."""
    last = database.lastTransaction()
    # A change that meets a deleted object commits nothing.
    while (tid := database.lastTransaction()) == last:
        change(database, random)
    return tid


def add_change(path, random):
    """Commits a random change to the file at `path`; its tid."""
    with contextlib.closing(ZODB.DB(FileStorage(str(path)))) as database:
        return commit_change(database, random)


def change_some(connection, manager, random):
    describe(manager.get(), random)
    objects = [connection.root(), *list(connection.root().values())]
    for _ in range(random.randrange(1, 6)):
        child = random.choice(CLASSES)()
        place = random.choice(objects)
        place._p_activate()
        if isinstance(place, PersistentList):
            place.append(child)
        else:
            place[f"k{random.randrange(12)}"] = child
            place[f"v{random.randrange(5)}"] = PersistentMapping(x="y" * random.randrange(200))
    if random.random() < 0.3:
        root = connection.root()
        root.pop(random.choice(list(root)), None)
        root["z"] = PersistentMapping()


def describe(current, random):
    user = random.choice(USERS)
    if user:
        current.setUser(user, random.choice(["/", "acl_users"]))
    current.note(random.choice(["", "first", "zweite Änderung\nnext line", "y" * 70]))
    if random.random() < 0.4:
        current.setExtendedInfo("request", random.choice([1, "é", [1, {"a": None}]]))


def undo(database, random):
    log = database.undoLog(0, 6)
    if not log:
        return
    manager = transaction.TransactionManager()
    try:
        database.undo(random.choice(log)["id"], manager.get())
        manager.commit()
    except POSError:
        manager.abort()


def delete(database, random):
    """Deletes any object but the root, so that references to it lead nowhere."""
    storage = database.storage
    oid = p64(random.randrange(1, 12))
    try:
        _, serial = storage.load(oid)[:2]
    except POSError:
        return
    with_transaction(storage, lambda txn: storage.deleteObject(oid, serial, txn))


def store_raw(storage, random):
    """A transaction whose metadata are any bytes, and whose records are out of order."""
    data = storage.load(p64(0))[0]
    oids = [storage.new_oid() for _ in range(4)]
    random.shuffle(oids)

    def store(txn):
        for oid in oids:
            storage.store(oid, p64(0), data, "", txn)

    user = bytes(random.randrange(256) for _ in range(40))
    with_transaction(storage, store, user, b"\xed\xa0\x80 \xc0\x80 \xe2\x82")


def with_transaction(storage, store, user=b"", description=b"deleted"):
    txn = TransactionMetaData(user, description)
    storage.tpc_begin(txn)
    store(txn)
    storage.tpc_vote(txn)
    storage.tpc_finish(txn)
