from typing import Any

from transaction.interfaces import TransientError
from ZODB.POSException import StorageError

class ClientStorageError(StorageError): ...
class ClientDisconnected(ClientStorageError, TransientError): ...
class ProtocolError(ClientStorageError): ...
class ServerException(ClientStorageError): ...

class OutcomeUnknown(ClientDisconnected):
    unfinished: Any
    committed: bytes | None
    def __reduce__(self) -> tuple[Any, ...]: ...

__all__ = [
    "ClientDisconnected",
    "ClientStorageError",
    "OutcomeUnknown",
    "ProtocolError",
    "ServerException",
]
