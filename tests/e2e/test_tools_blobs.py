"""Blobs in copies, backups and packs by tools: those that are missing, damaged or left out."""

import contextlib
import json
import stat

import pytest
import ZODB
from harness.archiver import Archiver
from harness.blobs import digests
from harness.files import tids_of
from harness.process import free_port
from ZODB.blob import Blob
from ZODB.FileStorage import FileStorage

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60


@pytest.fixture
def many(tmp_path):
    """A data file and its blobs: five of one transaction, and then two more."""
    path, blobs = tmp_path / "Data.fs", tmp_path / "blobs"
    database = ZODB.DB(FileStorage(str(path), blob_dir=str(blobs)))
    for names in ("abcde", "f", "g"):
        with database.transaction() as connection:
            for name in names:
                connection.root()[name] = Blob(name.encode() * 1000)
    database.close()
    return path, blobs


def test_lengths_of_all_blobs_of_a_transaction_are_recorded(run, many, tmp_path):
    path, blobs = many
    assert run("backup", path, tmp_path / "backups", "--blob-dir", blobs)[0] == 0
    restored, copied = tmp_path / "restored.fs", tmp_path / "copied.fs"
    options = ("--blob-dir", tmp_path / "restored")
    assert run("restore", tmp_path / "backups", restored, *options)[0] == 0
    options = ("--blob-dir", blobs, "--to-blob-dir", tmp_path / "copied")
    assert run("copy", path, copied, *options)[0] == 0
    for name in ("restored", "copied"):
        folder = tmp_path / name
        words = ("check", tmp_path / f"{name}.fs", "--blob-dir", folder, "--blob-data")
        code, out, _ = run(*words)
        assert code == 0 and "7 blobs" in out and "0 without a recorded length" in out, name
        # Damage in each of them is found.
        for blob in folder.rglob("*.blob"):
            content = blob.read_bytes()
            blob.chmod(0o600)
            blob.write_bytes(content[:-1] + b"x")
            code, out, _ = run(*words)
            assert code == 1 and "1 damaged" in out, blob
            blob.write_bytes(content)


def test_a_copy_says_which_blobs_it_lacks(run, many, tmp_path):
    path, blobs = many
    code, out, said = run("copy", path, tmp_path / "without.fs", "--json")
    assert code == 0 and "7 records are of blobs" in said
    assert (json.loads(out)["blobs_left_out"], json.loads(out)["missing_blobs"]) == (7, 0)
    next(blobs.rglob("*.blob")).unlink()
    options = ("--blob-dir", blobs, "--to-blob-dir", tmp_path / "copied", "--json")
    code, out, said = run("copy", path, tmp_path / "copied.fs", *options)
    assert code == 1 and "1 blobs were not found" in said
    assert (json.loads(out)["blobs_left_out"], json.loads(out)["missing_blobs"]) == (0, 1)


@pytest.fixture(params=["changed", "shortened"])
def damaged(run, many, tmp_path, request):
    """As `many`, with lengths and sums recorded, and a damaged blob with its sound content."""
    path, blobs = tmp_path / "Damaged.fs", tmp_path / "damaged"
    assert run("copy", many[0], path, "--blob-dir", many[1], "--to-blob-dir", blobs)[0] == 0
    blob = min(blobs.rglob("*.blob"))
    content = blob.read_bytes()
    blob.chmod(0o600)
    blob.write_bytes({"changed": content[:-1] + b"x", "shortened": content[:-1]}[request.param])
    return path, blobs, blob, content


def assert_damage_is_told(blob, code, out, said):
    assert code == 1 and f"zodium: {blob}: the blob of object" in said
    assert "1 blobs are damaged" in said and "not found" not in said
    assert (json.loads(out)["missing_blobs"], json.loads(out)["damaged_blobs"]) == (1, 1)


def test_damaged_blobs_are_left_out_of_copies_and_backups(run, damaged, tmp_path):
    path, blobs, blob, content = damaged
    options = ("--blob-dir", blobs, "--to-blob-dir", tmp_path / "copied", "--json")
    assert_damage_is_told(blob, *run("copy", path, tmp_path / "copied.fs", *options))
    place = blob.relative_to(blobs)
    assert not (tmp_path / "copied" / place).exists()
    backup = ("backup", path, tmp_path / "backups", "--blob-dir", blobs, "--json")
    assert_damage_is_told(blob, *run(*backup))
    restore = ("restore", tmp_path / "backups")
    code, _, said = run(*restore, tmp_path / "0.fs", "--blob-dir", tmp_path / "0")
    assert code == 1 and "1 blobs are neither" in said and not (tmp_path / "0" / place).exists()
    # Once it is put back, both make up for it.
    blob.write_bytes(content)
    code, out, said = run("copy", path, tmp_path / "copied.fs", "--incremental", *options)
    assert (code, said) == (0, "") and digests(tmp_path / "copied") == digests(blobs)
    check = ("check", tmp_path / "copied.fs", "--blob-dir", tmp_path / "copied", "--blob-data")
    code, out, _ = run(*check)
    assert code == 0 and "7 blobs" in out and "0 without a recorded length" in out
    code, out, said = run(*backup)
    assert (code, said) == (0, "") and json.loads(out)["missing_blobs"] == 0
    code, _, said = run(*restore, tmp_path / "1.fs", "--blob-dir", tmp_path / "1")
    assert (code, said) == (0, "") and digests(tmp_path / "1") == digests(blobs)


def test_damaged_blobs_of_a_server_are_named(run, damaged, tmp_path, start_server):
    path, blobs, blob, content = damaged
    url = start_server(path, "--blob-dir", str(blobs)).url
    options = ("--to-blob-dir", tmp_path / "copied", "--json")
    assert_damage_is_told(blob, *run("copy", url, tmp_path / "copied.fs", *options))
    backup = ("backup", url, tmp_path / "backups", "--json")
    assert_damage_is_told(blob, *run(*backup))
    blob.write_bytes(content)
    code, out, said = run(*backup)
    assert (code, said) == (0, "") and json.loads(out)["missing_blobs"] == 0


