"""Commands that ask a server, or work on a file without one: pack, healthcheck.

The stock zeopack asks our server, and ours asks the stock one.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import pytest
import ZODB.FileStorage
from harness import files
from harness.process import free_port
from harness.servers import stock_server
from persistent.mapping import PersistentMapping
from ZODB.utils import p64

ZEOPACK = str(Path(sys.executable).with_name("zeopack"))
DAY = 86400


def run(*words, **environment):
    """The command's exit code, and what it said."""
    environment = {**os.environ, **environment}
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=60, env=environment
    )
    return done.returncode, done.stdout + done.stderr


def write_history(path, transactions=40, size=1000):
    """A root that changes, with garbage left behind by each transaction."""
    storage = ZODB.FileStorage.FileStorage(str(path))
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["things"] = PersistentMapping()
    for number in range(transactions):
        with database.transaction() as connection:
            connection.root()["thing"] = PersistentMapping(data=b"%d" % (number % 10) * size)
    database.close()
    return path.stat().st_size


@pytest.mark.zodium
class TestPackOfAServer:
    def test_over_tcp_and_a_unix_socket(self, tmp_path, binary, start_server, encoding):
        path, unix = tmp_path / "Data.fs", tmp_path / "zeo.sock"
        size = write_history(path)
        server = start_server(path, "-a", str(unix), encoding=encoding)
        code, said = run(binary, "pack", "{}:{}".format(*server.address), "--days", "1")
        assert code == 0, said
        assert "0 % freed" in said
        code, said = run(binary, "pack", unix)
        assert code == 0, said
        assert re.search(r"before, .* after \(9\d % freed\)\nobjects: 4\d before, 3 after", said)
        assert path.stat().st_size < size / 5
        assert server.stop() == 0
        files.check(path)

    def test_to_a_time(self, tmp_path, binary, start_server):
        path = tmp_path / "Data.fs"
        size = write_history(path)
        server = start_server(path)
        address = "{}:{}".format(*server.address)
        code, said = run(binary, "pack", address, "--to", "2001-01-31T12:00")
        assert (code, path.stat().st_size) == (0, size), said
        tomorrow = time.strftime("%Y-%m-%d", time.localtime(time.time() + 2 * DAY))
        code, said = run(binary, "pack", address, "-t", tomorrow)
        assert code == 0, said
        assert path.stat().st_size < size / 5

    def test_what_a_server_refuses_is_told(self, tmp_path, binary, start_server):
        path = tmp_path / "Data.fs"
        write_history(path)
        server = start_server(path, "--read-only")
        address = "{}:{}".format(*server.address)
        code, said = run(binary, "pack", address)
        assert code == 1
        assert f"storage 1 of {address} was not packed" in said
        assert "ReadOnlyError" in said
        code, said = run(binary, "pack", address, "-s", "other")
        assert (code, "unknown storage: other" in said) == (1, True), said
        for option in ("--no-gc", "--no-keep-old", "--abort-on-dangling"):
            code, said = run(binary, "pack", address, option)
            assert (code, f"{option} cannot be passed to a server" in said) == (1, True), said
        code, said = run(binary, "pack", f"127.0.0.1:{free_port()}")
        assert (code, "cannot connect to 127.0.0.1" in said) == (1, True), said

    def test_the_stock_server_is_asked_as_well(self, tmp_path, binary, encoding):
        size = write_history(tmp_path / "Data.fs")
        server = stock_server(tmp_path, encoding)
        try:
            code, said = run(binary, "pack", "{}:{}".format(*server.address))
            assert code == 0, said
            assert (tmp_path / "Data.fs").stat().st_size < size / 5
            assert run(binary, "healthcheck", "{}:{}".format(*server.address)) == (0, "")
        finally:
            server.kill()


@pytest.mark.zodium
class TestPackOfAFile:
    def test_a_file_is_packed_in_its_place(self, tmp_path, binary):
        path = tmp_path / "Data.fs"
        size = write_history(path)
        code, said = run(binary, "pack", path)
        assert code == 0, said
        assert re.search(r"\(9\d % freed\)\nobjects: 4\d before, 3 after\n", said), said
        assert path.stat().st_size < size / 5
        assert (tmp_path / "Data.fs.old").stat().st_size == size
        files.check(path)
        code, said = run(binary, "pack", path)
        assert (code, said.strip()) == (0, "nothing to pack")

    def test_garbage_and_the_old_file_as_asked(self, tmp_path, binary):
        path = tmp_path / "Data.fs"
        write_history(path)
        code, said = run(binary, "pack", path, "--no-gc", "--no-keep-old")
        assert code == 0, said
        assert "objects: 42 before, 42 after" in said
        assert not (tmp_path / "Data.fs.old").exists()

    def test_a_file_that_is_served_is_left_to_its_server(self, tmp_path, binary, start_server):
        path = tmp_path / "Data.fs"
        size = write_history(path)
        start_server(path)
        code, said = run(binary, "pack", path)
        assert code == 1
        assert "this file is being served: give the server's address instead" in said
        assert path.stat().st_size == size

    def test_wrong_targets(self, tmp_path, binary):
        (tmp_path / "Data.fs").write_bytes(b"no database")
        for target, expected in [
            (tmp_path / "nothing.fs", "no such file or socket"),
            ("nothing.fs", "there is no such file, nor is it a server"),
            (tmp_path, "neither a data file nor a socket"),
            (tmp_path / "Data.fs", "not a FileStorage"),
        ]:
            code, said = run(binary, "pack", target)
            assert (code, expected in said) == (1, True), said
        assert not (tmp_path / "nothing.fs").exists()


