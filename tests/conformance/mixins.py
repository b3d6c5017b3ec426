"""Suites made of the storage test mixins of ZODB and ZEO.

Key decision: the test bodies come from the installed packages, none is copied.
Each is mounted on a storage that is a client of an external server, with a
server process, a data file and a folder of its own.
"""

import contextlib
import importlib
import os
import re
from unittest import TestSuite, mock

from .client import Chosen, client_class
from .inside import vote_in_order, window
from .server import Server, Settings

UNDO = "ZODB.tests.TransactionalUndoStorage.TransactionalUndoStorage"
MIXINS = {
    # The first mixin gives the tests; a second one only lends it helpers.
    "BasicStorage": ("ZODB.tests.BasicStorage.BasicStorage",),
    "ConflictResolvingStorage": ("ZODB.tests.ConflictResolution.ConflictResolvingStorage",),
    "ConflictResolvingTransUndo": (
        "ZODB.tests.ConflictResolution.ConflictResolvingTransUndoStorage",
        UNDO,
    ),
    "HistoryStorage": ("ZODB.tests.HistoryStorage.HistoryStorage",),
    "IteratorStorage": ("ZODB.tests.IteratorStorage.IteratorStorage",),
    "ExtendedIteratorStorage": ("ZODB.tests.IteratorStorage.ExtendedIteratorStorage",),
    "MTStorage": ("ZODB.tests.MTStorage.MTStorage",),
    "PackableStorage": ("ZODB.tests.PackableStorage.PackableStorage",),
    "PackableUndoStorage": ("ZODB.tests.PackableStorage.PackableUndoStorage",),
    "PersistentStorage": ("ZODB.tests.PersistentStorage.PersistentStorage",),
    "RaceTests": ("ZODB.tests.racetest.RaceTests",),
    "ReadOnlyStorage": ("ZODB.tests.ReadOnlyStorage.ReadOnlyStorage",),
    "RecoveryStorage": ("ZODB.tests.RecoveryStorage.RecoveryStorage",),
    "RevisionStorage": ("ZODB.tests.RevisionStorage.RevisionStorage",),
    "SynchronizedStorage": ("ZODB.tests.Synchronization.SynchronizedStorage",),
    "TransactionalUndoStorage": (UNDO,),
    "Corruption(index)": ("ZODB.tests.Corruption.FileStorageCorruptTests",),
    "zeo.Cache": ("ZEO.tests.Cache.TransUndoStorageWithCache", UNDO),
    "zeo.CommitLockVoteTests": ("ZEO.tests.CommitLockTests.CommitLockVoteTests",),
    "zeo.IterationTests": ("ZEO.tests.IterationTests.IterationTests",),
    "zeo.ThreadTests": ("ZEO.tests.ThreadTests.ThreadTests",),
    "zeo.MiscZEOTests": ("ZEO.tests.testZEO.MiscZEOTests",),
    "zeo.CommonBlobTests": ("ZEO.tests.testZEO.CommonBlobTests",),
    "blob.reusable_suite": (),
}


def mixin_tests(name):
    """The tests of one mixin suite."""
    if name == "blob.reusable_suite":
        return blob_tests()
    mixins = [find(dotted) for dotted in MIXINS[name]]
    extra, settings = particulars(name, mixins)
    case = make_case(re.sub(r"\W", "_", name), mixins, settings, extra)
    own = {method for method in dir(mixins[0]) if method.startswith(("check", "test"))}
    if name == "BasicStorage":  # inherits RaceTests, which has its own line
        own -= set(dir(find(MIXINS["RaceTests"][0])))
    return [case(method) for method in sorted(own) if callable(getattr(case, method))]


def find(dotted):
    module, _, attribute = dotted.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def flatten(suite):
    for item in suite:
        if isinstance(item, TestSuite):
            yield from flatten(item)
        else:
            yield item


def particulars(name, mixins):
    """(class attributes, server settings) that one suite needs beside its mixins."""
    extra, settings = {}, {}
    if name == "PackableUndoStorage":
        for attribute in ("testPackUndoLog", "checkPackUndoLog"):
            if hasattr(mixins[0], attribute):
                extra[attribute] = real_time(getattr(mixins[0], attribute))
    elif name == "PersistentStorage":
        extra["restart_on_open"] = True
    elif name == "RecoveryStorage":
        extra["setUp"] = set_up_with_destination
    elif name == "Corruption(index)":
        extra = corruption_attributes()
    elif name == "IteratorStorage" and Chosen.name == "zodium":
        extra["use_extension_bytes"] = property(gets_extension_bytes)
    elif name == "zeo.IterationTests" and Chosen.name == "zodium":
        extra["client_class"] = staticmethod(window(client_class()))
    elif name == "zeo.CommitLockVoteTests" and Chosen.name == "zodium":
        find("ZEO.tests.CommitLockTests.WorkerThread").myvote = vote_in_order
    elif name == "zeo.CommonBlobTests":
        settings = {"blob_dir": "blobs"}
    return extra, settings


