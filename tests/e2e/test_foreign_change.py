"""Other programs at the data file of a running server.

A second server is refused, whatever it calls the file and whatever became of the lock file. A
file that is replaced, cut or written to takes no more commits, and nothing that was acknowledged
is lost: it is in the file that the server still has open, and has a second name here.
"""

import os
import pickle
import re
import shutil
import time

import pytest
from harness import files
from harness.monitor import Monitor
from harness.process import HOST, START_SECONDS, ServerProcess, free_port
from harness.waiting import wait_for
from harness.wire import Z64, ErrorReply

pytestmark = pytest.mark.zodium


def commit(client, number, data=b"data"):
    """Commit one new object."""
    return client.commit(number, [(files.oid_of(number), Z64, data)])


def refused(start, path):
    """What a server says that cannot have the file."""
    second = start(path, wait=False)
    assert second.process.wait(START_SECONDS) != 0
    return second.log()


def names(folder):
    """A name of the same file by each way in which a file can have two."""
    (folder / "links").mkdir()
    (folder / "soft.fs").symlink_to("Data.fs")
    (folder / "links" / "soft.fs").symlink_to(folder / "soft.fs")
    os.link(folder / "Data.fs", folder / "hard.fs")
    (folder / "other").symlink_to(folder)
    return ["Data.fs", "soft.fs", "links/soft.fs", "hard.fs", "other/Data.fs", "other/hard.fs"]


@pytest.mark.parametrize("lock_file", ["kept", "removed"])
def test_a_second_server_is_refused_under_every_name(tmp_path, start_server, wire, lock_file):
    folder = tmp_path / "files"
    folder.mkdir()
    server = start_server(folder / "Data.fs")
    client = wire(server)
    kept = [commit(client, 1)]
    for name in names(folder):
        if lock_file == "removed":
            (folder / "Data.fs.lock").unlink(missing_ok=True)
        told = refused(start_server, folder / name)
        assert f"locked by process {server.process.pid}" in told, (name, told)
        assert "stop that process, or serve another file" in told
        kept.append(commit(client, len(kept) + 1))
    assert server.stop() == 0
    files.check(folder / "Data.fs")
    assert [txn.tid for txn in files.read(folder / "Data.fs")] == kept


def test_one_server_is_refused_two_names_of_one_file(tmp_path, binary):
    (tmp_path / "Data.fs").write_bytes(b"FS30")
    for name in names(tmp_path):
        words = [binary, "serve", "-a", f"{HOST}:{free_port()}"]
        words += ["-f", str(tmp_path / "Data.fs"), "-f", str(tmp_path / name)]
        server = ServerProcess(words, free_port(), tmp_path, wait=False)
        assert server.process.wait(START_SECONDS) != 0
        told = server.log()
        assert re.search(r"storages 1 and 2 are one file|storage 2: .*locked by this process", told)


def test_through_a_link_the_file_itself_is_served_packed_and_served_again(
    tmp_path, start_server, wire
):
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "soft.fs").symlink_to(folder / "Data.fs")
    server = start_server(tmp_path / "soft.fs")
    client = wire(server)
    revisions = [pickle.dumps(None) + pickle.dumps(text) for text in ("first", "second", "third")]
    tid = client.commit(1, [(Z64, Z64, revisions[0])])
    tid = client.commit(2, [(Z64, tid, revisions[1])])
    client.call("pack", time.time() + 1, True)
    tid = client.commit(3, [(Z64, tid, revisions[2])])
    assert server.stop() == 0
    assert (tmp_path / "soft.fs").is_symlink()
    assert [txn.records[0].data for txn in files.read(folder / "Data.fs")] == revisions[1:]
    assert (folder / "Data.fs.index").exists()
    client = wire(start_server(folder / "Data.fs"))
    assert client.register_tid == tid


def replace(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[:-1] + b"x")
    other.rename(path)


def rename(path):
    path.rename(path.with_name("aside"))


def restore_an_older_backup(path):
    """With the same inode, as `cp` does."""
    path.write_bytes(path.with_name("backup").read_bytes())


def cut(path):
    os.truncate(path, path.stat().st_size - 10)


def write(path):
    with open(path, "ab") as file:
        file.write(b"foreign")


@pytest.mark.parametrize("deed", [replace, rename, restore_an_older_backup, cut, write])
def test_a_file_that_another_program_changes_takes_no_more_commits(
    tmp_path, start_server, wire, deed
):
    path, monitor = tmp_path / "Data.fs", Monitor()
    server = start_server(path, *monitor.options)
    client = wire(server)
    kept = [commit(client, 1)]
    shutil.copy(path, tmp_path / "backup")
    kept.append(commit(client, 2))
    os.link(path, tmp_path / "open.fs")
    before = (tmp_path / "open.fs").read_bytes()
    assert monitor.fetch("/health")[0] == 200
    deed(path)
    left = path.read_bytes() if path.exists() else None
    for number in (3, 4, 5):
        with pytest.raises(ErrorReply):
            commit(client, number)
        client.notify("tpc_abort", number)
    code, _, body = monitor.fetch("/health")
    assert code == 503 and b"another program changed its file" in body, body
    data, tid, _ = client.call("loadBefore", files.oid_of(1), files.tid_after(kept[0]))
    assert (data, tid) == (b"data", kept[0]), "reads go on"
    time.sleep(2.5)  # It looks again, and finds the same.
    with pytest.raises(ErrorReply):
        commit(client, 6)
    errors = [line for line in server.log().splitlines() if re.search(" (WARN|ERROR) ", line)]
    assert len(errors) == 1 and " ERROR " in errors[0] and str(path) in errors[0], errors
    server.stop()
    assert (path.read_bytes() if path.exists() else None) == left, "nothing was written to it"
    if deed in (replace, rename):
        files.check(tmp_path / "open.fs")
        assert [txn.tid for txn in files.read(tmp_path / "open.fs")] == kept
        assert (tmp_path / "open.fs").read_bytes() == before
    if deed is write:
        assert left[: len(before)] == before


def test_commits_go_on_when_the_file_is_put_back(tmp_path, start_server, wire):
    path, monitor = tmp_path / "Data.fs", Monitor()
    server = start_server(path, *monitor.options)
    client = wire(server)
    kept = [commit(client, 1)]
    path.rename(tmp_path / "aside")
    with pytest.raises(ErrorReply):
        commit(client, 2)
    client.notify("tpc_abort", 2)
    (tmp_path / "aside").rename(path)
    wait_for(lambda: monitor.fetch("/health")[0] == 200, lambda: monitor.fetch("/health"))
    kept.append(commit(client, 3))
    assert server.stop() == 0
    files.check(path)
    assert [txn.tid for txn in files.read(path)] == kept
