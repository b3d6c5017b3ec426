"""A ZEO server in front of a real one: it changes a byte of every object that is loaded.

python corrupting.py PORT COMMAND...     {port} in COMMAND becomes that of the real one
"""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.process import free_port  # noqa: E402

MARK = b"PersistentMapping"
PLACE = 60  # bytes after the mark, within what a benchmark stores


def main(port, *command):
    real = free_port()
    server = subprocess.Popen([word.replace("{real}", str(real)) for word in command])
    try:
        listener = socket.create_server(("127.0.0.1", int(port)))
        while True:
            near, _ = listener.accept()
            far = connect(real)
            threading.Thread(target=forward, args=(near, far, bytes), daemon=True).start()
            threading.Thread(target=forward, args=(far, near, corrupt), daemon=True).start()
    finally:
        server.terminate()
        server.wait()


def connect(port):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def forward(source, target, change):
    try:
        while piece := source.recv(1 << 16):
            target.sendall(change(piece))
    except OSError:
        pass  # either end may go first
    source.close()
    target.close()


def corrupt(piece):
    place = piece.find(MARK) + PLACE
    if MARK not in piece or place >= len(piece):
        return piece
    return piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(*sys.argv[1:])
