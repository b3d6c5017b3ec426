"""Suites that are ZEO's own test modules, run as they are.

Key decision: all of them start their server through one function,
ZEO.tests.forker.start_zeo_server; it is replaced by one that starts the
external server.  A test that must look inside a Python server keeps it, and is
counted as run without ours.
"""

import importlib
import os
import re
import tempfile

from harness.process import HOST

from .client import Chosen, client_class
from .inside import vote_in_order, window
from .mixins import flatten
from .server import NOT_SUPPORTED, Server, Settings, Unsupported

ZEO_MODULES = ("ZEO.tests.testZEO", "ZEO.tests.testConnection")


def zeo_tests():
    """{suite name: its tests}, with the forker already replaced."""
    replace_forker()
    replace_client()
    by_suite = {}
    for module in ZEO_MODULES:
        for test in flatten(importlib.import_module(module).test_suite()):
            by_suite.setdefault(suite_name(test), []).append(test)
    return by_suite


def suite_name(test):
    short = type(test).__module__.rpartition(".")[2]
    if short == "doctest":
        return "zeo:doctests." + ("testConnection" if "testConnection" in test.id() else "testZEO")
    return f"zeo:{short}.{type(test).__name__}"


def replace_forker():
    from ZEO import _forker
    from ZEO.tests import forker

    stock = _forker.start_zeo_server
    if stock is not start_external:
        start_external.stock = stock
    _forker.start_zeo_server = forker.start_zeo_server = start_external


def replace_client():
    """From here on ZEO's client is the one that is chosen."""
    import ZEO.ClientStorage

    if Chosen.name == "zodium":
        ZEO.ClientStorage.ClientStorage = window(client_class())
        from ZEO.tests.CommitLockTests import WorkerThread

        WorkerThread.myvote = vote_in_order


def start_external(
    storage_conf=None,
    zeo_conf=None,
    port=None,
    keep=False,
    path="Data.fs",
    protocol=None,
    blob_dir=None,
    threaded=False,
    **rest,
):
    """Stands in for ZEO.tests.forker.start_zeo_server: (address, stop)."""
    if threaded:  # the test looks inside an in-process server
        arguments = storage_conf, zeo_conf, port, keep, path, protocol, blob_dir
        return start_external.stock(*arguments, threaded=True, **rest)
    if protocol:
        raise Unsupported(f"{NOT_SUPPORTED}: forced protocol {protocol!r}")
    storage_conf = storage_conf or f"<filestorage>\npath {path}\n</filestorage>"
    if blob_dir:
        storage_conf = f"<blobstorage>\nblob-dir {blob_dir}\n{storage_conf}\n</blobstorage>"
    zeo_text = zeo_section(zeo_conf, port, rest.get("log"))
    asked = re.search(r"(?m)^\s*address[ \t]+(.+?)\s*$", zeo_text)[1]
    if "/" in asked:
        raise Unsupported(f"{NOT_SUPPORTED}: unix socket")
    log = None
    if "{config}" not in Server.template:  # what the server says on stderr is its log
        refuse_other_storages(storage_conf)
        log = re.search(r"<logfile>\s*path\s+(\S+)", zeo_text)
    hit = re.search(r"(?m)^\s*path\s+(\S+)", storage_conf)
    server = Server(
        hit[1] if hit else tempfile.mktemp(".fs", "memory-", os.getcwd()),
        Settings.from_zconfig(zeo_text, storage_conf),
        f"{zeo_text}\n\n{storage_conf}\n",
        int(asked.rpartition(":")[2]) or None,
        log and os.path.abspath(log[1]),
    )

    def stop(*_ignored, **_also):
        server.stop()
        if hit is None or not keep:
            server.remove_files()

    return server.address, stop


def zeo_section(zeo_conf, port, log):
    """The <zeo> section as text, from what ZEO's tests pass for it."""
    from ZEO import _forker

    if zeo_conf is None or isinstance(zeo_conf, dict):
        address = port if isinstance(port, (tuple, str)) else (HOST, port or 0)
        made = _forker.ZEOConfig(address, log=log)
        made.__dict__.update(zeo_conf or {})
        zeo_conf = made
    return str(zeo_conf)


def refuse_other_storages(storage_conf):
    odd = re.search(r"%import|<(?!/|filestorage|blobstorage|mappingstorage)\w+", storage_conf)
    if odd:
        raise Unsupported(f"{NOT_SUPPORTED}: storage {odd[0]}")
