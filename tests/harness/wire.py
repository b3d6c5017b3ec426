"""A ZEO client that is nothing but a socket: it can say what no client should.

Frames are a big-endian u32 length and that many bytes; a message is
(message id, flag, name, arguments), pickled ("Z") or packed ("M").
Key decision: nothing is hidden.  Every frame can be sent raw, and everything
the server sends is kept in order, because order is what the tests are about.
"""

import io
import socket
import struct
import time

import msgpack
import zodbpickle.pickle

from .waiting import WAIT_SECONDS

CALL, NOTICE, ERROR = 0, 1, 2
MAXTID = b"\x7f" + b"\xff" * 7
Z64 = b"\0" * 8


class Closed(Exception):
    """The server closed the connection."""


class Silent(Exception):
    """The server said nothing within the time limit."""


class ErrorReply(Exception):
    """An error reply: args are the exception's name and its payload."""


class Conflict(Exception):
    """The vote was answered with conflicts, for the client to resolve."""


class PickleCodec:
    letter = b"Z"

    @staticmethod
    def encode(message):
        out = io.BytesIO()
        pickler = zodbpickle.pickle.Pickler(out, 3)
        pickler.fast = 1
        pickler.dump(message)
        return out.getvalue()

    @staticmethod
    def decode(body):
        return zodbpickle.pickle.loads(body)


class MsgpackCodec:
    letter = b"M"

    @staticmethod
    def encode(message):
        return msgpack.packb(message, use_bin_type=True)

    @staticmethod
    def decode(body):
        return msgpack.unpackb(body, raw=False, use_list=False)


CODECS = {codec.letter: codec for codec in (PickleCodec, MsgpackCodec)}


def connect(address, seconds, source=None):
    """A socket connected to (host, port), from the address `source`, or to a Unix socket's path."""
    if isinstance(address, tuple):
        opened = socket.create_connection(address, seconds, source and (source, 0))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    opened = socket.socket(socket.AF_UNIX)
    opened.settimeout(seconds)
    opened.connect(str(address))
    return opened


def framed(body):
    """A frame: the length of the body, and the body."""
    return struct.pack(">I", len(body)) + body


class Wire:
    """One connection, in the encoding the server announces; to a (host, port) or a path."""

    def __init__(self, address, handshake=True, seconds=WAIT_SECONDS, ssl=None, source=None):
        self.seconds = seconds
        self.socket = connect(address, seconds, source)
        if ssl:  # an ssl.SSLContext
            self.socket = ssl.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = bytearray()
        self.taken = 0  # bytes of the buffer that are received already
        self.notices = []
        self.last_id = 0
        self.announced = None
        if handshake:
            self.shake_hands()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Close without a farewell: over TCP the peer gets an RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def shake_hands(self, answer=None):
        """Take the announcement and answer it with `answer`, or the same."""
        self.announced = self.receive_frame()
        self.codec = CODECS[self.announced[:1]]
        self.send_frame(self.announced if answer is None else answer)
        return self

    def send_raw(self, data):
        try:
            self.socket.sendall(data)
        except ConnectionError:
            raise Closed from None

    def send_frame(self, body):
        self.send_raw(framed(body))

    def load_frame(self, oid):
        """The request for an object as the stock client makes it: its id is oid and tid."""
        return framed(self.codec.encode(((oid, MAXTID), False, "loadBefore", (oid, MAXTID))))

    def send(self, message_id, flag, name, args):
        self.send_frame(self.codec.encode((message_id, flag, name, args)))

    def request(self, name, *args):
        """Send a synchronous call; its message id."""
        self.last_id += 1
        self.send(self.last_id, False, name, args)
        return self.last_id

    def notify(self, name, *args):
        """Send an asynchronous call: the server answers only by closing."""
        self.send(0, True, name, args)

    def receive_frame(self, seconds=None):
        """The body of the next frame; raises Closed or Silent."""
        deadline = time.monotonic() + (self.seconds if seconds is None else seconds)
        self._fill(4, deadline)
        (size,) = struct.unpack_from(">I", self.buffer, self.taken)
        self._fill(4 + size, deadline)
        start = self.taken + 4
        self.taken = start + size
        return bytes(memoryview(self.buffer)[start : self.taken])

    def receive(self, seconds=None):
        """The next message, decoded."""
        return self.codec.decode(self.receive_frame(seconds))

    def reply(self, message_id, seconds=None):
        """The reply to `message_id`; what comes before it goes to `notices`."""
        while True:
            found, flag, name, args = self.receive(seconds)
            if flag in (CALL, ERROR) and name == ".reply" and found == message_id:
                if flag == ERROR:
                    raise ErrorReply(*args)
                return args
            self.notices.append((found, flag, name, args))

    def call(self, name, *args):
        return self.reply(self.request(name, *args))

    def register(self, storage="1", read_only=False):
        return self.call("register", storage, read_only)

    def commit(self, txn, stores, user=b"", description=b"", extension=None):
        """Store [(oid, serial, data)] in one transaction; its tid, or raise Conflict."""
        self.notify("tpc_begin", txn, user, description, extension or {}, None, " ")
        for oid, serial, data in stores:
            self.notify("storea", oid, serial, data, txn)
        conflicts = self.call("vote", txn)
        if conflicts:
            raise Conflict(conflicts)
        return self.call("tpc_finish", txn)

    def _fill(self, size, deadline):
        """Have `size` bytes in the buffer that are not taken yet."""
        if len(self.buffer) - self.taken >= size:
            return
        del self.buffer[: self.taken]
        self.taken = 0
        while len(self.buffer) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Silent
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 20)
            except socket.timeout:
                raise Silent from None
            except ConnectionError:
                raise Closed from None
            if not data:
                raise Closed
            self.buffer += data
