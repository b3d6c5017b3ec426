"""Undoing what was changed later, for classes that only the client can merge."""

import pytest
import transaction
from ZODB import DB
from ZODB.POSException import ConflictError, UndoError
from ZODB.tests.ConflictResolution import PCounter, PCounter2

pytestmark = pytest.mark.zodium

RESOLVABLE = f"{PCounter.__module__}.{PCounter.__name__}"


@pytest.fixture
def site(start_server, connect, encoding):
    """site(*classes): two databases on one server that knows these to be resolvable."""
    opened = []

    def open_site(*classes):
        options = [f"--resolvable-class={name}" for name in classes]
        server = start_server(None, *options, encoding=encoding)
        databases = [DB(connect(server, server_sync=True)) for _ in range(2)]
        opened.extend(databases)
        return databases

    yield open_site
    transaction.abort()
    for database in opened:
        database.close()


def count_to_five(database, kind=PCounter):
    """A counter that five transactions incremented; undo ids, newest first."""
    connection = database.open()
    connection.root.counter = kind()
    transaction.commit()
    for number in range(5):
        transaction.get().note(f"increment {number}")
        connection.root.counter.inc()
        transaction.commit()
    connection.close()
    return [entry["id"] for entry in database.undoLog(0, 5)]


def counted(database):
    with database.transaction() as connection:
        connection.sync()
        return connection.root.counter._value


def undo(database, ids):
    try:
        database.undoMultiple(ids)
        transaction.commit()
    except Exception:
        transaction.abort()
        raise


def test_one_undo_is_merged_by_the_client(site):
    database, other = site(RESOLVABLE)
    ids = count_to_five(database)
    assert counted(other) == 5
    undo(database, [ids[2]])
    # The cache of the client that merged, and that of one that was told.
    assert counted(database) == 4
    assert counted(other) == 4


@pytest.mark.parametrize("order", [1, -1])
def test_undos_of_one_run_of_revisions_are_merged_at_once(site, order):
    database, other = site(RESOLVABLE)
    ids = count_to_five(database)
    undo(database, ids[1:4][::order])
    assert counted(other) == 2
    undo(database, [database.undoLog(0, 1)[0]["id"]])
    assert counted(other) == 5


def test_undos_with_a_revision_between_them_are_refused(site):
    database, other = site(RESOLVABLE)
    ids = count_to_five(database)
    with pytest.raises(UndoError):
        undo(database, [ids[1], ids[3]])
    assert counted(other) == 5
    # One after the other they can be.
    undo(database, [ids[1]])
    undo(database, [ids[3]])
    assert counted(other) == 3


def test_other_classes_are_refused_as_undos(site):
    database, other = site(RESOLVABLE)
    ids = count_to_five(database, PCounter2)
    with pytest.raises(UndoError):
        undo(database, [ids[2]])
    assert counted(other) == 5


def test_a_client_that_cannot_merge_loses_its_own_transaction_only(site):
    database, other = site("*")
    ids = count_to_five(database, PCounter2)
    with pytest.raises(ConflictError):
        undo(database, [ids[2]])
    assert counted(other) == 5
    with other.transaction() as connection:
        connection.root.counter.inc()
    assert counted(database) == 6


def test_undo_of_the_creation_is_refused(site):
    database, _ = site("*")
    count_to_five(database)
    created = database.undoLog(5, 6)[0]["id"]
    with pytest.raises(UndoError):
        undo(database, [created])
    assert counted(database) == 5
