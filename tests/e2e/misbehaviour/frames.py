"""Frames that hold no message, or one nobody should send."""

import pickle
import struct

from harness.wire import PickleCodec

from .handshakes import HUGE_FRAME
from .stage import (
    aftermath,
    answer,
    closes,
    equals_or_refuses,
    quiet_end,
    scenario,
)

LOOSE = "what Python takes for a message here no client sends; refusing it is as good"
TRAILING = "over Z5 the stock server ignores what follows a pickle; refusing it is as good"
CODE_IN_A_PICKLE = "the stock server lets a pickle call any builtin; messages are data"


def after_frame(stage, body):
    wire = stage.client()
    wire.send_frame(body)
    return aftermath(wire)


def after_message(stage, *message):
    """A registered client sends `message`, whatever its shape."""
    wire = stage.client()
    wire.send_frame(wire.codec.encode(message))
    return aftermath(wire)


@scenario("frame: empty")
def empty(stage):
    return after_frame(stage, b"")


@scenario("frame: 100 bytes of 0xff")
def noise(stage):
    return after_frame(stage, b"\xff" * 100)


@scenario("frame: 100 zero bytes")
def zeros(stage):
    return after_frame(stage, bytes(100))


@scenario("frame: length 2^32-1", judge=closes, because=HUGE_FRAME)
def endless(stage):
    wire = stage.client()
    wire.send_raw(b"\xff\xff\xff\xff")
    return quiet_end(wire)


@scenario("frame: half of one, then end of stream")
def cut_short(stage):
    wire = stage.client()
    wire.send_raw(b"\0\0\0\x20" + b"x" * 16)
    wire.socket.shutdown(1)
    return quiet_end(wire)


@scenario("frame: half a length, then end of stream")
def cut_in_the_length(stage):
    wire = stage.client()
    wire.send_raw(b"\0\0")
    wire.socket.shutdown(1)
    return quiet_end(wire)


@scenario("frame: a whole request, then end of stream")
def half_closed(stage):
    wire = stage.client()
    wire.request("ping")
    wire.socket.shutdown(1)
    *frames, end = quiet_end(wire)
    return len(frames), end


