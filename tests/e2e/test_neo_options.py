"""`zodium neo storage` without a cluster: its options, its files, and what it says of itself."""

import json
import re
import signal
import sqlite3
import subprocess
import time

import pytest
from harness.monitor import Monitor
from harness.process import HOST, free_port
from harness.servers import BINARY
from harness.waiting import wait_for

pytestmark = pytest.mark.zodium
SECONDS = 60


@pytest.fixture
def node(tmp_path):
    """node(*words): a node that looks for a master that is not there."""
    processes = []

    def start(*words):
        command = [BINARY, "neo", "storage", *map(str, words)]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def options(tmp_path):
    """The options that a node needs."""
    masters = f"{HOST}:{free_port()} {HOST}:{free_port()}"
    return ["-c", "production", "-m", masters, "-d", tmp_path / "node.sqlite"]


def refusal(*words):
    done = subprocess.run(
        [BINARY, "neo", "storage", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode in (1, 2) and "panicked" not in done.stderr
    return done.stderr


def wait_healthy_or_not(monitor, expected):
    """Waits until the reasons of /health say something."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            code, _, body = monitor.fetch("/health")
            if expected in body.decode():
                return code, json.loads(body)
        except OSError:
            body = b"no answer"
        assert time.monotonic() < end, body
        time.sleep(0.05)


def test_a_node_without_a_master_says_so(node, options, tmp_path):
    monitor = Monitor()
    process = node(*options, "--nid", 7, *monitor.options)
    expected = "storage production serves nothing yet: looking for the primary master"
    code, health = wait_healthy_or_not(monitor, expected)
    assert (code, health["status"]) == (503, "unavailable")
    assert monitor.fetch("/health/live")[0] == 200
    samples = monitor.samples()
    assert samples.of("zodium_node_operating") == 0
    state = "looking for the primary master"
    assert samples.of("zodium_node_info", cluster="production", node="S7", state=state) == 1
    assert samples.of("zodium_node_connections", kind="client") == 0
    assert samples.of("zodium_node_database_bytes") > 0
    assert samples.of("zodium_workers_silent") == 0
    shown = monitor.status()["node"]
    assert (shown["id"], shown["master"], shown["cells"]) == ("S7", None, [])
    assert shown["database"] == str(tmp_path / "node.sqlite")
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0
    # The database keeps the id.
    again = node(*options, *monitor.options)
    wait_healthy_or_not(monitor, expected)
    assert monitor.status()["node"]["id"] == "S7"
    again.send_signal(signal.SIGTERM)
    assert again.wait(SECONDS) == 0


def test_the_files_and_the_command_line_say_the_same(node, tmp_path):
    masters = f"{HOST}:{free_port()}"
    (tmp_path / "node.toml").write_text(
        f'[neo-storage]\ncluster = "production"\nmasters = "{masters}"\ndatabase = "a.sqlite"\n'
        f'nid = 5\n[log]\nto = "node.log"\n'
    )
    (tmp_path / "neo.conf").write_text(
        f"[DEFAULT]\ncluster: production\nmasters: {masters}\npartitions: 12\n"
        f"adapter: SQLite\n[storage]\ndatabase: {tmp_path}/b.sqlite\nnid: 5\n"
        f"[second]\ndatabase: {tmp_path}/c.sqlite\nnid: 5\nlogfile: {tmp_path}/second.log\n"
    )
    for words, database in (
        (["-C", "node.toml"], "a"),
        (["--file", "neo.conf"], "b"),
        (["-f", "neo.conf", "-s", "second"], "c"),
        (["-f", "neo.conf", "--database", "d.sqlite"], "d"),
        (["--cluster=production", "--nid=5", "--masters", masters, "--database=e.sqlite"], "e"),
    ):
        monitor = Monitor()
        process = node(*words, *monitor.options)
        wait_healthy_or_not(monitor, "looking for")
        shown = monitor.status()["node"]
        assert (shown["cluster"], shown["id"]) == ("production", "S5")
        assert shown["database"].endswith(f"{database}.sqlite")
        assert (tmp_path / f"{database}.sqlite").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    for log in ("node.log", "second.log"):
        assert "starting a NEO storage node" in (tmp_path / log).read_text()


def test_options_go_before_the_variables_of_an_image(tmp_path, monkeypatch):
    (tmp_path / "neo.conf").write_text(
        f"[storage]\ncluster: a\nadapter: SQLite\ndatabase: {tmp_path}/none/a.sqlite\n"
    )
    monkeypatch.setenv("ZODIUM_LOG_FILE", "STDOUT")
    monkeypatch.setenv("ZODIUM_CONFIG", str(tmp_path / "image.toml"))
    told = refusal("-f", tmp_path / "neo.conf", "--logfile", tmp_path / "words.log")
    assert "none/a.sqlite" in told
    assert "none/a.sqlite" in (tmp_path / "words.log").read_text()


def test_what_cannot_be_run_is_refused_in_words(tmp_path):
    neo_log = tmp_path / "neo.log"
    sqlite3.connect(neo_log).execute("CREATE TABLE log (text)").connection.commit()
    (tmp_path / "server.toml").write_text('[[storage]]\npath = "Data.fs"\n')
    (tmp_path / "node.toml").write_text('[neo-storage]\ncluster = "a"\ndatabase = "b"\n')
    (tmp_path / "neo.conf").write_text(
        "[storage]\nreset: true\n"
        # NEO's own example, which means MySQL, with an engine so that no server is looked for.
        "[storage0]\ncluster: a\ndatabase: neo:neo@neo1\nengine: x\n"
    )
    database = ["-c", "a", "-d", tmp_path / "a.sqlite"]
    for words, expected in (
        ([], "--cluster NAME"),
        (["-c", "a"], "--database PATH"),
        ([*database, "-a", "MySQL"], "no database is named"),
        (["-c", "a", "-d", "b", "-a", "MySQL", "-e", "x"], "InnoDB or RocksDB"),
        ([*database, "-e", "InnoDB"], "have no engine"),
        ([*database, "--ca", neo_log], "only some of `ca`, `cert` and `key`"),
        ([*database, "-l", neo_log], "is a database, as NEO's nodes write them"),
        ([*database, "-m", "nowhere"], "write HOST:PORT"),
        ([*database, "-D", neo_log], "list of masters"),
        ([*database, "--new-nid"], "it must be a copy of another node's"),
        (["-C", tmp_path / "server.toml"], "has no table [neo-storage]"),
        (["-f", tmp_path / "neo.conf"], "give --reset once"),
        (["-f", tmp_path / "neo.conf", "-s", "storage0"], "InnoDB or RocksDB"),
        (["-c", "a", "-d", "neo:neo@neo1"], "give the `adapter`, mysql for"),
        (["-f", tmp_path / "neo.conf", "-s", "other"], "choose one with --section"),
        (["-f", tmp_path / "none.conf"], "no such configuration file"),
    ):
        assert expected in refusal(*words), words
    served = subprocess.run(
        [BINARY, "serve", "-C", tmp_path / "node.toml"], capture_output=True, text=True
    )
    assert served.returncode == 2 and "zodium neo storage -C" in served.stderr
    checked = subprocess.run(
        [BINARY, "config", "check", tmp_path / "node.toml"], capture_output=True, text=True
    )
    assert checked.returncode == 0 and "zodium neo storage -C" in checked.stdout


def test_a_database_in_use_is_waited_for(node, options):
    monitor = Monitor()
    first = node(*options, *monitor.options)
    wait_healthy_or_not(monitor, "looking for")
    assert "in use" in refusal(*options) or "another process" in refusal(*options)
    other = Monitor()
    second = node(*options, "--wait", -1, *other.options)
    # Its signals have handlers since before its monitor answers.
    wait_healthy_or_not(other, "")
    # Neither one that waits for its database, nor one that has it.
    for each in first, second:
        each.send_signal(signal.SIGUSR2)
        time.sleep(0.5)
        assert each.poll() is None
    first.kill()
    assert first.wait(SECONDS) == -signal.SIGKILL
    wait_healthy_or_not(other, "looking for")
    second.send_signal(signal.SIGTERM)
    assert second.wait(SECONDS) == 0


def test_a_log_file_that_was_moved_is_opened_anew(node, options, tmp_path):
    log, moved = tmp_path / "node.log", tmp_path / "node.log.1"
    process = node(*options, "--logfile", log)
    wait_for(lambda: log.exists() and "starting" in log.read_text(), "the first line")
    log.rename(moved)
    process.send_signal(signal.SIGUSR2)
    wait_for(lambda: log.exists() and "SIGUSR2: reopened" in log.read_text(), "the new file")
    process.terminate()
    assert process.wait(SECONDS) == 0
    assert "the node has ended" in log.read_text() and "has ended" not in moved.read_text()


def test_further_masters_are_in_a_file(node, options, tmp_path):
    masters = tmp_path / "masters.json"
    masters.write_text(json.dumps([[HOST, 4242]]))
    monitor = Monitor()
    node(*options, "-D", masters, *monitor.options)
    wait_healthy_or_not(monitor, "looking for")
    given = [[HOST, int(port)] for port in re.findall(r":(\d+)", options[3])]
    assert sorted(json.loads(masters.read_text())) == sorted([[HOST, 4242], *given])


def test_the_manual_and_the_completions_know_the_options(tmp_path):
    subprocess.run([BINARY, "man", tmp_path], check=True)
    manual = (tmp_path / "zodium-neo-storage.1").read_text().replace("\\", "")
    script = subprocess.run([BINARY, "completions", "bash"], capture_output=True, text=True).stdout
    for option in ("--new-nid", "--file", "--dynamic-master-list", "--monitor", "--config"):
        assert option in manual and option in script, option
