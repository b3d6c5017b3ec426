"""Makes the packages of a built program: an archive, a Debian package, and checksums.

`make package` runs it after it has built the program, the wheel and the sdist. All files of a
package have the time of SOURCE_DATE_EPOCH, or of the last commit, so equal programs give equal
packages.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMPLETIONS = {
    "bash": "share/bash-completion/completions/zodium",
    "zsh": "share/zsh/site-functions/_zodium",
    "fish": "share/fish/vendor_completions.d/zodium.fish",
}
DOCUMENTS = ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"]
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

POSTINST = """#!/bin/sh
set -e
if ! getent passwd zodium >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/zodium --shell /usr/sbin/nologin zodium
fi
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, help="where the packages go")
    options = parser.parse_args()
    version = output(options.program, "--version").split()[1]
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "usr"
        install(options.program, tree)
        set_modes(tree)
        write_archive(tree, version, options.folder)
        write_debian_package(tree, version, options.folder)
    write_checksums(options.folder)


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def install(program, tree):
    """Program, manual pages, completions and documents below `tree`."""
    binary = tree / "bin" / "zodium"
    pages = tree / "share" / "man" / "man1"
    documents = tree / "share" / "doc" / "zodium"
    for folder in (binary.parent, pages, documents):
        folder.mkdir(parents=True)
    shutil.copy(program, binary)
    subprocess.run(["strip", binary], check=True)
    output(binary, "man", pages)
    for page in pages.iterdir():
        packed = gzip.compress(page.read_bytes(), mtime=0)
        page.with_name(page.name + ".gz").write_bytes(packed)
        page.unlink()
    for shell, place in COMPLETIONS.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).write_text(output(binary, "completions", shell))
    for name in DOCUMENTS:
        shutil.copy(ROOT / name, documents)
    shutil.copytree(ROOT / "docs", documents / "docs")


def units(prefix):
    """The names of the units, and their texts."""
    for name in ("zodium.service", "zodium-backup.service"):
        yield name, (ROOT / "packaging" / name).read_text().replace("@PREFIX@", prefix)


def write_archive(tree, version, folder):
    """A tar archive, to be unpacked anywhere: its folder has bin/ and share/."""
    name = f"zodium-{version}-{os.uname().sysname.lower()}-{os.uname().machine}"
    time = build_time()

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = time
        return member

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            place = f"{name}/{path.relative_to(tree)}"
            archive.add(path, place, recursive=False, filter=plain)
        for unit, text in units("/usr/local"):
            content = text.encode()
            member = tarfile.TarInfo(f"{name}/{unit}")
            member.size = len(content)
            archive.addfile(plain(member), io.BytesIO(content))
    (folder / f"{name}.tar.gz").write_bytes(gzip.compress(raw.getvalue(), mtime=time))


def build_time():
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or output("git", "-C", ROOT, "log", "-1", "--format=%ct"))


def write_debian_package(tree, version, folder):
    """A package with the units, which are neither enabled nor started."""
    machine = MACHINES.get(os.uname().machine, os.uname().machine)
    root = tree.parent
    place = root / "lib" / "systemd" / "system"
    place.mkdir(parents=True)
    for unit, text in units("/usr"):
        (place / unit).write_text(text)
    licence = tree / "share" / "doc" / "zodium"
    shutil.copy(licence / "LICENSE-MIT", licence / "copyright")
    control = root / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(control_of(version, machine, tree))
    (control / "postinst").write_text(POSTINST)
    (control / "postinst").chmod(0o755)
    target = folder / f"zodium_{version}_{machine}.deb"
    set_modes(root)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(build_time())}
    command = ["dpkg-deb", "--root-owner-group", "--build", "-Zxz", root, target]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def set_modes(root):
    """Modes that depend neither on the umask nor on the temporary folder."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        is_program = path.parent.name == "bin" or path.name == "postinst"
        path.chmod(0o755 if path.is_dir() or is_program else 0o644)


def control_of(version, machine, tree):
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    return f"""Package: zodium
Version: {version}
Architecture: {machine}
Maintainer: The authors of Zodium <zodium@zodium.invalid>
Depends: {", ".join(libraries(tree / "bin" / "zodium"))}, passwd
Section: database
Priority: optional
Installed-Size: {size}
Description: fast, parallel object database server for ZODB
 Serves a Data.fs to the ZEO clients that Zope, Plone and other Python
 applications use already, in place of runzeo.
"""


def libraries(binary):
    """The packages of the libraries that the program needs, at least as new as its symbols."""
    versions = set()
    for line in output("objdump", "-T", binary).splitlines():
        _, found, rest = line.partition("GLIBC_")
        if found and (number := rest.split()[0].rstrip(")")).replace(".", "").isdigit():
            versions.add(tuple(int(part) for part in number.split(".")))
    newest = ".".join(map(str, max(versions, default=(2, 17))))
    return [f"libc6 (>= {newest})", "libgcc-s1"]


def write_checksums(folder):
    paths = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (folder / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
