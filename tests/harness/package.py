"""The Python package `zodium`, built for tests.

Key decision: built as a debug library beside what `cargo test` builds anyway, and laid out in
target/python; nothing is installed.  ZODIUM_TEST_PACKAGE=FOLDER, to which a wheel was
unpacked, has benchmarks use that one.
"""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "python"
LIBRARY = ROOT / "target" / "debug" / "lib_native.so"
# Not `-p zodium-python`: alone the package has fewer features of its dependencies than in
# `cargo test --workspace`, so half of them would be built again. A test target brings the features
# that only tests need; this one is small.
BUILD = ["cargo", "build", "-q", "--workspace", "--lib", "--test", "hostile"]


@functools.cache
def build():
    """The folder that holds the package, for sys.path and PYTHONPATH; built once in a process."""
    if given := os.environ.get("ZODIUM_TEST_PACKAGE"):
        return Path(given)
    subprocess.run(BUILD, cwd=ROOT, check=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        # Test processes that run side by side lay it out one after the other.
        fcntl.flock(lock, fcntl.LOCK_EX)
        lay_out()
    return FOLDER


def lay_out():
    package = FOLDER / "zodium"
    shutil.copytree(
        ROOT / "python" / "zodium",
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
        copy_function=replace_with_copy,
        dirs_exist_ok=True,
    )
    describe()
    replace_with_copy(LIBRARY, package / "_native.abi3.so")


def replace_with_copy(source, target):
    """Copy in one step: another process may just be loading the target."""
    new = f"{target}.{os.getpid()}"
    shutil.copyfile(source, new)
    os.replace(new, target)
    return target


def replace_with_text(text, target):
    """The same of a text: another process may just be looking for entry points."""
    new = target.with_name(f"{target.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(target)


def describe():
    """What installed packages say of themselves: entry points are found by it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = FOLDER / "zodium-0.dist-info"
    folder.mkdir(exist_ok=True)
    metadata = "Metadata-Version: 2.1\nName: zodium\nVersion: 0\n"
    replace_with_text(metadata, folder / "METADATA")
    lines = []
    for group, members in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in members.items())]
    replace_with_text("\n".join(lines) + "\n", folder / "entry_points.txt")


def use():
    """Make `import zodium` find the package, here and in processes that are started."""
    folder = str(build())
    if folder not in sys.path:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
