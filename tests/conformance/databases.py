"""Suites of ZODB and BTrees that make databases of their own, on a client of a server.

Key decision: the classes of storages that those tests name are replaced by ones that start a
server on an empty file and are its client, before the tests are imported; the tests themselves
stay as they are.  A test that made no storage is counted as run without a server.
"""

import contextlib
import importlib
import os
import re
import tempfile
import unittest

import transaction

from .client import client_class
from .mixins import flatten
from .server import Server, Settings

PREFIX = "db:"
# Modules whose tests make databases.  Left out: testPersistentWeakref looks for objects that a pack
# has removed, which clients are not told of, so that their caches still have them;
# testhistoricalconnections sets the clock, and the server has its own; testDemoStorage wants a lock
# of the storage below, which neither client has; testblob is in the storages' suites.
MODULES = [
    *(
        f"ZODB.tests.{name}"
        for name in (
            "testBroken",
            "testCache",
            "testConnection",
            "testConnectionSavepoint",
            "testDB",
            "testThreadedShutdown",
            "testZODB",
            "test_TransactionMetaData",
            "test_doctest_files",
            "test_prefetch",
            "testconflictresolution",
            "testcrossdatabasereferences",
            "testmvcc",
            "testpersistentclass",
        )
    ),
    *(
        f"BTrees.tests.{name}"
        for name in ("testConflict", "testPersistency", "test_dynamic_btrees", "test_fsBTree")
    ),
]
SUITES = {PREFIX + module.rpartition(".")[2]: module for module in MODULES}

# Of thousands of tests those that make a database, but for the ones that empty the dictionary of a
# MappingStorage; of 20 families of trees five, which have each kind of key and of value.
NAMES = {
    "db:test_dynamic_btrees": r"(OO|IF|LQ|UU|OL).*\.(testGhostUnghost|testLoadAndStore"
    r"|test_UpdatesDoReadChecksOnInternalNodes|test_internal_keys_after_deletion)$",
    "db:test_fsBTree": r"\.(testGhostUnghost|testLoadAndStore"
    r"|test_UpdatesDoReadChecksOnInternalNodes|test_internal_keys_after_deletion)$",
}

# {suite: {test: reason}}: what no storage of a server can be asked, whoever is its client.
SHOWN = "shows the class of the storage, which is another one here"
EXCLUDED = {
    "db:testConnection": {
        "test_explicit_transactions_no_newTransactuon_on_afterCompletion": (
            "wants a storage that makes a view of itself for each connection"
        ),
    },
    "db:testDB": {
        "connectionDebugInfo": "counts how often the time is asked for",
        "passing_None_to_DB": SHOWN,
        "passing_a_file_name_to_DB": SHOWN,
    },
}


def database_tests(suite):
    """The tests of one module."""
    module = importlib.import_module(SUITES[suite])
    if hasattr(module, "test_suite"):
        tests = module.test_suite()
    else:
        tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    return [test for test in flatten(tests) if re.search(NAMES.get(suite, ""), test.id())]


class Storages:
    """Those that the test under way has opened."""

    opened = []

    @classmethod
    def close_all(cls):
        transaction.abort()  # else the next test's commit meets what is left of this one
        while cls.opened:
            with contextlib.suppress(Exception):
                cls.opened.pop().close()


def replace_storages():
    """From here on every storage is a client of a server."""
    import ZODB.FileStorage.FileStorage
    import ZODB.MappingStorage
    from ZODB.tests import MVCCMappingStorage, test_storage

    served, in_file = classes()
    ZODB.FileStorage.FileStorage.FileStorage = ZODB.FileStorage.FileStorage = in_file
    ZODB.MappingStorage.MappingStorage = served
    MVCCMappingStorage.MVCCMappingStorage = served
    test_storage.MinimalMemoryStorage = hooked(served)


def classes():
    """(one that takes the place of storages in memory, one for those in files)"""

    class Served(client_class()):
        """A storage whose file begins empty."""

        def __init__(self, name="storage"):
            self.begin(tempfile.mktemp(".fs", "memory-", os.getcwd()), name=name)

        def begin(self, path, blob_dir=None, read_only=False, name=None):
            settings = Settings(
                client_conflict_resolution=True, blob_dir=blob_dir and f"{path}.blobs"
            )
            self.own_server = Server(path, settings)
            super().__init__(
                self.own_server.address,
                name=name,
                wait_timeout=30,
                blob_dir=blob_dir,
                read_only=read_only,
            )
            Storages.opened.append(self)

        def close(self):
            super().close()
            # Whoever opens the file next gets a server that starts with it.
            self.own_server.stop()

        def cleanup(self):
            self.own_server.remove_files()

    class InFile(Served):
        """A storage of a file that may be there."""

        def __init__(self, file_name, create=False, read_only=False, blob_dir=None, **_):
            path = os.path.abspath(file_name)
            if create and os.path.exists(path):
                os.remove(path)
            self.begin(path, blob_dir, read_only, file_name)

    return Served, InFile


def hooked(served):
    """What a test may do whenever an object is loaded, as testmvcc's storage has it."""

    class Hooked(served):
        def hook(self, oid, tid, version):
            pass

        def isCurrent(self, oid, serial):
            return serial == self.getTid(oid)

        def loadBefore(self, oid, tid):
            loaded = super().loadBefore(oid, tid)
            self.hook(oid, self.getTid(oid), "")
            return loaded

    return Hooked
