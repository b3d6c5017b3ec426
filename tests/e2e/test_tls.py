"""TLS: who gets in, who does not and is told why, and what goes through it."""

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
import ZEO
from cryptography.hazmat.primitives.serialization import PrivateFormat
from harness.certificates import LONG_AGO, Authority, Site, day, self_signed
from harness.monitor import Monitor
from harness.process import HOST, ServerProcess, free_port
from harness.waiting import wait_for
from harness.wire import MAXTID, Z64, Closed, ErrorReply, Wire
from ZEO.ClientStorage import ClientStorage
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, z64

pytestmark = pytest.mark.zodium

MEGABYTE = 1 << 20
TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
HANDSHAKE_SECONDS = 10  # the server's patience
SILENT_CLIENTS = 200  # more than handshakes go on at once


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.fixture
def start_tls(tmp_path, start_server, site):
    """start_tls(): a server with the site's certificates."""

    def start(encoding="Z5", **other):
        options = site.options(**{key.replace("_", "-"): path for key, path in other.items()})
        return start_server(tmp_path / "Data.fs", *options, encoding=encoding)

    return start


def until_logged(server, text, seconds=10):
    wait_for(lambda: text in server.log(), lambda: f"{text!r} in {server.log()}", seconds)


def refusal(server, context, source=HOST):
    """How the server's refusal looks to a client."""
    with pytest.raises((Closed, ssl.SSLError, ConnectionError)) as refused:
        Wire(server.address, ssl=context, source=source)
    return str(refused.value)


@pytest.mark.parametrize("version", [TLS12, TLS13])
def test_stock_clients_commit_and_see_each_other(site, start_tls, encoding, version):
    server = start_tls(encoding)
    contexts = [site.context(site.authority.issue(name), version) for name in ("alice", "bob")]
    one, other = (
        ZEO.DB(server.address, ssl=context, ssl_server_hostname="localhost") for context in contexts
    )
    for number in range(10):
        writer, reader = (one, other) if number % 2 else (other, one)
        with writer.transaction() as connection:
            connection.root()["number"] = number
        with reader.transaction() as connection:
            reader.storage.ping()
            connection.sync()
            assert connection.root()["number"] == number
    one.close()
    other.close()


@pytest.mark.parametrize("is_authority", [False, True])
def test_a_listed_certificate_is_its_own_authority(site, start_tls, connect, is_authority):
    pinned = self_signed("alice", is_authority)
    (site.trusted / "alice.crt").write_bytes(pinned.pem)
    server = start_tls()
    connect(server, ssl=site.context(pinned), ssl_server_hostname="localhost").ping()
    refused = refusal(server, site.context(self_signed("alice", is_authority)))
    assert "unknown" in refused.lower(), refused


@pytest.mark.parametrize("version", [TLS12, TLS13])
def test_who_is_not_believed_is_refused_and_the_log_says_why(site, start_tls, connect, version):
    authority = site.authority
    revoked, welcome = authority.issue("mallory"), authority.issue("alice")
    (site.trusted / "ca.crl").write_bytes(authority.revoke(revoked))
    server = start_tls()
    client = connect(server, ssl=site.context(welcome), ssl_server_hostname="localhost")
    refusals = (
        (revoked, "certificate revoked", 'subject="CN=mallory" reason=it is revoked'),
        (authority.issue("old", first_day=LONG_AGO), "certificate expired", "expired on"),
        (Authority("Other").issue("eve"), "unknown ca", "neither it nor its issuer is trusted"),
        (None, "certificate required", "no certificates"),
    )
    for number, (holder, told, logged) in enumerate(refusals, 2):
        # Of each address one refusal a minute is logged.
        refused = refusal(server, site.context(holder, version), f"127.0.0.{number}").lower()
        assert told in refused, refused
        until_logged(server, logged)
    client.ping()


