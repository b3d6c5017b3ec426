"""What is done about a damaged object: a client stores it again, or a pack drops it.

Through the real binary and stock clients, and read by the stock FileStorage in the end.
"""

import json
import shutil
import time

import pytest
import transaction
import ZODB
import ZODB.FileStorage
from harness import files
from harness.damage import damage, flip, text
from ZEO.Exceptions import ServerException
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError, POSKeyError
from ZODB.serialize import referencesf
from ZODB.utils import p64, u64

pytestmark = pytest.mark.zodium

DAMAGED = 7
RUN_SECONDS = 60


@pytest.fixture
def run(run):
    """run(*words): exit code, lines of the output, and what was said beside it."""

    def run_command(*words):
        code, out, said = run(*words)
        return code, out.splitlines(), said

    return run_command


@pytest.fixture
def run_json(run):
    """The same, with the objects of the lines."""

    def run_command(*words):
        code, lines, _ = run(*words)
        return code, [json.loads(line) for line in lines]

    return run_command


def store(storage, oid, serial, data):
    """What docs/operating.md says."""
    txn = TransactionMetaData(description="stored again")
    storage.tpc_begin(txn)
    try:
        storage.store(oid, serial, data, "", txn)
        storage.tpc_vote(txn)
        return storage.tpc_finish(txn)
    except BaseException:
        storage.tpc_abort(txn)
        raise


def hexadecimal(oid_or_tid):
    return f"{u64(oid_or_tid):016x}"


