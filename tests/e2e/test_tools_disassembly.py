"""zodium dump and catobj with --pretty zpickledis, beside zodbpickle's and Python's pickletools."""

import io
import pickle
import pickletools
import re

import pytest
import ZODB.FileStorage
from harness import zodb_dump
from harness.databases import write_database
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, z64
from zodbpickle import pickletools_3

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


@pytest.fixture
def run(run_bytes):
    return run_bytes


def disassembled(data, count, tools=pickletools_3):
    """What zodbtools makes of that many pickles: indented, the rest quoted."""
    source, text, memo = io.BytesIO(data), io.StringIO(), {}
    for _ in range(count):
        tools.dis(source, text, memo)
    lines = "".join("  " + line for line in text.getvalue().splitlines(True)).encode()
    rest = source.read()
    return lines + (b"  + extra data %s\n" % zodb_dump.quoted(rest) if rest else b"")


def expected_dump(storage):
    text = b""
    for transaction in storage.iterator():
        extension = transaction.extension_bytes
        text += b"txn %s %s\nuser %s\ndescription %s\n" % (
            transaction.tid.hex().encode(),
            zodb_dump.quoted(transaction.status.encode()),
            zodb_dump.quoted(transaction.user),
            zodb_dump.quoted(transaction.description),
        )
        shown = b'extension ""\n'
        if extension:
            shown = b"extension\n" + disassembled(extension, 1)
        text += shown
        for record in sorted(transaction, key=lambda record: record.oid):
            text += zodb_dump.object_line(record)
            if zodb_dump.has_own_data(record):
                text += b"\n" + disassembled(record.data, 2)
            text += b"\n"
        text += b"\n"
    return text


def test_a_dump_is_disassembled_as_by_zodbtools(run, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    write_database(path, seeded, odd=False)
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    expected = expected_dump(storage)
    storage.close()
    assert run("dump", "--pretty", "zpickledis", path) == (0, expected, "")


VALUES = [
    None,
    True,
    [False, 0, 255, 256, 65536, -1, 2**31, -(2**40), 2**70, -(2**2000)],
    {"text": "é\n'\"\u20ac\U0001f600", b"bytes": b"\x00'\xff", "nested": ((), (1,), [[]])},
    [0.1, -0.0, 1e300, 1e-7, 1e16, 123456789.125, float("inf"), float("nan")],
    {1, 2, 3},
    frozenset("ab"),
    [(n, str(n)) for n in range(300)],
    pickle.PickleError,
]


def test_every_opcode_is_laid_out_as_by_python(run, tmp_path):
    """Protocols 0 to 4. What ZODB does not write comes from Python's own pickler."""
    path = tmp_path / "opcodes.fs"
    storage = ZODB.FileStorage.FileStorage(str(path))
    records = {}
    for protocol in range(5):
        for value in VALUES:
            records[p64(len(records))] = pickle.dumps(value, protocol) + b"N."
    records[p64(len(records))] = pickle.dumps("a\ud800\udc00b", 2) + b"N."
    records[p64(len(records))] = b"I00\nI01\n0.L5L\n."
    records[p64(len(records))] = b"S'a\\x00\\'b'\np5\n.g5\n."
    records[p64(len(records))] = (
        b"(U\x02a\xe9T\x01\x00\x00\x00bl.\x82\x07\x83\x00\x01\x84\xff\xff\xff\xff\x87."
    )
    records[p64(len(records))] = b"(K\x01I1\n10.(cm\nC\nK\x01o.(im\nC\n." + b"rest"
    meta = TransactionMetaData()
    storage.tpc_begin(meta)
    for oid, data in records.items():
        storage.store(oid, z64, data, "", meta)
    storage.tpc_vote(meta)
    storage.tpc_finish(meta)
    storage.close()
    words = ["catobj", "--pretty", "zpickledis", path]
    code, out, said = run(*words, *(oid.hex() for oid in records))
    assert (code, said) == (0, "")
    shown = re.split(rb"^obj .*\n", out, flags=re.MULTILINE)[1:]
    refused = 0
    for data, found in zip(records.values(), shown, strict=True):
        try:
            assert found == disassembled(data, 2, pickletools) + b"\n", data
        except (ValueError, UnicodeError) as error:
            refused += 1
            assert b"+ not disassembled: " in found, error
    assert refused < 5
