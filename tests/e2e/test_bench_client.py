"""`zodium-bench client`: Python's clients and the native one are measured, and checked."""

import json
import re
import sys

import pytest
from harness import corrupting, package
from harness.bench import run_bench

package.use()

pytestmark = pytest.mark.zodium

QUICK = ("--seconds=0.05", "--warm-up=0.02", "--rounds=1", "--objects=300", "--object-bytes=300")


def test_every_client_is_measured_on_every_server(tmp_path):
    path = tmp_path / "client.json"
    done = run_bench(
        tmp_path, "client", *QUICK, "--threads=1,3", "--round-trip-ms=2", "--patience=2",
        "--python", sys.executable, "--zeo-python", sys.executable, "--json", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text())
    versions = document["machine"]["versions"]
    assert any(re.match("zodium .* on Python", version) for version in versions)
    (measured,) = document["measurements"]
    steps = ("load, uncached", "load, cached", "load, 1 threads", "load, 3 threads",
             "bulk load at 2 ms", "commit", "record")  # fmt: skip
    expected = {
        (client, server, step)
        for client in ("zodium", "zeo", "native")
        for server in ("zodium", "zeo")
        for step in steps
    }
    found = {(s["server"], s["case"]["server"], s["case"]["step"]) for s in measured["samples"]}
    assert found == expected
    for sample in measured["samples"]:
        values = sample["values"]
        assert values["us"] > 0 and values["client_cpu_us"] > 0 and values["requests"] > 0
        assert ("round_trips" in values) == sample["case"]["step"].startswith("bulk")
        assert ("us_ratio" in values) == (sample["server"] != "zodium")
    bulk = [s["values"] for s in measured["samples"] if "round_trips" in s["values"]]
    assert all(values["round_trips"] >= 1 for values in bulk)
    assert "| client " in done.stderr


def test_a_commit_that_is_not_what_was_stored_is_noticed(binary, tmp_path):
    server = f"{sys.executable} {corrupting.__file__} {{port}}"
    server += f" {binary} serve {{path}} -a 127.0.0.1:{{real}} --log-level=warn"
    done = run_bench(
        tmp_path, "client", *QUICK, "--cases=commit",
        "--python", sys.executable, "--peer", f"other={server}",
    )  # fmt: skip
    assert done.returncode == 1
    assert "are not what was stored" in done.stderr, done.stderr


def test_a_python_without_the_package_is_told_so(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    done = run_bench(tmp_path, "client", *QUICK, "--python", sys.executable)
    assert done.returncode == 1
    assert f"{sys.executable} lacks zodium (No module named 'zodium')" in done.stderr
    assert "make wheel" in done.stderr
