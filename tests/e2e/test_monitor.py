"""The monitor: figures that are right, health that tells, and strangers who do no harm."""

import contextlib
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ZODB
import ZODB.blob
from harness.files import oid_of
from harness.monitor import Monitor
from harness.process import HOST, REPOSITORY
from harness.waiting import wait_for
from harness.wire import MAXTID, Z64, ErrorReply, Wire, framed

pytestmark = pytest.mark.zodium

NAGIOS = Path(sys.executable).with_name("zeo-nagios")


@pytest.fixture
def monitored(start_server):
    """monitored(*options): a server and its monitor."""

    def start(*options, path=None, encoding="Z5", prefix=()):
        monitor = Monitor()
        server = start_server(path, *monitor.options, *options, encoding=encoding, prefix=prefix)
        monitor.wait_serving()
        return server, monitor

    return start


# --------------------------------------------------------------------------- figures


def settled(monitor, condition):
    """The samples, once those before have met a condition: an answer reaches its client before it
    is counted, and the end of a connection is noticed later."""
    wait_for(lambda: condition(monitor.samples()), lambda: monitor.samples().values)
    return monitor.samples()


def test_each_load_is_counted_once(monitored, connect, wire, encoding):
    server, monitor = monitored(encoding=encoding)
    with Wire(server.address) as writer:
        writer.register()
        writer.commit(1, [(oid_of(1), Z64, b"data")])
    client = connect(server, cache_size=0)
    before = monitor.samples()
    for _ in range(100):
        client._call("loadBefore", oid_of(1), MAXTID)
    after = settled(
        monitor, lambda now: now.calls("loadBefore") - before.calls("loadBefore") >= 100
    )
    assert after.calls("loadBefore") - before.calls("loadBefore") == 100
    name = "zodium_cache_hits_total"
    assert after[name] - before[name] == 100
    # All at once, in one batch or several, as it comes.
    raw = wire(server)
    asked = [raw.request("loadBefore", oid_of(1), MAXTID) for _ in range(500)]
    for message_id in asked:
        raw.reply(message_id)
    last = settled(monitor, lambda now: now.calls("loadBefore") - after.calls("loadBefore") >= 500)
    assert last.calls("loadBefore") - after.calls("loadBefore") == 500


def test_commits_conflicts_and_errors_are_counted(monitored, wire):
    server, monitor = monitored()
    client = wire(server)
    before = monitor.samples()
    tids = [client.commit(n, [(oid_of(n), Z64, b"data")]) for n in range(1, 11)]
    client.notify("tpc_begin", 99, b"", b"", {}, None, " ")
    client.notify("storea", oid_of(1), Z64, b"not based on what is there", 99)
    assert client.call("vote", 99)
    client.call("tpc_abort", 99)
    # As the stock server counts them.
    for request in (("vote", 99), ("ping",)):
        leaving = wire(server)
        leaving.notify("tpc_begin", 99, b"", b"", {}, None, " ")
        leaving.call(*request)
        leaving.close()
    with pytest.raises(ErrorReply):
        client.call("loadBefore", oid_of(1000), MAXTID)

    def grown(name, now=None, **labels):
        return (now or after).of(name, **labels) - before.of(name, **labels)

    def is_over(now):
        aborts, errors = (
            grown("zodium_aborts_total", now),
            grown("zodium_errors_total", now, **error),
        )
        return aborts >= 3 and errors >= 1 and now["zodium_connections"] <= 1

    error = {"error": "ZODB.POSException.POSKeyError"}
    after = settled(monitor, is_over)

    assert grown("zodium_commits_total") == 10
    assert grown("zodium_aborts_total") == 3
    assert grown("zodium_conflicts_total") == 1
    assert grown("zodium_errors_total", **error) == 1
    for method, count in [("vote", 12), ("storea", 11), ("tpc_begin", 13), ("tpc_finish", 10)]:
        assert after.calls(method) - before.calls(method) == count
    assert grown("zodium_commit_batch_transactions_sum") == 10
    assert 1 <= grown("zodium_sync_duration_seconds_count") <= 10
    assert after["zodium_objects"] == 10
    assert after["zodium_connections"] == 1
    assert after["zodium_open_transactions"] == 0
    size = (server.log_path.parent / "Data.fs").stat().st_size
    assert 0 < after["zodium_file_size_bytes"] <= size
    assert 0 <= after["zodium_last_transaction_age_seconds"] < 10
    assert monitor.status()["storages"][0]["last_transaction"] == tids[-1].hex()


