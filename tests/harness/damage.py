"""A file of objects whose data are known, with checksums, and wrong bits in it."""

import ZODB
import ZODB.FileStorage
from persistent.mapping import PersistentMapping

from .monitor import Monitor

OBJECTS = 30


def text(number):
    return f"the text of {number:04} " * 10


def fill(path):
    """A file with objects of which each holds a text of its own; their oids."""
    db = ZODB.DB(ZODB.FileStorage.FileStorage(str(path)))
    connection = db.open()
    for number in range(OBJECTS):
        connection.root()[number] = PersistentMapping(text=text(number))
        connection.transaction_manager.commit()
    oids = [connection.root()[number]._p_oid for number in range(OBJECTS)]
    connection.close()
    db.close()
    return oids


def is_covered(status):
    storage = status["storages"][0]
    return storage["checksums"]["covered_bytes"] == storage["size_bytes"]


def fill_covered(path, start_server):
    """The same, and checksums, which a server has taken."""
    oids = fill(path)
    monitor = Monitor()
    first = start_server(path, *monitor.options)
    monitor.wait_until(is_covered)
    first.stop()
    return oids


def flip(path, position):
    """Flips a bit in place: the file stays the same one."""
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def damage(path, number):
    """Flips one bit of an object's text; at which position."""
    position = path.read_bytes().rindex(text(number).encode()) + 5
    flip(path, position)
    return position
