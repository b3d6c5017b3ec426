"""A fast, parallel object database server for ZODB, and its native client.

    import zodium

    db = zodium.DB(("localhost", 8100))

`zodium.ClientStorage` takes the place of ZEO's, and `zodium.NEOStorage` that of NEO's. The
`zodium` command serves databases.
"""

from ._neo import NEOStorage
from ._storage import ClientStorage
from ._tls import TLS

__all__ = ["TLS", "ClientStorage", "DB", "NEOStorage", "client", "connection"]


def client(*args, **options):
    """Return a ClientStorage."""
    return ClientStorage(*args, **options)


def DB(*args, **options):
    """Return a database on a ClientStorage."""
    import ZODB

    storage = ClientStorage(*args, **options)
    try:
        return ZODB.DB(storage)
    except BaseException:
        storage.close()
        raise


def connection(*args, **options):
    """Return a connection to a new database, which is closed with the connection."""
    db = DB(*args, **options)
    try:
        return db.open_then_close_db_when_connection_closes()
    except BaseException:
        db.close()
        raise


def __getattr__(name):
    """The version, which is read when it is asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("zodium")
