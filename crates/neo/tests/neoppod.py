"""Decodes messages with NEO/py, and encodes them again.

neoppod.py CHECKOUT

CHECKOUT is a checkout of NEO/py. The first line of the output is a table as JSON: the greeting,
and for each code the name of the message, the name of its answer, and whether it is ignored when
its connection has been closed. Then each message on standard input, with its length before it (4
bytes, big-endian), is answered with one byte, 0 or 1, and the message as NEO/py encodes it, or the
text of an error, with the length before it.

Needs the packages msgpack and six.
"""

import json
import re
import struct
import sys
import traceback
from pathlib import Path

checkout = Path(sys.argv[1])
sys.path.insert(0, str(checkout))

from neo.lib import protocol  # noqa: E402

# NEO/py's tests have not met nil in these.
OPTIONAL = {"AnswerFinalTID": 0, "AskNodeList": 0}


def table():
    messages = {
        str(code): [
            packet.__name__,
            packet._answer and packet._answer.__name__,
            bool(packet.ignoreOnClosedConnection()),
        ]
        for code, packet in dict.items(protocol.Packets)
    }
    return {"greeting": protocol.HANDSHAKE_PACKET.hex(), "messages": messages}


def schema():
    """The types of the arguments of each message, as NEO/py's tests have met them."""
    lines = (checkout / "neo/tests/protocol").read_text().splitlines()
    pairs = (line.split("(", 1) for line in lines if not line.startswith("#"))
    return {name: "(" + types for name, types in pairs}


def fits(types, value):
    """Whether a value is of the type at the beginning of a text; and what follows the type."""
    kind, rest = types[0], types[1:]
    if kind == "?":
        if not rest or rest[0] in ",)]}":
            return True, rest  # only nil was met
        fit, rest = fits(rest, value)
        return fit or value is None, rest
    if kind == "(":
        return fits_record(rest, value)
    if kind == "[":
        items = value if isinstance(value, tuple) else ()
        if rest[0] == "]":
            return isinstance(value, tuple), rest[1:]
        return isinstance(value, tuple) and all(fits(rest, x)[0] for x in items), skip(rest)[1:]
    if kind == "{":
        is_map = isinstance(value, dict)
        if rest[0] == ":":
            return is_map, rest[2:]
        after_key = skip(rest)[1:]
        entries = value.items() if is_map else ()
        fit = all(fits(rest, k)[0] and fits(after_key, v)[0] for k, v in entries)
        return is_map and fit, skip(after_key)[1:]
    name = re.match(r"\w+", types)[0]
    return is_plain(name, value), types[len(name) :]


def fits_record(rest, value):
    items = list(value) if isinstance(value, tuple) else []
    fit = isinstance(value, tuple)
    while rest[0] != ")":
        one, rest = fits(rest, items.pop(0)) if items else (False, skip(rest))
        fit = fit and one
        rest = rest.removeprefix(",")
    return fit and not items, rest[1:]


def skip(types):
    return fits(types, None)[1]


def is_plain(name, value):
    if name == "any":
        return True
    if name == "p64":
        return isinstance(value, bytes) and len(value) == 8
    if name == "bin":
        return isinstance(value, bytes)
    if name in ("int", "bool", "float"):
        return type(value).__name__ == name
    return getattr(getattr(value, "_enum", None), "_name", None) == name


def again(message, types):
    unpacker = protocol.Unpacker()
    unpacker.feed(message)
    (frame,) = unpacker
    message_id, code, args = frame
    packet = protocol.Packets[code]
    name = packet.__name__
    optional = OPTIONAL.get(name)
    is_met = optional is None or args[optional] is not None
    if is_met and name in types and not fits(types[name], args)[0]:
        raise ValueError(f"{name}{args!r} does not fit {types[name]}")
    received = packet.__new__(packet)
    received._args = args
    sent = packet(*received.getArgs())
    sent.setId(message_id)
    return sent.encode()


def main():
    types = schema()
    out = sys.stdout.buffer
    out.write(json.dumps(table()).encode() + b"\n")
    out.flush()
    while head := sys.stdin.buffer.read(4):
        message = sys.stdin.buffer.read(*struct.unpack(">I", head))
        try:
            failed, answer = 0, again(message, types)
        except Exception:
            failed, answer = 1, traceback.format_exc().encode()
        out.write(bytes([failed]) + struct.pack(">I", len(answer)) + answer)
        out.flush()


if __name__ == "__main__":
    main()
