"""The stage a scenario plays on: a server's address, and oids of its own.

Key decision: a scenario states nothing about right or wrong.  It provokes, and
returns what it saw; the stock server, playing the same scenario, is the measure.
Where the stock server is no fit measure, the scenario's `judge` says what is
right, and `because` says why.
"""

import contextlib
import struct
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Callable, Optional

from harness.wire import ERROR, Z64, Closed, ErrorReply, Silent, Wire

QUIET_SECONDS = [0.3]  # silence this long, where no ping is possible, is an answer
OIDS_EACH = 100  # oids a scenario has to itself

SCENARIOS = []


def equal(found, stock):
    return found == stock


def closes(found, stock):
    """The connection is closed without an answer."""
    return found in ("closed", ("closed",))


def refuses(found, stock=None):
    """Somewhere in `found` there is an error, or the connection is closed."""
    if not isinstance(found, tuple):
        return found == "closed"
    return "error" in (found[:1] + found[2:3]) or any(refuses(part) for part in found)


def equals_or_refuses(found, stock):
    return found == stock or refuses(found)


def refuses_as_much(found, stock):
    """Case by case: what the stock server refuses is refused, with any error."""
    return found.keys() == stock.keys() and all(
        found[case] == stock[case] or refuses(found[case]) for case in stock
    )


@dataclass
class Scenario:
    name: str
    play: Callable
    encodings: str = "ZM"
    judge: Callable = equal  # judge(found, what the stock server does)
    because: Optional[str] = None  # why the stock server is not simply copied


def scenario(name, **options):
    """Add the decorated function to the table."""

    def add(play):
        SCENARIOS.append(Scenario(name, play, **options))
        return play

    return add


@contextlib.contextmanager
def quiet_after(seconds):
    """Within it, only so long a silence is an answer."""
    QUIET_SECONDS.append(seconds)
    try:
        yield
    finally:
        QUIET_SECONDS.pop()


class Stage:
    """Opens connections for one scenario and closes them after it."""

    def __init__(self, address, number, folder):
        self.address = address
        self.folder = folder
        self.first_oid = 1_000_000 + number * OIDS_EACH
        self.wires = ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wires.close()

    def oid(self, number=0):
        return struct.pack(">Q", self.first_oid + number)

    def socket(self):
        """A connection without a handshake."""
        return self.wires.enter_context(Wire(self.address, handshake=False))

    def stranger(self):
        """A connection that has shaken hands but not registered."""
        return self.wires.enter_context(Wire(self.address))

    def client(self, read_only=False):
        """A connection that has registered."""
        wire = self.stranger()
        wire.register(read_only=read_only)
        return wire

    def stored(self, wire, number=0, data=b"first", serial=Z64):
        """Commit one object on `wire`; its tid."""
        return wire.commit(9_000 + number, [(self.oid(number), serial, data)])


def answer(wire, name, *args):
    """What a synchronous call comes to: ("ok", value), ("error", ...), or closed."""
    try:
        return "ok", wire.call(name, *args)
    except ErrorReply as error:
        return ("error", *error.args)
    except Closed:
        return "closed"
    except Silent:
        return "silent"


def aftermath(wire):
    """All the server still says to a registered client, and whether it goes on."""
    seen = []
    try:
        wire.request("ping")
        while True:
            message_id, flag, name, args = wire.receive(max(3, QUIET_SECONDS[-1]))
            if name == ".reply" and message_id == wire.last_id:
                return (*seen, "open")
            if name != ".reply":
                continue
            kind = ("error", *args) if flag == ERROR else ("ok", args)
            seen.append(("reply to", message_id, *kind))
    except Closed:
        return (*seen, "closed")
    except Silent:
        return (*seen, "silent")


def after_notice(wire, name, *args):
    """Send an asynchronous call; closed or open."""
    wire.notify(name, *args)
    return aftermath(wire)


def quiet_end(wire):
    """Frames the server sends until it falls silent or closes."""
    seen = []
    try:
        while True:
            seen.append(wire.receive_frame(QUIET_SECONDS[-1]))
    except Closed:
        return (*seen, "closed")
    except Silent:
        return (*seen, "open")
