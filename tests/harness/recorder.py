"""What a stock client and a server say to each other, as files: seeds for the fuzzers.

    python -m harness.recorder FOLDER      (from tests/, with the server built)

For Z5 and M5 each: `requests.z5`, `replies.z5`, ... are frames as they came, less those that
are longer than what a fuzzer makes use of.  `history.fs` and its index are what ZODB itself
wrote.  A proxy between the two keeps the frames: neither side knows.
"""

import socket
import struct
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import transaction
import ZODB
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64, z64

from .servers import COMMAND, spawn

FRAME_BYTES_MAX = 700


class Recorder:
    """Passes one connection after the other on to `server`, and keeps what goes each way."""

    def __init__(self, server):
        self.server = server
        self.frames = {"requests": bytearray(), "replies": bytearray()}
        self.seen = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.server)
            for way in ((client, server, "requests"), (server, client, "replies")):
                threading.Thread(target=self.copy, args=way, daemon=True).start()

    def copy(self, source, target, name):
        buffer = b""
        while data := source.recv(1 << 16):
            target.sendall(data)
            buffer += data
            while len(buffer) >= 4:
                (length,) = struct.unpack(">I", buffer[:4])
                if len(buffer) < 4 + length:
                    break
                frame, buffer = buffer[: 4 + length], buffer[4 + length :]
                self.keep(name, frame)
        target.close()

    def keep(self, name, frame):
        # Many loads look alike but for their numbers.
        words = bytes(byte for byte in frame if chr(byte).isalpha())
        if len(frame) <= FRAME_BYTES_MAX and (name, words) not in self.seen:
            self.seen.add((name, words))
            self.frames[name] += frame


def converse(storage):
    """Every call that a client has a way to make."""
    database = ZODB.DB(storage)
    with database.transaction("first words") as connection:
        connection.root.tree = OOBTree({str(n): n for n in range(3)})
        connection.root.length = Length(1)
    with database.transaction("second") as connection:
        connection.root.tree["x"] = "y" * 30
        connection.root.length.change(2)
        connection.readCurrent(connection.root.tree)
    database.undo(database.undoInfo(0, 2)[0]["id"])
    transaction.commit()
    database.history(z64, 5)
    storage.loadSerial(z64, database.history(z64, 1)[0]["tid"])
    storage.getTid(z64)
    storage.new_oid()
    storage.undoLog(0, 3)
    for found in storage.iterator():
        list(found)
    storage.record_iternext()
    with suppress(KeyError):
        storage.load(p64(1 << 40))
    database.pack()
    database.close()


def write_history(path):
    """A small file as FileStorage writes it: revisions, an undo, a deletion, metadata."""
    database = ZODB.DB(FileStorage(str(path)))
    for number in range(4):
        with database.transaction(f"change {number}") as connection:
            connection.transaction_manager.get().setExtendedInfo("number", number)
            connection.root.tree = OOBTree({"a": number, "b": Length(number)})
            connection.root.count = number
    database.undo(database.undoInfo(0, 1)[0]["id"])
    transaction.commit()
    database.close()


def main(folder):
    for encoding in ("Z5", "M5"):
        with tempfile.TemporaryDirectory() as place:
            home = Path(place, "data")
            home.mkdir()
            server = spawn(COMMAND, home / "Data.fs", (), encoding)
            try:
                recorder = Recorder(server.address)
                converse(ClientStorage(recorder.address, wait=True, wait_timeout=10))
            finally:
                server.kill()
            for name, frames in recorder.frames.items():
                (folder / f"{name}.{encoding.lower()}").write_bytes(frames)
    for old in folder.glob("history.fs*"):
        old.unlink()
    write_history(folder / "history.fs")
    for left in (".lock", ".tmp"):
        (folder / f"history.fs{left}").unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