def test_a_copy_of_a_blob_directory_is_open_to_the_same_users(run, many, tmp_path):
    path, blobs = many
    for mode in (0o700, 0o750, 0o555):
        blobs.chmod(mode)
        copied = tmp_path / f"{mode:o}"
        options = ("--blob-dir", blobs, "--to-blob-dir", copied)
        assert run("copy", path, tmp_path / f"{mode:o}.fs", *options)[0] == 0
        assert stat.S_IMODE(copied.stat().st_mode) == mode | 0o700
    blobs.chmod(0o755)


def test_half_of_a_blob_is_no_copy_of_it(run, many, tmp_path):
    path, blobs = many
    options = ("--blob-dir", blobs, "--to-blob-dir", tmp_path / "copied")
    for blob in blobs.rglob("*.blob"):
        half = tmp_path / "copied" / blob.relative_to(blobs)
        half.parent.mkdir(parents=True)
        half.write_bytes(blob.read_bytes()[:-1])
    code, _, said = run("copy", path, tmp_path / "copied.fs", *options)
    assert (code, said) == (0, "") and digests(tmp_path / "copied") == digests(blobs)


def test_a_copy_that_goes_on_copies_the_blobs_that_were_left_out(run, many, tmp_path):
    path, blobs = many
    middle = tids_of(path)[-2].hex()
    copy = ("copy", path, tmp_path / "copy.fs")
    assert run(*copy, "--at", middle)[0] == 0
    options = ("--incremental", "--blob-dir", blobs, "--to-blob-dir", tmp_path / "copied")
    assert run(*copy, *options)[0] == 0
    assert digests(tmp_path / "copied") == digests(blobs)
    for folder in (blobs, tmp_path / "copied"):
        min(folder.rglob("*.blob")).unlink()
    code, out, said = run(*copy, *options, "--json")
    assert code == 1 and "1 blobs were not found" in said
    assert json.loads(out)["missing_blobs"] == 1


def test_a_pack_without_its_blob_directory_is_refused(run, many, tmp_path):
    path, blobs = many
    before = path.read_bytes()
    code, _, said = run("pack", path, "--blob-dir", tmp_path / "typo")
    assert code != 0 and "typo: there is no such blob directory" in said
    assert path.read_bytes() == before and not (tmp_path / "typo").exists()
    assert run("pack", path, "--blob-dir", blobs)[0] == 0


def configure(folder, path, blobs):
    configuration = folder / "zeo.conf"
    configuration.write_text(
        f"<zeo>\n  address 127.0.0.1:{free_port()}\n</zeo>\n"
        f"<filestorage 1>\n  path {path}\n  blob-dir {blobs}\n</filestorage>\n"
    )
    return configuration


def test_a_configuration_names_the_blobs(binary, run, many, tmp_path):
    path, blobs = many
    configuration = configure(tmp_path, path, blobs)
    code, out, said = run("backup", "-C", configuration, tmp_path / "backups", "--json")
    assert (code, said) == (0, "") and json.loads(out)["missing_blobs"] == 0
    code, out, _ = run("check", "-C", configuration, "--blob-data")
    assert code == 0 and "7 blobs, 0 missing" in out
    to = ("--to-blob-dir", tmp_path / "copied")
    code, _, said = run("copy", "-C", configuration, tmp_path / "copy.fs", *to)
    assert (code, said) == (0, "") and digests(tmp_path / "copied") == digests(blobs)
    words = (f"--config={configuration}", tmp_path / "archive", tmp_path)
    with contextlib.closing(Archiver(binary, *words)) as archiver:
        archiver.start()
        archiver.wait(lambda status: status["state"] == "following", "following")
        assert archiver.stop() == 0
    for repository in ("backups", "archive"):
        restored = tmp_path / f"{repository}-blobs"
        words = (tmp_path / repository, tmp_path / f"{repository}.fs", "--blob-dir", restored)
        assert run("restore", *words)[0] == 0
        assert digests(restored) == digests(blobs)


def test_blobs_of_a_later_point_are_restored(run, many, tmp_path):
    path, blobs = many
    repository = tmp_path / "backups"
    assert run("backup", path, repository)[0] == 0
    last = tids_of(path)[-1].hex()
    words = ("restore", repository, "--at", last)
    code, out, said = run(*words, tmp_path / "0.fs", "--blob-dir", tmp_path / "0", "--json")
    assert code == 1 and "7 blobs are neither in point 1 nor in a later one" in said
    assert json.loads(out)["missing_blobs"] == 7
    assert (tmp_path / "0.fs").read_bytes() == path.read_bytes()
    assert run("backup", path, repository, "--blob-dir", blobs)[0] == 0
    code, out, said = run(*words, tmp_path / "1.fs", "--blob-dir", tmp_path / "1")
    assert (code, said) == (0, "") and "from point 1" in out
    assert digests(tmp_path / "1") == digests(blobs)
    words = ("check", tmp_path / "1.fs", "--blob-dir", tmp_path / "1")
    assert "0 without a recorded length" in run(*words)[1]
    code, _, said = run("restore", repository, tmp_path / "2.fs")
    assert code == 0 and "7 blobs are in the backup, and were not restored" in said


def test_blobs_of_a_server_without_their_directory_are_told(run, many, tmp_path, start_server):
    path, _ = many
    code, _, said = run("backup", start_server(path).url, tmp_path / "backups")
    assert code == 2 and "objects are blobs: start the server with --blob-dir" in said