def test_refused_handshakes_of_one_address_take_one_line_a_minute(site, start_tls):
    """The rest are counted; the end of the server ends the minute too."""
    server = start_tls()
    stranger = site.context(Authority("Other").issue("eve"))
    for _ in range(30):
        refusal(server, stranger)
    refusal(server, stranger, "127.0.0.2")
    # The client may know of it before the server has logged it.
    until_logged(server, 'peer="127.0.0.2:')
    server.stop()
    lines = [line for line in server.log().splitlines() if "TLS handshake" in line]
    assert len(lines) == 3, lines
    first, other, rest = lines
    assert 'peer="127.0.0.1:' in first and 'subject="CN=eve"' in first
    assert 'peer="127.0.0.2:' in other
    assert 'peer="127.0.0.1" times=29' in rest


def test_the_library_of_tls_logs_only_where_it_is_named(tmp_path, site, start_server, connect):
    context = site.context(site.authority.issue("alice"))
    for level, is_logged in (("debug", False), ("info,rustls=debug", True)):
        options = [*site.options(), f"--log-level={level}"]
        server = start_server(tmp_path / "Data.fs", *options)
        connect(server, ssl=context, ssl_server_hostname="localhost").ping()
        assert ("decided upon suite" in server.log()) == is_logged
        server.stop()


def test_a_client_without_tls_and_who_says_nothing_hold_nobody_up(site, start_tls, connect):
    server = start_tls()
    start = time.monotonic()
    silent = [socket.create_connection(server.address) for _ in range(SILENT_CLIENTS)]
    speaking = Wire(server.address, handshake=False, source="127.0.0.2")
    speaking.send_frame(b"Z5")
    with pytest.raises((Closed, ssl.SSLError)):
        # What comes is an alert of TLS, which is no frame.
        speaking.receive_frame()
    until_logged(server, "does not speak TLS")
    context = site.context(site.authority.issue("alice"))
    client = connect(server, ssl=context, ssl_server_hostname="localhost")
    client.ping()
    assert time.monotonic() - start < HANDSHAKE_SECONDS, "somebody was held up"
    for connection in silent:
        connection.settimeout(HANDSHAKE_SECONDS + 5)
        assert connection.recv(1) == b""
        connection.close()
    assert time.monotonic() - start > HANDSHAKE_SECONDS - 1
    until_logged(server, "a client without TLS waits for the server to send first")
    client.ping()


@pytest.mark.parametrize("count", [100, 1000])
def test_half_a_hello_keeps_no_client_out(tmp_path, site, start_server, connect, count):
    """A client that had to wait would get in when the server gives the half hellos up."""
    server = start_server(tmp_path / "Data.fs", *site.options(), "--workers=1")
    crowd = [socket.create_connection(server.address) for _ in range(count)]
    for connection in crowd:
        connection.sendall(b"\x16\x03\x01\x02\0\x01")
    context = site.context(site.authority.issue("alice"))
    for _ in range(5):
        connect(server, ssl=context, ssl_server_hostname="localhost").ping()
    for connection in crowd:
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.close()


def test_a_client_with_tls_at_a_server_without(tmp_path, site, start_server, connect):
    server = start_server(tmp_path / "Data.fs")
    refusal(server, site.context(site.authority.issue("alice")))
    until_logged(server, "speaks TLS, which this server is not set up for")
    connect(server).ping()


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_key_may_have_a_password(tmp_path, site, start_tls, connect, form):
    site.key.write_bytes(site.server.key_pem(b"s3cret", form))
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    server = start_tls(key_password_file=password)
    context = site.context(site.authority.issue("alice"))
    connect(server, ssl=context, ssl_server_hostname="localhost").ping()


def test_a_server_that_cannot_have_tls_does_not_start(tmp_path, binary, site):
    site.key.write_bytes(site.server.key_pem(b"s3cret"))
    (tmp_path / "password").write_text("wrong")
    password = ["--ssl-key-password-file", str(tmp_path / "password")]
    for more, text in (
        (password, "server.key: the password does not open the key"),
        ([], "server.key: the key is encrypted, its password is needed"),
    ):
        words = [binary, "serve", str(tmp_path / "Data.fs"), "-a", f"{HOST}:{free_port()}"]
        done = subprocess.run([*words, *site.options(), *more], capture_output=True, text=True)
        assert done.returncode == 1
        assert text in done.stderr


