"""A NEO database in SQLite, served to stock ZEO clients.

NEOPPOD          a checkout of NEO/py, and
NEOPPOD_PYTHON   a Python with msgpack and six: NEO's own adapter reads the database too
"""

import os
import shutil
import sqlite3

import pytest
from harness.failing_disk import FailingDisk
from harness.monitor import Monitor
from harness.neo_databases import (
    commit_through_kills,
    commit_undo_and_pack,
    opening,
    records_by_neo,
    records_by_zeo,
    serving,
    set_values,
    values_of,
)
from harness.process import ServerFailed
from harness.waiting import wait_for

pytestmark = pytest.mark.zodium
ROUNDS = 6


@pytest.fixture
def path(tmp_path):
    return tmp_path / "neo.sqlite"


@pytest.fixture
def serve(path, tmp_path):
    """serve(*options): a server of the database."""
    with serving(tmp_path) as start:
        yield lambda *options, url=None, prefix=(): start(
            url or f"sqlite://{path}", *options, prefix=prefix
        )


@pytest.fixture
def open_database():
    """open_database(server): a ZODB database over a stock client."""
    with opening() as open_one:
        yield open_one


def test_objects_history_undo_and_pack(serve, open_database, path):
    expected = commit_undo_and_pack(serve, open_database)
    found = records_by_neo(path)
    assert found is None or found == expected


def test_acknowledged_commits_survive_kills(serve, open_database, path, seeded):
    server = commit_through_kills(serve, open_database, ROUNDS, seeded)
    expected = records_by_zeo(server)
    server.stop()
    check = sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()
    assert check == ("ok",)
    found = records_by_neo(path)
    assert found is None or found == expected


def test_others_can_read_and_none_can_serve_it_too(serve, open_database, path):
    database = open_database(serve())
    set_values(database, a=1)
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    assert reader.execute("SELECT COUNT(*) FROM trans").fetchone()[0] >= 2
    with pytest.raises(ServerFailed, match="in use by another process"):
        serve()
    set_values(database, a=2)


def test_the_cluster_has_the_name_that_was_asked_for(serve, path):
    serve(url=f"sqlite://{path}?cluster=production").stop()
    config = dict(sqlite3.connect(path).execute("SELECT name, value FROM config"))
    wanted = {"version": "4", "name": "production", "nid": "1", "ptid": "1", "replicas": "0"}
    assert config == wanted
    serve().stop()
    with pytest.raises(ServerFailed, match="belongs to the cluster"):
        serve(url=f"sqlite://{path}?cluster=other")


def test_the_monitor_has_no_figures_of_what_a_database_lacks(serve):
    monitor = Monitor()
    serve(*monitor.options)
    monitor.wait_serving()
    (storage,) = monitor.status()["storages"]
    assert storage["cache"] is None and storage["checksums"] is None
    names = {name for name, _ in monitor.samples().values}
    assert "zodium_commits_total" in names
    assert not [name for name in names if name.startswith(("zodium_cache", "zodium_checksum"))]


def test_blobs_are_refused(serve, tmp_path):
    with pytest.raises(ServerFailed, match="has no blobs"):
        serve("--blob-dir", str(tmp_path / "blobs"))


def test_a_database_in_a_read_only_folder_is_served_read_only(
    serve, open_database, tmp_path, read_only_folder
):
    # SQLite finds its files by their path in a URI.
    url = f"sqlite://{tmp_path}/sealed/a%20%231%3F.sqlite"
    server = serve(url=url)
    set_values(open_database(server), a=1)
    server.stop()
    with pytest.raises(ServerFailed, match="read-only"):
        serve(url=url, prefix=read_only_folder)
    server = serve("--read-only", url=url, prefix=read_only_folder)
    assert values_of(open_database(server, read_only=True)) == {"a": 1}


@pytest.mark.parametrize("way", ["mv", "rm"])
def test_a_backup_that_is_restored_while_the_database_is_served_is_what_the_next_start_serves(
    serve, open_database, path, way
):
    server = serve()
    set_values(open_database(server), a=1)
    assert server.stop() == 0
    shutil.copy(path, path.with_suffix(".backup"))
    server = serve()
    database = open_database(server)
    for a in range(2, 300):
        set_values(database, a=a, data="x" * 4000)
    if way == "rm":
        path.unlink()
        assert server.stop() == 1
    path.with_suffix(".backup").rename(path)
    if way == "mv":
        with pytest.raises(Exception, match="removed, renamed or replaced"):
            set_values(database, a=1000)
        assert server.stop() == 1
    log = f"{path}-wal.replaced"
    assert os.path.getsize(log) > 0 and f"Its log is now {log}" in server.log()
    server = serve()
    assert values_of(open_database(server)) == {"a": 1}
    assert "there is the log of an earlier file" in server.log()
    set_values(open_database(server), a=2)
    assert server.stop() == 0


def test_a_full_disk_refuses_commits_and_reads_go_on(serve, open_database, tmp_path, tiny_disk):
    server = serve(url=f"sqlite://{tmp_path}/small/neo.sqlite", prefix=tiny_disk)
    database = open_database(server)
    set_values(database, a=1)
    with pytest.raises(Exception, match="no space left"):
        set_values(database, large=os.urandom(900_000))
    assert values_of(database) == {"a": 1}
    set_values(database, a=2)
    assert values_of(database) == {"a": 2}


def test_a_commit_whose_sync_failed_stays_refused_after_a_kill(
    serve, open_database, path, tmp_path
):
    disk = FailingDisk(tmp_path, path.with_name(f"{path.name}-wal"))
    server = serve(prefix=disk.prefix)
    database = open_database(server)
    set_values(database, a=1)
    disk.set(syncs=1)
    with pytest.raises(Exception, match="disk I/O error"):
        set_values(database, a=2)
    assert disk.failures_left() == (0, 0)
    wait_for(lambda: "reopened the file after a failed write" in server.log(), server.log)
    server.kill()
    assert values_of(open_database(serve())) == {"a": 1}
