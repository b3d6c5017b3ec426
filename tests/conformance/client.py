"""The client storage that the suites are run with: ZEO's, or Zodium's own."""

import importlib

CLASSES = {"zeo": "ZEO.ClientStorage", "zodium": "zodium"}


# {client: {suite: {test: reason}}}: what a client cannot be asked.
INSIDE = "looks at what ZEO's client is made of inside"
TEXT = "passes a text where bytes belong, which ZEO's client does not look at"
EXCLUDED = {
    "zodium": {
        "blob.reusable_suite": {"blob_transaction_txt": TEXT},
        "zeo.CommonBlobTests": {"checkTransactionBufferCleanup": TEXT},
        "zeo.CommitLockVoteTests": dict.fromkeys(
            (
                "checkCommitLockVoteAbort",
                "checkCommitLockVoteClose",
                "checkCommitLockVoteFinish",
            ),
            INSIDE,
        ),
        "zeo.IterationTests": dict.fromkeys(
            (
                "checkIteratorExhaustionStorage",
                "checkIteratorGCProtocol",
                "checkIteratorGCStorageCommitting",
                "checkIteratorGCStorageDisconnect",
                "checkIteratorGCStorageTPCAborting",
            ),
            INSIDE,
        ),
    },
}


def is_excluded(suite, test):
    return test in EXCLUDED.get(Chosen.name, {}).get(suite, {})


class Chosen:
    """Set once, by whoever reads the command line."""

    name = "zeo"


def client_class():
    return importlib.import_module(CLASSES[Chosen.name]).ClientStorage