def test_each_storage_has_its_own_list_of_who_may_use_it(tmp_path, binary, site):
    lists = {
        "of-alice": '["alice"]',
        "of-bob": '["O = Example, CN = bob"]',
        "of-both": '["alice", "bob"]',
    }
    config, port = tmp_path / "zodium.toml", free_port()
    config.write_text(
        f'[server]\naddress = "{HOST}:{port}"\n[server.tls]\ncertificate = "{site.certificate}"\n'
        f'key = "{site.key}"\nauthenticate = "{site.trusted}"\n'
        + "".join(
            f'[[storage]]\nname = "{name}"\npath = "{tmp_path}/{name}.fs"\nallow = {allowed}\n'
            for name, allowed in lists.items()
        )
        + f'[[storage]]\nname = "for-all"\npath = "{tmp_path}/for-all.fs"\n'
    )
    server = ServerProcess([binary, "serve", "-C", str(config)], port, tmp_path)
    try:
        allowed = {
            site.authority.issue("alice"): {"of-alice", "of-both", "for-all"},
            site.authority.issue("bob", "Example"): {"of-bob", "of-both", "for-all"},
            site.authority.issue("bob"): {"of-both", "for-all"},
            site.authority.issue("eve", "Example"): {"for-all"},
        }
        for holder, expected in allowed.items():
            context = site.context(holder)
            answers = {
                name: registered(server, context, name) for name in [*lists, "for-all", "absent"]
            }
            assert {name for name, answer in answers.items() if answer is None} == expected
            refused = {answer.replace(name, "X") for name, answer in answers.items() if answer}
            assert len(refused) == 1, "what is not there and what is not for it look the same"
            with Wire(server.address, handshake=False, ssl=context) as monitor:
                monitor.receive_frame()
                monitor.send_frame(b"ruok")
                status = monitor.receive_frame().decode()
            assert {name for name in [*lists, "for-all"] if f'"{name}":' in status} == expected
        until_logged(server, "or the client may not use it")
    finally:
        server.stop()


def registered(server, context, name):
    """None, or why the client may not use the storage."""
    with Wire(server.address, ssl=context) as client:
        try:
            client.register(name)
        except ErrorReply as error:
            assert error.args[0] == "builtins.ValueError"
            return str(error.args[1])


def test_stock_clients_are_not_let_into_storages_of_others(tmp_path, binary, site):
    config, port = tmp_path / "zodium.toml", free_port()
    config.write_text(
        f'[server]\naddress = "{HOST}:{port}"\n[server.tls]\ncertificate = "{site.certificate}"\n'
        f'key = "{site.key}"\nauthenticate = "{site.trusted}"\n'
        f'[[storage]]\nname = "1"\npath = "{tmp_path}/Data.fs"\nallow = ["alice"]\n'
    )
    server = ServerProcess([binary, "serve", "-C", str(config)], port, tmp_path)
    try:
        for name, is_let_in in (("alice", True), ("bob", False)):
            context = site.context(site.authority.issue(name))
            client = ClientStorage(
                server.address,
                ssl=context,
                ssl_server_hostname="localhost",
                wait=is_let_in,
                wait_timeout=10,
            )
            if is_let_in:
                client.ping()
            else:
                until_logged(server, 'subject="CN=bob"')
                assert not client.is_connected()
            client.close()
    finally:
        server.stop()


def test_a_transaction_and_loads_of_100_megabytes_go_through(site, start_tls, connect):
    server = start_tls("M5")
    context = site.context(site.authority.issue("alice"))
    data = os.urandom(MEGABYTE) * 10
    # Also for its vote, which the server hears behind all the data.
    patience = {"wait_timeout": 300}
    writer = connect(server, ssl=context, ssl_server_hostname="localhost", **patience)
    txn = TransactionMetaData()
    writer.tpc_begin(txn)
    for number in range(10):
        writer.store(p64(number), z64, data, "", txn)
    writer.tpc_vote(txn)
    writer.tpc_finish(txn)
    reader = connect(server, ssl=context, ssl_server_hostname="localhost", **patience)
    for number in range(10):
        assert reader.load(p64(number))[0] == data


