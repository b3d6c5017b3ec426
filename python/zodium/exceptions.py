"""The exceptions of a client storage beside those of ZODB.

Where ZEO is installed these are its own classes, so that what an application
catches today it still catches; ZEO is not needed for anything else.
"""

try:
    from ZEO.Exceptions import (
        ClientDisconnected,
        ClientStorageError,
        ProtocolError,
        ServerException,
    )
except ImportError:
    from transaction.interfaces import TransientError
    from ZODB.POSException import StorageError

    class ClientStorageError(StorageError):
        """Something went wrong between the client and its server."""

    class ClientDisconnected(ClientStorageError, TransientError):
        """There is no connection to a server; the transaction can be tried again."""

    class ProtocolError(ClientStorageError):
        """The server speaks something that this client does not."""

    class ServerException(ClientStorageError):
        """The server raised an exception that has no class here: its name, its arguments."""


class OutcomeUnknown(ClientDisconnected):
    """The connection was lost after a finish was sent and before its answer came.

    The transaction is wholly there or wholly not. Which of them is seen by loading what it
    stored, once the storage is connected again.
    """


__all__ = [
    "ClientDisconnected",
    "ClientStorageError",
    "OutcomeUnknown",
    "ProtocolError",
    "ServerException",
]
