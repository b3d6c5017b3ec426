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


def test_what_bounds_the_benchmarks_is_of_their_report():
    """The page says that all its figures are from one run, whose report is kept."""
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    report = (ROOT / "docs" / "benchmarks" / "report.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report]

    def row(start, *cells):
        """The first row after the first title that begins so."""
        first = next(at for at, line in enumerate(report) if line.startswith(start))
        return next(row for row in rows[first:] if row[: len(cells)] == list(cells))

    told = re.findall(r"uses\s+([\d.]+ \([\d.-]+\))\s+times", page)
    floors = [row("## Loads at random", "1", flying, "floor") for flying in ("1", "64")]
    assert told == [floor[-2] for floor in floors]
    commits = row("## Commits of 3 objects", "update", "disk", "0", "16", "zodium", "M5")
    shared = re.search(r"syncs, which ([\d.]+)\s+transactions share with 16 clients", page)
    assert shared[1] in commits


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd rates its units")
def test_the_unit_has_few_rights(tmp_path):
    unit = tmp_path / "zodium.service"
    unit.write_text((ROOT / "packaging" / "zodium.service").read_text().replace("@PREFIX@", "/usr"))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True)
    rating = re.search(r"exposure level for zodium.service: ([\d.]+)", done.stdout)
    assert rating and float(rating[1]) < 3, done.stdout + done.stderr
