"""The exceptions of a client storage beside those of ZODB.

Where ZEO is installed these are ZEO's own classes, so that existing `except` clauses still
work. ZEO is not needed for anything else.
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
        """An error between the client and its server."""

    class ClientDisconnected(ClientStorageError, TransientError):
        """There is no connection to a server; the transaction can be retried."""

    class ProtocolError(ClientStorageError):
        """The server uses a protocol that this client does not know."""

    class ServerException(ClientStorageError):
        """A server exception without a class in this package: its name and arguments."""


class OutcomeUnknown(ClientDisconnected):
    """A finish has an unknown outcome: the connection or the wait ended before the reply.

    The transaction is either committed completely or not at all. `ClientStorage.outcome(error)`
    tells which, once the storage is connected again. An exception that ended the wait, such as
    KeyboardInterrupt, has this one as its cause.
    """

    # The transaction, for `outcome`; not pickled with the exception.
    unfinished = None
    # The tid, if the wait ended after the server's reply.
    committed = None

    def __reduce__(self):
        return type(self), self.args


__all__ = [
    "ClientDisconnected",
    "ClientStorageError",
    "OutcomeUnknown",
    "ProtocolError",
    "ServerException",
]
