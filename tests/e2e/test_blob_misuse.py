"""Blobs as no client should send or ask for them: one call or connection fails, nothing stays."""

import os

import pytest
from harness import blobs
from harness.wire import MAXTID, Z64, Closed, ErrorReply
from ZODB.utils import p64

OID = p64(1)

pytestmark = pytest.mark.zodium


@pytest.fixture
def server(start_server, folder):
    return start_server(None, "--blob-dir", str(folder))


def assert_alive(wire, server):
    """Others are served as before."""
    assert wire(server).call("ping") is None


def vote_error(client, txn=1):
    with pytest.raises(ErrorReply) as raised:
        client.call("vote", txn)
    return raised.value.args


def test_two_blobs_at_once_fail_their_transaction_and_no_other(server, folder, wire):
    client = wire(server)
    blobs.begin(client, 1)
    for part in (b"one", b"other"):
        client.notify("storeBlobStart")
        client.notify("storeBlobChunk", part)
    client.notify("storeBlobEnd", OID, Z64, blobs.RECORD, 1)
    client.notify("storeBlobEnd", p64(2), Z64, blobs.RECORD, 1)
    name, (text,) = vote_error(client)
    assert name == "ZODB.POSException.StorageTransactionError"
    assert "two blobs" in text
    client.call("tpc_abort", 1)
    blobs.wait_for_leftovers(folder)
    tid = blobs.commit(client, 2, [(OID, Z64, b"third")])
    assert blobs.digests(folder) == {(OID, tid): blobs.digest(b"third")}


def test_a_transaction_has_more_blobs_than_the_server_may_open_files(start_server, folder, wire):
    server = start_server(None, "--blob-dir", str(folder), prefix=("prlimit", "--nofile=128"))
    client, other = wire(server), wire(server)
    blobs.begin(client, 1)
    for number in range(1, 201):
        blobs.upload(client, 1, p64(number), Z64, [b"%d" % number])
    client.call("ping")
    # Others read and commit blobs beside it.
    tid = blobs.commit(other, 2, [(p64(1000), Z64, b"other")])
    assert blobs.digests(folder) == {(p64(1000), tid): blobs.digest(b"other")}
    assert len(client.call("vote", 1)) == 0
    tid = client.call("tpc_finish", 1)
    found = blobs.digests(folder)
    assert len(found) == 201 and found[p64(200), tid] == blobs.digest(b"200")


def test_a_blob_without_an_end_fails_its_vote(server, folder, wire):
    client = wire(server)
    blobs.begin(client, 1)
    client.notify("storea", OID, Z64, blobs.RECORD, 1)
    client.notify("storeBlobStart")
    client.notify("storeBlobChunk", b"x" * 1_000_000)
    _, (text,) = vote_error(client)
    assert "not sent to its end" in text
    blobs.wait_for_leftovers(folder)
    assert blobs.commit(client, 2, [(OID, Z64, b"")])


@pytest.mark.parametrize(
    "call",
    [
        ("storeBlobStart",),
        ("storeBlobChunk", b"x"),
        ("storeBlobEnd", OID, Z64, blobs.RECORD, 1),
        ("storeBlobShared", OID, Z64, blobs.RECORD, "x.tmp", 1),
    ],
)
def test_parts_of_a_blob_outside_of_a_transaction_end_the_connection(server, wire, call):
    client = wire(server)
    client.notify(*call)
    with pytest.raises(Closed):
        client.call("ping")
    assert_alive(wire, server)


@pytest.mark.parametrize(
    "call",
    [
        ("storeBlobChunk", b"x"),
        ("storeBlobChunk", None),
        ("storeBlobChunk",),
        ("storeBlobEnd", OID, Z64, blobs.RECORD, 1),
        ("storeBlobEnd", OID, Z64, blobs.RECORD, 2),
        ("storeBlobEnd", b"oid", Z64, blobs.RECORD, 1),
        ("storeBlobShared", OID, Z64, blobs.RECORD, None, 1),
    ],
)
def test_parts_of_no_blob_end_the_connection(server, wire, call):
    client = wire(server)
    blobs.begin(client, 1)
    client.notify(*call)
    with pytest.raises(Closed):
        client.call("ping")
    assert_alive(wire, server)


