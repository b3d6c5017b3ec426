"""One server process, started from a command template.

The template names what it needs in braces ({path}, {port}, {options}), so that
the same tests run against Zodium, the stock Python server, or any other.
Key decision: a server is ended by its own process id, never by its name, and
what it says goes to a file that a failing test can show.
"""

import collections
import contextlib
import os
import random
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

# What one worker tells another is tested on machines of two cores too.
os.environ.setdefault("ZODIUM_WORKERS", "2")
# Each has connections from the beginning; test_balance.py is about moving them.
os.environ.setdefault("ZODIUM_NO_BALANCE", "1")

HOST = "127.0.0.1"
START_SECONDS = 60  # a server that does not listen by then is broken
STOP_SECONDS = 40  # from SIGTERM to SIGKILL
# Signals by which a process ends that went wrong; no test sends them.
CRASHES = [-signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGSEGV]
RESERVED_MAX = 100  # ports of one process; each is an open file
RESERVATIONS = collections.deque()  # their sockets

REPOSITORY = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("ZODIUM_TESTED_PROFILE") or "debug"
DEFAULT_COMMAND = (
    f"{REPOSITORY}/target/{PROFILE}/zodium serve {{path}} -a {HOST}:{{port}} {{options}}"
)


def free_port():
    """A loopback TCP port without a listener, which no other test on this machine chooses.

    Below the ports that systems hand to outgoing connections: a client could take
    one of those before the server binds it.  A server may need seconds until it
    listens.  A test that chose the same port meanwhile would have its client talk
    to the wrong server, so a port stays reserved for some time.
    """
    choose = random.SystemRandom()
    while True:
        port = choose.randrange(12_000, 32_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            # A name that is free again when this process has ended, however it ends.
            reservation = stack.enter_context(socket.socket(socket.AF_UNIX))
            reservation.bind(f"\0zodium-tests/{port}")
            with socket.socket() as probe:
                probe.bind((HOST, port))
            stack.pop_all()
            if len(RESERVATIONS) == RESERVED_MAX:
                RESERVATIONS.popleft().close()
            RESERVATIONS.append(reservation)
            return port


def command_words(template, options=(), **names):
    """The words of `template`, with {options} spread and {..} names filled in."""
    words = []
    for word in shlex.split(template):
        words += options if word == "{options}" else [word.format(**names)]
    return words


def crash_of(server):
    """How a server, or a node, has crashed; None if it has not."""
    told = [line for line in server.log().splitlines() if "a bug in the server" in line]
    if server.process is not None and server.process.poll() in CRASHES:
        told.append(f"it ended by {signal.Signals(-server.process.returncode).name}")
    return f"{server.log_path.name}: {told[0]}" if told else None


class ServerFailed(RuntimeError):
    """The server ended, or never listened; carries the end of what it said."""


class ServerProcess:
    """A running server that listens on a loopback port."""

    def __init__(self, words, port, folder, log_path=None, env=None, wait=True):
        self.words = words
        self.port = port
        self.log_path = Path(log_path or Path(folder) / f"server-{port}.log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(env or {})},
            )
        if wait:
            self.wait_listening()

    @property
    def address(self):
        return HOST, self.port

    @property
    def url(self):
        """As Zodium's commands take it."""
        return f"zeo://{HOST}:{self.port}"

    def wait_listening(self):
        """Return once it listens on all its addresses; raise if the server ends first."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(f"exit {self.process.returncode}: {self.log_tail()}")
            with contextlib.suppress(OSError):
                socket.create_connection(self.address, 0.5).close()
                for path in self.unix_paths():
                    with socket.socket(socket.AF_UNIX) as probe:
                        probe.connect(path)
                return
            time.sleep(0.01)
        self.stop()
        raise ServerFailed(f"not listening after {START_SECONDS} s: {self.log_tail()}")

    def unix_paths(self):
        """The sockets it was told to listen on, which comes one after the other."""
        pairs = zip(self.words, self.words[1:])
        return [word for option, word in pairs if option == "-a" and word.startswith("/")]

    def log(self):
        """Everything the server has said so far."""
        with contextlib.suppress(OSError):
            return self.log_path.read_text("utf-8", "replace")
        return ""

    def log_tail(self):
        return self.log()[-800:]

    def is_running(self):
        return self.process.poll() is None

    def stop(self, seconds=STOP_SECONDS):
        """SIGTERM, SIGKILL if that is not enough; the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    @contextlib.contextmanager
    def frozen(self):
        """Stops all threads of the server while the block runs."""
        self.process.send_signal(signal.SIGSTOP)
        # The call returns before the threads have stopped; one of them could still answer.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL, unless it has ended: the server gets no chance to save anything."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
