"""A node of ours that cannot connect, or whose certificates do not fit, says so once."""

import json
import time

import pytest
from harness.certificates import Authority, day
from harness.monitor import Monitor
from harness.neo import OwnCluster
from harness.process import HOST, free_port
from harness.waiting import wait_for

pytestmark = pytest.mark.zodium

WARNING = "cannot make a TLS connection"


def files(folder, name, **options):
    """An authority of its own, and a node's certificate and key."""
    authority = Authority(name)
    path = folder / f"{name}-ca.pem"
    path.write_bytes(authority.pem)
    return [str(path), *map(str, authority.issue("node", **options).write(folder, name))]


@pytest.mark.parametrize("kind", ["storage", "master", "admin"])
def test_the_end_of_the_certificate_of_a_node_is_told_of_in_time(tmp_path, kind):
    """In the log, by health, and as a metric."""
    cluster = OwnCluster(tmp_path, tls=files(tmp_path, "ending", first_day=20 - 365))
    monitor, address = Monitor(), f"{HOST}:{free_port()}"
    node = {
        "storage": lambda: cluster.storage_node(1, *monitor.options),
        "master": lambda: cluster.master_node(1, address, *monitor.options),
        "admin": lambda: cluster.admin_node(address, *monitor.options),
    }[kind]()
    try:
        node.start()
        wait_for(lambda: "in 19 days" in node.log(), "the warning")
        wait_for(lambda: "monitor: " in node.log(), "the monitor")
        notes = json.loads(monitor.fetch("/health")[2])["notes"]
        assert [note for note in notes if "in 19 days" in note]
        samples = monitor.samples()
        assert samples["zodium_tls_certificate_not_after_seconds"] == day(20).timestamp()
    finally:
        node.kill()


def test_a_storage_without_a_master_warns_once(tmp_path):
    cluster = OwnCluster(tmp_path)
    storage = cluster.storage_node(1)
    try:
        storage.start()
        wait_for(lambda: "cannot connect" in storage.log(), "the warning")
        time.sleep(3)
        [line] = [line for line in storage.log().splitlines() if "cannot connect" in line]
        assert "WARN" in line and cluster.masters in line and "refused" in line
    finally:
        storage.kill()


def test_a_storage_with_certificates_of_another_authority_warns_once(tmp_path):
    cluster = OwnCluster(tmp_path, tls=files(tmp_path, "one"))
    cluster.tls = files(tmp_path, "another")
    [master], storage = cluster.master_nodes, cluster.storage_node(1)
    try:
        master.start()
        wait_for(lambda: "starting a master" in master.log(), "the master")
        storage.start()
        wait_for(lambda: WARNING in storage.log(), "the warning")
        # It tries again less and less often, about each second at last.
        before = master.log().count("TLS handshake failed")
        time.sleep(3)
        assert master.log().count("TLS handshake failed") - before <= 8
        [line] = [line for line in storage.log().splitlines() if WARNING in line]
        assert "WARN" in line and cluster.masters in line and "UnknownIssuer" in line
    finally:
        for node in [master, storage]:
            if node.is_running():
                node.kill()