def data_of(path, oid):
    """Data and serial, as the stock FileStorage has them."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    try:
        return storage.load(oid)
    finally:
        storage.close()


def start_of(path, oid):
    """Where the current record of an object begins."""
    return path.read_bytes().rindex(oid + data_of(path, oid)[1])


def assert_texts(storage, oids, without=()):
    for number, oid in enumerate(oids):
        if number not in without:
            assert text(number).encode() in storage.load(oid)[0]


def test_client_whose_cache_has_the_damaged_object_changes_it(
    covered, tmp_path, start_server, connect
):
    path, oids = covered
    served = start_server(path, "--cache-size", "0")
    db = ZODB.DB(connect(served, client="keeper", var=str(tmp_path)))
    connection = db.open()
    mapping = connection.root()[DAMAGED]
    assert mapping["text"] == text(DAMAGED)
    damage(path, DAMAGED)

    with pytest.raises(ServerException) as raised:
        connect(served).load(oids[DAMAGED])
    assert hexadecimal(oids[DAMAGED]) in str(raised.value)
    mapping["text"] = text(1000)
    transaction.commit()
    connection.close()
    db.close()
    assert text(1000).encode() in connect(served).load(oids[DAMAGED])[0]
    assert_texts(connect(served), oids, without=[DAMAGED])
    served.stop()
    assert text(1000).encode() in data_of(path, oids[DAMAGED])[0]


def test_operator_stores_a_damaged_object_again_over_the_serial_that_the_check_names(
    covered, tmp_path, start_server, connect, run_json
):
    path, oids = covered
    backup = tmp_path / "Backup.fs"
    shutil.copy(path, backup)
    oid = oids[DAMAGED]
    data, serial = data_of(backup, oid)
    damage(path, DAMAGED)
    code, found = run_json("check", "--json", path)
    assert code == 1
    (told,) = found[:-1]
    assert (told["oid"], told["tid"]) == (hexadecimal(oid), hexadecimal(serial))

    served = start_server(path)
    storage = connect(served)
    with pytest.raises(ServerException):
        storage.load(oid)
    # Over any other serial it is a conflict.
    with pytest.raises(ConflictError):
        store(storage, oid, p64(u64(serial) - 1), data)
    stored = store(storage, p64(int(told["oid"], 16)), p64(int(told["tid"], 16)), data)
    fresh = connect(served)
    assert fresh.load(oid) == (data, stored)
    assert_texts(fresh, oids)
    # The revision before is still an error, and no older one in its place.
    with pytest.raises(ServerException):
        fresh.loadBefore(oid, stored)
    served.stop()

    assert data_of(path, oid) == (data, stored)
    assert [line["position"] for line in run_json("check", "--json", path)[1][:-1]] == [
        told["position"]
    ]
    # Only an old revision is damaged now: no object is gone.
    code, found = run_json("pack", "--json", "--drop-damaged", path)
    assert code == 3
    assert [(line["position"], line["object_gone"]) for line in found[:-1]] == [
        (told["position"], False)
    ]
    assert (found[-1]["dropped"], found[-1]["objects_dropped"]) == (1, 0)
    assert not found[-1]["garbage_kept"]
    assert run_json("check", "--json", path)[0] == 0
    assert data_of(path, oid) == (data, stored)


def test_pack_ends_at_damage_and_names_the_option(covered, start_server, connect, run):
    path, _ = covered
    damage(path, DAMAGED)
    before = path.read_bytes()
    code, lines, said = run("pack", path)
    assert (code, lines) == (1, [])
    assert "zodium pack --drop-damaged" in said and "does not fit its checksum" in said
    served = start_server(path)
    address = "{}:{}".format(*served.address)
    code, lines, said = run("pack", address)
    assert (code, lines) == (1, [])
    assert "zodium pack --drop-damaged" in said
    # The protocol has no word for it.
    code, _, said = run("pack", "--drop-damaged", address)
    assert code == 1 and "--drop-damaged cannot be passed to a server" in said
    served.stop()
    assert path.read_bytes() == before


def test_pack_drops_a_damaged_object_and_nothing_else(
    covered, start_server, connect, run, run_json
):
    path, oids = covered
    oid = oids[DAMAGED]
    _, serial = data_of(path, oid)
    records = [record for found in files.read(path) for record in found.records]
    sound = {record.oid: record for record in records}
    start = start_of(path, oid)
    damage(path, DAMAGED)
    before = path.read_bytes()
    other = path.with_name("Other.fs")
    code, lines, said = run("pack", "--drop-damaged", path)
    assert code == 3, said
    assert lines[0] == (
        f"{start}: dropped: the record of object {hexadecimal(oid)} does not fit its checksum; "
        f"object {hexadecimal(oid)}, transaction {hexadecimal(serial)}: the object is gone"
    )
    assert "damaged: 1 record dropped, 1 object gone" in lines
    assert any(line.startswith("garbage: kept") for line in lines)
    assert f"refers to object {hexadecimal(oid)}, which is damaged and dropped" in said
    assert path.with_name("Data.fs.old").read_bytes() == before

    shutil.copy(path, other)
    storage = ZODB.FileStorage.FileStorage(str(other))
    with pytest.raises(POSKeyError):
        storage.load(oid)
    for is_packed in (False, True):
        if is_packed:
            # Without garbage collection, which the stock packer cannot do with the reference.
            storage.pack(time.time(), referencesf, gc=False)
        for found, record in sound.items():
            if found != oid:
                assert storage.load(found) == (record.data, record.tid)
    storage.close()
    files.check(other)
    assert run_json("check", "--json", path)[0] == 0
    code, found = run_json("check", "--json", "--references", path)
    assert code == 1 and hexadecimal(oid) in found[0]["what"]

    # A client can store it again, over the serial that it had.
    served = start_server(path)
    client = connect(served)
    with pytest.raises(POSKeyError):
        client.load(oid)
    store(client, oid, serial, sound[oid].data)
    assert_texts(connect(served), oids)
    served.stop()
    assert run_json("check", "--json", "--references", path)[0] == 0
    code, found = run_json("pack", "--json", path)
    assert code == 0 and found[-1]["dangling"] == 0


def test_pack_names_what_it_drops_as_json(covered, run_json):
    path, oids = covered
    serials = {oid: data_of(path, oid)[1] for oid in oids}
    numbers = [3, 11, 29]
    for number in numbers:
        damage(path, number)
    code, found = run_json("pack", "--json", "--drop-damaged", path)
    assert code == 3
    *dropped, summary = found
    assert [(line["kind"], line["oid"], line["tid"], line["object_gone"]) for line in dropped] == [
        ("dropped", hexadecimal(oids[number]), hexadecimal(serials[oids[number]]), True)
        for number in numbers
    ]
    assert summary["packed"] and summary["garbage_kept"]
    assert (summary["dropped"], summary["objects_dropped"], summary["dangling"]) == (3, 3, 3)
    assert run_json("check", "--json", path)[0] == 0
    assert run_json("pack", "--json", "--drop-damaged", "--days", "1", path) == (
        0,
        [{"kind": "summary", "packed": False}],
    )


def test_pack_does_not_drop_the_root(covered, run):
    path, _ = covered
    start = start_of(path, p64(0))
    flip(path, start + 50)
    damaged = path.read_bytes()
    code, lines, said = run("pack", "--drop-damaged", path)
    assert (code, lines) == (1, [])
    assert "the root object (oid 0)" in said and "nothing was packed" in said
    assert path.read_bytes() == damaged


def test_file_of_a_blob_whose_record_is_dropped_stays(tmp_path, start_server, run_json):
    path, blobs = tmp_path / "Data.fs", tmp_path / "blobs"
    db = ZODB.DB(ZODB.FileStorage.FileStorage(str(path), blob_dir=str(blobs)))
    connection = db.open()
    for name in ("kept", "damaged"):
        connection.root()[name] = Blob(name.encode())
        transaction.commit()
    oid = connection.root()["damaged"]._p_oid
    file = connection.root()["damaged"].committed()
    connection.close()
    db.close()
    code, _ = run_json("check", "--json", "--write-checksums", path)
    assert code == 0
    flip(path, start_of(path, oid) + 60)
    code, found = run_json("pack", "--json", "--drop-damaged", "--blob-dir", blobs, path)
    assert code == 3
    assert [line["oid"] for line in found[:-1]] == [hexadecimal(oid)]
    with open(file, "rb") as kept:
        assert kept.read() == b"damaged"
    code, found = run_json("check", "--json", "--blob-dir", blobs, path)
    assert code == 0
    told = found[-1]["blobs"]
    assert (told["records"], told["missing"], told["orphaned"]) == (1, 0, 1)
