"""A proxy before a NEO node that cuts its connections after a number of packets.

Key decision: packets are counted, not timed, so a test can cut a conversation at
each of them.  The greeting counts as one: it is an array of msgpack too.
"""

import contextlib
import socket
import threading

import msgpack

from .process import HOST

CHUNK_BYTES = 65536


class CuttingProxy:
    """Forwards connections to a node; `arm` says after how many packets they end."""

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._lock = threading.Lock()
        self._left = None
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, packets):
        """Cuts all connections once so many packets more were forwarded, of both directions."""
        with self._lock:
            self._left = packets

    @property
    def has_cut(self):
        """Whether it has cut since it was armed."""
        with self._lock:
            return self._left is None

    def cut(self):
        """Cuts all connections now."""
        with self._lock:
            self._left = None
        self._end()

    def close(self):
        self._listener.close()
        self._end()

    def _end(self):
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                dialler, _ = self._listener.accept()
                try:
                    target = socket.create_connection(self._target)
                except OSError:
                    dialler.close()
                    continue
                pair = dialler, target
                self._sockets += pair
                for one in pair:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, sink in (pair, pair[::-1]):
                    thread = threading.Thread(target=self._forward, args=(source, sink))
                    thread.daemon = True
                    thread.start()

    def _forward(self, source, sink):
        packets, begin, pending = msgpack.Unpacker(raw=True, strict_map_key=False), 0, b""
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                pending += chunk
                packets.feed(chunk)
                with contextlib.suppress(msgpack.OutOfData):
                    while True:
                        packets.skip()
                        end = packets.tell()
                        sink.sendall(pending[: end - begin])
                        pending, begin = pending[end - begin :], end
                        self._count()
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _count(self):
        with self._lock:
            if self._left is None:
                return
            self._left -= 1
            if self._left > 0:
                return
            self._left = None
        self._end()
