"""What must pass before a change is accepted.

A test left out is named here with the reason; the list may only get shorter.
"""

from typing import NamedTuple

from harness.servers import STOCK_SERVER

from .databases import SUITES as DATABASE_SUITES

ENCODINGS = ("Z5", "M5")

# Suites of tests that are mounted on our client storage: over both encodings.
MIXIN_SUITES = (
    "BasicStorage",
    "ConflictResolvingStorage",
    "ConflictResolvingTransUndo",
    "HistoryStorage",
    "IteratorStorage",
    "ExtendedIteratorStorage",
    "MTStorage",
    "PersistentStorage",
    "RaceTests",
    "ReadOnlyStorage",
    "RevisionStorage",
    "SynchronizedStorage",
    "RecoveryStorage",
    "Corruption(index)",
    "PackableStorage",
    "PackableUndoStorage",
    "TransactionalUndoStorage",
    "zeo.Cache",
    "zeo.CommitLockVoteTests",
    "zeo.IterationTests",
    "zeo.ThreadTests",
    "zeo.MiscZEOTests",
    "zeo.CommonBlobTests",
    "blob.reusable_suite",
)

# ZEO's own test modules, longest first: over Z5, which is what they were written for.  Between
# them they mount the suites above three more times.
ZEO_SUITES = (
    "zeo:testZEO.FileStorageSSLTests",
    "zeo:testZEO.BlobWritableCacheTests",
    "zeo:testZEO.BlobAdaptedFileStorageTests",
    "zeo:testConnection.FileStorageConnectionTests",
    "zeo:doctests.testZEO",
    "zeo:testZEO.MappingStorageTests",
    "zeo:testConnection.FileStorageReconnectionTests",
    "zeo:testConnection.MappingStorageConnectionTests",
    "zeo:testConnection.SSLConnectionTests",
    "zeo:testConnection.FileStorageTimeoutTests",
    "zeo:testConnection.MappingStorageTimeoutTests",
    "zeo:testConnection.FileStorageInvqTests",
    "zeo:doctests.testConnection",
    "zeo:testZEO.ClientConflictResolutionTests",
    "zeo:testZEO.FileStorageRecoveryTests",
    "zeo:testZEO.ZRPCConnectionTests",
    "zeo:testZEO.MultiprocessingTests",
    "zeo:testblob.ClientStorageNonSharedBlobsBlobUndoTests",
    "zeo:testblob.ClientStorageSharedBlobsBlobUndoTests",
)


class Job(NamedTuple):
    """One suite over one encoding, and who is held against whom."""

    suite: str
    encoding: str
    client: str = "zeo"
    # None is the server of the command line.
    server_command: "str | None" = None

    @property
    def title(self):
        against = ", stock server" if self.server_command else ""
        ours = f" ({self.client}{against})" if self.client != "zeo" else ""
        return f"{self.suite} {self.encoding}{ours}"


STOCK = f"{STOCK_SERVER} -C {{config}}"

# Of ZEO's own modules those that test a client from outside, and not what the suites above do too.
CLIENT_SUITES = (
    "zeo:testConnection.FileStorageConnectionTests",
    "zeo:testConnection.FileStorageReconnectionTests",
    "zeo:doctests.testZEO",
    "zeo:doctests.testConnection",
    "zeo:testZEO.ClientConflictResolutionTests",
    "zeo:testZEO.FileStorageRecoveryTests",
    "zeo:testZEO.MultiprocessingTests",
    "zeo:testblob.ClientStorageNonSharedBlobsBlobUndoTests",
    "zeo:testblob.ClientStorageSharedBlobsBlobUndoTests",
)

# The stock client against Zodium; our client against Zodium, and against the stock server, where
# Z5 is the encoding that differs: there it sends exceptions that are pickled.
JOBS = [Job(suite, "Z5") for suite in ZEO_SUITES]
JOBS += [Job(suite, "Z5", "zodium") for suite in CLIENT_SUITES]
JOBS += [Job(suite, encoding) for encoding in ENCODINGS for suite in MIXIN_SUITES]
JOBS += [Job(suite, encoding, "zodium") for encoding in ENCODINGS for suite in MIXIN_SUITES]
JOBS += [
    Job(suite, "Z5", "zodium", STOCK) for suite in MIXIN_SUITES if suite != "Corruption(index)"
]
JOBS += [Job(suite, "M5", "zodium") for suite in DATABASE_SUITES]

# {suite: {test: reason}}
LOG_TEXT = "reads the stock server's log for the words it uses there"
EXCLUDED = {
    "zeo:doctests.testZEO": {
        "client_labels": LOG_TEXT,
        "zeo-fan-out_test": "a server that is the client of another one is not offered",
        "unix_domain_sockets": "this runner finds its servers by port; e2e connects by path",
        "protocols_test": "wants a server that speaks an older protocol",
    },
    "zeo:testZEO.ZRPCConnectionTests": {
        "checkExceptionLogsAtError": "wants the answer of POSKeyError to history(None)",
    },
    "zeo:testConnection.FileStorageTimeoutTests": {"checkTimeout": LOG_TEXT},
    "zeo:testConnection.MappingStorageTimeoutTests": {"checkTimeout": LOG_TEXT},
}

# Level 2 takes the one long race in: 64 clients that connect and vanish, 20 s.
LEVEL = 2
