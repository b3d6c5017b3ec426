"""Keys of Redis and Valkey are taken over from their files."""

import contextlib
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import redis
from harness.keys import change, many_commands, snapshot
from harness.process import HOST, REPOSITORY
from harness.resp import PROGRAM, RespServer, StockServer, stock_program

pytestmark = pytest.mark.zodium
SAMPLES = REPOSITORY / "crates/rdb/tests/samples"


def run_import(source, file):
    words = [str(PROGRAM), "resp", "import", str(source), "--file", str(file)]
    return subprocess.run(words, capture_output=True, text=True)


def served(file):
    return RespServer(options=["--file", str(file)])


@pytest.mark.parametrize(
    "source", ["dump.rdb", "appendonlydir/appendonly.aof.manifest"], ids=["rdb", "aof"]
)
def test_files_of_valkey_are_imported(tmp_path, source):
    file = tmp_path / "keys.log"
    done = run_import(SAMPLES / source, file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Imported 17 keys" in done.stdout
    is_rdb = source == "dump.rdb"
    with served(file) as server, redis.Redis(HOST, server.port) as client:
        assert client.get("integer") == (b"-12345" if is_rdb else b"-12344")
        assert client.get("long") == b"abcabcabc" * 100
        assert client.lrange("list", 4, -1) == [b"4", b"text"] + [b"later"] * (not is_rdb)
        assert client.scard("set") == (3 if is_rdb else 2)
        assert client.zscore("zset", "c") == float("inf")
        assert client.execute_command("PEXPIRETIME", "expires") == 4102444800000
        assert client.xpending("stream", "group")["pending"] == 4
        assert client.xinfo_stream("stream")["entries-added"] == 150
        client.select(3)
        assert client.get("other") == (b"database" if is_rdb else b"database!")
    again = run_import(SAMPLES / source, file)
    assert again.returncode == 1 and "exists already" in again.stderr


def size_of(path):
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def test_a_killed_import_leaves_no_file_that_could_be_served(tmp_path):
    source, file = many_commands(tmp_path / "many.aof"), tmp_path / "keys.log"
    part = tmp_path / "keys.log.part"
    words = [str(PROGRAM), "resp", "import", str(source), "--file", str(file)]
    # One that ends before it is killed is no such import.
    for _ in range(10):
        file.unlink(missing_ok=True)
        with subprocess.Popen(words) as importing:
            while importing.poll() is None and size_of(part) < 1_000_000:
                time.sleep(0.01)
            importing.kill()
        if not file.exists():
            break
    assert part.exists() and not file.exists()
    done = run_import(source, file)
    assert (done.returncode, done.stderr) == (0, "")
    with served(file) as server, redis.Redis(HOST, server.port) as client:
        assert client.dbsize() == 200_000
    assert not part.exists()


def test_an_import_to_a_full_disk_leaves_nothing(tmp_path):
    source, file = many_commands(tmp_path / "many.aof"), tmp_path / "keys.log"
    words = [str(PROGRAM), "resp", "import", str(source), "--file", str(file)]
    limit = (1_000_000, resource.RLIM_INFINITY)
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 1 and "cannot write the keys" in done.stderr
    assert list(tmp_path.iterdir()) == [source]


def test_a_target_is_needed():
    words = [str(PROGRAM), "resp", "import", str(SAMPLES / "dump.rdb")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "<--file <PATH>|--to <ADDRESS>>" in done.stderr


def run_import_to(port, *options, source=SAMPLES / "dump.rdb"):
    words = [str(PROGRAM), "resp", "import", str(source), "--to", f"{HOST}:{port}", *options]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.parametrize("source", ["dump.rdb", "appendonlydir/appendonly.aof.manifest"])
def test_keys_are_imported_into_a_running_server(tmp_path, source):
    file = tmp_path / "keys.log"
    assert run_import(SAMPLES / source, file).returncode == 0
    password = tmp_path / "password"
    password.write_text("secret\n")
    options = ["--password-file", str(password)]
    with served(file) as server, redis.Redis(HOST, server.port) as client:
        wanted = snapshot(client)
        count = len(wanted)
    with RespServer(options=options) as server:
        with redis.Redis(HOST, server.port, password="secret") as client:
            refused = run_import_to(server.port, source=SAMPLES / source)
            assert refused.returncode == 1 and "NOAUTH" in refused.stderr
            client.set("list", "mine")
            done = run_import_to(server.port, *options, source=SAMPLES / source)
            assert (done.returncode, done.stderr) == (0, "")
            assert f"Copied {count - 1} keys" in done.stdout
            assert "1 keys were there already" in done.stdout and client.get("list") == b"mine"
            done = run_import_to(server.port, *options, "--replace", source=SAMPLES / source)
            assert f"Copied {count} keys" in done.stdout
            assert snapshot(client) == wanted
    gone = run_import_to(server.port)
    assert gone.returncode == 1 and "is the server running there?" in gone.stderr


@pytest.mark.skipif(stock_program() is None, reason="there is no Valkey: set VALKEY to its tree")
def test_keys_are_imported_into_a_running_valkey(tmp_path):
    file = tmp_path / "keys.log"
    assert run_import(SAMPLES / "dump.rdb", file).returncode == 0
    with served(file) as server, redis.Redis(HOST, server.port) as client:
        wanted = snapshot(client)
    with StockServer() as stock, redis.Redis(HOST, stock.port) as client:
        assert run_import_to(stock.port).returncode == 0
        assert snapshot(client) == wanted


def test_values_are_dumped_and_restored(tmp_path):
    file = tmp_path / "keys.log"
    assert run_import(SAMPLES / "dump.rdb", file).returncode == 0
    with served(file) as server, redis.Redis(HOST, server.port) as client:
        before = snapshot(client, [0])
        assert client.dump("none") is None
        for key in client.keys("*"):
            payload, time = client.dump(key), max(client.execute_command("PEXPIRETIME", key), 0)
            with pytest.raises(redis.ResponseError, match="BUSYKEY"):
                client.restore(key, 0, payload)
            with pytest.raises(redis.ResponseError, match="checksum"):
                client.restore("new", 0, payload[:-1] + bytes([payload[-1] ^ 1]))
            client.restore(key, time, payload, replace=True, absttl=True)
        assert snapshot(client, [0]) == before


@pytest.mark.skipif(stock_program() is None, reason="there is no Valkey: set VALKEY to its tree")
def test_a_real_valkey_restores_what_was_dumped(tmp_path):
    file = tmp_path / "keys.log"
    assert run_import(SAMPLES / "dump.rdb", file).returncode == 0
    with served(file) as server, StockServer() as stock:
        with redis.Redis(HOST, server.port) as ours, redis.Redis(HOST, stock.port) as theirs:
            for key in ours.keys("*"):
                theirs.restore(key, max(ours.pttl(key), 0), ours.dump(key))
                ours.restore(key, max(theirs.pttl(key), 0), theirs.dump(key), replace=True)
            one, other = snapshot(ours, [0]), snapshot(theirs, [0])
            one.pop((0, b"expires")), other.pop((0, b"expires"))
            assert one == other


def test_what_is_no_file_of_keys_is_refused(tmp_path):
    damaged = bytearray((SAMPLES / "dump.rdb").read_bytes())
    damaged[2000] ^= 1
    (tmp_path / "damaged.rdb").write_bytes(damaged)
    (tmp_path / "text").write_text("some text")
    for name, reason in [("damaged.rdb", "damaged"), ("text", "is no RDB file"), ("none", "none")]:
        done = run_import(tmp_path / name, tmp_path / "keys.log")
        assert done.returncode == 1 and reason in done.stderr
        assert not (tmp_path / "keys.log").exists()


def commands(*lines):
    """An append-only file of commands, one a line."""
    words = [line.split() for line in lines]
    bulks = ["".join(f"${len(word)}\r\n{word}\r\n" for word in line) for line in words]
    return "".join(f"*{len(line)}\r\n{bulk}" for line, bulk in zip(words, bulks)).encode()


def manifest_of(folder, parts, text=None):
    """The manifest of an append-only file in parts, the base first."""
    for name, data in parts.items():
        (folder / name).write_bytes(data)
    if text is None:
        lines = [
            f"file {name} seq {max(place, 1)} type {'i' if place else 'b'}\n"
            for place, name in enumerate(parts)
        ]
        text = "".join(lines)
    manifest = folder / "appendonly.aof.manifest"
    manifest.write_text(text)
    return manifest


def test_what_is_left_out_is_told(tmp_path):
    source = tmp_path / "a.aof"
    whole = commands("FUNCTION LOAD source", "SET a 1")
    source.write_bytes(whole + commands("MULTI", "SET a 2"))
    done = run_import(source, tmp_path / "keys.log")
    assert (done.returncode, done.stdout[:15]) == (0, "Imported 1 keys")
    functions, end = done.stderr.splitlines()
    assert f"{source}: left out 1 libraries of functions or commands" in functions
    assert f"left out what begins at byte {len(whole)}" in end


def test_collections_without_elements_are_left_out(tmp_path):
    source = tmp_path / "dump.rdb"
    empty = b"".join(b"\x01\x02k%d\x00" % number for number in range(10))
    source.write_bytes(b"REDIS0009" + empty + b"\x02\x03two\x00\x04\x05three\x00\xff" + bytes(8))
    done = run_import(source, tmp_path / "keys.log")
    assert (done.returncode, done.stdout[:15]) == (0, "Imported 0 keys")
    lines = done.stderr.splitlines()
    assert "left out the key 'k0' of database 0: a collection without elements" in lines[0]
    assert len(lines) == 11 and "left out 2 more" in lines[10]


def test_only_the_last_part_of_a_file_may_be_cut_off(tmp_path):
    parts = {name: commands(f"SET {name} 1") for name in ["base", "one", "two"]}
    for name in parts:
        for end in [commands("SET end 1")[:-3], commands("MULTI", "SET end 1")]:
            manifest = manifest_of(tmp_path, {**parts, name: parts[name] + end})
            file = tmp_path / "keys.log"
            done = run_import(manifest, file)
            assert f"{tmp_path / name} ends within a command or a transaction" in done.stderr
            if name == "two":
                assert done.returncode == 0 and "Imported 3 keys" in done.stdout
                file.unlink()
            else:
                assert done.returncode == 1 and "later parts follow" in done.stderr
                assert not file.exists()


def test_manifests_have_comments_and_quoted_names(tmp_path):
    parts = {"a base": b"#TS:1700000000\r\n" + commands("SET a 1"), "one": commands("SET b 1")}
    text = '# a comment\nfile "a base" seq 1 type b\nfile one seq 1 type i\n'
    manifest = manifest_of(tmp_path, parts, text)
    done = run_import(manifest, tmp_path / "keys.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Imported 2 keys" in done.stdout
    manifest.write_text(f"# itself\nfile {manifest.name} seq 1 type b\n")
    done = run_import(manifest, tmp_path / "other.log")
    assert done.returncode == 1 and "is a manifest within a manifest" in done.stderr


@pytest.mark.skipif(stock_program() is None, reason="there is no Valkey: set VALKEY to its tree")
def test_random_keys_of_a_real_valkey_are_imported(tmp_path, seeded):
    with StockServer() as stock, redis.Redis(HOST, stock.port) as client:
        for _ in range(1500):
            with contextlib.suppress(redis.ResponseError):
                change(client, seeded)
        for key in client.keys("*"):
            if 0 <= client.pttl(key) < 5000:
                client.persist(key)
        before = snapshot(client)
        client.config_set("rdbcompression", seeded.choice(["yes", "no"]))
        client.save()
        folder = Path(client.config_get("dir")["dir"])
        shutil.copy(folder / "dump.rdb", tmp_path)
    done = run_import(tmp_path / "dump.rdb", tmp_path / "keys.log")
    assert (done.returncode, done.stderr) == (0, "")
    with served(tmp_path / "keys.log") as server, redis.Redis(HOST, server.port) as client:
        after = snapshot(client)
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert after[key] == value
