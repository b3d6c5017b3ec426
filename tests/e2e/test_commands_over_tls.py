"""Commands that ask a server which speaks TLS, and what they say when it does not work out."""

import contextlib
import socket
import threading
import time

import pytest
from harness.certificates import Authority, Site, self_signed
from harness.process import HOST, ServerProcess, free_port
from harness.servers import STOCK_SERVER

pytestmark = pytest.mark.zodium

RUN_SECONDS = 60
COMMANDS = ("healthcheck", "pack")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.fixture
def run(run):
    """run(*words, **environment): the command's exit code, and what it said."""

    def run_command(*words, **environment):
        code, out, said = run(*words, env=environment)
        return code, out + said

    return run_command


@pytest.fixture
def refuse(run):
    """refuse(text, *words): both commands fail with one line that has the text in it."""

    def check(text, *words):
        for command in COMMANDS:
            code, said = run(command, *words)
            assert (code, said.count("\n")) == (1, 1), said
            assert text in said, said

    return check


@pytest.fixture
def start_with(tmp_path):
    """start_with(config, *command): a server of this configuration; ended with the test."""
    with contextlib.ExitStack() as stack:

        def start(port, *words):
            server = ServerProcess([str(word) for word in words], port, tmp_path)
            stack.callback(server.stop)
            return server

        yield start


def shown(holder, folder, password=None):
    """Options that show a certificate."""
    certificate, key = holder.write(folder, f"shown-{id(holder)}")
    words = ["--ssl-certificate", certificate, "--ssl-key", key]
    if password:
        key.write_bytes(holder.key_pem(password.encode()))
        file = folder / "password"
        file.write_text(password + "\n")
        words += ["--ssl-key-password-file", file]
    return words


def at(server, host="localhost"):
    return f"{host}:{server.port}"


def test_an_authority_vouches_for_both_sides(tmp_path, site, start_server, run, encoding):
    server = start_server(tmp_path / "Data.fs", *site.options(), encoding=encoding)
    certificate, key = site.authority.issue("alice").write(tmp_path, "alice")
    options = ["--ssl-certificate", certificate, "--ssl-key", key, "--ssl-authenticate"]
    assert run("healthcheck", at(server), *options, site.trusted) == (0, "")
    code, said = run("pack", at(server), *options, site.trusted / "ca.pem")
    assert (code, said.startswith("packed: ")) == (0, True), said
    environment = {
        "ZODIUM_SSL_CERTIFICATE": str(certificate),
        "ZODIUM_SSL_KEY": str(key),
        "ZODIUM_SSL_AUTHENTICATE": str(site.trusted),
    }
    assert run("healthcheck", at(server), **environment) == (0, "")


def test_a_name_counts_where_an_authority_vouches_for_it(tmp_path, site, start_server, run, refuse):
    server = start_server(tmp_path / "Data.fs", *site.options())
    options = [
        *shown(site.authority.issue("alice"), tmp_path, password="s3cret"),
        *("--ssl-authenticate", site.trusted),
    ]
    refuse("certificate is not for 127.0.0.1 but for", at(server, HOST), *options)
    named = [*options, "--ssl-server-hostname", "localhost"]
    assert run("healthcheck", at(server, HOST), *named) == (0, "")
    refuse("certificate is not for db but for", at(server), *options, "--ssl-server-hostname", "db")


def test_a_listed_certificate_is_known_under_any_name(tmp_path, site, start_server, run):
    pinned, alice = self_signed("nameless"), self_signed("alice")
    certificate, key = pinned.write(tmp_path, "nameless")
    (site.trusted / "alice.crt").write_bytes(alice.pem)
    server = start_server(tmp_path / "Data.fs", *site.options(certificate=certificate, key=key))
    options = [*shown(alice, tmp_path), "--ssl-authenticate", certificate]
    for host in (HOST, "localhost"):
        assert run("healthcheck", at(server, host), *options) == (0, "")


def test_who_is_not_believed_is_told_why(tmp_path, site, start_server, refuse):
    server = start_server(tmp_path / "Data.fs", *site.options())
    believed = ["--ssl-authenticate", site.trusted]
    refuse("the server requires a client certificate", at(server), *believed)
    stranger = shown(Authority("Other").issue("eve"), tmp_path)
    refuse("rejected our certificate (", at(server), *stranger, *believed)
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("Other").pem)
    alice = shown(site.authority.issue("alice"), tmp_path)
    refuse("neither it nor its issuer is trusted", at(server), *alice, "--ssl-authenticate", other)
    for_servers = ["--ssl-certificate", site.certificate, "--ssl-key", site.key]
    refuse("server.pem: the certificate says", at(server), *for_servers, *believed)
    refuse("TLS needs --ssl-authenticate", at(server), *alice)
    refuse("of no use without its --ssl-certificate", at(server), "--ssl-key", site.key, *believed)
    refuse(
        "/no/file: cannot be read: No such file or directory (os error 2)\n",
        at(server),
        *alice,
        "--ssl-authenticate",
        "/no/file",
    )


def test_one_side_with_tls_and_one_without(tmp_path, site, start_server, run, refuse):
    plain = start_server(tmp_path / "Data.fs")
    options = [*shown(site.authority.issue("alice"), tmp_path), "--ssl-authenticate", site.trusted]
    refuse("the server does not speak TLS", at(plain), *options)
    secured = start_server(tmp_path / "Other.fs", *site.options())
    code, said = run("healthcheck", at(secured), "-t", "0.3")
    assert (code, "within 0.3 seconds; if it speaks TLS, it waits" in said) == (1, True), said
    # The server gives up in the end; here one that does at once.
    with socket.create_server((HOST, 0)) as listener:
        closing = threading.Thread(target=lambda: listener.accept()[0].close())
        closing.start()
        code, said = run("pack", "{}:{}".format(*listener.getsockname()))
        closing.join()
    assert (code, "before it said anything; if it speaks TLS" in said) == (1, True), said


