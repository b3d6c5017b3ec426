"""What ZEO's tests look at inside a client, of our own client.

Key decision: the tests stay as they are, and what they ask for by the names of ZEO's client is
found where ours keeps it; nothing is imitated that ours does not do.
"""

import time


def window(Client):
    """A class of our client through which the tests of iteration look."""
    from zodium._iteration import Iterators

    class Watched(Iterators):
        _last_gc = -1

        def give_back(self):
            super().give_back()
            self._last_gc = time.monotonic()

    class Server:
        """Calls of the protocol."""

        def __init__(self, storage):
            self.storage = storage

        def call(self, method, *arguments):
            if method == "iterator_gc":  # the one that has no answer
                return self.storage._cast(method, *arguments)
            return self.storage._call(method, *arguments)

    class Window(Client):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self._iterators.__class__ = Watched
            self._server = Server(self)

        @property
        def _iterator_ids(self):
            return self._iterators._ids

        def _iterator_gc(self):
            self._iterators.give_back()

    return Window


def vote_in_order(worker):
    """The vote of CommitLockTests' threads: said to be under way just before it is sent."""
    worker.ready.set()
    worker.storage.tpc_vote(worker.trans)
