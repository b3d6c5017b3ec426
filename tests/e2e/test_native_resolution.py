"""The server resolves conflicts of BTrees' classes to what Python would have made.

ZODB's own resolution is the judge: of the same three records both make equal
states, or the server leaves the conflict to the client.
"""

import base64
import collections
import logging

import pytest
import transaction
import ZEO
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from harness import conflicts, files
from harness.wire import MAXTID, Z64, Wire
from ZODB.POSException import ConflictError, UndoError
from ZODB.utils import p64

pytestmark = pytest.mark.zodium

ROUNDS = 40


@pytest.fixture
def quiet_judge():
    """ZODB logs every conflict that it cannot resolve."""
    logger = logging.getLogger("ZODB.ConflictResolution")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield conflicts.Judge()
    logger.setLevel(level)


def begin(wire, txn, stores):
    wire.notify("tpc_begin", txn, b"", b"", {}, None, " ")
    for oid, serial, data in stores:
        wire.notify("storea", oid, serial, data, txn)


def test_every_class_is_resolved_as_python_does(start_server, seeded, scale, quiet_judge):
    server = start_server()
    cases = list(conflicts.cases(seeded, int(ROUNDS * scale)))
    oids = [p64(number) for number in range(1, len(cases) + 1)]
    with Wire(server.address, seconds=60) as wire:
        wire.register()
        first = wire.commit("1", [(oid, Z64, case.old) for oid, case in zip(oids, cases)])
        second = wire.commit("2", [(oid, first, case.committed) for oid, case in zip(oids, cases)])
        begin(wire, "3", [(oid, first, case.new) for oid, case in zip(oids, cases)])
        left = {found["oid"]: found for found in wire.call("vote", "3")}
        # What the client resolves is stored over what is committed; the rest stays resolved.
        for oid, case in zip(oids, cases):
            if oid in left:
                assert left[oid]["serials"] == (second, first)
                assert left[oid]["data"] == case.new
                wire.notify("storea", oid, second, case.new, "3")
        resolved = wire.call("vote", "3")
        assert set(resolved) == set(oids) - set(left)
        tid = wire.call("tpc_finish", "3")
        count = collections.Counter()
        for oid, case in zip(oids, cases):
            data, serial, _ = wire.call("loadBefore", oid, MAXTID)
            assert serial == tid
            if oid in left:
                assert data == case.new
                data = None
            count[judge(quiet_judge, case, data)] += 1
        status = wire.call("server_status")
    print(dict(count))
    assert (status["conflicts"], status["conflicts_resolved"]) == (len(cases), len(resolved))
    assert count["resolved"] > len(cases) // 5 and count["left"] > len(cases) // 10


def test_an_undo_is_resolved_as_python_does(start_server, seeded, scale, quiet_judge):
    server = start_server()
    # What goes back from the old state to the new one is the undo of what led from that to it.
    cases = [
        (case, expected)
        for case in conflicts.cases(seeded, int(ROUNDS / 4 * scale))
        if case.must and case.old != case.committed
        for expected in [quiet_judge.resolve(case)]
        if expected
    ]
    oids = [p64(number) for number in range(1, len(cases) + 1)]
    with Wire(server.address, seconds=60) as wire:
        wire.register()
        serial = Z64
        tids = []
        for name in ("new", "old", "committed"):
            stores = [(oid, serial, getattr(case, name)) for oid, (case, _) in zip(oids, cases)]
            serial = wire.commit(name, stores)
            tids.append(serial)
        wire.notify("tpc_begin", "undo", b"", b"", {}, None, " ")
        wire.notify("undoa", base64.encodebytes(tids[1]).rstrip(), "undo")
        assert set(wire.call("vote", "undo")) == set(oids)
        wire.call("tpc_finish", "undo")
        for oid, (case, expected) in zip(oids, cases):
            data, _, _ = wire.call("loadBefore", oid, MAXTID)
            assert conflicts.loaded(data) == conflicts.loaded(expected), f"{case.name}\n{case}"
        assert wire.call("server_status")["conflicts_resolved"] == len(cases)
    assert len(cases) > 100


