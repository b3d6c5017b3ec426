"""A client that does not read costs the server little, and nobody else anything."""

import re
from pathlib import Path

import pytest
from harness.wire import MAXTID, Z64
from ZODB.utils import p64

OBJECT_BYTES = 1 << 20
# What may wait for a client that does not read: replies (1 MiB, and the one under way), the
# socket's own buffers, and what the process has anyway.
SERVER_BYTES_MAX = 100 << 20

pytestmark = pytest.mark.zodium


def peak_bytes(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def test_replies_that_are_not_read_stop_the_reading_of_requests(start_server, wire):
    server = start_server()
    writer = wire(server)
    oid = p64(1)
    writer.commit(1, [(oid, Z64, b"x" * OBJECT_BYTES)])

    greedy = wire(server, seconds=60)
    requests = 500
    greedy.send_raw(greedy.load_frame(oid) * requests)
    for _ in range(50):
        assert writer.call("loadBefore", oid, MAXTID)[0] == b"x" * OBJECT_BYTES
    assert peak_bytes(server) < SERVER_BYTES_MAX
    # Nothing is lost for who begins to read after all.
    for _ in range(requests):
        assert len(greedy.receive_frame()) > OBJECT_BYTES
