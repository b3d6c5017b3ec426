"""zodium backup --watch, encrypted repositories, and counts of kills, restores and flipped bits.

ZODIUM_TEST_LARGE=1    200 kills of the archiver, 200 restores, 1,000 flipped bits
"""

import contextlib
import hashlib
import os
import signal
import threading
import time

import pytest
import ZODB
from harness.archiver import Archiver
from harness.blobs import digests
from harness.databases import add_change, write_database
from harness.process import ServerProcess
from persistent.mapping import PersistentMapping
from ZEO.ClientStorage import ClientStorage
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage

pytestmark = pytest.mark.zodium

IS_LONG = os.environ.get("ZODIUM_TEST_LARGE") == "1"
KILLS = 200 if IS_LONG else 3
RESTORES = 200 if IS_LONG else 3
FLIPS = 1000 if IS_LONG else 12
RUN_SECONDS = 120


@pytest.fixture
def archive(binary, tmp_path):
    """archive(storage, *options): a running archiver, which ends with the test."""
    archivers = []

    def start(storage, *options, repository=tmp_path / "backups", name="archiver"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        archivers.append(Archiver(binary, storage, repository, folder, *options))
        return archivers[-1].start()

    yield start
    for archiver in archivers:
        archiver.close()
        print(f"--- {archiver.log_path}\n{archiver.log()}")


@pytest.fixture
def key(tmp_path, seeded):
    path = tmp_path / "key"
    path.write_text(seeded.randbytes(32).hex() + "\n")
    path.chmod(0o600)
    return path


def succeed(run, *words):
    code, out, said = run(*words)
    assert (code, said) == (0, ""), said
    return out


class Site:
    """A server with blobs, and a client of it."""

    def __init__(self, start_server, folder, random):
        self.folder, self.random, self.start_server = folder, random, start_server
        self.path, self.blobs = folder / "Data.fs", folder / "blobs"
        self.server = start_server(self.path, "--blob-dir", str(self.blobs))
        self.url = self.server.url
        self.open()

    def restart(self):
        self.server = ServerProcess(self.server.words, self.server.port, self.folder)
        self.start_server.servers.append(self.server)
        self.open()

    def open(self):
        cache = str(self.folder / "cache")
        self.storage = ClientStorage(self.server.address, blob_dir=cache, wait=True)
        self.database = ZODB.DB(self.storage)

    def commit(self, count=1):
        for _ in range(count):
            with self.database.transaction() as connection:
                root = connection.root()
                number = self.random.randrange(8)
                root[f"m{number}"] = PersistentMapping(x="y" * self.random.randrange(3000))
                if self.random.random() < 0.3:
                    root[f"b{number}"] = Blob(self.random.randbytes(self.random.randrange(30000)))
        return self.storage.lastTransaction()

    def close(self):
        self.database.close()


@pytest.fixture
def site(start_server, tmp_path, seeded):
    site = Site(start_server, tmp_path, seeded)
    yield site
    site.close()


def restore(run, folder, output, *options):
    blobs = output.with_suffix(".blobs")
    succeed(run, "restore", folder, output, "--blob-dir", blobs, *options)
    return output.read_bytes(), digests(blobs)


def blobs_until(site, tid):
    return {blob: digest for blob, digest in digests(site.blobs).items() if blob[1] <= tid}


def test_what_is_committed_is_archived_while_it_is_served(run, archive, site, tmp_path):
    site.commit(3)
    archiver = archive(site.url)
    for _ in range(5):
        archiver.wait_for_tid(site.commit(4))
    # Killed: all that was told to be archived is there.
    archiver.kill()
    tid = site.storage.lastTransaction()
    data, blobs = restore(run, tmp_path / "backups", tmp_path / "killed.fs")
    assert data == site.path.read_bytes()[: len(data)] and blobs == blobs_until(site, tid)
    assert f"last_tid={tid.hex()}" in succeed(run, "info", tmp_path / "killed.fs")
    # The next one goes on, with what was committed meanwhile.
    site.commit(2)
    archiver = archive(site.url)
    archiver.wait(lambda it: it["transactions"] == 2, "it has archived what it missed")
    archiver.wait_for_tid(site.commit(3))
    archiver.wait(lambda it: it["transactions"] == 5, "it has archived the others")
    # Told to end, it leaves one complete point.
    assert archiver.stop() == 0
    assert archiver.status()["state"] == "ended"
    site.server.stop()
    data, blobs = restore(run, tmp_path / "backups", tmp_path / "all.fs")
    assert (data, blobs) == (site.path.read_bytes(), digests(site.blobs))
    assert run("backup", "--verify", tmp_path / "backups")[0] == 0


def test_one_archiver_at_a_time(run, archive, site, tmp_path):
    first = archive(site.url)
    first.wait_for_tid(site.commit())
    for words in (["--watch"], []):
        code, _, said = run("backup", site.url, tmp_path / "backups", *words)
        assert code == 2 and "another backup" in said
    assert run("prune", tmp_path / "backups", "--keep-last", 1)[0] == 2
    first.wait_for_tid(site.commit())
    first.kill()
    # The lock of a process ends with it.
    assert run("backup", site.url, tmp_path / "backups")[0] == 0


def test_the_archiver_outlives_its_server(run, archive, site, tmp_path):
    archiver = archive(site.url)
    archiver.wait_for_tid(site.commit(2))
    site.close()
    site.server.kill()
    archiver.wait(lambda it: it["state"] == "retrying" and it["error"], "the server is missed")
    site.restart()
    archiver.wait_for_tid(site.commit(2))
    archiver.wait(lambda it: it["state"] == "following", "it goes on")
    assert archiver.stop() == 0
    site.server.stop()
    data, _ = restore(run, tmp_path / "backups", tmp_path / "out.fs")
    assert data == site.path.read_bytes()


def test_a_served_file_is_followed_over_a_pack(run, archive, site, tmp_path):
    site.commit(20)
    archiver = archive(site.path, "--blob-dir", site.blobs)
    archiver.wait_for_tid(site.commit(10))
    archiver.wait_until_reread()
    before = archiver.status()["point"]
    size = site.path.stat().st_size
    succeed(run, "pack", f"127.0.0.1:{site.server.port}")
    assert site.path.stat().st_size < size
    tid = site.commit(3)
    archiver.wait_for_tid(tid)
    archiver.wait(lambda it: it["point"] > before + 1 and not it["rereading"], "the pack was seen")
    assert archiver.stop() == 0
    site.server.stop()
    data, _ = restore(run, tmp_path / "backups", tmp_path / "packed.fs")
    assert run("cmp", site.path, tmp_path / "packed.fs")[0] == 0
    assert len(data) < size


@pytest.mark.parametrize("is_served", [True, False])
def test_a_roll_back_leaves_nothing_undone_in_the_archive(run, archive, site, tmp_path, is_served):
    """An earlier copy is put back, and gets more than the file had before the archiver looks."""
    options = [] if is_served else ["--blob-dir", site.blobs]
    archiver = archive(site.url if is_served else site.path, *options)
    archiver.wait_for_tid(site.commit(3))
    site.close()
    site.server.stop()
    earlier = site.path.read_bytes()
    site.restart()
    archiver.wait_for_tid(site.commit(3))
    archiver.wait_until_reread()
    archiver.process.send_signal(signal.SIGSTOP)
    site.close()
    site.server.stop()
    site.path.write_bytes(earlier)
    site.restart()
    tid = site.commit(12)
    archiver.process.send_signal(signal.SIGCONT)
    archiver.wait_for_tid(tid)
    archiver.wait_until_reread()
    assert archiver.stop() == 0
    assert "all of it is read again" in archiver.log()
    site.server.stop()
    restored, _ = restore(run, tmp_path / "backups", tmp_path / "out.fs")
    assert restored == site.path.read_bytes()


def test_commits_come_fast_and_all_is_killed(run, archive, site, tmp_path):
    """What is lost is less than a second of commits."""
    archiver = archive(site.url)
    archiver.wait_for_tid(site.commit())
    committed, is_over = [], threading.Event()

    def commit():
        with contextlib.suppress(Exception):
            while not is_over.is_set():
                committed.append((time.monotonic(), site.commit()))

    thread = threading.Thread(target=commit)
    thread.start()
    archiver.wait(lambda it: it["transactions"] > (5000 if IS_LONG else 100), "transactions")
    killed = time.monotonic()
    archiver.kill()
    site.server.kill()
    is_over.set()
    site.close()
    thread.join()
    restore(run, tmp_path / "backups", tmp_path / "out.fs")
    storage = FileStorage(str(tmp_path / "out.fs"), read_only=True)
    last = storage.lastTransaction()
    storage.close()
    lost = [at for at, tid in committed if tid > last]
    rate = len(committed) / (committed[-1][0] - committed[0][0])
    ages = [killed - at for at in lost[:1]]
    print(f"{rate:.0f} commits a second, {len(lost)} lost, the oldest of {ages} seconds")
    assert not lost or killed - lost[0] < (1 if IS_LONG else 5), lost


def test_kills_of_the_archiver_lose_nothing_that_was_archived(run, archive, site, tmp_path, seeded):
    repository = tmp_path / "backups"
    for number in range(KILLS):
        archiver = archive(site.url)
        if seeded.random() < 0.7:
            tid = site.commit(3)
            archiver.wait_for_tid(tid)
            time.sleep(seeded.random() * 0.05)
        else:
            tid = None
            time.sleep(seeded.random() * 0.2)
        site.commit(2)
        archiver.kill()
        code, _, said = run("backup", "--verify", repository)
        assert code == 0 or (tid is None and code == 2 and "no repository" in said), said
        if tid is None or number % 10:
            continue
        output = tmp_path / f"{number}.fs"
        data, blobs = restore(run, repository, output, "--at", tid.hex())
        assert site.path.read_bytes().startswith(data)
        assert blobs == blobs_until(site, tid)
    succeed(run, "backup", site.url, repository)
    site.server.stop()
    data, blobs = restore(run, repository, tmp_path / "all.fs")
    assert (data, blobs) == (site.path.read_bytes(), digests(site.blobs))


def test_any_transaction_is_restored_with_its_blobs(run, archive, site, tmp_path, seeded):
    repository = tmp_path / "backups"
    tids = [site.commit() for _ in range(10)]
    archiver = archive(site.url)
    for _ in range(30):
        tids.append(site.commit())
        archiver.wait_for_tid(tids[-1])
    archiver.kill()
    site.server.stop()
    whole = site.path.read_bytes()
    for number in range(RESTORES):
        tid = seeded.choice(tids)
        output = tmp_path / f"{number}.fs"
        data, blobs = restore(run, repository, output, "--at", tid.hex())
        assert whole.startswith(data) and blobs == blobs_until(site, tid)
        storage = FileStorage(str(output), read_only=True)
        assert storage.lastTransaction() == tid
        storage.close()


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_flipped_bits_are_all_found(run, archive, site, tmp_path, seeded, key, is_encrypted):
    repository = tmp_path / "backups"
    options = ["--key-file", key] if is_encrypted else []
    archiver = archive(site.url, *options)
    for _ in range(5):
        archiver.wait_for_tid(site.commit(3))
    archiver.kill()
    files = [file for file in repository.rglob("*") if file.is_file() and file.name != "tmp.tmp"]
    for number in range(FLIPS // 2):
        file = seeded.choice(files)
        whole = file.read_bytes()
        data = bytearray(whole)
        data[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
        file.write_bytes(data)
        # Of an encrypted repository also without its key.
        with_key = options if number % 2 or file.name == "zodium-backup" else []
        assert run("backup", "--verify", repository, *with_key)[0] in (1, 2), file
        file.write_bytes(whole)
    assert run("backup", "--verify", repository, *options)[0] == 0


def test_an_encrypted_repository_shows_nothing_without_its_key(
    run, archive, site, tmp_path, seeded, key
):
    repository, options = tmp_path / "backups", ["--key-file", key]
    with site.database.transaction() as connection:
        connection.root()["secret"] = PersistentMapping(text="a well known text" * 100)
    archiver = archive(site.url, *options)
    tid = site.commit(10)
    archiver.wait_for_tid(tid)
    assert archiver.stop() == 0
    data, blobs = restore(run, repository, tmp_path / "out.fs", *options)
    assert site.path.read_bytes().startswith(data) and blobs == blobs_until(site, tid)
    # The same is found again.
    assert succeed(run, "backup", site.url, repository, *options) == "no changes\n"
    for file in repository.rglob("*"):
        if file.is_file():
            assert b"well known" not in file.read_bytes() and tid.hex() not in str(file)
            assert b"transactions" not in file.read_bytes()
            # No name tells a content that is guessed.
            assert file.name != hashlib.sha256(file.read_bytes()).hexdigest()
    other = tmp_path / "other"
    other.write_text("00" * 32)
    other.chmod(0o600)
    for words in ([], ["--key-file", other]):
        output = tmp_path / "none.fs"
        code, _, said = run("restore", repository, output, *words)
        assert code == 2 and "key" in said and not output.exists()
        assert run("backup", site.url, repository, *words)[0] == 2
    # Without the key it is seen that each object is as it was written.
    out = succeed(run, "backup", "--verify", repository)
    assert "restore points" in out and "encrypted" in out
    assert succeed(run, "backup", "--verify", repository, *options).startswith("whole")


def write_history(path, random, in_transaction):
    """A file of which a pack frees about a tenth, all over its older half: 400 objects, so many in
    each transaction, and some of them once more."""
    database = ZODB.DB(FileStorage(str(path)))

    def write(numbers):
        with database.transaction() as connection:
            root = connection.root()
            for number in numbers:
                folder = root.setdefault(f"f{number // 20}", PersistentMapping())
                item = folder.setdefault(f"n{number}", PersistentMapping())
                item["x"] = random.randbytes(20_000)

    for first in range(0, 400, in_transaction):
        write(range(first, first + in_transaction))
    again = range(0, 200, 5)
    for first in range(0, len(again), in_transaction):
        write(again[first : first + in_transaction])
    return database


@pytest.mark.parametrize("in_transaction", [1, 400])
def test_after_a_pack_little_is_uploaded(run, tmp_path, seeded, in_transaction):
    path, repository = tmp_path / "Data.fs", tmp_path / "backups"
    database = write_history(path, seeded, in_transaction)
    succeed(run, "backup", path, repository)
    size = path.stat().st_size
    database.pack(time.time())
    database.close()
    freed = 1 - path.stat().st_size / size
    assert 0.05 < freed < 0.2
    stored = sum(file.stat().st_size for file in repository.rglob("*") if file.is_file())
    succeed(run, "backup", path, repository)
    now = sum(file.stat().st_size for file in repository.rglob("*") if file.is_file())
    print(f"freed {freed:.1%}, uploaded {(now - stored) / path.stat().st_size:.1%}")
    assert (now - stored) / path.stat().st_size < 0.15
    output = tmp_path / "packed.fs"
    succeed(run, "restore", repository, output)
    assert run("cmp", path, output)[0] == 0


def test_what_a_prune_keeps_is_whole_beside_continued_points(run, archive, tmp_path, seeded):
    path, repository = tmp_path / "Data.fs", tmp_path / "backups"
    write_database(path, seeded)
    archiver = archive(path)
    for _ in range(4):
        archiver.wait_for_tid(add_change(path, seeded))
    archiver.kill()
    points = len(list((repository / "points").iterdir()))
    assert points > 2
    assert "0 restore points removed" in succeed(
        run, "prune", repository, "--keep-last", str(points)
    )
    succeed(run, "prune", repository, "--keep-last", "1")
    assert run("backup", "--verify", repository)[0] == 0
    succeed(run, "restore", repository, tmp_path / "out.fs")
    assert (tmp_path / "out.fs").read_bytes() == path.read_bytes()


def test_a_database_in_sqlite_is_followed_without_a_lock_against_itself(
    run, archive, tmp_path, seeded
):
    path, database = tmp_path / "Data.fs", tmp_path / "q.sqlite"
    write_database(path, seeded)
    succeed(run, "copy", path, f"sqlite://{database}")
    archiver = archive(f"sqlite://{database}")
    archiver.wait(lambda status: status["state"] == "following", "following")
    # It opens the database anew each second.
    time.sleep(2.5)
    assert archiver.status()["errors"] == 0, archiver.log()
    assert archiver.stop() == 0
