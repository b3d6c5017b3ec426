"""Gives an sdist the lock file of the crates that it holds.

maturin copies the lock file of the whole workspace, which `cargo --locked` refuses: it names crates
that are not in the sdist. Versions stay as they are locked.
"""

import gzip
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile


def main():
    (path,) = map(pathlib.Path, sys.argv[1:])
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        contents = {member.name: (member, file.read()) for member, file in members if file}
        with tempfile.TemporaryDirectory() as folder:
            archive.extractall(folder)
            (tree,) = pathlib.Path(folder).iterdir()
            prune(tree)
            lock = f"{tree.name}/Cargo.lock"
            contents[lock] = (contents[lock][0], (tree / "Cargo.lock").read_bytes())
    path.write_bytes(packed(contents))


def prune(tree):
    command = ["cargo", "metadata", "--format-version", "1", "--manifest-path"]
    command += [tree / "python" / "Cargo.toml"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*command, "--locked"], check=True, stdout=subprocess.DEVNULL)


def packed(contents):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member, content in contents.values():
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


if __name__ == "__main__":
    main()
