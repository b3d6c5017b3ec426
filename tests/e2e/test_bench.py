"""`zodium-bench load`: it measures all servers, checks what they send, and leaves nothing behind.

What the figures are is not tested: only that there are some, of every server in
every cell, and that no figure comes of wrong data.
"""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from harness.bench import (
    PROGRAM,
    SECONDS,
    assert_nothing_left,
    command_lines,
    environment,
    run_bench,
)

pytestmark = pytest.mark.zodium

QUICK = ("--seconds=0.2", "--warm-up=0.05", "--rounds=2", "--cells=1x1,3x8", "--objects=300")
GO_LINE = re.compile(
    r"BenchmarkLoad(Ratio)?/server=\w+/wire=\w+/clients=\d+/in_flight=\d+"
    r"\t\d+(\t[\d.]+ [\w./-]+)+",
)


@pytest.fixture
def bench(tmp_path):
    """bench(*options): run `bench load` to its end."""
    return lambda *options: run_bench(tmp_path, "load", *QUICK, *options)


@pytest.mark.parametrize("options", [(), ("--pickle", "--threads=2", "--workers=1")])
def test_every_server_is_measured_in_every_cell(bench, tmp_path, options):
    samples = tmp_path / "samples.json"
    done = bench("--zeo-python", sys.executable, "--json", samples, *options)
    assert done.returncode == 0, done.stderr

    wire = "Z5" if options else "M5"
    wires = {"zodium": wire, "zeo": wire, "floor": "raw"}
    expected = {
        (server, clients, in_flight, round_)
        for server in wires
        for clients, in_flight in ((1, 1), (3, 8))
        for round_ in (0, 1)
    }
    document = json.loads(samples.read_text())
    versions = document["machine"]["versions"]
    assert versions[0].startswith("zodium ") and versions[1].startswith("ZEO/py 6")
    (measured,) = document["measurements"]
    taken = measured["samples"]
    assert len(taken) == len(expected)
    keys = {
        (s["server"], int(s["case"]["clients"]), int(s["case"]["in_flight"]), s["round"])
        for s in taken
    }
    assert keys == expected
    for sample in taken:
        assert sample["wire"] == wires[sample["server"]]
        values = sample["values"]
        percentiles = [
            values[f"{name}_us"] for name in ("min", "p50", "p90", "p99", "p99_9", "max")
        ]
        assert percentiles == sorted(percentiles) and percentiles[0] > 0
        assert values["server_cpu_us"] > 0 and values["client_cpu_us"] > 0
        assert values["requests"] > 0
        # Every request that is counted has its latency, but for those in flight at the beginning.
        # The generator goes on until it is told to stop, so there may be more latencies.
        counted = sum(count for _, count in sample["latencies_ns"])
        in_flight = int(sample["case"]["clients"]) * int(sample["case"]["in_flight"])
        assert counted >= values["requests"] - in_flight

    lines = [line for line in done.stdout.splitlines() if line.startswith("Benchmark")]
    # The ratios of all but Zodium follow.
    ratios = [line for line in lines if line.startswith("BenchmarkLoadRatio/")]
    assert len(ratios) * 3 == len(expected) * 2
    assert len(lines) == len(expected) + len(ratios)
    assert all(GO_LINE.fullmatch(line) for line in lines), done.stdout
    assert "CPU: zodium / it" in done.stderr and "p50: zodium / it" in done.stderr


def test_who_polls_is_held_against_who_polls(bench, tmp_path):
    samples = tmp_path / "samples.json"
    done = bench("--busy-poll=50", "--format=table", "--json", samples)
    assert done.returncode == 0, done.stderr
    assert "busy poll us" in done.stdout
    (measured,) = json.loads(samples.read_text())["measurements"]
    taken = {}
    for sample in measured["samples"]:
        case = sample["case"]
        key = (case["clients"], case["busy_poll"], sample["round"])
        taken[(sample["server"], key)] = sample["values"]
    assert len(taken) == 2 * 2 * 2 * 2
    for (server, key), values in taken.items():
        if server == "floor":
            for figure in ("p50_us", "server_cpu_us"):
                beside = taken[("zodium", key)][figure] / values[figure]
                assert values[f"{figure}_ratio"] == pytest.approx(beside)


def test_wrong_data_end_the_benchmark(bench, binary, tmp_path):
    other = tmp_path / "Other.fs"
    server = f"{binary} serve {other} -a 127.0.0.1:{{port}} --log-level=warn"
    done = bench("--no-floor", "--peer", f"other={server}")
    assert done.returncode == 1
    assert "POSKeyError" in done.stderr
    assert "other has logged nothing" in done.stderr or "the log of other" in done.stderr


def test_a_server_that_does_not_start_is_named(bench):
    done = bench("--peer", "broken=echo cannot use port {port}; exit 7")
    assert done.returncode == 1
    assert "broken did not start" in done.stderr
    assert "cannot use port" in done.stderr


def test_a_server_that_is_missing_is_named(bench, tmp_path):
    done = bench("--zodium", tmp_path / "missing")
    assert done.returncode == 1
    assert f"zodium-bench: cannot start zodium M5 ({tmp_path / 'missing'})" in done.stderr


def test_the_server_s_program_names_this_one(binary):
    done = subprocess.run([binary, "bench", "load"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "zodium-bench; build it with `cargo build --release -p zodium-bench`" in done.stderr


def test_a_signal_ends_the_servers_too(tmp_path):
    process = subprocess.Popen(
        [PROGRAM, "load", "--objects=100", "--cells=1x1", "--seconds=60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    process.stderr.readline()  # "N rounds of ...", or a warning shortly before
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "interrupted" in said
    assert_nothing_left(tmp_path)


@pytest.fixture
def started(tmp_path):
    """started(*options): `bench load`, which is killed at the end."""
    processes = []

    def run(*options):
        command = [PROGRAM, "load", "--no-floor", "--cells=1x1", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, **pipes, env=environment(tmp_path)))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()


def test_a_signal_ends_what_writes_a_large_dataset(started, tmp_path):
    kept = tmp_path / "kept"
    process = started("--dataset=sized", "--objects=1M", "--datasets", kept)
    wait_until(lambda: kept.exists() and any(kept.glob(".making-*/Data.fs")))
    process.send_signal(signal.SIGTERM)
    # All of it would be 4 GB.
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1 and "interrupted" in said, said
    assert list(kept.iterdir()) == []
    assert_nothing_left(tmp_path)


def test_a_signal_ends_the_program_and_a_server_that_does_not_start(started, tmp_path):
    process = started("--objects=100", "--peer", "slow=sleep 600; echo {port} {path}")
    wait_until(lambda: list((tmp_path / "bench").glob("*/slow/log")))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and "interrupted" in said, said
    left = [line for line in command_lines() if str(tmp_path / "bench") in line]
    assert left == []


def wait_until(happened):
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
