"""Data files whose tids go back once: copyTransactionsFrom has copied two storages there."""

import pytest
from harness.files import read, tids_of
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import p64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60

TIDS = [p64((1 << 56) + (number << 32)) for number in (1, 3, 5, 7, 2, 4, 6, 8)]


def write(path, tids, first=0):
    """Each transaction writes the same objects, the first one the value `first`."""
    storage = FileStorage(str(path))
    for number, tid in enumerate(tids):
        value = number or first
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction, tid, " ")
        for oid in range(2):
            storage.restore(p64(oid), tid, zodb_pickle(MinPO(value)), "", None, transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
    storage.close()
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "Data.fs", TIDS)


def test_a_file_whose_last_transaction_is_not_the_latest_is_not_read_in_part(
    run, tmp_path, start_server
):
    path = write(tmp_path / "Data.fs", TIDS[:7])
    # The server leaves an index, which the commands use.
    start_server(path).stop()
    for arguments in [("backup", path, tmp_path / "backups"), ("copy", path, tmp_path / "copy.fs")]:
        code, _, said = run(*arguments)
        assert code == 2 and f"{TIDS[4].hex()} stands behind" in said
    code, said, _ = run("info", path)
    assert code == 0 and f"last_tid={TIDS[3].hex()}" in said


def test_a_large_file_is_not_read_in_part_because_of_its_index(run, tmp_path, start_server):
    latest = p64((1 << 56) + (1 << 48))
    behind = [p64((1 << 56) + (number << 32)) for number in range(2, 1100)]
    # More than is scanned because an index cannot be trusted, and than is looked at.
    path = write(tmp_path / "Data.fs", [TIDS[0], latest, *behind], "x" * (33 << 20))
    path.with_name("Data.fs.index").unlink()
    for _ in range(2):
        start_server(path).stop()
        code, said, _ = run("info", path)
        assert code == 0 and f"last_tid={latest.hex()}" in said
    for arguments in [("backup", path, tmp_path / "backups"), ("copy", path, tmp_path / "copy.fs")]:
        code, _, said = run(*arguments)
        assert code == 2 and f"{behind[0].hex()} stands behind" in said


def test_a_backup_that_could_not_be_restored_is_refused(run, path, tmp_path):
    code, _, said = run("backup", path, tmp_path / "backups")
    assert code == 2
    assert f"{TIDS[4].hex()} stands behind" in said and "--format repozo" in said
    assert not list(tmp_path.glob("backups/points/*"))


def test_a_copy_that_cannot_go_on_leaves_no_file(run, path, tmp_path):
    before = {found.name for found in tmp_path.iterdir()}
    code, _, said = run("copy", path, tmp_path / "copy.fs")
    assert code == 2
    assert f"{TIDS[4].hex()} stands behind {TIDS[3].hex()}" in said and "zodium recover" in said
    assert {found.name for found in tmp_path.iterdir()} == before


@pytest.mark.parametrize("target", ["Data.fs", "sqlite:Data.fs"])
def test_a_copy_that_cannot_go_on_removes_no_other_file(run, path, tmp_path, target):
    """Operators name what they keep by the name of the storage, the source of the copy too."""
    source = path.rename(tmp_path / "Data.fs.damaged")
    (tmp_path / "Data.fs.bak").write_bytes(b"kept")
    (tmp_path / "Data.fs-2026-11-01").write_bytes(b"kept")
    before = {found.name for found in tmp_path.iterdir()}
    scheme, name = target.rpartition(":")[::2]
    url = f"sqlite://{tmp_path / name}" if scheme else tmp_path / name
    content = source.read_bytes()
    assert run("copy", source, url)[0] == 2
    # An index without its file is renamed, as at each opening.
    assert {found.name.removesuffix(".lost") for found in tmp_path.iterdir()} == before
    assert not (tmp_path / name).exists() and source.read_bytes() == content
    assert run("copy", source, url)[2].count("data file is missing") == 0


def test_a_recovered_file_is_backed_up_restored_and_copied(run, path, tmp_path):
    recovered, restored, copied = (tmp_path / name for name in ("new.fs", "out.fs", "copy.fs"))
    assert run("recover", path, recovered)[0] == 1
    for arguments in [
        ("backup", recovered, tmp_path / "backups"),
        ("restore", tmp_path / "backups", restored),
        ("copy", recovered, copied),
    ]:
        code, _, said = run(*arguments)
        assert (code, said) == (0, "")
    assert tids_of(recovered) == sorted(tids_of(recovered))
    assert read(restored) == read(copied) == read(recovered)
    assert len(read(recovered)) == len(TIDS)