@pytest.mark.parametrize(
    "name",
    ["absent.tmp", "../up.tmp", "/etc/x.tmp", "x.blob", "", ".tmp/..", "x\0.tmp", "folder.tmp"],
)
def test_a_shared_blob_is_only_taken_from_its_place(server, folder, wire, name):
    client = wire(server)
    tid = blobs.commit(client, 1, [(OID, Z64, b"first")])
    place = blobs.path_of(folder, OID, tid).parent
    (place.parent / "up.tmp").write_bytes(b"not a blob of this object")
    (place / "folder.tmp").mkdir()
    blobs.begin(client, 2)
    client.notify("storea", OID, tid, blobs.RECORD, 2)
    client.notify("storeBlobShared", OID, tid, blobs.RECORD, name, 2)
    with pytest.raises(ErrorReply):
        client.call("vote", 2)
    client.call("tpc_abort", 2)
    assert (place.parent / "up.tmp").exists()
    assert (place / "folder.tmp").is_dir()
    assert blobs.digests(folder) == {(OID, tid): blobs.digest(b"first")}


def test_a_link_is_not_taken_for_a_shared_blob(server, folder, wire, tmp_path):
    client = wire(server)
    tid = blobs.commit(client, 1, [(OID, Z64, b"first")])
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    os.symlink(secret, blobs.path_of(folder, OID, tid).parent / "link.tmp")
    blobs.begin(client, 2)
    client.notify("storeBlobShared", OID, tid, blobs.RECORD, "link.tmp", 2)
    with pytest.raises(ErrorReply):
        client.call("vote", 2)
    assert secret.read_bytes() == b"secret"


def test_what_is_no_blob_is_a_key_error(server, folder, wire):
    client = wire(server)
    tid = client.commit(1, [(OID, Z64, b"no blob")])
    for blob in ((OID, tid), (OID, MAXTID), (p64(9), tid)):
        with pytest.raises(ErrorReply) as raised:
            client.call("sendBlob", *blob)
        name, (text, *ids) = raised.value.args
        assert name == "ZODB.POSException.POSKeyError"
        assert tuple(ids) == blob
        assert "No blob file" in text
    with pytest.raises(ErrorReply):
        client.call("sendBlob", b"oid", tid)
    assert client.call("ping") is None


def test_without_a_blob_directory_blobs_are_refused_at_the_vote(start_server, wire):
    client = wire(start_server())
    blobs.begin(client, 1)
    blobs.upload(client, 1, OID, Z64, [b"x" * 100_000] * 30)
    name, (text,) = vote_error(client)
    assert name == "ZODB.POSException.Unsupported"
    assert "blob directory" in text
    blobs.begin(client, 2)
    client.notify("storeBlobShared", OID, Z64, blobs.RECORD, "x.tmp", 2)
    assert vote_error(client, 2)[0] == "ZODB.POSException.Unsupported"
    with pytest.raises(ErrorReply) as raised:
        client.call("sendBlob", OID, Z64)
    assert raised.value.args[0] == "ZODB.POSException.Unsupported"
    interfaces = client.call("get_info")["interfaces"]
    assert not [name for _, name in interfaces if "Blob" in name]


def test_a_reader_must_not_send_blobs(server, folder, wire):
    for call in (("storeBlobStart",), ("storeBlobChunk", b"x")):
        client = wire(server, read_only=True)
        with pytest.raises(ErrorReply) as raised:
            client.call(*call)
        assert raised.value.args[0] == "ZODB.POSException.ReadOnlyError"


@pytest.mark.parametrize("how", ["abort", "close", "conflict"])
def test_nothing_stays_of_a_blob_that_is_not_committed(server, folder, wire, how):
    client, other = wire(server), wire(server)
    tid = blobs.commit(other, 1, [(OID, Z64, b"first")])
    stale = Z64 if how == "conflict" else tid
    blobs.begin(client, 2)
    blobs.upload(client, 2, OID, stale, [b"x" * 100_000] * 20)
    client.notify("storeBlobStart")
    client.notify("storeBlobChunk", b"y" * 1_000_000)
    client.call("ping")
    blobs.wait_for_leftovers(folder, 2)
    if how == "close":
        client.close()
    elif how == "abort":
        client.call("tpc_abort", 2)
    else:
        client.notify("storeBlobEnd", p64(2), Z64, blobs.RECORD, 2)
        assert len(client.call("vote", 2)) > 0
        client.call("tpc_abort", 2)
    blobs.wait_for_leftovers(folder)
    assert blobs.digests(folder) == {(OID, tid): blobs.digest(b"first")}


def test_nothing_stays_of_a_blob_that_was_voted_on_and_aborted(server, folder, wire):
    client = wire(server)
    for end in ("abort", "close"):
        blobs.begin(client, 1)
        blobs.upload(client, 1, OID, Z64, [b"x" * 100_000] * 20)
        assert len(client.call("vote", 1)) == 0
        if end == "abort":
            client.call("tpc_abort", 1)
            assert blobs.leftovers(folder) == []
        else:
            client.close()
            blobs.wait_for_leftovers(folder)
        assert blobs.digests(folder) == {}
