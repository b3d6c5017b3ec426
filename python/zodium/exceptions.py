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
    """A finish was sent, and its answer did not come: the connection was lost, or the wait ended.

    The transaction is wholly there or wholly not. `ClientStorage.outcome(error)` tells which,
    once the storage is connected again. An exception that ended the wait, as KeyboardInterrupt
    does, is raised from this one.
    """

    # What is asked for; it does not leave the process.
    unfinished = None
    # The tid, where what ended the wait came after the server's answer.
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
