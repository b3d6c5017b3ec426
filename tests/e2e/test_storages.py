"""Several storages in one server: each its own file, clients, and invalidations."""

import os
import subprocess

import pytest
from harness import files
from harness.process import HOST, ServerProcess, free_port
from harness.wire import Z64, ErrorReply, Wire
from ZEO.ClientStorage import ClientStorage
from ZODB import DB

pytestmark = pytest.mark.zodium


@pytest.fixture
def serve(binary, tmp_path):
    """serve(*words): a server started with these words."""
    servers = []

    def start(*words, port=None, **options):
        port = port or free_port()
        words = [binary, "serve", "-a", f"{HOST}:{port}", *map(str, words)]
        servers.append(ServerProcess(words, port, tmp_path, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
        print(f"--- {server.log_path.name}\n{server.log_tail()}")


def test_files_given_as_for_runzeo_are_storages_1_2_3(tmp_path, serve):
    paths = [tmp_path / name for name in ("a.fs", "b.fs", "c.fs")]
    paths[0].write_bytes(b"FS30")
    server = serve(paths[0], "-f", paths[1], "--filename", paths[2], "-t", "30")
    for number, path in enumerate(paths, 1):
        with Wire(server.address) as client:
            client.register(str(number))
            client.commit(1, [(Z64, Z64, path.name.encode())])
    assert server.stop() == 0
    for path in paths:
        assert [record.data for record in files.read(path)[0].records] == [path.name.encode()]


@pytest.mark.parametrize("words", [("-C", "zeo.conf"), ("-f", "site.fs")])
def test_a_command_after_the_options_is_no_new_database(tmp_path, binary, words):
    (tmp_path / "zeo.conf").write_text(
        f"<zeo>\naddress {free_port()}\n</zeo>\n<filestorage>\npath site.fs\n</filestorage>\n"
    )
    words = [binary, "serve", "-a", f"{HOST}:{free_port()}", *words, "start"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "is named with -f: -f start" in done.stderr
    assert os.listdir(tmp_path) == ["zeo.conf"]


def test_a_storage_that_is_not_there_is_named(tmp_path, serve):
    server = serve("-f", tmp_path / "a.fs", "-f", tmp_path / "b.fs")
    with Wire(server.address) as client, pytest.raises(ErrorReply):
        client.register("3")


def test_transactions_and_invalidations_of_two_storages_do_not_meet(tmp_path, serve):
    server = serve("-f", tmp_path / "a.fs", "-f", tmp_path / "b.fs")
    clients = [open_db(server, name) for name in ("1", "2", "1", "2")]
    try:
        writers, readers = clients[:2], clients[2:]
        for round_ in range(5):
            for name, db in zip("12", writers, strict=True):
                with db.transaction() as connection:
                    connection.root()["said"] = f"{name}-{round_}"
            for name, db in zip("12", readers, strict=True):
                with db.transaction() as connection:
                    assert connection.root()["said"] == f"{name}-{round_}"
        assert writers[0].lastTransaction() != writers[1].lastTransaction()
        lengths = [len(db.storage.undoInfo(0, 100)) for db in writers]
        assert lengths == [6, 6]  # the root, and five rounds
    finally:
        for db in clients:
            db.close()


def test_a_vote_in_one_storage_locks_nothing_in_the_other(tmp_path, serve):
    server = serve("-f", tmp_path / "a.fs", "-f", tmp_path / "b.fs")
    with Wire(server.address) as first, Wire(server.address) as second:
        first.register("1")
        second.register("2")
        first.notify("tpc_begin", 1, b"", b"", {}, None, " ")
        first.notify("storea", Z64, Z64, b"voted", 1)
        first.call("vote", 1)
        second.commit(2, [(Z64, Z64, b"same oid, same moment")])
        first.call("tpc_finish", 1)


def open_db(server, name):
    options = {"wait": True, "wait_timeout": 30, "server_sync": True}
    return DB(ClientStorage(server.address, storage=name, **options))


def test_when_one_cannot_be_opened_the_others_are_closed_again(tmp_path, binary):
    good, bad = tmp_path / "good.fs", tmp_path / "bad.fs"
    bad.write_bytes(b"SQLite format 3\0" + bytes(100))
    words = [binary, "serve", "-a", f"{HOST}:{free_port()}", "-f", good, "-f", bad]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "storage 2" in done.stderr and str(bad) in done.stderr
    assert good.with_name("good.fs.index").exists(), "closed in order"
