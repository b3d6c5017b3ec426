"""A relay that ends connections after a number of bytes, or falls silent then."""

import contextlib
import socket
import threading

from .process import HOST

CHUNK_BYTES = 4096


class CutRelay:
    """Forwards connections to a server, until the server has answered `limit` bytes.

    Then it ends them, and listens no more. With `holds` it is silent instead, and sets `reached`.
    """

    def __init__(self, server, limit=None, holds=False):
        self._server = server.address
        self._limit, self._holds = limit, holds
        self.reached = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._sockets = []
        self._threads = []
        # Bytes that the server has answered.
        self.answered = 0
        self._listener = socket.create_server((HOST, 0))
        self.url = "zeo://{}:{}".format(*self._listener.getsockname()[:2])
        self._start(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self):
        """End all connections, and refuse new ones."""
        self._ended.set()
        with self._lock:
            for one in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _start(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                with self._lock:
                    self._sockets += [client, server]
                self._start(self._forward, client, server, False)
                self._start(self._forward, server, client, True)

    def _forward(self, source, target, counts):
        with contextlib.suppress(OSError), source:
            while data := source.recv(CHUNK_BYTES):
                if counts:
                    self.answered += len(data)
                    if self._limit is not None and self.answered > self._limit:
                        self.reached.set()
                        return self._ended.wait() if self._holds else self.cut()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
