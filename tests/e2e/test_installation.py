"""Completions, manual pages and `make install`, with the shells' and man's own judgement."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.servers import BINARY

ROOT = Path(__file__).resolve().parents[2]

SHELLS = ["bash", "zsh", "fish", "elvish", "powershell"]


def zodium(*words, **options):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, **options)


@pytest.mark.zodium
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_that_knows_commands_and_options(shell):
    done = zodium("completions", shell)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ["serve", "recover", "drop-mismatches"]:
        assert word in done.stdout, word


@pytest.mark.zodium
def test_bash_completes_a_command():
    script = (
        'source <("$0" completions bash); COMP_WORDS=(zodium heal); COMP_CWORD=1;'
        '_zodium zodium heal zodium; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script, BINARY], capture_output=True, text=True)
    assert done.stdout.split() == ["healthcheck"], done.stderr


@pytest.mark.zodium
def test_a_folder_that_is_missing_is_named():
    done = zodium("man", "/nowhere")
    assert done.returncode == 1
    assert "cannot write manual pages to /nowhere" in done.stderr


@pytest.mark.zodium
def test_what_is_installed_works_and_is_uninstalled(tmp_path):
    def make(target):
        # As built: the target itself would build anew.
        command = ["make", "-o", "build", target, f"BINARY={BINARY}"]
        command += [f"DESTDIR={tmp_path}", "PREFIX=/opt/zodium"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    make("install")
    place = tmp_path / "opt" / "zodium"
    done = subprocess.run([place / "bin" / "zodium", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("zodium ")
    pages = {page.name for page in (place / "share" / "man" / "man1").iterdir()}
    assert {"zodium.1", "zodium-serve.1", "zodium-check.1"} <= pages
    assert "--blob-dir" in read_page(place / "share" / "man" / "man1" / "zodium-check.1")
    unit = (place / "lib" / "systemd" / "system" / "zodium.service").read_text()
    assert "ExecStart=/opt/zodium/bin/zodium serve" in unit and "@PREFIX@" not in unit
    for script in [
        "bash-completion/completions/zodium",
        "zsh/site-functions/_zodium",
        "fish/vendor_completions.d/zodium.fish",
    ]:
        assert "healthcheck" in (place / "share" / script).read_text()
    make("uninstall")
    assert [path for path in place.rglob("*") if path.is_file()] == []


def read_page(page):
    """The page as a reader sees it, where there is a program to show it."""
    if shutil.which("man"):
        done = subprocess.run(["man", "-l", str(page)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return re.sub(".\b", "", done.stdout)
    return page.read_text().replace("\\-", "-")


def test_the_chart_has_the_figures_of_the_benchmarks():
    command = [sys.executable, ROOT / "docs" / "benchmarks" / "chart.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd rates its units")
def test_the_unit_has_few_rights(tmp_path):
    unit = tmp_path / "zodium.service"
    unit.write_text((ROOT / "packaging" / "zodium.service").read_text().replace("@PREFIX@", "/usr"))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True)
    rating = re.search(r"exposure level for zodium.service: ([\d.]+)", done.stdout)
    assert rating and float(rating[1]) < 3, done.stdout + done.stderr