@scenario("frame: a message cut in half")
def half_message(stage):
    wire = stage.client()
    body = wire.codec.encode((5, False, "ping", ()))
    wire.send_frame(body[: len(body) // 2])
    return aftermath(wire)


@scenario("frame: a message with bytes after it", judge=equals_or_refuses, because=TRAILING)
def trailing_bytes(stage):
    wire = stage.client()
    wire.send_frame(wire.codec.encode((5, False, "ping", ())) + b"more")
    return aftermath(wire)


@scenario("frame: two messages in it", judge=equals_or_refuses, because=TRAILING)
def two_messages(stage):
    wire = stage.client()
    wire.send_frame(wire.codec.encode((5, False, "ping", ())) * 2)
    return aftermath(wire)


@scenario("message: an int, not a sequence")
def not_a_sequence(stage):
    wire = stage.client()
    wire.send_frame(wire.codec.encode(7))
    return aftermath(wire)


@scenario("message: None")
def none(stage):
    wire = stage.client()
    wire.send_frame(wire.codec.encode(None))
    return aftermath(wire)


@scenario("message: a list of four")
def list_of_four(stage):
    wire = stage.client()
    wire.send_frame(wire.codec.encode([5, False, "ping", ()]))
    return aftermath(wire)


@scenario("message: three parts")
def three_parts(stage):
    return after_message(stage, 5, False, "ping")


@scenario("message: five parts")
def five_parts(stage):
    return after_message(stage, 5, False, "ping", (), None)


@scenario("message: no parts")
def no_parts(stage):
    return after_message(stage)


@scenario(
    "message: name is bytes",
    judge=lambda found, stock: found in (stock, (("reply to", 5, "ok", None), "open")),
    because="Python 2 sends its native text so; taking it is as good",
)
def bytes_name(stage):
    return after_message(stage, 5, False, b"ping", ())


@scenario("message: name is an int")
def int_name(stage):
    return after_message(stage, 5, False, 7, ())


@scenario("message: name is None")
def no_name(stage):
    return after_message(stage, 5, False, None, ())


@scenario(
    "message: name is a map",
    judge=closes,
    because="the stock server fails to look an unhashable name up and never answers",
)
def map_name(stage):
    return after_message(stage, 5, False, {}, ())


@scenario("message: name is .reply, and it is no heartbeat")
def reply_to_server(stage):
    return after_message(stage, 5, False, ".reply", None)


@scenario("message: heartbeat")
def heartbeat(stage):
    return after_message(stage, -1, False, ".reply", None)


@scenario("message: id -1 and a method's name is a heartbeat")
def heartbeat_with_name(stage):
    return after_message(stage, -1, False, "lastTransaction", ())


@scenario(
    "message: id -1 and an unknown name is a heartbeat", judge=equals_or_refuses, because=LOOSE
)
def heartbeat_with_nonsense(stage):
    return after_message(stage, -1, 7, {}, 5)


@scenario("message: arguments are None")
def no_args(stage):
    return after_message(stage, 5, False, "ping", None)


@scenario("message: arguments are an int")
def int_args(stage):
    return after_message(stage, 5, False, "ping", 7)


@scenario("message: arguments are a list")
def list_args(stage):
    return after_message(stage, 5, False, "ping", [])


@scenario("message: arguments are an empty map", judge=equals_or_refuses, because=LOOSE)
def map_args(stage):
    return after_message(stage, 5, False, "ping", {})


@scenario("message: arguments are an empty string", judge=equals_or_refuses, because=LOOSE)
def text_args(stage):
    return after_message(stage, 5, False, "ping", "")


def echo(number, name, message_id, encodings="ZM"):
    @scenario(f"message id: {name}", encodings=encodings)
    def play(stage):
        return after_message(stage, message_id, False, "ping", ())


for _number, (_name, _id) in enumerate(
    [
        ("None", None),
        ("a float", 1.5),
        ("text", "one"),
        ("bytes", b"one"),
        ("an oid and a tid", (b"12345678", b"87654321")),
        ("nested tuples", (1, (2, (3, ())))),
        ("a list", [1, 2]),
        ("a map", {"a": 1}),
        ("-2", -2),
        ("0 with a synchronous flag", 0),
        ("2^40", 1 << 40),
        ("2^63", 1 << 63),
        ("-2^63", -(1 << 63)),
        ("300 bytes", b"x" * 300),
    ]
):
    echo(_number, _name, _id)
echo(99, "2^70", 1 << 70, "Z")
echo(99, "-2^70", -(1 << 70), "Z")


def flagged(name, flag):
    options = {} if isinstance(flag, int) else {"judge": equals_or_refuses, "because": LOOSE}

    @scenario(f"flag: {name}", **options)
    def play(stage):
        return after_message(stage, 5, flag, "lastTransaction", ())[-1:]


for _name, _flag in [
    ("0", 0),
    ("1", 1),
    ("2", 2),
    ("None", None),
    ("empty text", ""),
    ("text", "x"),
    ("True", True),
]:
    flagged(_name, _flag)


# ------------------------------------------------------------------- pickles


@scenario("pickle: os.system is not called", encodings="Z")
def os_system(stage):
    return code_in_a_pickle(stage, b"cos\nsystem\n")


def closes_and_executes_nothing(found, stock):
    return found == (("closed",), "not executed")


def code_in_a_pickle(stage, function, statement="touch {}"):
    """A pickle that would create a file if it were obeyed; whether it did."""
    proof = stage.folder / "proof"
    proof.unlink(missing_ok=True)
    command = statement.format(proof).encode()
    body = (
        b"\x80\x03"
        + function
        + b"(X"
        + struct.pack("<I", len(command))
        + command
        + b"tR0"
        + PickleCodec.encode((5, False, "ping", ()))[2:]
    )
    end = after_frame(stage, body)
    return end, "executed" if proof.exists() else "not executed"


@scenario(
    "pickle: builtins.exec is not called",
    encodings="Z",
    judge=closes_and_executes_nothing,
    because=CODE_IN_A_PICKLE,
)
def builtins_exec(stage):
    return code_in_a_pickle(stage, b"cbuiltins\nexec\n", "open('{}', 'w')")


@scenario(
    "pickle: __builtin__.eval is not called",
    encodings="Z",
    judge=closes_and_executes_nothing,
    because=CODE_IN_A_PICKLE,
)
def old_builtins_eval(stage):
    return code_in_a_pickle(stage, b"c__builtin__\neval\n", "open('{}', 'w')")


@scenario("pickle: a class of an unknown module", encodings="Z")
def unknown_class(stage):
    return after_frame(stage, b"\x80\x03cnowhere\nNothing\n.")


@scenario("pickle: a persistent id", encodings="Z")
def persistent_id(stage):
    return after_frame(stage, b"\x80\x03K\x01Q.")


@scenario("pickle: an extension code", encodings="Z")
def extension_code(stage):
    return after_frame(stage, b"\x80\x03\x82\x01.")


@scenario("pickle: pop from an empty stack", encodings="Z")
def empty_stack(stage):
    return after_frame(stage, b"\x80\x030.")


@scenario("pickle: a memo entry that is not there", encodings="Z")
def missing_memo(stage):
    return after_frame(stage, b"\x80\x03h\x05.")


@scenario("pickle: a string longer than the frame", encodings="Z")
def string_too_long(stage):
    return after_frame(stage, b"\x80\x03B\xff\xff\xff\x7fabc.")


@scenario("pickle: a LONG4 of 2^31-1 bytes", encodings="Z")
def long_too_long(stage):
    return after_frame(stage, b"\x80\x03\x8b\xff\xff\xff\x7f\x01.")


@scenario("pickle: text that is not UTF-8", encodings="Z")
def bad_text(stage):
    return after_frame(stage, b"\x80\x03X\x02\0\0\0\xff\xfe.")


@scenario("pickle: no STOP", encodings="Z")
def no_stop(stage):
    return after_frame(stage, PickleCodec.encode((5, False, "ping", ()))[:-1])


@scenario("pickle: protocol 255", encodings="Z")
def protocol_255(stage):
    return after_frame(stage, b"\x80\xffN.")


def closes_or_answers(found, stock):
    return found in (("closed",), (("reply to", 5, "ok", None), "open"))


def protocol(number):
    options = {}
    if number > 3:
        options = {"judge": closes_or_answers, "because": "reading them too does no harm"}

    @scenario(f"pickle: a message of protocol {number}, with memo", encodings="Z", **options)
    def play(stage):
        message = (5, False, "set_client_label", ("label",))
        return after_frame(stage, pickle.dumps(message, number))


for _number in range(6):
    protocol(_number)


@scenario("pickle: protocol 2 bytes are a global, so refused", encodings="Z")
def protocol_2_bytes(stage):
    message = (5, False, "loadBefore", (b"\xff" * 8, b"\x7f" + b"\xff" * 7))
    return after_frame(stage, pickle.dumps(message, 2))


@scenario(
    "pickle: 100,000 lists in each other as an argument",
    encodings="Z",
    judge=closes,
    because="the stock server answers by luck of its C stack; depth must have a limit",
)
def deep_pickle(stage):
    depth = 100_000
    body = b"\x80\x03(K\x05\x89X\x04\0\0\0ping" + b"]" * depth + b"a" * (depth - 1) + b"\x85t."
    return after_frame(stage, body)


@scenario("pickle: 40 lists in each other as an argument", encodings="Z")
def somewhat_deep_pickle(stage):
    depth = 40
    body = b"\x80\x03(K\x05\x89X\x04\0\0\0ping" + b"]" * depth + b"a" * (depth - 1) + b"\x85t."
    return names_only(after_frame(stage, body))


def names_only(seen):
    """Error replies without their text, which is the interpreter's own."""
    return tuple(part[:4] if isinstance(part, tuple) else part for part in seen)


# ------------------------------------------------------------------- msgpack


@scenario("msgpack: 100,000 arrays in each other", encodings="M")
def deep_msgpack(stage):
    return after_frame(stage, b"\x91" * 100_000 + b"\xc0")


@scenario("msgpack: 40 arrays in each other as an argument", encodings="M")
def somewhat_deep_msgpack(stage):
    return names_only(after_frame(stage, b"\x94\x05\xc2\xa4ping\x91" + b"\x91" * 40 + b"\xc0"))


@scenario("msgpack: an array of 2^32-1 items in 5 bytes", encodings="M")
def array_too_long(stage):
    return after_frame(stage, b"\xdd\xff\xff\xff\xff")


@scenario("msgpack: a map of 2^32-1 items in 5 bytes", encodings="M")
def map_too_long(stage):
    return after_frame(stage, b"\xdf\xff\xff\xff\xff")


@scenario("msgpack: a bin of 2^32-1 bytes in 5 bytes", encodings="M")
def bin_too_long(stage):
    return after_frame(stage, b"\xc6\xff\xff\xff\xff")


@scenario("msgpack: text that is not UTF-8", encodings="M")
def bad_packed_text(stage):
    return after_frame(stage, b"\x94\x05\xc2\xa2\xff\xfe\x90")


@scenario("msgpack: the code that is never used", encodings="M")
def never_used(stage):
    return after_frame(stage, b"\xc1")


@scenario("msgpack: a map key that is an int", encodings="M")
def int_key(stage):
    return after_frame(stage, b"\x94\x05\xc2\xa4ping\x91\x81\x01\x02")


@scenario("msgpack: integers of every width as message id", encodings="M")
def integer_widths(stage):
    seen = []
    for packed in (b"\xcc\x05", b"\xcd\0\x05", b"\xce\0\0\0\x05", b"\xd0\x05", b"\xd3" + bytes(8)):
        seen.append(after_frame(stage, b"\x94" + packed + b"\xc2\xa4ping\x90"))
    return seen


# -------------------------------------------------------------- many at once


@scenario("frames: 1,000 pings in one write are answered in order")
def many_at_once(stage):
    wire = stage.client()
    body = b""
    for number in range(1000):
        packed = wire.codec.encode((number, False, "ping", ()))
        body += struct.pack(">I", len(packed)) + packed
    wire.send_raw(body)
    return [wire.receive()[0] for _ in range(1000)] == list(range(1000))


@scenario("frames: a request written one byte at a time is answered")
def one_byte_at_a_time(stage):
    wire = stage.client()
    packed = wire.codec.encode((7, False, "ping", ()))
    for byte in struct.pack(">I", len(packed)) + packed:
        wire.send_raw(bytes([byte]))
    return wire.receive()


@scenario("frames: a bad one after good ones; the good ones are answered")
def good_then_bad(stage):
    wire = stage.client()
    packed = wire.codec.encode((7, False, "ping", ()))
    wire.send_raw(struct.pack(">I", len(packed)) + packed + b"\0\0\0\1\xff")
    return aftermath(wire)


@scenario("frames: nothing sent after a bad one is obeyed")
def bad_then_good(stage):
    wire = stage.client()
    packed = wire.codec.encode((7, False, "lastTransaction", ()))
    wire.send_raw(b"\0\0\0\1\xff" + struct.pack(">I", len(packed)) + packed)
    return aftermath(wire), answer(stage.client(), "ping")
