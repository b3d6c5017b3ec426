"""A transaction much larger than what the server keeps in memory commits whole."""

import os
import re
from pathlib import Path

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, z64

OBJECTS = 48
OBJECT_BYTES = 8 << 20
# The cache, the object on its way in, and what any process has.
SERVER_BYTES_MAX = 160 << 20


def peak_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@pytest.mark.zodium
def test_a_large_transaction_does_not_stay_in_memory(start_server, connect, tmp_path):
    server = start_server(None, "--cache-size", "16MiB")
    storage = connect(server)
    meta = TransactionMetaData()
    storage.tpc_begin(meta)
    for number in range(OBJECTS):
        data = bytes([number + 1]) * OBJECT_BYTES
        storage.store(p64(number + 1), z64, data, "", meta)
    storage.tpc_vote(meta)
    tid = storage.tpc_finish(meta)
    assert peak_bytes(server.process.pid) < SERVER_BYTES_MAX
    for number in range(0, OBJECTS, 7):
        data, serial = storage.load(p64(number + 1))
        assert serial == tid
        assert data == bytes([number + 1]) * OBJECT_BYTES
    leftovers = set(os.listdir(tmp_path)) - {"Data.fs", "Data.fs.lock"}
    assert not [name for name in leftovers if "tmp" in name or "spool" in name]