def test_bytes_are_those_of_the_socket(monitored, wire):
    server, monitor = monitored()
    client = wire(server)
    calls = [(1, False, "register", ("1", False)), *[(2, False, "ping", ())] * 50]
    hello, register, *pings = map(framed, [client.announced, *map(client.codec.encode, calls)])
    for ping in pings:
        client.send_raw(ping)
        assert client.receive()
    name, sent = "zodium_network_received_bytes_total", len(b"".join([hello, register, *pings]))
    assert settled(monitor, lambda now: now[name] >= sent)[name] == sent


def test_a_wait_for_a_lock_is_seen_and_then_counted(monitored, wire):
    server, monitor = monitored()
    first, second = wire(server), wire(server)
    first.call("set_client_label", b"the holder")
    second.call("set_client_label", b"the waiter")
    for number, client in enumerate((first, second)):
        client.notify("tpc_begin", number, b"", b"", {}, None, " ")
        client.notify("storea", oid_of(7), Z64, b"data", number)
    first.call("vote", 0)
    asked = second.request("vote", 1)
    status = monitor.wait_until(lambda status: status["storages"][0]["waiting_for_locks"])
    by_label = {c["label"]: c["transaction"] for c in status["connections"] if c["label"]}
    assert by_label["the holder"]["state"] == "voted"
    assert by_label["the waiter"]["state"] == "waiting"
    waits = by_label["the waiter"]["waits_for"]
    assert waits["behind_label"] == "the holder"
    assert waits["what"] == "object 0000000000000007"
    assert monitor.samples()["zodium_lock_waiting_transactions"] == 1
    first.call("tpc_abort", 0)
    second.reply(asked)
    count = "zodium_lock_wait_duration_seconds_count"
    samples = settled(monitor, lambda now: now[count] >= 1)
    assert samples[count] == 1
    assert samples["zodium_lock_wait_duration_seconds_sum"] >= 0.1
    assert samples["zodium_lock_waiting_transactions"] == 0


def test_packs_are_told_of(monitored, wire):
    server, monitor = monitored()
    client = wire(server)
    serial = Z64
    for number in range(3):
        serial = client.commit(number, [(Z64, serial, b"\x80\x03cpersistent\nP\n.}." + b" " * 99)])
    assert monitor.status()["storages"][0]["pack"]["last"] is None
    client.call("pack", time.time(), True)
    status = monitor.wait_until(lambda it: it["storages"][0]["pack"]["last"])
    status = status["storages"][0]["pack"]
    assert status["succeeded"] == 1 and status["last"]["freed_bytes"] > 0, status
    samples = monitor.samples()
    assert samples.of("zodium_packs_total", result="success") == 1
    assert samples["zodium_last_pack_failed"] == 0


def test_blobs_are_counted_with_their_bytes(monitored, connect, tmp_path):
    folder = tmp_path / "blobs"
    server, monitor = monitored("--blob-dir", str(folder))
    database = ZODB.DB(connect(server, blob_dir=str(tmp_path / "writer")))
    data = [b"a" * 700_001, b"b" * 10, b""]
    with database.transaction() as connection:
        connection.root()["blobs"] = [ZODB.blob.Blob(content) for content in data]
    database.close()
    database = ZODB.DB(connect(server, blob_dir=str(tmp_path / "reader")))
    with database.transaction() as connection:
        for blob in connection.root()["blobs"][:2]:
            blob.open("r").close()
    database.close()
    # An answer reaches its client before it is counted.
    told = monitor.wait_until(lambda it: it["storages"][0]["blobs"]["sent"] == 2)
    told = told["storages"][0]["blobs"]
    assert told.pop("disk_free_bytes") > 0
    assert told == {
        "directory": str(folder),
        "received": 3,
        "received_bytes": 700_011,
        "sent": 2,
        "sent_bytes": 700_011,
    }
    samples = monitor.samples()
    assert samples["zodium_blob_sent_bytes_total"] == 700_011
    assert min(samples["zodium_blob_disk_free_bytes"], samples["zodium_disk_free_bytes"]) > 0