def gets_extension_bytes(test):
    """Whether extensions come as they stand in the file, as FileStorage's do: from Zodium."""
    return "zodium_methods" in test._storage._info


def real_time(method):
    """The test below its clock-patching decorator: the server keeps real time."""
    return getattr(method, "__wrapped__", method)


def set_up_with_destination(self):
    super(type(self), self).setUp()
    self._dst = self.new_dest()


def corruption_attributes():
    """Let the test's own FileStorage calls start the external server."""

    def set_up(self):
        from ZODB.tests.StorageTestBase import StorageTestBase

        StorageTestBase.setUp(self)
        self.servers, self.clients = [], []
        patch = mock.patch("ZODB.FileStorage.FileStorage", self.open_file)
        patch.start()
        self.addCleanup(patch.stop)
        self._storage = self.open_file("Data.fs")

    def open_file(self, path, **_):
        self.server = self.start_server(path)
        return self.connect(self.server)

    def close(self):
        self._storage.close()
        self.server.stop()  # SIGTERM: the server saves its index

    return {"setUp": set_up, "open_file": open_file, "_close": close}


class NoDatabase:
    """The least a storage asks of the database above it."""

    def invalidate(self, *_):
        pass

    def invalidateCache(self, *_):
        pass

    @staticmethod
    def transform_record_data(data):
        return data

    untransform_record_data = transform_record_data


def make_case(name, mixins, settings=None, extra=None):
    """A TestCase class: `mixins` over a client of a fresh external server."""
    from ZODB.tests.StorageTestBase import StorageTestBase

    class Case(StorageTestBase):
        server_settings = settings or {}
        restart_on_open = False
        client_class = staticmethod(client_class())

        def setUp(self):
            super().setUp()
            self.servers, self.clients = [], []
            self.server = self.start_server("Data.fs")
            self._storage = self.connect(self.server)

        def start_server(self, path):
            server = Server(path, Settings(**self.server_settings))
            self.servers.append(server)
            return server

        def connect(self, server, **options):
            options.setdefault("wait_timeout", 30)
            if self.server_settings.get("blob_dir"):
                options.setdefault("blob_dir", "blob_cache")
            client = self.client_class(
                server.address,
                "1",
                wait=True,
                min_disconnect_poll=0.5,
                cache_size=20 << 20,
                **options,
            )
            client.registerDB(NoDatabase())
            self.clients.append(client)
            return client

        def open(self, read_only=False, **_):
            self._storage.close()
            if self.restart_on_open:  # persistence across processes
                self.server.stop()
                self.server = self.start_server("Data.fs")
            self._storage = self.connect(self.server, read_only=read_only)

        def _new_storage_client(self):
            options = {}
            if self.server_settings.get("blob_dir"):
                options["blob_dir"] = f"blob_cache_{len(self.clients)}"
            return self.connect(self.server, **options)

        def new_dest(self):
            return self.connect(self.start_server(f"Dest{len(self.servers)}.fs"))

        def tearDown(self):
            for client in self.clients:
                with contextlib.suppress(Exception):
                    client.close()
            for server in self.servers:
                server.stop()
            super().tearDown()

    # Some mixins carry a stand-in for what their host must supply: ours wins.
    supplied = {key: vars(Case)[key] for key in ("open", "_new_storage_client", "new_dest")}
    return type(name, (*mixins, Case), {**supplied, **(extra or {}), "__module__": __name__})


def blob_tests():
    """ZODB's reusable blob doctests and undo tests, over a blob server."""
    from ZODB.tests import testblob

    class BlobClient(client_class()):
        def __init__(self, name, blob_dir):
            settings = Settings(blob_dir=os.path.abspath("server-" + blob_dir))
            self.own_server = Server(f"{name}.fs", settings)
            super().__init__(self.own_server.address, blob_dir=blob_dir, wait_timeout=30)

        def close(self):
            super().close()
            self.own_server.stop()

    return list(flatten(testblob.storage_reusable_suite("External", BlobClient)))
