"""The dump format of zodbtools, written from its grammar: what `zodium dump` is compared with."""

import hashlib
import unicodedata

from ZODB.utils import u64

PLAIN = {ord("\\"): "\\\\", ord('"'): '\\"', 9: "\\t", 10: "\\n", 13: "\\r"}


def quoted(data):
    """Bytes in double quotes: what is no printable text is escaped byte by byte."""
    parts = []
    while data:
        character, size = first_character(data)
        if data[0] in PLAIN:
            parts.append(PLAIN[data[0]].encode())
        elif character and (" " <= character <= "~" or is_kept(character)):
            parts.append(data[:size])
        else:
            parts += [b"\\x%02x" % byte for byte in data[:size]]
        data = data[size:]
    return b'"' + b"".join(parts) + b'"'


def first_character(data):
    """The first character of UTF-8, and its length; (None, 1) for a byte that is none."""
    for size in range(1, 5):
        try:
            return data[:size].decode(), size if size <= len(data) else len(data)
        except UnicodeDecodeError:
            pass
    return None, 1


def is_kept(character):
    return ord(character) >= 0x80 and unicodedata.category(character)[0] in "LNPS"


def dumped(storage, start=None, stop=None, hash_only=False, in_order=False):
    """The transactions of a storage as a dump."""
    return b"".join(
        one(transaction, hash_only, in_order) for transaction in storage.iterator(start, stop)
    )


def one(transaction, hash_only, in_order):
    tid, status = u64(transaction.tid), transaction.status.encode()
    lines = [b"txn %016x %s" % (tid, quoted(status))]
    lines += [b"user " + quoted(transaction.user)]
    lines += [b"description " + quoted(transaction.description)]
    lines += [b"extension " + quoted(transaction.extension_bytes)]
    records = list(transaction)
    if not in_order:
        records.sort(key=lambda record: record.oid)
    for record in records:
        lines.append(object_line(record))
        if has_own_data(record):
            if hash_only:
                lines[-1] += b" -"
            else:
                lines.append(record.data)
    return b"\n".join(lines) + b"\n\n"


def has_own_data(record):
    return record.data is not None and record.data_txn is None


def object_line(record):
    entry = b"obj %016x " % u64(record.oid)
    if record.data is None:
        return entry + b"delete"
    if record.data_txn is not None:
        return entry + b"from %016x" % u64(record.data_txn)
    digest = hashlib.sha1(record.data).hexdigest().encode()
    return entry + b"%d sha1:%s" % (len(record.data), digest)
