"""Iteration over the transactions of a server, and over their records.

Iterators live in the server. One that nobody holds here any more is given back
at the end of the next transaction; a lost connection ends all of them.
"""

import threading
import weakref

from ZODB.BaseStorage import DataRecord, TransactionRecord

from .exceptions import ClientDisconnected


class Iterators:
    """The iterators that the server keeps for one storage."""

    def __init__(self, storage):
        # The storage holds us: it must not be held back.
        self._storage = weakref.proxy(storage)
        self._lock = threading.Lock()
        self._open = weakref.WeakValueDictionary()
        self._ids = set()

    def add(self, iterator):
        with self._lock:
            self._open[iterator.number] = iterator
            self._ids.add(iterator.number)
        return iterator

    def forget(self, number):
        """The server has disposed of an iterator that came to its end."""
        with self._lock:
            self._open.pop(number, None)
            self._ids.discard(number)

    def give_back(self):
        """Tell the server which iterators nobody holds here."""
        with self._lock:
            unused = self._ids - set(self._open)
        if not unused:
            return
        try:
            self._storage._cast("iterator_gc", list(unused))
        except ClientDisconnected:
            self.lose()
            return
        with self._lock:
            self._ids -= unused

    def lose(self):
        """The connection is gone, and the server's iterators with it."""
        with self._lock:
            for iterator in list(self._open.values()):
                iterator.number = None
            self._open.clear()
            self._ids.clear()


class RemoteIterator:
    """Asks the server for one item after the other."""

    method = ""

    def __init__(self, storage, number):
        self._storage = storage
        self.number = number
        self._ended = False

    def __iter__(self):
        return self

    def __next__(self):
        if self._ended:
            raise StopIteration
        number = self.number
        if number is None:
            raise ClientDisconnected("the connection of this iterator was lost: begin a new one")
        item = self._storage._call(self.method, number)
        if item is None:
            self._ended = True
            self._storage._iterators.forget(number)
            raise StopIteration
        return self.made(item)

    next = __next__


class TransactionIterator(RemoteIterator):
    """The transactions from one tid to another."""

    method = "iterator_next"

    def made(self, item):
        return RemoteTransaction(self._storage, self, *item)


class RecordIterator(RemoteIterator):
    """The records of one transaction."""

    method = "iterator_record_next"

    def made(self, item):
        return DataRecord(*item)


class RemoteTransaction(TransactionRecord):
    """A transaction's description; iterating over it gives its records."""

    def __init__(self, storage, transactions, tid, status, user, description, extension):
        super().__init__(tid, status, user, description, extension)
        self._storage = storage
        self._transactions = transactions

    def __iter__(self):
        if self._transactions.number is None:
            raise ClientDisconnected("the connection of this iterator was lost: begin a new one")
        number = self._storage._call("iterator_record_start", self._transactions.number, self.tid)
        return self._storage._iterators.add(RecordIterator(self._storage, number))
