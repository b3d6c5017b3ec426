"""The Python package `zodium`, built for tests.

Key decision: built as a debug library beside what `cargo test` builds anyway, and laid out in
target/python; nothing is installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "python"
LIBRARY = ROOT / "target" / "debug" / "lib_native.so"


def build():
    """The folder that holds the package, for sys.path and PYTHONPATH."""
    subprocess.run(["cargo", "build", "-q", "-p", "zodium-python"], cwd=ROOT, check=True)
    package = FOLDER / "zodium"
    package.mkdir(parents=True, exist_ok=True)
    for source in (ROOT / "python" / "zodium").iterdir():
        if source.is_file():
            shutil.copyfile(source, package / source.name)
    # In one step: another process may just be loading it.
    new = package / f"_native.{os.getpid()}"
    shutil.copyfile(LIBRARY, new)
    new.replace(package / "_native.abi3.so")
    return FOLDER


def use():
    """Make `import zodium` find the package, here and in processes that are started."""
    folder = str(build())
    if folder not in sys.path:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