def test_what_is_refused_is_counted_and_shown(monitored, wire):
    server, monitor = monitored()
    with socket.create_connection(server.address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(1000):
                pass
    counted = {"reason": "protocol"}
    samples = settled(monitor, lambda now: now.of("zodium_network_refused_total", **counted) >= 1)
    assert samples.of("zodium_network_refused_total", **counted) == 1
    assert samples.of("zodium_log_messages_total", level="warning") >= 1
    assert "disconnecting" in monitor.status()["messages"][0]["text"]


def test_a_client_that_is_refused_again_and_again_is_counted_and_logged_once(monitored):
    """A minute has one line for each host, and a table shows which host connects."""
    server, monitor = monitored()
    for _ in range(20):
        with Wire(server.address) as client, pytest.raises(ErrorReply):
            client.register("nowhere")
    samples = monitor.samples()
    assert samples.of("zodium_network_refused_total", reason="storage") == 20
    assert server.log().count("nowhere") == 1
    network = monitor.status()["network"]
    # One came to see whether it listens. A minute may end meanwhile.
    [[host, count]] = network["arrivals"]
    assert host == HOST and 10 <= count <= 21
    assert ["storage", 20] in network["refused"]
    server.stop()
    assert "times=19" in server.log()


# ------------------------------------------------------------------ the documentation


def test_metrics_are_documented_and_what_is_documented_exists(monitored):
    _, monitor = monitored()
    text = (REPOSITORY / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `([a-z_]+)`", text, re.M))
    exposed = set()
    for family in monitor.families():
        assert family.documentation, family.name
        suffix = "_total" if family.type == "counter" else ""
        exposed.add(family.name + suffix)
    assert exposed == documented


def test_names_follow_the_rules_of_prometheus(monitored, wire):
    server, monitor = monitored()
    wire(server).commit(1, [(oid_of(1), Z64, b"data")])
    for family in monitor.families():
        assert re.fullmatch(r"(zodium|process)(_[a-z]+)+", family.name)
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
        # Base units only.
        assert not re.search("milli|micro|nano|kilo|mega|kb|minutes|hours", family.name)
        if family.unit:
            assert family.name.endswith(family.unit)
        for sample in family.samples:
            assert set(sample.labels) <= {
                "storage", "method", "error", "result", "reason", "level", "version", "le",
                "cluster", "node", "state", "kind",
            }  # fmt: skip


# What Prometheus sends; versions 2.5 and 3.0.
SCRAPERS = [
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
]


def test_metrics_are_the_same_in_both_formats(monitored, wire):
    server, monitor = monitored()
    wire(server).commit(1, [(oid_of(1), Z64, b"data")])

    def content(accept):
        assert monitor.fetch("/metrics", accept=accept)[1]["content-type"].startswith(accept)
        families = monitor.families(accept)
        # The parser of the older format has no units, and lists no family without samples.
        described = {(f.name, f.documentation, f.type) for f in families if f.samples}
        samples = [(s.name, tuple(sorted(s.labels.items()))) for f in families for s in f.samples]
        assert len(samples) == len(set(samples))
        return described, set(samples)

    text = content("text/plain")
    assert text == content("application/openmetrics-text")
    assert text[1]


@pytest.mark.parametrize("accept", [None, "*/*", "text/plain", "text/plain;version=0.0.4", "a/b"])
def test_readers_get_the_text_format_unless_they_prefer_openmetrics(monitored, accept):
    _, monitor = monitored()
    _, headers, body = monitor.fetch("/metrics", accept=accept)
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in body
    for scraper in SCRAPERS:
        _, headers, body = monitor.fetch("/metrics", accept=scraper)
        assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert body.endswith(b"# EOF\n")
    prefers_text = "application/openmetrics-text;q=0.3, text/plain;q=0.4"
    _, headers, _ = monitor.fetch("/metrics", accept=prefers_text)
    assert headers["content-type"].startswith("text/plain")


def test_metrics_follow_the_rules_that_promtool_checks(monitored, wire):
    """`promtool check metrics` reads the text format, and these are its rules."""
    server, monitor = monitored()
    wire(server).commit(1, [(oid_of(1), Z64, b"data")])
    lines = monitor.fetch("/metrics", accept="text/plain")[2].decode().splitlines()
    comments = [line.split(" ", 3) for line in lines if line.startswith("#")]
    assert {comment[1] for comment in comments} == {"HELP", "TYPE"}
    helps = {name: text for _, kind, name, text in comments if kind == "HELP"}
    types = {name: text for _, kind, name, text in comments if kind == "TYPE"}
    assert len(helps) + len(types) == len(comments), "a family is described twice"
    assert all(helps.values()) and helps.keys() == types.keys()
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    sampled = [re.match(r"[a-z_]+", line)[0] for line in lines if not line.startswith("#")]
    described = {
        name + suffix for name, kind in types.items() for suffix in suffixes.get(kind, ("",))
    }
    assert sampled and set(sampled) <= described
    for name, kind in types.items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert not name.endswith(("_bucket", "_sum", "_count"))
        assert not set(name.split("_")) & {"counter", "gauge", "histogram", "summary", "untyped"}


# ---------------------------------------------------------------------------- health


def health(monitor):
    code, headers, body = monitor.fetch("/health")
    assert headers["content-type"] == "application/json"
    return code, body.decode()


def test_a_server_that_accepts_commits_is_healthy(monitored):
    _, monitor = monitored()
    assert health(monitor)[0] == 200
    assert monitor.fetch("/health/live")[0] == 200
    assert monitor.samples()["zodium_storage_healthy"] == 1


def test_a_storage_that_was_meant_to_be_read_is_healthy(monitored, tmp_path, start_server):
    path = tmp_path / "Data.fs"
    start_server(path).stop()
    _, monitor = monitored("--read-only", path=path)
    code, body = health(monitor)
    assert (code, '"readonly"' in body) == (200, True)


def test_a_disk_that_fails_makes_it_unhealthy(monitored, wire, tmp_path):
    # A write beyond the limit on files' sizes fails, instead of ending the process.
    path = tmp_path / "Data.fs"
    server, monitor = monitored(path=path, prefix=["env", "--default-signal=XFSZ"])
    client = wire(server)
    client.commit(1, [(oid_of(1), Z64, b"x" * 200_000)])
    used = monitor.status()["storages"][0]["size_bytes"]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (used, used))
    with pytest.raises(ErrorReply):
        client.commit(2, [(oid_of(2), Z64, b"data")])
    code, body = health(monitor)
    assert code == 503
    assert '"unavailable"' in body and "a write failed" in body
    assert monitor.fetch("/health/live")[0] == 200
    samples = monitor.samples()
    assert samples["zodium_storage_healthy"] == 0
    assert samples.of("zodium_log_messages_total", level="error") >= 1
    # Reading goes on.
    assert client.call("loadBefore", oid_of(1), MAXTID)


# --------------------------------------------------------------------------- strangers


def test_hostile_requests_do_not_disturb_clients(monitored, wire):
    server, monitor = monitored()
    client = wire(server, seconds=10)
    client.commit(1, [(oid_of(1), Z64, b"data")])
    before = monitor.status()["process"]
    sockets = []
    address = (HOST, monitor.port)
    for number in range(200):
        stranger = socket.create_connection(address, 10)
        stranger.setblocking(False)
        sockets.append(stranger)
        with contextlib.suppress(OSError):
            if number % 4 == 0:
                stranger.send(b"GET / HTTP/1.1\r\nX-Slow: ")
            elif number % 4 == 1:
                stranger.send(b"\x00\xff\x16\x03\x01 garbage\r\n\r\n" * 100)
            elif number % 4 == 2:
                stranger.send(b"GET /metrics HTTP/1.1\r\nX-Large: " + b"x" * 200_000)
        # The wire waits 10 s for the reply, which is less than a connection of a stranger may last.
        client.call("loadBefore", oid_of(1), MAXTID)
    # A newcomer is answered all the same, and nothing has piled up.
    assert health(monitor)[0] == 200
    after = monitor.status()["process"]
    assert after["open_files"] - before["open_files"] <= 70
    assert after["resident_bytes"] - before["resident_bytes"] < 32 << 20
    for stranger in sockets:
        stranger.close()
    client.commit(2, [(oid_of(2), Z64, b"data")])


def test_large_heads_and_other_methods_are_refused(monitored):
    _, monitor = monitored()
    with socket.create_connection((HOST, monitor.port), 10) as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b" 431 " in stranger.recv(1000)
    assert monitor.fetch("/metrics", "POST")[0] == 405
    assert monitor.fetch("/../../etc/passwd")[0] == 404
    assert monitor.fetch("/", "HEAD")[2] == b""


def test_clients_are_served_beside_askers_of_the_status(monitored, wire):
    server, monitor = monitored()
    client = wire(server)
    client.commit(1, [(oid_of(1), Z64, b"data")])
    stopping, answers = threading.Event(), []

    def ask():
        while not stopping.is_set():
            answers.append(monitor.fetch("/status.json")[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            client.call("loadBefore", oid_of(1), MAXTID)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert set(answers) == {200} and len(answers) >= len(threads)


def test_what_clients_say_comes_as_data(monitored, connect):
    server, monitor = monitored()
    label = "</script><script>alert(1)</script>"
    connect(server, client_label=label)
    status = monitor.wait_until(lambda status: status["connections"][-1]["label"])
    assert status["connections"][-1]["label"] == label
    code, headers, body = monitor.fetch("/")
    assert code == 200 and label.encode() not in body
    assert "default-src 'none'" in headers["content-security-policy"]
    # Nothing comes from elsewhere.
    for name in ("/", "/page.css", "/page.js"):
        code, _, body = monitor.fetch(name)
        assert code == 200
        assert set(re.findall(rb"https?://[^'\"]+", body)) <= {b"http://www.w3.org/2000/svg"}


# ------------------------------------------------------------------------- zeo-nagios


def nagios(server, *options):
    words = [str(NAGIOS), *options, f"{HOST}:{server.port}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout


def test_zeo_nagios_reads_our_status(start_server, wire, tmp_path, encoding):
    server = start_server(encoding=encoding)
    assert nagios(server) == (1, "Empty storage '1'\n")
    client = wire(server)
    client.commit(1, [(oid_of(1), Z64, b"data")])
    status_path = str(tmp_path / "status")
    code, said = nagios(server, "-m", "-s", status_path)
    assert (code, said.split("|")[0]) == (0, "OK")
    assert "connections=1" in said and "active_txns=0" in said
    for number in range(2, 12):
        client.commit(number, [(oid_of(number), Z64, b"data")])
        client.call("loadBefore", oid_of(1), MAXTID)
    time.sleep(0.1)
    _, said = nagios(server, "-m", "-s", status_path, "-u", "days")
    rates = dict(re.findall(r"(\w+)=([\d.]+)", said))
    assert float(rates["commits"]) == float(rates["loads"]) == float(rates["stores"]) > 0
    assert float(rates["aborts"]) == 0
    server.stop()
    assert nagios(server)[0] == 2
