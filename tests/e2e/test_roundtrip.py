"""What one side writes the other reads: Zodium and the stock FileStorage, one file.

Random histories go in through the server and come out of FileStorage, and the
reverse; each iteration must equal the model record by record.
"""

import subprocess
import sys

import pytest
import ZODB.FileStorage
from harness import files
from harness.history import History
from harness.wire import MAXTID
from ZODB.utils import z64


def write_through_server(server, connect, history, count):
    client = connect(server)
    history.write(client, count)
    client.close()


def write_through_stock(path, history, count):
    storage = ZODB.FileStorage.FileStorage(str(path))
    history.write(storage, count)
    storage.close()


def assert_serves(server, history, wire):
    """Every current object is loaded as the history has it, deleted ones are not."""
    client = wire(server)
    for oid, (data, tid) in history.current().items():
        assert client.call("loadBefore", oid, MAXTID) == (data, tid, None)
    return client


def test_server_writes_stock_reads(tmp_path, start_server, connect, wire, seeded, encoding, scale):
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    history = History(seeded)
    write_through_server(server, connect, history, int(200 * scale))
    assert_serves(server, history, wire)
    files.assert_same(files.snapshot(connect(server)), history.transactions)
    assert server.stop() == 0
    files.check(path)
    files.assert_same(files.read(path), history.transactions)


def test_stock_writes_server_reads(tmp_path, start_server, connect, wire, seeded, encoding, scale):
    path = tmp_path / "Data.fs"
    history = History(seeded)
    write_through_stock(path, history, int(200 * scale))
    server = start_server(path, encoding=encoding)
    assert wire(server).register_tid == history.last_tid
    assert_serves(server, history, wire)
    client = connect(server)
    files.assert_same(files.snapshot(client), history.transactions)
    middle = history.transactions[len(history.transactions) // 2].tid
    expected = [txn for txn in history.transactions if txn.tid >= middle]
    files.assert_same(files.snapshot(client, middle), expected)


def test_every_revision_is_loaded(tmp_path, start_server, wire, seeded, encoding):
    path = tmp_path / "Data.fs"
    history = History(seeded)
    write_through_stock(path, history, 100)
    client = wire(start_server(path, encoding=encoding))
    for oid, revisions in history.revisions.items():
        ends = [tid for tid, _ in revisions[1:]] + [None]
        for (tid, data), end in zip(revisions, ends):
            if data is not None:
                before = files.tid_after(tid)
                assert client.call("loadBefore", oid, before) == (data, tid, end)
                assert client.call("loadSerial", oid, tid) == data
        assert client.call("loadBefore", oid, z64) is None


def test_hundred_rounds_on_one_file(tmp_path, start_server, connect, wire, seeded, encoding, scale):
    path = tmp_path / "Data.fs"
    history = History(seeded)
    for number in range(int(100 * scale)):
        server = start_server(path, encoding=encoding)
        assert wire(server).register_tid == history.last_tid
        write_through_server(server, connect, history, 2)
        assert server.stop() == 0
        write_through_stock(path, history, 2)
        if number % 20 == 0:
            files.check(path)
            files.assert_same(files.read(path), history.transactions)
    files.check(path)
    files.assert_same(files.read(path), history.transactions)
    server = start_server(path, encoding=encoding)
    assert_serves(server, history, wire)
    files.assert_same(files.snapshot(connect(server)), history.transactions)


def test_a_whole_storage_is_copied_in(tmp_path, start_server, connect, seeded, encoding):
    source = tmp_path / "source.fs"
    history = History(seeded)
    write_through_stock(source, history, 100)
    path = tmp_path / "Data.fs"
    server = start_server(path, encoding=encoding)
    storage = ZODB.FileStorage.FileStorage(str(source), read_only=True)
    connect(server).copyTransactionsFrom(storage)
    storage.close()
    server.stop()
    files.check(path)
    files.assert_same(files.read(path), history.transactions)


def test_stock_tools_accept_the_file(tmp_path, start_server, connect, seeded):
    path = tmp_path / "Data.fs"
    server = start_server(path)
    history = History(seeded)
    write_through_server(server, connect, history, 30)
    server.stop()
    tested = run_tool("ZODB.scripts.fstest", path)
    assert tested.returncode == 0 and not tested.stderr
    dumped = run_tool("ZODB.FileStorage.fsdump", path)
    assert dumped.returncode == 0, dumped.stderr
    assert dumped.stdout.count("Trans #") == len(history.transactions)


def test_repozo_backs_up_while_the_server_serves(tmp_path, start_server, connect, seeded):
    path, backups = tmp_path / "Data.fs", tmp_path / "backups"
    backups.mkdir()
    server = start_server(path)
    history = History(seeded)
    write_through_server(server, connect, history, 20)
    repozo("-B", "-F", "-r", backups, "-f", path)
    write_through_server(server, connect, history, 20)
    # Names of backups count in seconds: the second one must not be the first.
    (full,) = backups.glob("*.fs")
    full.rename(backups / "2001-01-01-00-00-00.fs")
    (backups / full.with_suffix(".dat").name).rename(backups / "2001-01-01-00-00-00.dat")
    listed = backups / "2001-01-01-00-00-00.dat"
    listed.write_text(listed.read_text().replace(full.name, "2001-01-01-00-00-00.fs"))
    repozo("-B", "-r", backups, "-f", path)
    assert list(backups.glob("*.deltafs")), "no incremental backup was made"
    repozo("-R", "-r", backups, "-o", tmp_path / "recovered.fs")
    files.check(tmp_path / "recovered.fs")
    files.assert_same(files.read(tmp_path / "recovered.fs"), history.transactions)


def repozo(*words):
    done = run_tool("ZODB.scripts.repozo", *words)
    assert done.returncode == 0, done.stderr


def run_tool(module, *words):
    """Run a stock tool as its command would."""
    code = f"import sys; from {module} import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
    )


# The stock server of Python 3 does not open files of Python 2.
@pytest.mark.parametrize("magic", [b"FS30", pytest.param(b"FS21", marks=pytest.mark.zodium)])
def test_the_magic_is_kept(tmp_path, start_server, wire, magic):
    path = tmp_path / "Data.fs"
    path.write_bytes(magic)
    server = start_server(path)
    client = wire(server)
    client.commit(1, [(z64, z64, b"data")])
    server.stop()
    assert path.read_bytes()[:4] == magic
