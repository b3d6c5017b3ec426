"""A proxy that can stop to forward, as a network does that has lost a peer.

Connections stay open, and what is sent is confirmed by the system; it gets nowhere.
"""

import contextlib
import socket
import threading

from .process import HOST, free_port

CHUNK_BYTES = 65536


class SilentProxy:
    """Forwards connections to a server, until it is silent."""

    def __init__(self, target):
        self.target = target
        self.address = HOST, free_port()
        self.listener = socket.create_server(self.address)
        self.sockets = []
        # What clients have sent.
        self.requests = bytearray()
        self.forwards = threading.Event()
        self.forwards.set()
        # Answers are thrown away from the moment that a request with these bytes passes.
        self.last_request = None
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self):
        """Nothing is forwarded any more, on new connections neither."""
        self.forwards.clear()
        for pair in self.sockets:
            pair[2].set()

    def fall_silent_after(self, request):
        """The request with these bytes is the last that is forwarded on its connection."""
        self.last_request = request

    def speak(self):
        """New connections are forwarded again; those that fell silent stay so.

        A client that has reconnected already, since only its old connection was silent, keeps its
        new one.
        """
        self.forwards.set()

    def close(self):
        self.listener.close()
        for client, server, silent in self.sockets:
            silent.set()
            for one in client, server:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            silent = threading.Event()
            self.sockets.append((client, server, silent))
            if not self.forwards.is_set():
                silent.set()
            for pair in (client, server), (server, client):
                words = (*pair, silent, pair[0] is client)
                threading.Thread(target=self._forward, args=words, daemon=True).start()

    def _forward(self, source, target, silent, are_requests):
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                if are_requests:
                    self.requests += chunk
                if silent.is_set():
                    continue
                if are_requests and self.last_request and self.last_request in chunk:
                    silent.set()
                    self.last_request = None
                target.sendall(chunk)
            if not silent.is_set():
                target.shutdown(socket.SHUT_WR)
