"""Reads the files that Zodium writes beside ZODB's, as docs/format.md defines them.

Key decision: written from the document, without a look at the server's own code. Where the two
differ, one of them is wrong.
"""

import struct
from typing import NamedTuple, Optional

MAGIC_BYTES = 4  # of Data.fs
TRANSACTION_HEADER = struct.Struct(">QQcHHH")
RECORD_HEADER = struct.Struct(">QQQQHQ")
POINTER_BYTES = 8


def crc32c_table():
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


TABLE = crc32c_table()


def crc32c(data):
    """CRC-32C: Castagnoli's polynomial, bits reflected; a MB takes about 0.1 s."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


class Part(NamedTuple):
    """A part of Data.fs that has a checksum of its own."""

    position: int
    kind: str  # frame, record
    sum: int


def transactions_of(data):
    """(position, tid, status, end) of each transaction in the bytes of a Data.fs."""
    position = MAGIC_BYTES
    while position < len(data):
        tid, length, status, *_ = TRANSACTION_HEADER.unpack_from(data, position)
        yield position, tid, status, position + length + POINTER_BYTES
        position += length + POINTER_BYTES


def parts_of(data):
    """The parts of the bytes of a Data.fs, in their order."""
    for position, _, _, end in transactions_of(data):
        lengths = TRANSACTION_HEADER.unpack_from(data, position)[3:]
        start = position + TRANSACTION_HEADER.size + sum(lengths)
        records_end = end - POINTER_BYTES
        yield Part(position, "frame", crc32c(data[position:start] + data[records_end:end]))
        while start < records_end:
            *_, data_length = RECORD_HEADER.unpack_from(data, start)
            stop = start + RECORD_HEADER.size + (data_length or POINTER_BYTES)
            yield Part(start, "record", crc32c(data[start:stop]))
            start = stop
        assert start == records_end


class Header(NamedTuple):
    """The header of a file with checksums."""

    magic: bytes
    version: int
    salt: int
    count: int
    end: int
    session: int
    previous_session: int
    boot: int
    inode: int
    length: int
    modified: int
    closed: int
    sum: int


HEADER = struct.Struct(">16sIQQQQQQQQqBI")
ENTRIES_START = 4096
ENTRY = struct.Struct(">QII")
MARKS = {
    0x0000FFFF: ("frame", False),
    0x00FF00FF: ("record", False),
    0x0F0F0F0F: ("frame", True),
    0x33333333: ("record", True),
}


def checksums(path):
    """(header, parts that are covered, parts that are announced); asserts what must hold."""
    content = path.read_bytes()
    header = Header(*HEADER.unpack_from(content))
    assert (header.magic, header.version) == (b"Zodium checksums", 3)
    assert header.closed in (0, 1)
    assert header.sum == crc32c(content[: HEADER.size - 4])
    assert not any(content[HEADER.size : ENTRIES_START])
    covered, announced = [], []
    for number, (position, found, seal) in enumerate(ENTRY.iter_unpack(whole(content, ENTRY))):
        mark = crc32c(struct.pack(">QQI", header.salt, position, found)) ^ seal
        last = [*covered, *announced][-1:]
        is_entry = mark in MARKS and (not last or last[0].position < position)
        if not is_entry or (header.closed and number >= header.count):
            assert number >= header.count
            break
        kind, is_announced = MARKS[mark]
        assert number >= header.count or not is_announced
        # What follows the first announced one belongs to the announcement.
        (announced if is_announced or announced else covered).append(Part(position, kind, found))
    return header, covered, announced


def whole(content, entry):
    """The bytes of whole entries."""
    entries = content[ENTRIES_START:]
    return entries[: len(entries) // entry.size * entry.size]


class Marker(NamedTuple):
    """The clean-shutdown marker in a lock file."""

    session: int
    has_gaps: bool


def marker(path):
    """(process id, marker or None) of a lock file."""
    process, *lines = path.read_text("ascii").split("\n")
    assert process.startswith(" ") and lines[-1] == ""
    if lines == [""]:
        return int(process), None
    (line, _) = lines
    word, number, *gaps = line.split(" ")
    assert word == "zodium" and len(number) == 16 and gaps in ([], ["gaps"])
    return int(process), Marker(int(number, 16), bool(gaps))


class IndexLine(NamedTuple):
    """The checksum of an index, in its own file."""

    sum: int
    length: int
    tid: int
    # Where a transaction stands behind a later one.
    latest: Optional[int]


def index_line(path):
    (text, end) = path.read_text("ascii").split("\n")
    crc, length, tid, latest, line_crc = text.split(" ")
    assert end == "" and (len(crc), len(tid), len(line_crc)) == (8, 16, 8) and text == text.lower()
    assert int(line_crc, 16) == crc32c(text[: -len(line_crc)].encode())
    latest = None if latest == "ascending" else int(latest, 16)
    return IndexLine(int(crc, 16), int(length), int(tid, 16), latest)


class BlobSum(NamedTuple):
    """An entry of .zodium-sums."""

    oid: int
    tid: int
    length: int
    sum: Optional[int]


BLOB_SUMS_HEAD = b"zodium blob sums, 32 bytes each\n"
BLOB_SUM = struct.Struct(">QQQII")
UNKNOWN = 1 << 63


def blob_sums(path):
    """All entries of a .zodium-sums."""
    content = path.read_bytes()
    assert content.startswith(BLOB_SUMS_HEAD)
    entries = []
    for offset in range(len(BLOB_SUMS_HEAD), len(content), BLOB_SUM.size):
        oid, tid, length, found, seal = BLOB_SUM.unpack_from(content, offset)
        assert seal == crc32c(content[offset : offset + BLOB_SUM.size - 4])
        known = None if length & UNKNOWN else found
        assert known is not None or found == 0
        entries.append(BlobSum(oid, tid, length & ~UNKNOWN, known))
    assert entries == sorted(entries, key=lambda entry: (entry.tid, entry.oid))
    return entries


def intent(path):
    """The tid before the vote of an intent, and its [(oid, name)]."""
    head, *lines = path.read_text("ascii").split("\n")
    assert lines.pop() == ""
    word, after = head.split(" ")
    assert word == "after"
    blobs = [(int(oid, 16), name) for oid, name in (line.split(" ") for line in lines)]
    return int(after, 16), blobs


class Packed(NamedTuple):
    """A list of dropped blobs."""

    tid: int
    boundary: int
    keep_old: bool
    blobs: list


def packed(path):
    head, *lines = path.read_text("ascii").split("\n")
    assert lines.pop() == ""
    tid, boundary, keep_old = head.split(" ")
    blobs = [tuple(int(number, 16) for number in line.split(" ")) for line in lines]
    return Packed(int(tid, 16), int(boundary), {"true": True, "false": False}[keep_old], blobs)


class Cache(NamedTuple):
    """A client's cache: {oid: [(serial, end, data)]}."""

    source: str
    last_tid: int
    objects: dict


