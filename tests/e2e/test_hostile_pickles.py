"""Pickles that would run something, and lengths that lie: refused, and nothing happens.

Each is sent by a client that has registered, and by one that has not.  Python's own
unpickler does run them: the last test sees to it that it would.
"""

import pickle
import struct

import pytest
from harness.wire import Closed, Silent, Wire

pytestmark = pytest.mark.zodium

MEMORY_BYTES_MAX = 64 << 20  # more than this and it has believed a length


def commands(marker):
    """Values that make `marker` when they are loaded, in every way a pickle can call."""
    command = f"touch {marker}".encode()
    text = b"X" + struct.pack("<I", len(command)) + command
    short = b"\x8c" + bytes([len(command)]) + command
    return {
        "REDUCE": b"cos\nsystem\n" + text + b"\x85R",
        "REDUCE of a builtin": b"c__builtin__\neval\n" + b"X\x03\0\0\x001+1\x85R",
        "INST": b"(" + text + b"ios\nsystem\n",
        "OBJ": b"(cos\nsystem\n" + text + b"o",
        "STACK_GLOBAL": b"\x8c\x02os\x8c\x06system\x93" + short + b"\x85R",
        "NEWOBJ": b"csubprocess\nPopen\n" + b"(" + text + b"t\x81",
        "NEWOBJ_EX": b"csubprocess\nPopen\n(" + text + b"t}\x92",
        "BUILD": b"czodbpickle.binary\nbinary\n)\x81}X\x01\0\0\0ak\x00b",
        "EXT1": b"\x82\x01",
        "EXT2": b"\x83\x01\0",
        "EXT4": b"\x84\x01\0\0\0",
        "PERSID": b"Pan id\n",
        "BINPERSID": text + b"Q",
        "an allowed class called with another": b"cZopeUndo.Prefix\nPrefix\ncos\nsystem\n\x85\x81",
        "dict called with what calls": b"c__builtin__\ndict\n(cos\nsystem\n" + text + b"\x85RtR",
    }


def call_with(value, protocol=3):
    """A message whose only argument is `value`."""
    return b"\x80" + bytes([protocol]) + b"(K\x05\x89X\x04\0\0\0ping(" + value + b"tt."


def memory_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM"))
    return int(peak.split()[1]) << 10


def what_comes(wire, frame):
    """The exception's name, or that the connection is closed."""
    wire.send_raw(frame)
    try:
        reply = wire.receive()
    except Closed:
        return "closed"
    except Silent:
        return "silent"
    return reply[3][0] if reply[1] == 2 else "answered"


def assert_serves(server):
    with Wire(server.address) as wire:
        wire.register()
        wire.call("ping")


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "unregistered"])
def test_what_a_pickle_would_call_is_never_called(start_server, tmp_path, registered):
    server = start_server()
    marker = tmp_path / "marker"
    for name, value in commands(marker).items():
        for protocol in (2, 3, 4):
            with Wire(server.address) as wire:
                if registered:
                    wire.register()
                body = call_with(value, protocol)
                found = what_comes(wire, struct.pack(">I", len(body)) + body)
            assert found == "closed" or found.startswith("builtins."), (name, protocol, found)
            assert not marker.exists(), (name, protocol)
    assert_serves(server)
    log = server.log()
    assert "os.system" in log, "the log says which class was refused"


@pytest.mark.parametrize("length", [1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("when", ["at once", "after the handshake", "registered"])
def test_a_length_that_lies_takes_no_memory(start_server, encoding, length, when):
    # A message of 2^31 bytes could hold an object of nearly as many, so by default it may come from
    # who has registered.
    may_come = length == 1 << 31 and when == "registered"
    server = start_server(encoding=encoding)
    before = memory_bytes(server)
    for _ in range(5):
        wire = Wire(server.address, handshake=when != "at once")
        if when == "at once":
            wire.receive_frame()
        if when == "registered":
            wire.register()
        wire.codec = None
        wire.send_raw(struct.pack(">I", length) + b"x" * 1000)
        with pytest.raises(Silent if may_come else Closed):
            wire.receive_frame(0.05 if may_come else None)
        wire.close()
    assert memory_bytes(server) - before < MEMORY_BYTES_MAX
    assert_serves(server)


def test_ten_thousand_containers_deep_is_refused(start_server, encoding):
    server = start_server(encoding=encoding)
    before = memory_bytes(server)
    deep = 10_000
    messages = {
        "Z5": [
            call_with(b"(" * deep + b"t" * deep),
            call_with(b"]" * deep + b"a" * (deep - 1)),
            call_with(b"}K\0" * deep + b"N" + b"s" * deep),
            call_with(b"N" + b"\x85" * deep),
            b"\x80\x03" + b"(" * deep,
        ],
        "M5": [
            b"\x94\x05\xc2\xa4ping" + b"\x91" * deep + b"\xc0",
            b"\x94\x05\xc2\xa4ping\x91" + b"\x81\xa1a" * deep + b"\xc0",
            b"\xdd\0\0\0\x01" * deep,
            b"\x94\x05\xc2\xa4ping\xdd\xff\xff\xff\xff",
            b"\x94\x05\xc2\xa4ping\x91\xc6\xff\xff\xff\xff",
            b"\x94\x05\xc2\xa4ping\x91\xdf\x7f\xff\xff\xff",
        ],
    }[encoding]
    for body in messages:
        with Wire(server.address) as wire:
            wire.register()
            assert what_comes(wire, struct.pack(">I", len(body)) + body) == "closed", body[:30]
    assert memory_bytes(server) - before < MEMORY_BYTES_MAX
    assert_serves(server)


def test_an_empty_frame_ends_its_connection_alone(start_server, encoding, wire):
    server = start_server(encoding=encoding)
    other = wire(server)
    with Wire(server.address) as empty:
        empty.register()
        assert what_comes(empty, bytes(4)) == "closed"
    other.call("ping")


def test_calls_in_any_pieces_get_the_same_answers(start_server, encoding, wire):
    server = start_server(encoding=encoding)
    whole = wire(server)
    bodies = [whole.codec.encode((n, False, name, ())) for n, name in CALLS]
    stream = b"".join(struct.pack(">I", len(body)) + body for body in bodies)

    def answers(pieces):
        asking = wire(server)
        for piece in pieces:
            asking.send_raw(piece)
        return {message[0]: message[3] for message in (asking.receive() for _ in CALLS)}

    expected = answers([stream])
    assert answers([bytes([byte]) for byte in stream]) == expected
    for cut in range(1, len(stream)):
        assert answers([stream[:cut], stream[cut:]]) == expected, cut


CALLS = [(100, "ping"), (101, "lastTransaction"), (102, "ping")]


def test_python_itself_would_run_them(tmp_path):
    """Else the test above would show nothing."""
    marker = tmp_path / "marker"
    for name in ("REDUCE", "INST", "OBJ", "STACK_GLOBAL"):
        pickle.loads(call_with(commands(marker)[name], 4))
        assert marker.exists(), name
        marker.unlink()
