"""`zodium neo admin`, `ctl` and `status` without a cluster: what they say of themselves."""

import json
import signal
import subprocess
import time

import pytest
from harness.monitor import Monitor
from harness.neo import OwnCluster
from harness.process import HOST, free_port
from harness.servers import BINARY
from harness.waiting import wait_for

pytestmark = pytest.mark.zodium
SECONDS = 60
NO_MASTER = "Not connected to a primary master."


def neo(*words):
    return subprocess.run(
        [BINARY, "neo", *map(str, words)], capture_output=True, text=True, timeout=SECONDS
    )


@pytest.fixture
def admin(tmp_path):
    """admin(*words): an admin that looks for a master that is not there; and its address."""
    processes = []

    def start(*words):
        address = f"{HOST}:{free_port()}"
        command = [BINARY, "neo", "admin", "--bind", address, *map(str, words)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        processes.append(process)
        end = time.monotonic() + SECONDS
        while "cannot connect" in neo("ctl", "-a", address, "print", "cluster").stderr:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        return process, address

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def options():
    return ["-c", "production", "-m", f"{HOST}:{free_port()} {HOST}:{free_port()}"]


def test_an_admin_without_a_master_says_so(admin, options):
    monitor = Monitor()
    process, address = admin(*options, *monitor.options)
    for words in ("print cluster", "print pt", "start", "kill S1", "print summary", "flush_log"):
        done = neo("ctl", "-a", address, *words.split())
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"ERROR: {NO_MASTER}\n"
    status = neo("status", "-a", address)
    assert status.returncode == 3
    assert f"The admin at {address} has no primary master: start a master" in status.stdout
    assert json.loads(neo("status", "--json", "-a", address).stdout)["is_well"] is False
    code, _, body = monitor.fetch("/health")
    assert code == 503
    assert "looking for the primary master" in body.decode()
    assert monitor.samples().of("zodium_network_received_bytes_total") > 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0
    gone = neo("ctl", "-a", address, "print", "cluster")
    assert gone.returncode == 1
    assert f"cannot connect to the admin at {address}" in gone.stderr


def test_the_status_page_shows_the_cluster(tmp_path):
    monitor = Monitor()
    cluster = OwnCluster(tmp_path, storages=2, partitions=3, replicas=1)
    cluster.admin = cluster.admin_node(cluster.admin_address, *monitor.options)
    cluster.start()
    try:
        cluster.storages[1].kill()

        def shown():
            found = monitor.status()["cluster"]
            # That a node is down and that its cells are out of date are two messages.
            lost = [node["cells"] for node in found["nodes"] if node["state"] == "DOWN"]
            return found if [["OUT_OF_DATE", 3]] in lost else None

        found = wait_for(shown, lambda: monitor.status()["cluster"])
    finally:
        cluster.end()
    assert (found["name"], found["partitions"], found["replicas"]) == (cluster.name, 3, 1)
    nodes = {node["id"]: node for node in found["nodes"]}
    assert [name for name, node in nodes.items() if node["is_primary"]] == ["M1"]
    assert nodes["M1"]["address"] == cluster.masters
    by_state = {node["state"]: node["cells"] for node in nodes.values() if node["cells"]}
    assert by_state == {"RUNNING": [["UP_TO_DATE", 3]], "DOWN": [["OUT_OF_DATE", 3]]}


def test_the_files_and_the_command_line_say_the_same(admin, tmp_path):
    (tmp_path / "admin.toml").write_text('[neo-admin]\ncluster = "a"\n[log]\nto = "toml.log"\n')
    (tmp_path / "neo.conf").write_text(
        f"[DEFAULT]\ncluster: a\nreplicas: 1\n[admin]\nlogfile: {tmp_path}/neo.log\n"
    )
    for words, log in (
        (["-C", "admin.toml"], "toml.log"),
        (["-f", "neo.conf"], "neo.log"),
        (["-c", "a", "--logfile", "words.log"], "words.log"),
    ):
        process, _ = admin(*words)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        text = (tmp_path / log).read_text()
        assert "starting the admin of a NEO cluster" in text
        assert "the admin has ended" in text


def test_what_cannot_be_run_is_refused_in_words(tmp_path):
    (tmp_path / "storage.toml").write_text('[neo-storage]\ncluster = "a"\ndatabase = "b"\n')
    (tmp_path / "admin.toml").write_text('[neo-admin]\ncluster = "a"\n')
    for words, expected in (
        (["admin"], "--cluster NAME"),
        (["admin", "-c", "a", "--monitor-email", "b"], "`monitor-email` is not implemented"),
        (["admin", "-c", "a", "-m", "nowhere"], "write HOST:PORT"),
        (["admin", "-c", "a", "--key", tmp_path], "only some of `ca`, `cert` and `key`"),
        (["admin", "-C", tmp_path / "storage.toml"], "has no table [neo-admin]"),
        (["master"], "--cluster NAME"),
        (["master", "-c", "a", "--upstream-cluster", "b"], "a backup cluster needs both"),
        (["master", "-c", "a", "-p", "0"], "--partitions"),
        (["master", "-C", tmp_path / "storage.toml"], "has no table [neo-master]"),
        (["storage", "-C", tmp_path / "admin.toml"], "has no table [neo-storage]"),
        (["ctl", "print"], "Usage"),
        (["ctl", "destroy"], "unrecognized subcommand"),
        (["ctl", "kill", "5"], "give the id of a node"),
        (["ctl", "set", "cluster", "UP"], "give VERIFYING"),
        (["ctl", "truncate", "now"], "give tid:NUMBER"),
        (["ctl", "--ca", "a", "start"], "--cert"),
        (["ctl", "-a", "nowhere:x", "start"], "cannot look up"),
    ):
        done = neo(*words)
        assert done.returncode in (1, 2) and "panicked" not in done.stderr
        assert expected in done.stderr, (words, done.stderr)
    checked = subprocess.run(
        [BINARY, "config", "check", tmp_path / "admin.toml"], capture_output=True, text=True
    )
    assert "can be run: zodium neo admin -C" in checked.stdout


def test_without_a_command_the_help_is_printed():
    done = neo("ctl")
    assert done.returncode == 0
    for command in ("print", "prune_orphan", "truncate", "flush_log"):
        assert f"\n  {command} " in done.stdout, done.stdout


def test_another_server_is_no_admin(tmp_path):
    port = free_port()
    words = [BINARY, "serve", tmp_path / "Data.fs", "-a", f"{HOST}:{port}"]
    server = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + SECONDS
        while "cannot connect" in (done := neo("ctl", "-a", f"{HOST}:{port}", "start")).stderr:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert done.returncode == 1
        assert "is no admin that this command can talk to" in done.stderr
    finally:
        server.kill()
        server.wait()