def test_time_is_limited_whatever_comes_of_the_handshake(tmp_path, site, run):
    """Also when every byte comes in time, but never the last one."""
    with socket.create_server((HOST, 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        address = "{}:{}".format(*listener.getsockname())
        options = ["--ssl-authenticate", site.trusted, "-t", "0.5"]
        code, said = run("healthcheck", address, *options)
        dripping.join()
        assert (code, "no answer from the server within 0.5 seconds" in said) == (1, True), said


def drip(listener):
    """Goes on for longer than the command may run."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        # The head of a handshake record of 16 KiB.
        connection.sendall(b"\x16\x03\x03\x40\x00")
        for _ in range(20 * RUN_SECONDS):
            time.sleep(0.1)
            connection.sendall(b"\0")


def zeo_conf(folder, port, storages, certificate=None, key=None, authenticate=None):
    """A configuration that both servers read."""
    tls = ""
    if certificate:
        tls = (
            f"  <ssl>\n    certificate {certificate}\n    key {key}\n"
            f"    authenticate {authenticate}\n  </ssl>\n"
        )
    path = folder / "zeo.conf"
    path.write_text(
        f"<zeo>\n  address {HOST}:{port}\n{tls}</zeo>\n"
        + "".join(
            f"<filestorage {name}>\n  path {folder}/{name}.fs\n</filestorage>\n"
            for name in storages
        )
    )
    return path


@pytest.mark.parametrize("is_stock", [False, True])
def test_the_configuration_of_the_server_says_all(tmp_path, binary, run, start_with, is_stock):
    port = free_port()
    certificate, key = self_signed("both").write(tmp_path, "both")
    config = zeo_conf(tmp_path, port, ["main"], certificate, key, certificate)
    start_with(port, *([STOCK_SERVER] if is_stock else [binary, "serve"]), "-C", config)
    assert run("healthcheck", "-C", config) == (0, "")
    code, said = run("pack", "-C", config)
    assert (code, said.startswith("packed: ")) == (0, True), said
    # Only the very certificate is believed.
    key.write_bytes((other := self_signed("both")).key_pem())
    certificate.write_bytes(other.pem)
    code, said = run("healthcheck", "-C", config)
    assert (code, "neither it nor its issuer is trusted" in said) == (1, True), said


def test_a_certificate_for_servers_alone_is_not_shown(tmp_path, site, binary, run, start_with):
    port = free_port()
    config = zeo_conf(tmp_path, port, ["1"], site.certificate, site.key, site.trusted)
    start_with(port, binary, "serve", "-C", config)
    code, said = run("healthcheck", "-C", config)
    assert code == 1
    assert "server.pem: the certificate says, in its extended key usage" in said
    options = shown(site.authority.issue("monitor"), tmp_path)
    assert run("healthcheck", "-C", config, *options) == (0, "")


def test_storages_of_the_configuration_have_to_be_served(tmp_path, binary, run, start_with):
    port = free_port()
    config = zeo_conf(tmp_path, port, ["one", "two"])
    start_with(port, binary, "serve", "-C", config)
    assert run("healthcheck", "-C", config) == (0, "")
    code, said = run("pack", "-C", config)
    assert (code, "choose the storage to pack with --storage: one, two" in said) == (1, True), said
    code, said = run("pack", "-C", config, "-s", "two")
    assert code == 0, said
    code, said = run("pack", "-C", config, tmp_path / "one.fs")
    assert (code, "--config is for servers" in said) == (1, True), said
    config = zeo_conf(tmp_path, port, ["one", "three"])
    code, said = run("healthcheck", "-C", config)
    assert (code, "serves no storage three, but one, two" in said) == (1, True), said


def test_storages_that_are_for_others_are_not_asked_for(tmp_path, binary, run, start_with):
    port, config = free_port(), tmp_path / "zodium.toml"
    certificate, key = self_signed("both").write(tmp_path, "both")
    config.write_text(
        f'[server]\naddress = "0.0.0.0:{port}"\n[server.tls]\ncertificate = "{certificate}"\n'
        f'key = "{key}"\nauthenticate = "{certificate}"\n'
        + "".join(
            f'[[storage]]\nname = "{name}"\npath = "{tmp_path}/{name}.fs"\nallow = ["{name}"]\n'
            for name in ("both", "alice")
        )
    )
    start_with(port, binary, "serve", "-C", config)
    assert run("healthcheck", "-C", config) == (0, "")
    code, said = run("healthcheck", "-C", config, "-s", "alice")
    assert (code, "serves no storage alice, but both" in said) == (1, True), said
    assert run("pack", "-C", config)[0] == 0


def test_a_certificate_that_no_storage_allows_is_named(tmp_path, binary, run, start_with):
    port, config = free_port(), tmp_path / "zodium.toml"
    certificate, key = self_signed("server").write(tmp_path, "server")
    config.write_text(
        f'[server]\naddress = "127.0.0.1:{port}"\n[server.tls]\ncertificate = "{certificate}"\n'
        f'key = "{key}"\nauthenticate = "{certificate}"\n'
        f'[[storage]]\nname = "1"\npath = "{tmp_path}/Data.fs"\nallow = ["alice"]\n'
    )
    start_with(port, binary, "serve", "-C", config)
    for command in "healthcheck", "status":
        code, said = run(command, "-C", config)
        assert code == 1 and "serves no storage to CN=server: name it in `allow`" in said, said
