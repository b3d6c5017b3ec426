"""Installs from each package into an empty place, and serves a commit from there.

`python tests/packages/run.py target/packages`; `make package` makes the packages. What a package
needs that is not at hand, such as ZODB for the wheel, comes from the package index.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.process import free_port  # noqa: E402

SECONDS = 60
UNITS = ["zodium.service", "zodium-backup.service"]
NO_HOME = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    checks = [
        ("checksums", check_checksums),
        ("archive", check_archive),
        ("Debian package", check_debian_package),
        ("wheel", check_wheel),
        ("sources", check_sources),
    ]
    for name, check in checks:
        with tempfile.TemporaryDirectory() as place:
            check(folder, pathlib.Path(place))
        print(f"{name}: good", flush=True)


def only(folder, pattern):
    (found,) = folder.glob(pattern)
    return found


def run(*words, **options):
    options = {"check": True, "capture_output": True, "text": True, "env": NO_HOME, **options}
    return subprocess.run([str(word) for word in words], **options).stdout


def check_checksums(folder, _):
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    sums = dict(reversed(line.split("  ")) for line in lines)
    files = {path.name: path for path in folder.iterdir() if path.name != "SHA256SUMS"}
    assert sums.keys() == files.keys(), sums.keys() ^ files.keys()
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sums[name], name


def check_archive(folder, place):
    with tarfile.open(only(folder, "zodium-*-linux-*.tar.gz")) as archive:
        archive.extractall(place, filter="data")
    tree = only(place, "zodium-*")
    check_tree(tree, tree / "bin" / "zodium")
    for unit in UNITS:
        assert "ExecStart=/usr/local/bin/zodium" in (tree / unit).read_text()


def check_debian_package(folder, place):
    package = only(folder, "zodium_*.deb")
    run("dpkg-deb", "-x", package, place)
    check_tree(place / "usr", place / "usr" / "bin" / "zodium")
    for name in UNITS:
        unit = place / "lib" / "systemd" / "system" / name
        assert "ExecStart=/usr/bin/zodium" in unit.read_text()
        if shutil.which("systemd-analyze"):
            # Tenths: the unit exposes less than 3 of 10.
            run("systemd-analyze", "security", "--offline=true", "--threshold=30", unit)
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert "libc6 (>= 2." in depends, depends


def check_tree(tree, binary):
    names = {path.name for path in (tree / "share" / "man" / "man1").iterdir()}
    assert {"zodium.1.gz", "zodium-serve.1.gz", "zodium-explore.1.gz"} <= names
    for script in ("bash-completion/completions/zodium", "zsh/site-functions/_zodium"):
        assert "healthcheck" in (tree / "share" / script).read_text()
    for document in ("LICENSE-MIT", "CHANGELOG.md", "docs/operating.md"):
        assert (tree / "share" / "doc" / "zodium" / document).exists(), document
    assert ".symtab" not in run("objdump", "-h", binary)
    check_server([binary])


def check_wheel(folder, place):
    python = place / "bin" / "python"
    run(sys.executable, "-m", "venv", place)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, only(folder, "zodium-*.whl"), env={**os.environ})
    version = run(python, "-c", "import zodium; print(zodium.__version__)").strip()
    # The commit follows, if the package is built from a checkout.
    told = run(place / "bin" / "zodium", "--version").split()
    assert told[:2] == ["zodium", version]
    check_server([place / "bin" / "zodium"], python)


def check_sources(folder, place):
    (path,) = (path for path in folder.glob("zodium-*.tar.gz") if "-linux-" not in path.name)
    with tarfile.open(path) as archive:
        archive.extractall(place, filter="data")
    tree = only(place, "zodium-*")
    for name in ("Cargo.lock", "CHANGELOG.md", "docs/operating.md", "LICENSE-MIT"):
        assert (tree / name).exists(), name
    manifest = tree / "python" / "Cargo.toml"
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        manifest,
    ]
    run(*command, env={**os.environ})


def check_server(command, python=None):
    """A server of this program answers, and with a Python takes a commit."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = [str(word) for word in command]
        server = subprocess.Popen(
            [*words, "serve", f"{folder}/Data.fs", "-a", f"127.0.0.1:{port}"],
            env=NO_HOME,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(words, port)
            if python:
                run(python, "-c", COMMIT, str(port))
                assert "commits" in run(*words, "status", f"127.0.0.1:{port}", "--json")
        finally:
            server.terminate()
        assert server.wait(SECONDS) == 0


def wait_for(words, port):
    deadline = time.monotonic() + SECONDS
    while True:
        done = subprocess.run(
            [*words, "healthcheck", f"127.0.0.1:{port}"], env=NO_HOME, capture_output=True
        )
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.05)


COMMIT = """
import sys, transaction, zodium
db = zodium.DB(("127.0.0.1", int(sys.argv[1])))
with db.transaction() as connection:
    connection.root()["answer"] = 42
with db.transaction() as connection:
    assert connection.root()["answer"] == 42
db.close()
"""


if __name__ == "__main__":
    main()