@pytest.mark.zodium
class TestDanglingReferences:
    @pytest.fixture
    def damaged(self, tmp_path):
        """A file in which the root refers to 300 objects that a wrong pack has dropped."""
        path = tmp_path / "Data.fs"
        storage = ZODB.FileStorage.FileStorage(str(path))
        database = ZODB.DB(storage)
        with database.transaction() as connection:
            things = connection.root()["things"] = PersistentMapping()
            for number in range(300):
                things[number] = PersistentMapping()
        with database.transaction() as connection:
            connection.root()["more"] = 1
        database.close()
        storage = ZODB.FileStorage.FileStorage(str(path))
        # Only the root and what it refers to are followed.
        storage.pack(time.time(), lambda data, oids=None: [p64(1)])
        storage.close()
        return path

    def test_they_are_reported_and_the_pack_goes_on(self, damaged, start_server, wire):
        server = start_server(damaged)
        client = wire(server)
        assert client.call("pack", time.time()) is None
        log = server.log_path.read_text()
        first = (
            r"object 0000000000000001 \(persistent.mapping.PersistentMapping\) refers to object "
            r"[0-9a-f]{16}, which does not exist"
        )
        assert len(re.findall(first, log)) == 100
        assert re.search("references to objects that do not exist.*references=300", log)

    def test_a_pack_that_gives_up_leaves_the_file(self, damaged, binary):
        before = damaged.read_bytes()
        code, said = run(binary, "pack", damaged, "--abort-on-dangling")
        assert (code, "not packed, 300 references lead to no object" in said) == (1, True), said
        assert damaged.read_bytes() == before
        assert run(binary, "pack", damaged)[0] == 0


@pytest.mark.zodium
class TestStockZeopack:
    """Every option of the script that operators have in their crontabs."""

    @pytest.fixture
    def served(self, tmp_path, start_server):
        """Two storages, on TCP and a Unix socket."""
        paths = [tmp_path / "one.fs", tmp_path / "two.fs"]
        sizes = {path: write_history(path) for path in paths}
        unix = tmp_path / "zeo.sock"
        server = start_server(paths[0], "-f", str(paths[1]), "-a", str(unix))
        host, port = server.address
        return host, port, unix, sizes

    def packed(self, sizes):
        """Which of the files have been packed."""
        return [path.stat().st_size < size / 5 for path, size in sizes.items()]

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (["{host}:{port}"], [True, False]),
            (["{host}:{port}:2"], [False, True]),
            (["{host}:{port}:1", "{host}:{port}:2"], [True, True]),
            (["-u", "{unix}"], [True, False]),
            (["-u", "{unix}:2", "--unix", "{unix}:1"], [True, True]),
            (["-h", "{host}", "-p", "{port}"], [True, False]),
            (["-h", "{host}", "-p", "{port}", "-S", "2"], [False, True]),
            (["-U", "{unix}", "-S", "2"], [False, True]),
            (["-d", "1", "{host}:{port}"], [False, False]),
            (["--days", "-1", "{host}:{port}"], [True, False]),
            (["-d", "-1", "-t", "03:30", "{host}:{port}"], [True, False]),
            (["-d", "-2", "--time", "03:30:15", "{host}:{port}"], [True, False]),
            (["-d", "2", "-t", "3", "{host}:{port}"], [False, False]),
        ],
        ids=lambda value: "_".join(map(str, value)) if isinstance(value, list) else "",
    )
    def test_options(self, served, words, expected):
        host, port, unix, sizes = served
        words = [word.format(host=host, port=port, unix=unix) for word in words]
        code, said = run(ZEOPACK, *words)
        assert (code, said) == (0, "")
        assert self.packed(sizes) == expected

    def test_an_unknown_storage_is_an_error(self, served):
        host, port, _, sizes = served
        # It asks for an unknown storage again and again; what counts is that nothing is packed.
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run([ZEOPACK, f"{host}:{port}:three"], timeout=3, capture_output=True)
        assert self.packed(sizes) == [False, False]


