"""Before there is a session: greetings that are none."""

import contextlib
import json
import struct

from harness.wire import CODECS, Closed, MsgpackCodec, PickleCodec

from .stage import answer, closes, quiet_end, scenario

HUGE_FRAME = "the stock server waits for 4 GiB; a limit must be kept before memory is taken"


def greet(stage, frame):
    wire = stage.socket()
    wire.receive_frame()
    # A frame that is too long may be refused before all of it is sent.
    with contextlib.suppress(Closed):
        wire.send_frame(frame)
    return quiet_end(wire)


@scenario("handshake: garbage")
def garbage(stage):
    return greet(stage, b"garbage")


@scenario("handshake: Z4")
def version_too_old(stage):
    return greet(stage, b"Z4")


@scenario("handshake: Z6")
def version_too_new(stage):
    return greet(stage, b"Z6")


@scenario("handshake: Z55")
def version_with_more(stage):
    return greet(stage, b"Z55")


@scenario("handshake: a lone Z")
def letter_only(stage):
    return greet(stage, b"Z")


@scenario(
    "handshake: unknown letter, X5",
    judge=closes,
    because="the stock server fails an assertion and keeps a connection it cannot decode",
)
def unknown_letter(stage):
    return greet(stage, b"X5")


@scenario(
    "handshake: empty frame",
    judge=closes,
    because="the stock server fails on it and keeps a connection that never answers",
)
def empty(stage):
    return greet(stage, b"")


@scenario("handshake: 1 MB of zeros")
def large(stage):
    return greet(stage, bytes(1 << 20))


@scenario("handshake: length 2^32-1", judge=closes, because=HUGE_FRAME)
def endless(stage):
    wire = stage.socket()
    wire.receive_frame()
    wire.send_raw(b"\xff\xff\xff\xff")
    return quiet_end(wire)


@scenario("handshake: an HTTP request", judge=closes, because=HUGE_FRAME)
def http(stage):
    wire = stage.socket()
    wire.receive_frame()
    wire.send_raw(b"GET / HTTP/1.1\r\n\r\n")
    return quiet_end(wire)


@scenario("handshake: half of one, then end of stream")
def cut_short(stage):
    wire = stage.socket()
    wire.receive_frame()
    wire.send_raw(b"\0\0\0\2Z")
    wire.socket.shutdown(1)
    return quiet_end(wire)


@scenario("handshake: none, end of stream")
def nothing(stage):
    wire = stage.socket()
    wire.receive_frame()
    wire.socket.shutdown(1)
    return quiet_end(wire)


@scenario("handshake: the letter that was not announced")
def other_letter(stage):
    wire = stage.socket()
    announced = wire.receive_frame()
    other = MsgpackCodec if announced == b"Z5" else PickleCodec
    wire.codec = CODECS[other.letter]
    wire.send_frame(other.letter + b"5")
    return answer(wire, "register", "2", False)


@scenario("handshake: sent before the announcement is read, register in the same write")
def in_one_write(stage):
    wire = stage.socket()
    body = PickleCodec.encode((1, False, "register", ("2", False)))
    wire.send_raw(b"\0\0\0\2Z5" + struct.pack(">I", len(body)) + body)
    wire.receive_frame()
    return PickleCodec.decode(wire.receive_frame())


@scenario("handshake: one byte at a time")
def byte_by_byte(stage):
    wire = stage.socket()
    body = PickleCodec.encode((1, False, "register", ("2", False)))
    for byte in b"\0\0\0\2Z5" + struct.pack(">I", len(body)) + body:
        wire.send_raw(bytes([byte]))
    wire.receive_frame()
    return PickleCodec.decode(wire.receive_frame())


@scenario("ruok: the keys of the status, then closed")
def ruok(stage):
    wire = stage.socket()
    wire.receive_frame()
    wire.send_frame(b"ruok")
    status, end = quiet_end(wire)
    return {name: sorted(values) for name, values in json.loads(status).items()}, end


@scenario("ruok: sent before the announcement is read")
def ruok_early(stage):
    wire = stage.socket()
    wire.send_frame(b"ruok")
    announced, status, end = quiet_end(wire)
    return announced, sorted(json.loads(status)), end


@scenario("ruok: after register")
def ruok_late(stage):
    wire = stage.client()
    wire.send_frame(b"ruok")
    return quiet_end(wire)
