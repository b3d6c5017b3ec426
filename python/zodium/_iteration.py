"""Iteration over the transactions of a server, and over their records.

Key decision: what comes next is asked for before it is wanted, and bounded in bytes
(crates/client/src/log). Places in the server's log end with the connection: then
iterators raise ClientDisconnected, again and again, and a new one is begun at the
transaction after the last.
"""

from ZODB.BaseStorage import DataRecord, TransactionRecord
from ZODB.Connection import overridable_property
from ZODB.POSException import StorageError
from ZODB.utils import tid_repr

from ._native import plain_extension


class TransactionIterator:
    """The transactions from one tid to another."""

    def __init__(self, client, start, stop):
        self._client = client
        self._reader = client.read_log(start, stop, DataRecord)

    def __iter__(self):
        return self

    def __next__(self):
        # Another thread, or a signal's handler, may close it meanwhile.
        reader = self._reader
        head = reader and reader.next_transaction()
        if head is None:
            self._reader = None
            raise StopIteration
        return RemoteTransaction(self._client, reader, *head)

    next = __next__

    def close(self):
        """Give the place in the log back."""
        self._reader = None


class RemoteTransaction(TransactionRecord):
    """A transaction's description; iterating over it gives its records."""

    def __init__(self, client, reader, *head):
        super().__init__(*head)
        self._client = client
        self._reader = reader

    @overridable_property
    def extension(self):
        # Of what a server says nothing is imported.
        return plain_extension(self.extension_bytes)

    def __iter__(self):
        reader, taken = self._reader, 0
        while True:
            records = reader.records(self.tid, taken)
            if records is None:
                # The iterator has gone on, or these were read before.
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
                f"transaction {tid_repr(self.tid)} is not there any more as it was:"
                " a pack has taken it away"
            )
        return reader