@pytest.mark.zodium
class TestHealthcheck:
    def test_a_server_that_answers_is_well(self, tmp_path, binary, start_server, encoding):
        unix = tmp_path / "zeo.sock"
        server = start_server(tmp_path / "Data.fs", "-a", str(unix), encoding=encoding)
        address = "{}:{}".format(*server.address)
        assert run(binary, "healthcheck", address) == (0, "")
        assert run(binary, "healthcheck", unix, "-s", "1") == (0, "")
        code, said = run(binary, "healthcheck", address, "--storage", "main")
        assert (code, said) == (1, f"zodium: {address} serves no storage main, but 1\n")
        # As in a container, whose server has the same environment.
        environment = {"ZODIUM_ADDRESS": f"0.0.0.0:{server.address[1]},{unix}"}
        assert run(binary, "healthcheck", **environment) == (0, "")
        assert run(binary, "healthcheck", unix, **environment) == (0, "")
        code, said = run(binary, "healthcheck", ZODIUM_ADDRESS="no port")
        assert code == 1 and "ZODIUM_ADDRESS: " in said

    def test_what_does_not_answer_is_not(self, binary):
        code, said = run(binary, "healthcheck", f"127.0.0.1:{free_port()}")
        assert (code, said.count("\n")) == (1, 1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = "{}:{}".format(*listener.getsockname())
            code, said = run(binary, "healthcheck", address, "-t", "0.2")
            assert (code, said.count("\n")) == (1, 1)
            assert said.startswith("zodium: no answer from the server within 0.2 seconds; if it ")
            speaker = threading.Thread(target=say, args=(listener, b"HTTP/1.1 200 OK\r\n\r\n"))
            speaker.start()
            code, said = run(binary, "healthcheck", address)
            speaker.join()
            assert (code, said.count("\n")) == (1, 1)
            assert "this is not a ZEO server" in said


def say(listener, words):
    # The first in the queue is the one that was left alone.
    listener.accept()[0].close()
    connection, _ = listener.accept()
    with connection:
        connection.sendall(words)
        connection.recv(100)


@pytest.mark.zodium
def test_a_kill_during_an_offline_pack_leaves_a_whole_file(tmp_path, binary, seeded, scale):
    original = tmp_path / "original.fs"
    # Half of it is in use.
    write_history(original, 100, 200_000)
    storage = ZODB.FileStorage.FileStorage(str(original))
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["used"] = [PersistentMapping(data=b"x" * 200_000) for _ in range(100)]
    database.close()
    path = tmp_path / "Data.fs"
    shutil.copy(original, path)
    started = time.monotonic()
    assert run(binary, "pack", path)[0] == 0
    seconds = time.monotonic() - started
    packed = path.read_bytes()
    for _ in range(int(6 * scale)):
        shutil.copy(original, path)
        process = subprocess.Popen(
            [binary, "pack", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(seeded.uniform(0, seconds * 1.1))
        process.kill()
        process.wait()
        assert path.read_bytes() in (original.read_bytes(), packed)
        # What it has left behind is in nobody's way.
        assert run(binary, "pack", path)[0] == 0
        assert path.read_bytes() == packed


@pytest.mark.zodium
class TestStatus:
    def test_any_server_is_shown(self, start_server, tmp_path, binary, encoding):
        path = tmp_path / "Data.fs"
        write_history(path)
        stock = stock_server(tmp_path, encoding)
        try:
            code, said = run(binary, "status", "{}:{}".format(*stock.address))
            assert (code, said.splitlines()[1].split()[0]) == (0, "STORAGE"), said
        finally:
            stock.kill()
        address = "{}:{}".format(*start_server(path, encoding=encoding).address)
        code, said = run(binary, "status", address)
        assert (code, said.startswith(f"{address}, started ")) == (0, True), said
        assert said.splitlines()[2].split()[0] == "1"
        code, said = run(binary, "status", address, "--json")
        (line,) = said.splitlines()
        assert json.loads(line)["storages"]["1"]["commits"] == 0
        code, said = run(binary, "healthcheck", address, "--json")
        assert (code, json.loads(said)["status"]) == (0, "ok")

    def test_rates_are_shown_while_it_is_watched(self, start_server, wire, tmp_path, binary):
        server = start_server(tmp_path / "Data.fs")
        words = [binary, "status", "{}:{}".format(*server.address), "--watch", "0.1"]
        watching = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            lines = iter(watching.stdout.readline, "")
            rows = (line.split() for line in lines if line.startswith("1 "))
            assert next(rows)[3] == "-"
            client = wire(server)
            # So many that they are one a second also where a round takes long.
            for number in range(1, 21):
                client.commit(number, [(p64(number), p64(0), b"data")])
            last = next(row for row in islice(rows, 600) if int(row[3]) > 0)
            assert 1 <= int(last[2]) <= 20
            # A server that goes away, and comes back, is still watched.
            server.kill()
            assert any("zodium:" in line for line in islice(lines, 50))
        finally:
            watching.kill()

    def test_the_address_may_follow_the_option(self, start_server, tmp_path, binary):
        address = "{}:{}".format(*start_server(tmp_path / "Data.fs").address)
        words = [binary, "status", "--watch", address]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout.readline().startswith(f"{address}, started")
            watching.kill()
        code, said = run(binary, "status", address, "--watch", address)
        assert code == 1 and "one server is enough" in said

    def test_what_does_not_answer_is_told(self, binary):
        address = f"127.0.0.1:{free_port()}"
        code, said = run(binary, "status", address)
        assert (code, "cannot connect to 127.0.0.1" in said) == (1, True), said
        code, said = run(binary, "healthcheck", address, "--json")
        assert (code, json.loads(said)["status"]) == (1, "failed")