def judge(judge, case, data):
    """How the server did, in a word."""
    expected = judge.resolve(case)
    if data is None:
        assert expected is None or not case.must, f"{case.name}: Python resolves it\n{case}"
        return "left" if expected is None else "left, though Python resolves it"
    assert expected is not None, f"{case.name}: Python does not resolve it\n{case}"
    assert conflicts.loaded(data) == conflicts.loaded(expected), f"{case.name}\n{case}"
    return "resolved" if data == expected else "resolved, in other bytes"


def connect(server):
    db = ZEO.DB(server.address, wait_timeout=30)
    return db, db.open(transaction.TransactionManager())


def conflicting_clients(server):
    """Two clients that have both changed a length and a tree."""
    one_db, one = connect(server)
    one.root()["length"], one.root()["tree"] = Length(), OOBTree({"a": 1})
    one.transaction_manager.commit()
    other_db, other = connect(server)
    other.sync()
    for number, client in enumerate((one, other)):
        client.root()["length"].change(1)
        client.root()["tree"][f"key {number}"] = number
    return (one_db, one), (other_db, other)


def forget_how_to_resolve(db):
    def refuse(oid, *_, **__):
        raise ConflictError(oid=oid)

    db.storage.tryToResolveConflict = refuse


def test_clients_see_what_was_resolved_without_them(start_server):
    server = start_server()
    (one_db, one), (other_db, other) = conflicting_clients(server)
    forget_how_to_resolve(other_db)
    one.transaction_manager.commit()
    other.transaction_manager.commit()
    for db, client in ((other_db, other), (one_db, one)):
        db.storage.server_status()  # after the invalidations
        client.sync()
        assert client.root()["length"]() == 2
        assert dict(client.root()["tree"]) == {"a": 1, "key 0": 0, "key 1": 1}
        client.close()
        db.close()


def test_the_switch_leaves_all_conflicts_to_clients(start_server):
    server = start_server(None, "--client-conflict-resolution")
    (one_db, one), (other_db, other) = conflicting_clients(server)
    forget_how_to_resolve(other_db)
    one.transaction_manager.commit()
    with pytest.raises(ConflictError):
        other.transaction_manager.commit()
    other.transaction_manager.abort()
    assert other_db.storage.server_status()["conflicts_resolved"] == 0
    for db, client in ((one_db, one), (other_db, other)):
        client.close()
        db.close()


def write_history(db):
    """Three transactions on one tree and one length; their undo ids, newest first."""
    manager = transaction.TransactionManager()
    connection = db.open(manager)
    root = connection.root()
    root["tree"], root["length"] = OOBTree({"a": 0}), Length()
    manager.commit()
    for key in "bcd":
        root["tree"][key] = key
        root["length"].change(ord(key))
        manager.commit()
    return manager, connection, [entry["id"] for entry in db.undoLog(0, 3)]


def test_an_undo_keeps_what_was_done_later(start_server, tmp_path):
    server = start_server()
    db = ZEO.DB(server.address, wait_timeout=30)
    manager, connection, (_, undo_c, undo_b) = write_history(db)
    db.undoMultiple([undo_c, undo_b], manager.get())
    manager.commit()
    connection.sync()
    assert dict(connection.root()["tree"]) == {"a": 0, "d": "d"}
    assert connection.root()["length"]() == ord("d")
    connection.close()
    db.close()
    server.stop()
    undone = files.read(tmp_path / "Data.fs")[-1]
    # New data, not pointers back.
    assert all(record.data_txn is None for record in undone.records)


def test_an_undo_that_cannot_be_merged_is_refused(start_server):
    server = start_server()
    db = ZEO.DB(server.address, wait_timeout=30)
    manager, connection, (_, undo_c, _) = write_history(db)
    connection.root()["tree"]["c"] = "changed"
    manager.commit()
    db.undo(undo_c, manager.get())
    with pytest.raises(UndoError):
        manager.commit()
    manager.abort()
    connection.close()
    db.close()