def cache(path):
    content = path.read_bytes()
    assert content.startswith(b"zodiumC1")
    source, offset = sized(content, 8)
    (last_tid,) = struct.unpack_from(">Q", content, offset)
    offset, objects, count = offset + 8, {}, 0
    while content[offset] == 1:
        oid, serial, end = struct.unpack_from(">QQQ", content, offset + 1)
        data, offset = sized(content, offset + 25)
        objects.setdefault(oid, []).append((serial, end, data))
        count += 1
    kind, found, crc = struct.unpack(">BQI", content[offset:])
    assert (kind, found, crc) == (0, count, crc32c(content[:-4]))
    return Cache(source.decode(), last_tid, objects)


def warm_up(path):
    """A client's warm-up list: its source, and {oid: age} in its order."""
    content = path.read_bytes()
    assert content.startswith(b"zodiumW1")
    source, offset = sized(content, 8)
    (count,) = struct.unpack_from(">I", content, offset)
    entries = dict(struct.iter_unpack(">QB", content[offset + 4 : -4]))
    assert len(entries) == count
    assert content[-4:] == struct.pack(">I", crc32c(content[:-4]))
    return source.decode(), entries


def sized(content, offset):
    """The bytes behind their length, and where they end."""
    (length,) = struct.unpack_from(">I", content, offset)
    end = offset + 4 + length
    return content[offset + 4 : end], end
