"""Iteration over the transactions of a server, and over their records.

Key decision: the log is read ahead, bounded in bytes (crates/client/src/log). The server's
iterators end with the connection. Then Python iterators raise ClientDisconnected each
time, and a new one can begin at the transaction after the last one.
"""

from ZODB.BaseStorage import DataRecord, TransactionRecord
from ZODB.Connection import overridable_property
from ZODB.POSException import StorageError
from ZODB.utils import tid_repr

from ._native import plain_extension


class TransactionIterator:
    """An iterator over the transactions from one tid to another."""

    def __init__(self, client, start, stop):
        self._client = client
        self._reader = client.read_log(start, stop, DataRecord)

    def __iter__(self):
        return self

    def __next__(self):
        # Another thread, or a signal handler, may close it meanwhile.
        reader = self._reader
        head = reader and reader.next_transaction()
        if head is None:
            self._reader = None
            raise StopIteration
        return RemoteTransaction(self._client, reader, *head)

    next = __next__

    def close(self):
        """Release the server's iterator."""
        self._reader = None


class RemoteTransaction(TransactionRecord):
    """The metadata of a transaction; iterating over it yields its records."""

    def __init__(self, client, reader, *head):
        super().__init__(*head)
        self._client = client
        self._reader = reader

    @overridable_property
    def extension(self):
        # Nothing that a server sends is imported.
        return plain_extension(self.extension_bytes)

    def __iter__(self):
        reader, taken = self._reader, 0
        while True:
            records = reader.records(self.tid, taken)
            if records is None:
                # The iterator has moved on, or these records were read before.
                reader = self._reader_of_its_own(taken)
            elif records:
                taken += len(records)
                yield from records
            else:
                return

    def _reader_of_its_own(self, taken):
        reader = self._client.read_log(self.tid, self.tid, DataRecord)
        head, passed = reader.next_transaction(), 0
        while head and passed < taken and (records := reader.records(self.tid, passed, taken)):
            passed += len(records)
        if head is None or passed < taken:
            raise StorageError(
                f"transaction {tid_repr(self.tid)} is no longer as it was:"
                " a pack has removed records"
            )
        return reader
