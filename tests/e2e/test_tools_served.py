"""The tools on storages that are being served: over ZEO, and the file beside its server."""

import os
import subprocess
from contextlib import ExitStack, closing
from hashlib import sha1

import pytest
import transaction
import ZODB
from BTrees.Length import Length
from harness import files
from harness.databases import with_transaction, write_database
from harness.monitor import Monitor
from harness.servers import stock_server
from harness.waiting import wait_for
from harness.wire import Z64, Wire
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


@pytest.fixture
def run(run_bytes):
    return run_bytes


def test_storages_of_a_server_have_names(run, start_server, tmp_path):
    address = "{}:{}".format(*start_server(tmp_path / "Data.fs").address)
    assert run("info", f"{address}/1") == run("info", address)
    code, out, said = run("info", f"{address}/main")
    assert (code, out) == (2, b"") and f"`zodium status {address}` lists the storages" in said


def test_a_served_storage_is_read_like_its_file(run, start_server, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    write_database(path, seeded)
    expected = run("dump", path)
    url = start_server(path).url
    assert run("dump", url) == expected
    assert run("dump", path) == expected
    assert run("cmp", "-v", url, path) == (0, b"equal\n", "")
    for words in (["analyze", "-c"], ["stats"], ["refs"]):
        assert run(*words, url) == run(*words, path), words
    code, out, _ = run("info", url)
    lines = dict(line.split("=", 1) for line in out.decode().splitlines())
    assert (code, lines["size"]) == (0, str(path.stat().st_size))
    assert lines["name"] == f"('127.0.0.1', {url.rsplit(':', 1)[1]}) (connected)"
    tail = run("tail", "-n", "2", url)[1].decode()
    assert tail.count("tid=") == 2 and lines["head"] in tail
    head = lines["head"]
    assert run("catobj", url, f"{head}:{0:016x}") == run("catobj", path, f"{head}:{0:016x}")


def test_the_tail_of_a_server_costs_what_it_shows(run, start_server, tmp_path):
    """However much was committed just before."""
    monitor = Monitor()
    server = start_server(tmp_path / "Data.fs", *monitor.options)
    with Wire(server.address) as client:
        client.register()
        tids = [client.commit(n, [(p64(n), Z64, os.urandom(100_000))]) for n in range(1, 61)]
        before = monitor.samples()["zodium_network_sent_bytes_total"]
        for count in (1, 3, 60, 90):
            said = run("tail", "-n", str(count), server.url)[1].decode()
            told = [line.split("tid=")[1] for line in said.splitlines() if "tid=" in line]
            assert told == [tid.hex() for tid in tids[-count:][::-1]]
            assert said.count("records=1") == len(told)
            now = monitor.samples()["zodium_network_sent_bytes_total"]
            assert now - before < 100_000 * (len(told) + 4)
            before = now


def test_a_stock_server_is_read_too(run, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    write_database(path, seeded, odd=False)
    server = stock_server(tmp_path, "Z5")
    try:
        assert run("cmp", "-v", server.url, path) == (0, b"equal\n", "")
        assert run("stats", server.url) == run("stats", path)
    finally:
        server.kill()


def test_a_dump_is_loaded_and_committed_through_a_server(run, start_server, tmp_path, seeded):
    path, served = tmp_path / "from.fs", tmp_path / "Data.fs"
    write_database(path, seeded, odd=False)
    url = start_server(served).url
    dump = run("dump", path)[1]
    code, out, said = run("load", url, given=dump)
    assert (code, said) == (0, "") and len(out.split()) == dump.count(b"\n\ntxn ") + 1
    assert run("cmp", "-v", url, path) == (0, b"equal\n", "")
    head = run("info", url, "head")[1].decode().strip()
    text = b'user "me"\ndescription ""\nextension ""\nobj 0000000000000000 from %s\n\n'
    code, out, said = run("commit", url, head, given=text % head.encode())
    assert (code, said) == (0, "")
    assert run("info", url, "head")[1] == out
    code, out, said = run("commit", url, head, given=text % head.encode())
    assert (code, out) == (2, b"") and "conflict" in said
    assert run("load", "-q", served, given=b"")[0] == 2


@pytest.fixture(params=["file", "server", "stock"])
def served(request, start_server, tmp_path):
    """served(path): the name of a storage, which is that file or has a server."""
    with ExitStack() as stack:

        def serve(path):
            if request.param == "file":
                return path
            if request.param == "server":
                return start_server(path).url
            server = stock_server(tmp_path, "Z5")
            stack.callback(server.kill)
            return server.url

        yield serve


def dump_of(oid, data):
    """A transaction for `zodium commit`: one object, or its deletion."""
    head = b'user ""\ndescription ""\nextension ""\nobj %s' % oid.hex().encode()
    if data is None:
        return head + b" delete\n\n"
    return head + b" %d sha1:%s\n%s\n\n" % (len(data), sha1(data).hexdigest().encode(), data)


def test_a_commit_upon_an_earlier_transaction_is_the_same_everywhere(run, served, tmp_path):
    """A server merges changes of one Length, and stores upon the serial of a deletion."""
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        storage = database.storage
        with database.transaction() as connection:
            root = connection.root()
            root["length"], root["gone"] = Length(), Length(7)
            connection.savepoint()
            length, gone = root["length"]._p_oid, root["gone"]._p_oid
        data, before = storage.load(length)
        with database.transaction() as connection:
            connection.root()["length"].change(5)
        serial = storage.load(gone)[1]
        with_transaction(storage, lambda txn: storage.deleteObject(gone, serial, txn))
        after = storage.lastTransaction()
    changed = data.replace(b"K\0.", b"K\x64.")
    assert changed != data
    storage = served(path)
    for oid, at, body, why in [
        (length, before, changed, f"object {length.hex()} was changed"),
        (length, before, None, f"object {length.hex()} was changed by transaction"),
        (gone, bytes(8), data, f"object {gone.hex()} was changed by transaction {after.hex()}"),
        (gone, after, None, "there is none to delete"),
    ]:
        code, out, said = run("commit", storage, at.hex(), given=dump_of(oid, body))
        assert (code, out, why in said) == (2, b"", True), said
    assert run("info", storage, "head")[1].decode().strip() == after.hex()
    for oid in (gone, p64(99)):
        code, _, said = run("commit", storage, after.hex(), given=dump_of(oid, data))
        assert (code, said) == (0, "")


def test_commits_are_watched_in_a_file_and_on_a_server(binary, start_server, tmp_path):
    path = tmp_path / "Data.fs"
    ZODB.DB(FileStorage(str(path))).close()
    server = start_server(path)
    watching, printed = [], [tmp_path / "of-the-file", tmp_path / "of-the-server"]
    for place, output in zip((path, server.url), printed):
        with open(output, "w") as out:
            watching.append(subprocess.Popen([binary, "watch", "-v", str(place)], stdout=out))

    def wait_printed(number, text):
        output = printed[number]
        wait_for(lambda: output.read_text() == text, lambda: f"{output.read_text()}, not {text}")

    try:
        for output in printed:
            wait_for(lambda output=output: output.read_text().endswith("\n"), "the first line")
        begin = printed[0].read_text()
        assert begin.startswith("# at 0") and printed[1].read_text() == begin
        database = ZODB.DB(ClientStorage(server.address, wait=True))
        expected = begin
        for number in range(5):
            with database.transaction() as connection:
                connection.root()["x"] = PersistentMapping(n=number)
            storage = database.storage
            newest = files.read(path, storage.lastTransaction())[-1]
            oids, tid = [record.oid for record in newest.records], newest.tid.hex()
            expected += f"txn {tid}\n" + "".join(f"obj {oid.hex()}\n" for oid in oids) + "\n"
            if number == 2:
                # Another file takes its place, without the old revisions.
                wait_printed(0, expected)
                database.pack()
        database.close()
        for number in range(2):
            wait_printed(number, expected)
        server.stop()
        watching[1].wait(RUN_SECONDS)
        assert printed[1].read_text() == expected + "# storage closed\n"
        watching[0].terminate()
        watching[0].wait(RUN_SECONDS)
        assert printed[0].read_text() == expected
    finally:
        for process in watching:
            process.kill()
            process.wait()


def test_a_storage_of_a_configuration_is_named(run, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    write_database(path, seeded)
    config = tmp_path / "zeo.conf"
    config.write_text(
        f"<zeo>\n  address 8100\n</zeo>\n<filestorage main>\n  path {path}\n</filestorage>\n"
    )
    assert run("dump", "-C", config, "-s", "main") == run("dump", path)
    head = run("info", path, "head")[1].decode().strip()
    assert run("dump", "-C", config, f"{head}..") == run("dump", path, f"{head}..")
    assert run("dump", "-C", config, "-s", "other")[0] == 2
    transaction.abort()
