"""A MariaDB server on a folder and a socket of its own.

Key decision: it is the distribution's program, with its defaults but for what NEO asks of a
server.  It runs as the user of the tests; as root too, which a single server allows.
"""

import contextlib
import fcntl
import getpass
import shutil
import signal
import socket
import subprocess
import sys
import time

START_SECONDS = 60
PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb")
LOG_SIZE = "--innodb-log-file-size=32M"
OPTIONS = (
    *("--max-allowed-packet=64M", "--innodb-buffer-pool-size=64M", "--skip-log-bin"),
    LOG_SIZE,
)


def missing():
    """The program that is not installed; None when all are there."""
    for program in PROGRAMS:
        if not shutil.which(program):
            print(f"SKIPPED: {program} is not installed (mariadb-server)", file=sys.stderr)
            return program
    return None


def install(folder):
    words = ["mariadb-install-db", "--no-defaults", "--skip-test-db", LOG_SIZE]
    words += [f"--user={getpass.getuser()}", f"--datadir={folder}"]
    words.append("--auth-root-authentication-method=normal")
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout


def installed_once(folder):
    """Installs into a folder, unless another process of these tests has done so."""
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            install(folder.with_suffix(".new"))
            folder.with_suffix(".new").rename(folder)
    return folder


class MariaDB:
    def __init__(self, folder, options=(), template=None, port=None):
        """`template` is installed once, and copied.  With a port the server listens there."""
        self.folder = folder
        self.socket = folder / "mariadb.sock"
        self.log = folder / "mariadb.log"
        self.options = [*OPTIONS, *options]
        listens = [f"--port={port}", "--bind-address=127.0.0.1"]
        self.network = listens if port else ["--skip-networking"]
        self.process = None
        self.count = 0
        user, data = f"--user={getpass.getuser()}", f"--datadir={folder / 'mariadb'}"
        self.place = [user, data]
        if template:
            shutil.copytree(installed_once(template), folder / "mariadb")
        else:
            install(folder / "mariadb")

    def start(self):
        words = ["mariadbd", "--no-defaults", *self.place, f"--socket={self.socket}"]
        words += [*self.network, *self.options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.02)
        return self

    def answers(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(5)
            with contextlib.suppress(OSError):
                probe.connect(str(self.socket))
                return bool(probe.recv(1))
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()

    def run(self, sql, database="mysql"):
        """The rows of a statement, as lists of texts."""
        words = ["mariadb", "--no-defaults", "-uroot", f"-S{self.socket}", "-BN", database]
        out = subprocess.run([*words, "-e", sql], check=True, capture_output=True, text=True)
        return [line.split("\t") for line in out.stdout.splitlines()]

    def database(self, user="root", password=""):
        """A new database."""
        self.count += 1
        name = f"neo{self.count}"
        self.run(f"CREATE DATABASE {name}")
        if user != "root":
            self.run(f"GRANT ALL ON {name}.* TO '{user}'@localhost IDENTIFIED BY '{password}'")
        return name

    def url(self, name, user="root"):
        return f"mysql://{user}@/{name}?unix_socket={self.socket}"

    def neo(self, name, user="root"):
        """The database as NEO's options name it."""
        return f"{user}@{name}{self.socket}"
