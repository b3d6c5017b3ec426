"""What ZEO's tests look at inside a client, of our own client.

Key decision: the tests stay as they are, and what they ask for by the names of ZEO's client is
found where ours keeps it; nothing is imitated that ours does not do.
"""

import time
import weakref


def window(Client):
    """A class of our client through which ZEO's tests look."""

    class Places:
        """Iterators that were begun, by the server's number; ours are given back when dropped."""

        _last_gc = -1

        def __init__(self):
            self.begun = {}

        def open(self):
            alive = {number: begun() for number, begun in self.begun.items()}
            return {number for number, one in alive.items() if one is None or one._reader}

        def give_back(self):
            self.begun = {number: begun for number, begun in self.begun.items() if begun()}
            self._last_gc = time.monotonic()

    class Server:
        """Calls of the protocol."""

        timeout = None  # only makes tests shorter

        def __init__(self, storage):
            self.storage = storage

        def call(self, method, *arguments):
            if method == "iterator_gc":  # the one that has no answer
                return self.storage._cast(method, *arguments)
            return self.storage._call(method, *arguments)

    class Cache:
        """What is known of objects."""

        def __init__(self, storage):
            self.storage = storage

        def clear(self):
            self.storage.clear_cache()

    class Window(Client):
        _connection_generation = 0

        def __init__(self, *arguments, **options):
            self._iterators = Places()
            super().__init__(*arguments, **options)
            self._server = Server(self)
            self._cache = Cache(self)

        def notify_connected(self, *arguments):
            super().notify_connected(arguments[-1])
            self._connection_generation += 1

        def iterator(self, start=None, stop=None):
            begun = super().iterator(start, stop)
            self._iterators.begun[begun._reader.number] = weakref.ref(begun)
            return begun

        def notify_disconnected(self):
            super().notify_disconnected()
            self._iterators.begun = {}

        def _end(self, txn, pending):
            super()._end(txn, pending)
            self._iterator_gc()

        @property
        def _iterator_ids(self):
            return self._iterators.open()

        def _iterator_gc(self):
            self._iterators.give_back()

    return Window


def vote_in_order(worker):
    """The vote of CommitLockTests' threads: said to be under way just before it is sent."""
    worker.ready.set()
    worker.storage.tpc_vote(worker.trans)


# {suite: {test: reason}}: what is asked of ZEO's client only.
CACHE_FILE = "writes to the file of ZEO's cache, or looks at what is in it"
KEPT = "reads a kept cache before a server was reached; ours waits to hear what has changed"
MESSAGES = "looks at the bytes of ZEO's client, or hands it messages"
TEXT = "looks for the words of ZEO's client, or of the stock server's log"
VERIFIED = "wants the words that ZEO's client has for how its cache was verified"
EXCLUDED = {
    "zeo:doctests.testZEO": {
        "client_asyncore_thread_has_name": "our client's thread has another name",
        "client_has_newer_data_than_server": TEXT,
        "client-config_test": "looks at attributes of ZEO's client",
        "convenient_to_pass_port_to_client_and_ZEO_dot_client": "wants ZEO's class",
        "drop_cache_rather_than_verify_txt": CACHE_FILE,
        "invalidate_client_cache_entry_on_server_commit_error": CACHE_FILE,
        "invalidation-age_txt": VERIFIED,
        "iterator_sane_after_reconnect": TEXT,
        "quick_close_doesnt_kill_server": "passes an SSLContext; e2e connects with zodium.TLS",
        "test_prefetch": CACHE_FILE,
        "test_runzeo_msgpack_support": MESSAGES,
        "tpc_finish_error": "breaks the transaction buffer of ZEO's client",
    },
    "zeo:testConnection.FileStorageConnectionTests": {
        "checkBadMessage1": MESSAGES,
        "checkBadMessage2": MESSAGES,
        "checkBasicPersistence": KEPT,
        "checkDisconnectedCacheFails": KEPT,
        "checkDisconnectedCacheWorks": KEPT,
    },
    "zeo:testConnection.FileStorageReconnectionTests": {
        "checkNoVerificationOnServerRestart": VERIFIED,
        "checkNoVerificationOnServerRestartWith2Clients": VERIFIED,
    },
}
