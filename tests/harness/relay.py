"""A relay between a client and its server, that counts requests and can hold answers back.

Key decision: how often a client waits for its server is not timed. While answers
are held until so many requests have been seen, a client that waits in between
waits for ever.
"""

import contextlib
import socket
import struct
import threading

from .process import HOST


class Relay:
    """Serves one client."""

    def __init__(self, server):
        self._listener = socket.create_server((HOST, 0))
        self.address = self._listener.getsockname()[:2]
        self._server = server.address
        self._changed = threading.Condition()
        self._seen = {}
        self._held = (b"", 0)
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()
        self.release()

    def seen(self, method):
        """How often a method was called."""
        with self._changed:
            return self._seen.get(method, 0)

    def hold_for(self, method, count):
        """Hold all answers from now on, until a method was called so often more."""
        with self._changed:
            self._held = (method, self._seen.get(method, 0) + count)

    def release(self):
        with self._changed:
            self._held = (b"", 0)
            self._changed.notify_all()

    def _serve(self):
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            server = socket.create_connection(self._server)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answers = threading.Thread(target=forward, args=(server, client, self._wait))
            answers.daemon = True
            answers.start()
            forward(client, server, self._count)

    def _count(self, frame):
        for method in METHODS:
            if method in frame:
                with self._changed:
                    self._seen[method] = self._seen.get(method, 0) + 1
                    self._changed.notify_all()
                return

    def _wait(self, _):
        with self._changed:
            self._changed.wait_for(lambda: self._seen.get(self._held[0], 0) >= self._held[1])


# What is counted; no data of a test says one of these.
METHODS = (
    b"loadBefore",
    b"iterator_start",
    b"iterator_record_start",
    b"iterator_record_next",
    b"iterator_next",
    b"zodium_iterator_read",
    b"zodium_objects_read",
    b"record_iternext",
)


def forward(source, target, seen):
    """Hands on frame by frame, until one side closes."""
    with contextlib.suppress(OSError), source.makefile("rb") as frames:
        while len(length := frames.read(4)) == 4:
            frame = frames.read(struct.unpack(">I", length)[0])
            seen(frame)
            target.sendall(length + frame)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
