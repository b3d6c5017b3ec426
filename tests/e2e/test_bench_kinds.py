"""The other benchmarks: each measures what it says, checks what it is sent, and can be shown.

What the figures are is not tested: only that there are some of everything, and
that no figure comes of wrong data.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import corrupting
from harness.bench import PROGRAM, run_bench
from harness.browser import open_browser
from harness.neo import needs_neo
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.zodium

QUICK = ("--seconds=0.1", "--warm-up=0.02", "--rounds=1")


@pytest.fixture
def bench(tmp_path):
    """bench(command, *options): what it has written, by benchmark."""

    def run(command, *options):
        path = tmp_path / f"{command}.json"
        done = run_bench(tmp_path, command, "--format=table", "--json", path, *options)
        assert done.returncode == 0, done.stderr
        document = json.loads(path.read_text())
        assert document["command_line"][1] == command
        return {measured["benchmark"]: measured for measured in document["measurements"]}

    return run


def keys(measured, *axes):
    return {
        (sample["server"], sample["wire"], *(sample["case"][axis] for axis in axes))
        for sample in measured["samples"]
    }


def test_cold_loads_stand_beside_the_device_and_resident_ones_beside_cold_ones(bench):
    measured = bench(
        "cold", *QUICK, "--objects=20k", "--object-bytes=2000", "--cells=1x1,2x4",
        "--beside=2x1", "--busy-poll=50",
    )["Cold"]  # fmt: skip
    cases = {
        ("cold", "1", "1", "none"),
        ("cold", "2", "4", "none"),
        ("resident", "1", "1", "none"),
        ("resident", "1", "1", "2x1 resident"),
        ("resident", "1", "1", "2x1 cold"),
    }
    expected = {("zodium", "M5", *case, polling) for case in cases for polling in ("0", "50")}
    expected.add(("device", "", "cold", "1", "1", "none", "0"))
    assert keys(measured, "loads", "clients", "in_flight", "beside", "busy_poll") == expected
    device = next(s for s in measured["samples"] if s["server"] == "device")["values"]
    for sample in measured["samples"]:
        values = sample["values"]
        assert values["requests"] > 0 and values["p50_us"] > 0
        if (sample["server"], sample["case"]["loads"]) == ("zodium", "cold"):
            over = values["p50_us"] - device["p50_us"]
            assert values["over_device_us"] == pytest.approx(over)


@pytest.mark.parametrize("command", ["cold", "commit", "pack", "start"])
def test_memory_is_not_taken_for_a_disk(tmp_path, command):
    options = ("--source=disk",) if command == "start" else ()
    done = run_bench(tmp_path, command, "--folder", "/dev/shm", *options)
    assert done.returncode == 1
    assert "is in memory" in done.stderr and "--folder" in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["cold", "load", "commit"])
def test_a_server_that_answers_too_late_gets_the_time_that_it_needs(bench, command):
    options = {
        "cold": ("--objects=20k", "--object-bytes=200", "--cells=1x1", "--beside=1x1"),
        "load": ("--objects=200", "--cells=1x1", "--no-floor"),
        "commit": ("--clients=1", "--modes=update", "--delays-ms=10", "--no-floor"),
    }[command]
    measured = bench(command, "--rounds=1", "--seconds=0.001", "--warm-up=0.001", *options)
    samples = [sample for one in measured.values() for sample in one["samples"]]
    assert samples and all(sample["values"]["p50_us"] > 0 for sample in samples)


def test_objects_that_would_be_in_memory_are_not_called_cold(tmp_path):
    done = run_bench(tmp_path, "cold", *QUICK, "--objects=30")
    assert done.returncode == 1
    assert "are too many to be all cold" in done.stderr


def test_every_object_is_read_from_every_server_with_every_checksum(bench):
    measured = bench(
        "read-all", *QUICK, "--dataset=prod1", "--objects=300", "--wires=M5,Z5",
        "--checksums=none,crc32,crc32c,sha1", "--zeo-python", sys.executable,
    )["ReadAll"]  # fmt: skip
    checksums = ("none", "crc32", "crc32c", "sha1")
    servers = [
        ("zodium", "M5"), ("zodium", "Z5"), ("zeo", "M5"), ("zeo", "Z5"), ("floor", "raw"),
    ]  # fmt: skip
    expected = {(*server, checksum) for server in servers for checksum in checksums}
    expected |= {("filestorage", "", checksum) for checksum in ("none", "crc32", "sha1")}
    expected |= {("memory", "", checksum) for checksum in ("crc32", "crc32c", "sha1")}
    assert keys(measured, "checksum") == expected
    assert all(sample["values"]["us_per_object"] > 0 for sample in measured["samples"])


def test_one_changed_byte_in_a_file_is_noticed(binary, tmp_path):
    path = tmp_path / "Wrong.fs"
    subprocess.run([PROGRAM, "dataset", "--objects=200", path], check=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # within the data of an object: there is little else
    path.write_bytes(data)
    # With them the server would notice it first.
    peer = f"other={binary} serve {path} -a 127.0.0.1:{{port}} --log-level=warn --checksums=off"
    for command in ("load", "read-all"):
        done = run_bench(tmp_path, command, *QUICK, "--objects=200", "--no-floor", "--peer", peer)
        assert done.returncode == 1
        assert "are not those that were stored: CRC-32C" in done.stderr, done.stderr


def test_commits_are_measured_in_every_mode_near_and_far(bench):
    results = bench(
        "commit", *QUICK, "--clients=3,1", "--modes=add,update,conflict,conflict-any",
        "--delays-ms=0,10", "--files=disk,tmpfs", "--objects=2", "--object-bytes=300",
    )  # fmt: skip
    axes = ("mode", "files", "round_trip_ms", "clients")
    expected = {
        ("zodium", "M5", mode, files, delay, clients)
        for mode in ("add", "update", "conflict", "conflict-any")
        for files in ("disk", "tmpfs")
        for delay in ("0", "10")
        for clients in ("1", "3")
    }
    assert keys(results["Commit"], *axes) == expected
    for sample in results["Commit"]["samples"]:
        values = sample["values"]
        assert values["transactions"] > 0 and values.get("a_sync", 1) > 0
        assert values["min_us"] <= values["p50_us"] <= values["max_us"]
        # One client alone is measured first, whatever the order asked for.
        has_several = sample["case"]["clients"] == "3"
        assert ("of_one_client" in values) == has_several
        # A client that was starved shows too.
        assert ("fairness" in values) == ("fewest_commits" in values) == has_several
        is_bounded = (
            sample["case"]["round_trip_ms"] == "10" and "conflict" not in sample["case"]["mode"]
        )
        assert ("of_allowed_percent" in values) == is_bounded
        if is_bounded:
            # A commit waits for two round trips. (No bound: a busy machine measures both late.)
            rate, round_trip = values["transactions_per_second"], values["measured_round_trip_us"]
            share = 100 * rate * 2 * round_trip / 1e6 / int(sample["case"]["clients"])
            assert values["of_allowed_percent"] == pytest.approx(share)
        # Begin and stores leave with the vote: a commit waits for the way twice.
        if sample["case"]["round_trip_ms"] == "10":
            assert values["measured_round_trip_us"] >= 10_000 and values["min_us"] >= 20_000
    # What has no reply is no step: its time would be that of the generator alone.
    steps = ("vote", "finish", "whole")
    assert keys(results["CommitStep"], *axes, "step") == {
        (*case, step) for case in expected for step in steps
    }


def test_the_stock_server_commits_beside_in_both_encodings(bench):
    options = ("--clients=2", "--modes=update,conflict", "--wires=M5,Z5")
    measured = bench("commit", *QUICK, *options, "--zeo-python", sys.executable)["Commit"]
    assert keys(measured, "mode") == {
        (server, wire, mode)
        for server in ("zodium", "zeo")
        for wire in ("M5", "Z5")
        for mode in ("update", "conflict")
    }


def test_a_commit_that_is_not_what_was_acknowledged_is_noticed(binary, tmp_path):
    server = f"{sys.executable} {corrupting.__file__} {{port}}"
    server += f" {binary} serve {{path}} -a 127.0.0.1:{{real}} --log-level=warn"
    done = run_bench(tmp_path, "commit", *QUICK, "--clients=2", "--peer", f"other={server}")
    assert done.returncode == 1
    assert "are not what was stored" in done.stderr, done.stderr


def test_packs_stand_beside_the_stock_packer_and_commits_meanwhile(bench, tmp_path):
    results = bench(
        "pack", "--objects=1000", "--garbage=300", "--object-bytes=200", "--rounds=1",
        "--writers=2", "--seconds=0.5", "--zeo-python", sys.executable,
    )  # fmt: skip
    assert keys(results["Pack"]) == {("zodium", ""), ("stock", "")}
    commits = results["CommitDuringPack"]
    assert keys(commits, "when") == {
        (server, "M5", when) for server in ("zodium", "zeo") for when in ("before", "during")
    }
    # The longest commit before a pack is chance: it has no ratio.
    compared = {s["case"]["when"] for s in commits["samples"] if "stall_us_ratio" in s["values"]}
    assert compared == {"during"}
    versions = json.loads((tmp_path / "pack.json").read_text())["machine"]["versions"]
    assert [version.split()[0] for version in versions] == ["zodium", "ZEO/py"]


def test_the_link_layer_is_measured_variant_by_variant(bench):
    options = ("--block-bytes=16,5000", "--blocks=3,40", "--depths=1,250")
    measured = bench("messenger", *QUICK, *options)["Messenger"]
    variants = ("base", "checksum", "allocated", "copied", "floor")
    expected = {
        (variant, "raw", size, blocks, depth)
        for variant in variants
        for size in ("16", "5000")
        for blocks in ("3", "40")
        for depth in ("1", "250")
    }
    # Elsewhere there is no back-pressure that could be left out.
    expected |= {("unthrottled", "raw", "5000", blocks, "250") for blocks in ("3", "40")}
    assert keys(measured, "block_bytes", "blocks", "in_flight") == expected


def test_starts_are_measured_with_and_without_an_index(bench):
    results = bench(
        "start", "--objects=3000", "--rounds=1", "--wires=M5,Z5", "--zeo-python", sys.executable,
        "--source=memory,disk",
    )  # fmt: skip
    zodium, zeo = [[(name, wire) for wire in ("M5", "Z5")] for name in ("zodium", "zeo")]
    cases = (("Start", "all", "index"), ("StartScan", "checksums", "nothing"))
    for name, ours, everybodys in cases:
        beside = [(server, ours) for server in zodium]
        beside += [(server, everybodys) for server in zodium + zeo]
        assert keys(results[name], "source", "beside") == {
            (*server, source, case) for server, case in beside for source in ("memory", "disk")
        }
        for sample in results[name]["samples"]:
            assert sample["values"]["seconds"] > 0 and sample["values"]["cpu_seconds"] > 0
    assert keys(results["Memory"]) == set(zodium + zeo)
    for sample in results["Memory"]["samples"]:
        values = sample["values"]
        assert 0 < values["first_anonymous_mb"] < values["first_resident_mb"]
        assert values["first_resident_mb"] <= values["first_peak_mb"] + 1
        assert values["loaded_resident_mb"] > 0 and values["index_bytes"] >= 0


def test_resp_servers_are_measured_side_by_side(bench, binary, monkeypatch):
    monkeypatch.delenv("VALKEY", raising=False)
    results = bench(
        "resp", *QUICK, "--cells=1x1,3x8", "--value-bytes=32,6000", "--keys=300",
        "--memory-keys=20k", "--memory-bytes=100",
        "--peer", f"other={binary} resp -a 127.0.0.1:{{port}} --workers 2",
    )  # fmt: skip
    assert keys(results["Resp"], "value_bytes", "clients", "in_flight") == {
        (server, "", size, *cell)
        for server in ("zodium", "other", "floor")
        for size in ("32", "6000")
        for cell in (("1", "1"), ("3", "8"))
    }
    for sample in results["Resp"]["samples"]:
        assert sample["values"]["server_cpu_us"] > 0 and sample["values"]["p50_us"] > 0
    assert keys(results["RespMemory"]) == {("zodium", ""), ("other", "")}
    for sample in results["RespMemory"]["samples"]:
        # The least is what they are given, and what an allocator spares is not more than that.
        assert 116 < sample["values"]["bytes_per_key"] < 1000


def test_idle_connections_are_watched(bench):
    measured = bench(
        "idle", "--connections=0,20", "--heartbeats=0,1", "--seconds=2.2", "--warm-up=0.2",
        "--rounds=1", "--objects=10", "--zeo-python", sys.executable,
    )["Idle"]  # fmt: skip
    cases = (("0", "0"), ("20", "0"), ("20", "1"))
    assert keys(measured, "connections", "heartbeat_seconds") == {
        (server, "M5", *case) for server in ("zodium", "zeo") for case in cases
    }
    switches = {
        (s["server"], s["case"]["connections"], s["case"]["heartbeat_seconds"]): s["values"]
        for s in measured["samples"]
    }
    beating = switches["zodium", "20", "1"]["switches_per_second"]
    assert beating > switches["zodium", "20", "0"]["switches_per_second"]


def neo_peer(binary, name="other"):
    """A second storage node of NEO, by the options that every one takes."""
    options = "--cluster {cluster} --masters {master} --nid {nid} --database {path}"
    return f"{name}={binary} neo storage {options} --bind 127.0.0.1:{{port}} --log-level warn"


def test_storage_nodes_of_neo_are_measured_side_by_side(bench, binary, monkeypatch):
    for name in ("NEOPPOD", "NEOPPOD_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    results = bench(
        "neo", *QUICK, "--cells=1x1,3x8", "--load-objects=150", "--load-bytes=500",
        "--clients=1,3", "--storages=1,2", "--replicated-objects=400", "--partitions=5",
        "--peer", neo_peer(binary),
    )  # fmt: skip
    servers = ("zodium", "other")
    assert keys(results["NeoLoad"], "clients", "in_flight") == {
        (server, "", *cell) for server in servers for cell in (("1", "1"), ("3", "8"))
    }
    assert keys(results["NeoCommit"], "storages", "clients") == {
        (server, "", storages, clients)
        for server in servers
        for storages in ("1", "2")
        for clients in ("1", "3")
    }
    assert keys(results["NeoReplication"]) == {(server, "") for server in servers}
    for name in ("NeoLoad", "NeoCommit"):
        for sample in results[name]["samples"]:
            assert sample["values"]["server_cpu_us"] > 0 and sample["values"]["p50_us"] > 0
    for sample in results["NeoReplication"]["samples"]:
        values = sample["values"]
        assert values["source_cpu_us"] > 0 and values["target_cpu_us"] > 0


@needs_neo
def test_neo_itself_is_measured_beside(bench):
    options = ("--measure=loads,replication", "--cells=2x2", "--load-objects=100")
    results = bench("neo", *QUICK, *options, "--replicated-objects=200")
    assert keys(results["NeoLoad"]) == keys(results["NeoReplication"])
    assert keys(results["NeoLoad"]) == {("zodium", ""), ("neo", "")}


def test_what_nodes_of_neo_answer_wrongly_is_noticed(binary, tmp_path, monkeypatch):
    for name in ("NEOPPOD", "NEOPPOD_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    node = neo_peer(binary).partition("=")[2].replace("{port}", "{real}")
    server = f"other={sys.executable} {corrupting.__file__} {{port}} {node}"
    done = run_bench(tmp_path, "neo", *QUICK, "--measure=commits", "--clients=2", "--peer", server)
    assert done.returncode == 1
    assert "NEO/py IS NOT MEASURED" in done.stderr
    assert "do not have their SHA-1" in done.stderr or "are not what was stored" in done.stderr


def test_the_machine_is_measured_with_advice(bench):
    calls = bench("syscalls", "--samples=50", "--cold-samples=3")["Syscall"]["samples"]
    caches = {(sample["case"]["call"], sample["case"]["caches"]) for sample in calls}
    assert len(caches) == len(calls) > 30
    assert all(0 < s["values"]["best_ns"] <= s["values"]["max_ns"] for s in calls)
    system = bench("system", "--samples=100")["System"]
    advice = {note.split(" ")[0] for note in system["notes"]}
    assert {"Governor:", "Turbo:", "C-states:", "Waking", "A", "Steal:"} <= advice
    assert len(system["samples"]) >= 5


@pytest.mark.parametrize("processor", sorted(os.sched_getaffinity(0)))
def test_a_machine_of_one_processor_wakes_none(bench, processor):
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        system = bench("system", "--samples=20")["System"]
    finally:
        os.sched_setaffinity(0, allowed)
    names = [sample["case"]["what"] for sample in system["samples"]]
    assert [name for name in names if "ping-pong" in name] == ["ping-pong, both on one core"]
    assert any("may use one" in note for note in system["notes"])


def test_the_page_shows_every_table_and_chart_in_a_browser(bench, tmp_path):
    bench("load", *QUICK, "--objects=100", "--cells=1x1,4x1,16x1")
    bench("commit", *QUICK, "--clients=1,4")
    page = tmp_path / "report.html"
    files = [tmp_path / "load.json", tmp_path / "commit.json"]
    subprocess.run([PROGRAM, "report", *files, "-o", page], check=True)
    browser = open_browser(tmp_path / "profile")
    try:
        browser.set_window_size(1200, 1600)
        browser.get(page.as_uri())
        titles = [title.text for title in browser.find_elements(By.TAG_NAME, "h2")]
        assert len(titles) == 3 and titles[0].startswith("Loads at random")
        assert len(browser.find_elements(By.TAG_NAME, "table")) == 3
        charts = browser.find_elements(By.TAG_NAME, "svg")
        # Two curves each; latencies of three cells and of two numbers of clients.
        assert len(charts) == 4 + 3 + 2
        for chart in charts:
            assert chart.size["width"] > 200 and chart.size["height"] > 100
            lines = chart.find_elements(By.TAG_NAME, "polyline")
            assert lines and all(line.get_attribute("points") for line in lines)
        wide = browser.execute_script("return document.body.scrollWidth - window.innerWidth")
        assert wide <= 0
        assert browser.get_log("browser") == []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            browser.save_screenshot(str(tmp_path / f"{scheme}.png"))
        colour = "return getComputedStyle(document.body).backgroundColor"
        assert browser.execute_script(colour) == "rgb(20, 24, 31)"
    finally:
        browser.quit()
    text = Path(page).read_text()
    assert "http://" not in text and "https://" not in text and "<script" not in text


def test_what_is_no_result_is_named(tmp_path):
    other = tmp_path / "other.json"
    other.write_text("[]")
    command = [PROGRAM, "report", other, "-o", tmp_path / "report.html"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "other.json is no file that" in done.stderr
