"""Which of several conflicts a client is told of: the same as by the stock server."""

import pytest
import transaction
import ZODB
from BTrees.Length import Length
from harness.process import ServerProcess, free_port
from harness.servers import STOCK_SERVER
from persistent.mapping import PersistentMapping
from ZODB.POSException import ConflictError

pytestmark = pytest.mark.zodium


@pytest.fixture
def stock(tmp_path):
    """A stock server as it is by default: it resolves conflicts itself."""
    folder, port = tmp_path / "stock", free_port()
    folder.mkdir()
    config = folder / "zeo.conf"
    config.write_text(
        f"<zeo>\n  address 127.0.0.1:{port}\n</zeo>\n"
        f"<filestorage 1>\n  path {folder}/Data.fs\n</filestorage>\n"
    )
    server = ServerProcess([STOCK_SERVER, "-C", str(config)], port, folder)
    yield server
    server.kill()


def change(thing):
    if isinstance(thing, Length):
        thing.change(1)
    else:
        thing["changed"] = True


def report(storage, make):
    """What is raised by a commit that changes one object and read another, both outdated."""
    db = ZODB.DB(storage)
    with db.transaction() as connection:
        connection.root()["changed"], connection.root()["read"] = make(), PersistentMapping()
    ours = db.open(transaction.TransactionManager())
    changed, read = ours.root()["changed"], ours.root()["read"]
    changed._p_activate()
    read._p_activate()
    with db.transaction() as connection:
        change(connection.root()["changed"])
        change(connection.root()["read"])
    change(changed)
    ours.readCurrent(read)
    with pytest.raises(ConflictError) as raised:
        ours.transaction_manager.commit()
    ours.transaction_manager.abort()
    error = raised.value
    which = {changed._p_oid: "changed", read._p_oid: "read"}[error.oid]
    ours.close()
    return type(error).__name__, which, error.class_name


@pytest.mark.parametrize(
    "make, expected",
    [
        (PersistentMapping, ("ConflictError", "changed", "persistent.mapping.PersistentMapping")),
        (Length, ("ReadConflictError", "read", None)),
    ],
    ids=["unresolvable", "resolvable"],
)
def test_a_changed_object_is_reported_before_one_that_was_only_read(
    start_server, stock, connect, encoding, make, expected
):
    assert report(connect(stock), make) == expected
    assert report(connect(start_server(encoding=encoding)), make) == expected
