"""Loads that are asked for in deep queues, by a client that shares no code with the project.

peer.c keeps requests in flight over one connection, and has a floor: a server that copies the reply
to each request from memory.  Both servers read and write the same bytes, as many at once as there
are.  The processor time of the server is compared, in turns.  Needs a C compiler.

  python tests/deep_queue/run.py target/release/zodium --depths 1,16,64 --object-bytes 400,4096
"""

import argparse
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile

import ZODB
from persistent import Persistent

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.process import ServerProcess, free_port  # noqa: E402
from harness.vitals import cpu_seconds  # noqa: E402
from harness.wire import Wire, framed  # noqa: E402

OBJECTS = 2000
# Requests that are prepared; they are sent in turns.
REQUESTS = 20_000


class Filled(Persistent):
    """An object whose record has a chosen length."""


def compile_peer(folder):
    peer = folder / "peer"
    subprocess.run(["cc", "-O2", "-o", peer, HERE / "peer.c"], check=True)
    return str(peer)


def create(path, object_bytes):
    """A data file of objects whose records have the same length."""
    database = ZODB.DB(str(path))
    with database.transaction() as connection:
        for number in range(OBJECTS):
            filled = Filled()
            filled.data = os.urandom(object_bytes)
            connection.root()[number] = filled
    with database.transaction() as connection:
        oids = [connection.root()[number]._p_oid for number in range(OBJECTS)]
    database.close()
    return oids


class Side:
    """A server with its process id, and a connection to it."""

    def __init__(self, name, pid, wire):
        self.name, self.pid, self.wire = name, pid, wire

    def drive(self, peer, requests, lengths, depth, seconds):
        """(microseconds of the server a request, requests a second)."""
        descriptor = self.wire.socket.fileno()
        self.wire.socket.setblocking(True)
        words = [peer, "drive", descriptor, requests, *lengths, depth, seconds]
        before = cpu_seconds(self.pid)
        replies, elapsed = run(words, descriptor).communicate()[0].split()
        used = cpu_seconds(self.pid) - before
        return used / int(replies) * 1e6, int(replies) / float(elapsed)

    def ask(self, frame):
        self.wire.send_raw(frame)
        return self.wire.receive_frame()


def run(words, descriptor):
    """A process that has this open file, too."""
    words = [str(word) for word in words]
    return subprocess.Popen(words, pass_fds=[descriptor], stdout=subprocess.PIPE, text=True)


def measure(options, peer, folder, object_bytes):
    folder.mkdir()
    oids = create(folder / "Data.fs", object_bytes)
    port = free_port()
    words = [options.program.resolve(), "serve", str(folder / "Data.fs"), "-a", f"127.0.0.1:{port}"]
    words += ["--msgpack", "--workers", "1", "--log-level", "warn"]
    server = ServerProcess(words, port, folder)
    try:
        zodium = Side("zodium", server.process.pid, Wire(("127.0.0.1", port)))
        zodium.wire.register()
        frames = [zodium.wire.load_frame(oid) for oid in oids]
        replies = [framed(zodium.ask(frame)) for frame in frames]
        floor = start_floor(peer, folder / "replies", oids, frames, replies)
        requests = folder / "requests"
        requests.write_bytes(b"".join(random.choices(frames, k=REQUESTS)))
        for depth in options.depths:
            case = (peer, requests, (len(frames[0]), len(replies[0])), depth, options.seconds)
            print(f"{object_bytes} B, {depth} in flight: ", end="")
            compare(options.rounds, [zodium, floor], case)
        for frame in frames:
            if zodium.ask(frame) != floor.ask(frame):
                sys.exit("the servers answer with other bytes")
        # It ends with its connection.
        floor.wire.close()
    finally:
        server.stop()


def start_floor(peer, path, oids, frames, replies):
    """The floor, whose replies have the numbers in the last two bytes of their oids."""
    numbered = {number_of(oid): reply for oid, reply in zip(oids, replies, strict=True)}
    unused = bytes(len(replies[0]))
    path.write_bytes(b"".join(numbered.get(n, unused) for n in range(max(numbered) + 1)))
    number_at = frames[0].index(oids[0]) + 6
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [peer, "floor", listener.fileno(), path, len(frames[0]), len(replies[0]), number_at]
        process = run(words, listener.fileno())
        return Side("floor", process.pid, Wire(listener.getsockname(), handshake=False))


def number_of(oid):
    return int.from_bytes(oid[6:], "big")


def compare(rounds, sides, case):
    """Measures both sides in turns, and prints the figures."""
    results = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            result = side.drive(*case)
            # The first round warms up.
            if number:
                results[side.name].append(result)
    texts, costs = [], []
    for name, measured in results.items():
        microseconds, rates = zip(*measured, strict=True)
        costs.append(microseconds)
        rate = statistics.median(rates) / 1e3
        texts.append(f"{name} {spread(microseconds, 3)} us, {rate:.0f}k/s")
    ratios = [mine / least for mine, least in zip(*costs, strict=True)]
    print(f"{'; '.join(texts)}; ratio {spread(ratios, 2)}", flush=True)


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", type=pathlib.Path, help="the program of Zodium to measure")
    parser.add_argument("--depths", type=numbers, default=[1, 16, 64], help="requests in flight")
    parser.add_argument("--object-bytes", type=numbers, default=[400, 4096])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        peer = compile_peer(folder)
        for object_bytes in options.object_bytes:
            measure(options, peer, folder / str(object_bytes), object_bytes)


if __name__ == "__main__":
    main()
