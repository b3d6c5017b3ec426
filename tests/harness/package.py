"""The Python package `zodium`, built for tests.

Key decision: built as a debug library beside what `cargo test` builds anyway, and laid out in
target/python; nothing is installed.
"""

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


def build():
    """The folder that holds the package, for sys.path and PYTHONPATH."""
    subprocess.run(["cargo", "build", "-q", "-p", "zodium-python"], cwd=ROOT, check=True)
    package = FOLDER / "zodium"
    shutil.copytree(
        ROOT / "python" / "zodium",
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
        copy_function=shutil.copyfile,
        dirs_exist_ok=True,
    )
    describe()
    # In one step: another process may just be loading it.
    new = package / f"_native.{os.getpid()}"
    shutil.copyfile(LIBRARY, new)
    new.replace(package / "_native.abi3.so")
    return FOLDER


def describe():
    """What installed packages say of themselves: entry points are found by it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = FOLDER / "zodium-0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: zodium\nVersion: 0\n")
    lines = []
    for group, members in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in members.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


def use():
    """Make `import zodium` find the package, here and in processes that are started."""
    folder = str(build())
    if folder not in sys.path:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
