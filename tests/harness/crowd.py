"""Very many connections to one server, from a process of their own.

    python crowd.py PORT idle COUNT      register, and then say nothing
    python crowd.py PORT dribble COUNT   a byte a second, and never a whole message
    python crowd.py PORT storm COUNT     connect and close, COUNT times in all

It writes a line when all are there (a storm: when it is over), and a line of
figures as JSON when its input has ended.  Key decision: bare sockets and one
epoll, so that the crowd costs the machine less than the server it visits.
"""

import contextlib
import json
import resource
import select
import socket
import struct
import subprocess
import sys
import time

from harness.process import HOST, REPOSITORY
from harness.wire import CODECS, framed

SECONDS = 1.0  # between the bytes of those who dribble
PARTS = 100
AT_ONCE = 200  # connections that a storm has open
RESET = struct.pack("ii", 1, 0)


class Crowd:
    """The process, as a test has it."""

    def __init__(self, server, kind, count):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.crowd", str(server.port), kind, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY / "tests",
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait_there(self):
        """Until all have connected (and registered): what it says then."""
        return json.loads(self.process.stdout.readline())

    def disperse(self):
        """The crowd goes; its figures."""
        self.process.stdin.close()
        return json.loads(self.process.stdout.readline())


def connect(port):
    while True:
        try:
            return socket.create_connection((HOST, port), 60)
        except (ConnectionResetError, TimeoutError):
            time.sleep(0.05)


def receive(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data


def receive_frame(sock):
    return receive(sock, struct.unpack(">I", receive(sock, 4))[0])


def say(**figures):
    print(json.dumps(figures), flush=True)


def has_ended():
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.read(1)


def idle(port, count):
    members = []
    for _ in range(count):
        sock = connect(port)
        announced = receive_frame(sock)
        call = CODECS[announced[:1]].encode((1, False, "register", ("1", False)))
        sock.sendall(framed(announced) + framed(call))
        receive_frame(sock)
        members.append(sock)
    say(there=len(members))
    sys.stdin.read()
    closed = 0
    for sock in members:
        sock.setblocking(False)
        try:
            closed += sock.recv(1 << 16) == b""
        except BlockingIOError:
            pass
        except ConnectionError:
            closed += 1
    say(closed=closed)


def dribble(port, count):
    """The handshake, and then a message of a length that is never reached."""
    speech = framed(b"Z5") + struct.pack(">I", 2000) + b"x" * 1990
    poll = select.epoll()
    members = {}
    for _ in range(count):
        sock = connect(port)
        sock.setblocking(False)
        members[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLRDHUP)
    say(there=len(members))
    begun = time.monotonic()
    turn = last = 0
    while members and not has_ended():
        # Each part of the crowd has its moment in the second, as strangers would.
        part, rounds = turn % PARTS, turn // PARTS
        byte = speech[rounds : rounds + 1]
        for number in [number for number in members if number % PARTS == part]:
            try:
                members[number].send(byte)
            except OSError:
                members.pop(number).close()
                last = time.monotonic() - begun
        turn += 1
        until = begun + turn * SECONDS / PARTS
        while (left := until - time.monotonic()) > 0 and members:
            for number, _ in poll.poll(left):
                members.pop(number).close()
                last = time.monotonic() - begun
    say(closed=count - len(members), seconds=last)


def storm(port, count):
    """Some leave at once, some when they have been greeted, some without a word."""
    begun = time.monotonic()
    greeting = []
    for number in range(count):
        sock = connect(port)
        if number % 2:  # ends with a reset; nothing lingers on either side
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if number % 3:
            greeting.append(sock)
            if len(greeting) >= AT_ONCE:
                leave(greeting)
        else:
            sock.close()
    leave(greeting)
    say(seconds=time.monotonic() - begun)


def leave(greeted):
    for sock in greeted:
        with contextlib.suppress(OSError):
            receive_frame(sock)
        # A server that has said its word is reset; what is left of others takes no port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()
    greeted.clear()


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, kind, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    {"idle": idle, "dribble": dribble, "storm": storm}[kind](port, count)


if __name__ == "__main__":
    main()