def test_many_requests_at_once_are_answered_while_answers_wait(site, start_tls):
    """A client that asks for 60 MB before it reads anything."""
    server = start_tls("M5")
    with Wire(server.address, ssl=site.context(site.authority.issue("alice")), seconds=60) as wire:
        wire.register()
        data = os.urandom(200_000)
        wire.commit(1, [(Z64, Z64, data)])
        asking = threading.Thread(
            target=lambda: [wire.request("loadBefore", Z64, MAXTID) for _ in range(300)]
        )
        first = wire.last_id + 1
        asking.start()
        time.sleep(0.3)
        for number in range(first, first + 300):
            assert wire.reply(number)[0] == data
        asking.join()


def test_revocation_holds_from_a_signal_on_for_who_comes_then(site, start_tls, connect):
    server = start_tls()
    alice = site.authority.issue("alice")
    context = site.context(alice)
    client = connect(server, ssl=context, ssl_server_hostname="localhost")
    (site.trusted / "ca.crl").write_text("-----BEGIN X509 CRL-----\n")
    server.process.send_signal(signal.SIGUSR2)
    until_logged(server, "ca.crl: not a PEM file")
    Wire(server.address, ssl=context).close()
    (site.trusted / "ca.crl").write_bytes(site.authority.revoke(alice))
    server.process.send_signal(signal.SIGUSR2)
    until_logged(server, "read the certificates again")
    assert "revoked" in refusal(server, context).lower()
    client.ping()


def test_certificates_are_read_again_while_storages_are_opened(tmp_path, binary, site):
    """A cluster that is not there is waited for."""
    port, nowhere = free_port(), f"neo://nowhere@{HOST}:{free_port()}?wait=60"
    words = [str(binary), "serve", nowhere, "-a", f"{HOST}:{port}", *site.options()]
    server = ServerProcess(words, port, tmp_path, wait=False)
    try:
        until_logged(server, "looking for the primary master")
        server.process.send_signal(signal.SIGUSR2)
        until_logged(server, "read the certificates again")
    finally:
        assert server.stop() == 0


def test_a_stop_says_goodbye(site, start_tls):
    server = start_tls()
    wire = Wire(server.address, ssl=site.context(site.authority.issue("alice")))
    wire.register()
    wire.socket.suppress_ragged_eofs = False
    assert server.stop() == 0
    assert wire.socket.recv(1) == b"", "an end without close_notify raises SSLEOFError"


def test_the_end_of_the_certificate_is_told_of_in_time(site, start_server, tmp_path):
    """In the log, by health, which stays well, and as a metric."""
    holder = site.authority.issue("server", first_day=20 - 365, is_server=True)
    certificate, key = holder.write(tmp_path, "ending")
    monitor = Monitor()
    options = site.options(certificate=certificate, key=key)
    server = start_server(tmp_path / "Data.fs", *options, *monitor.options)
    until_logged(server, "in 19 days")
    assert "renew it, and send SIGUSR2" in server.log()
    code, _, body = monitor.fetch("/health")
    assert (code, json.loads(body)["status"]) == (200, "degraded") and b"in 19 days" in body
    samples = monitor.samples()
    assert samples["zodium_tls_certificate_not_after_seconds"] == day(20).timestamp()


def test_tls_goes_over_unix_sockets_too(tmp_path, binary, site):
    path = tmp_path / "socket"
    words = [binary, "serve", str(tmp_path / "Data.fs"), "-a", str(path)]
    server = subprocess.Popen([*words, *site.options()], stdout=subprocess.DEVNULL)
    try:
        raw = socket.socket(socket.AF_UNIX)
        wait_for(lambda: raw.connect_ex(str(path)) == 0, "the server listens", 10)
        context = site.context(site.authority.issue("alice"))
        with context.wrap_socket(raw, server_hostname="localhost") as secured:
            assert secured.recv(6) == b"\0\0\0\2Z5"
    finally:
        server.terminate()
        server.wait()
