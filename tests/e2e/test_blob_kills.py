"""kill -9 while blobs come in: a record without its blob never, nor a blob without its record."""

import contextlib
import os
import time
from collections import Counter

import pytest
from harness import blobs, files
from harness.wire import Z64, Closed
from ZODB.utils import p64

KILLS = 12
LARGE = 2_000_000

pytestmark = pytest.mark.zodium


@pytest.fixture
def start(start_server, folder):
    return lambda: start_server(None, "--blob-dir", str(folder))


def assert_restarts_whole(start, tmp_path, folder, promised):
    """What was promised is there; nothing is left of anything else."""
    server = start()
    assert blobs.leftovers(folder) == []
    blobs.assert_whole(tmp_path / "Data.fs", folder)
    found = blobs.digests(folder)
    assert {blob: found[blob] for blob in promised} == promised
    files.check(tmp_path / "Data.fs")
    return server


@pytest.mark.parametrize("when", ["upload", "end", "vote"])
def test_before_the_finish_nothing_stays(tmp_path, start, folder, wire, when):
    server = start()
    client = wire(server)
    data = os.urandom(LARGE)
    tid = blobs.commit(client, 1, [(p64(1), Z64, data)])
    promised = {(p64(1), tid): blobs.digest(data)}
    for _ in range(3):
        client = wire(server)
        blobs.begin(client, 2)
        blobs.upload(client, 2, p64(1), tid, [data] * 3)
        if when == "upload":
            client.notify("storeBlobStart")
            client.notify("storeBlobChunk", data)
        client.call("ping")
        if when == "vote":
            assert len(client.call("vote", 2)) == 0
        server.kill()
        server = assert_restarts_whole(start, tmp_path, folder, promised)
    client = wire(server)
    last = blobs.commit(client, 3, [(p64(1), tid, b"goes on")])
    assert blobs.download(client, (p64(1), last)) == {(p64(1), last): blobs.digest(b"goes on")}


def test_at_the_finish_all_or_nothing_stays(tmp_path, start, folder, wire, seeded, scale):
    promised, outcomes = {}, Counter()
    for _ in range(int(KILLS * scale)):
        server = start()
        client = wire(server)
        before, serials = promised.copy(), dict(sorted(promised))
        contents = {p64(n): seeded.randbytes(seeded.randrange(0, LARGE)) for n in range(1, 6)}
        blobs.begin(client, 1)
        for oid, data in contents.items():
            blobs.upload(client, 1, oid, serials.get(oid, Z64), blobs.chunks_of(data))
        assert len(client.call("vote", 1)) == 0
        client.request("tpc_finish", 1)
        time.sleep(seeded.uniform(0, 0.1))
        server.kill()
        with contextlib.suppress(Closed):
            tid = client.reply(client.last_id)
            promised.update({(oid, tid): blobs.digest(data) for oid, data in contents.items()})
        server = assert_restarts_whole(start, tmp_path, folder, promised)
        there = blobs.digests(folder)
        # What is there and was not promised is there as a whole.
        assert len(there) in (len(before), len(before) + len(contents))
        outcomes["nothing" if there == before else "told" if promised == there else "whole"] += 1
        promised = there
        server.stop()
    print(dict(outcomes))
