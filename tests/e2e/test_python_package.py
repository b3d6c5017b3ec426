"""What the Python package says of itself: types, reference, and what it is built from."""

import ast
import inspect
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from harness import package

package.use()

import zodium  # noqa: E402

ROOT = package.ROOT
REFERENCE = ROOT / "docs" / "python.md"
RUN_SECONDS = 600  # mypy without its cache takes long on a busy machine
# Written in words that people read, in docs/python.md.
IN_WORDS = {"20 MiB": 20 << 20, "": inspect.Parameter.empty}

MYPY = """
[mypy]
ignore_missing_imports = true
[mypy-zodium.*]
ignore_errors = true
[mypy-zodium,zodium.exceptions]
ignore_errors = false
"""
# What is not for applications: private modules, what the native client calls, and what
# zope.interface adds.
NOT_IN_STUBS = r"""
zodium\._.*
zodium\.\w+Storage\.(info|invalidateCache|invalidateTransaction|notify_.*)
zodium\..*\.__(implemented|provides|providedBy)__
"""


def test_types_are_those_of_the_package(tmp_path):
    (tmp_path / "mypy.ini").write_text(MYPY)
    (tmp_path / "allowed").write_text(NOT_IN_STUBS)
    command = [sys.executable, "-m", "mypy.stubtest", "zodium", "--concise"]
    options = ["--mypy-config-file=mypy.ini", "--allowlist=allowed", "--ignore-unused-allowlist"]
    checked = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_program_that_uses_it_is_checked(tmp_path):
    """py.typed is found, and a wrong argument is."""
    (tmp_path / "program.py").write_text(
        'import zodium\nzodium.ClientStorage(("localhost", 8100), cache_size="20MB")\n'
        "zodium.ClientStorage(8100).load(b'').upper()\n"
    )
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "program.py"]
    checked = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS
    )
    assert re.search(r'program.py:2: error: Argument "cache_size".*"str"', checked.stdout)
    assert re.search(
        r'program.py:3: error: "tuple\[bytes, bytes\]" has no attribute', checked.stdout
    )


def test_the_reference_has_all_parameters_with_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", REFERENCE.read_text(), re.MULTILINE)
    documented = {
        name: IN_WORDS[text.strip()]
        if text.strip() in IN_WORDS
        else ast.literal_eval(text.strip("` "))
        for name, text in rows
    }
    parameters = inspect.signature(zodium.ClientStorage).parameters.values()
    assert documented == {one.name: one.default for one in parameters}
    assert [name for name, _ in rows] == [one.name for one in parameters]


def test_the_parameters_of_neo_storages_are_documented_with_their_defaults():
    section = (ROOT / "docs" / "neo.md").read_text().split("## The Python storage")[1]
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", section.split("\n## ")[0], re.MULTILINE)
    documented = {
        name: IN_WORDS[text.strip()]
        if text.strip() in IN_WORDS
        else ast.literal_eval(text.strip("` "))
        for name, text in rows
    }
    parameters = inspect.signature(zodium.NEOStorage).parameters.values()
    assert documented == {one.name: one.default for one in parameters}


def test_the_reference_has_all_methods_with_their_parameters():
    stub = ast.parse((ROOT / "python" / "zodium" / "__init__.pyi").read_text())
    classes = {one.name: one for one in stub.body if isinstance(one, ast.ClassDef)}
    methods = {
        one.name: [argument.arg for argument in one.args.args[1:]]
        for one in classes["_NativeStorage"].body + classes["ClientStorage"].body
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")
    }
    section = REFERENCE.read_text().split("## Methods")[1].split("\n## ")[0]
    documented = {
        name: [one.split("=")[0].strip() for one in arguments.split(",") if one]
        for name, arguments in re.findall(r"`(\w+)\((.*?)\)`", section)
    }
    documented.pop("len")
    assert documented == methods


def test_a_source_distribution_holds_the_whole_package(tmp_path):
    maturin = Path(sys.executable).with_name("maturin")
    command = [maturin, "sdist", "--out", tmp_path]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert made.returncode == 0, made.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
        (description,) = [one for one in archive.getnames() if one.endswith("/PKG-INFO")]
        lines = archive.extractfile(description).read().decode().splitlines()
    tracked = subprocess.run(
        ["git", "ls-files", "python"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    needed = {*tracked.stdout.split(), "Cargo.lock", "LICENSE-MIT", "LICENSE-APACHE", "README.md"}
    assert needed - found == set()
    assert "License-Expression: MIT OR Apache-2.0" in lines
    assert "Requires-Python: >=3.9" in lines
