"""How applications name their storage: ZConfig's sections, and the URIs of zodburi.

A configuration that names ZEO's client names this one with one line changed, and names ZEO's again
when the line is changed back.
"""

import io
import os
import subprocess
import sys
import textwrap

import pytest
import ZConfig
import ZEO
import ZODB
import ZODB.config
from harness import package
from harness.certificates import Site
from harness.process import ServerProcess, free_port
from harness.servers import STOCK_SERVER, stock_server
from ZODB.DemoStorage import DemoStorage
from zodburi import UnknownDatabaseKeywords, resolve_uri

package.use()

import zodium  # noqa: E402

# Run with a configuration: prints whose storage it names, and how often it was run.
APPLICATION = """
    import sys
    import ZODB.config

    database = ZODB.config.databaseFromFile(sys.stdin)
    with database.transaction() as connection:
        root = connection.root()
        root["runs"] = root.get("runs", 0) + 1
        runs = root["runs"]
    print(type(database.storage).__module__.split(".")[0], runs, database.storage.getName())
    database.close()
"""


@pytest.fixture(params=["zodium", "stock"])
def server(request, tmp_path, start_server):
    if request.param == "zodium":
        yield start_server(tmp_path / "Data.fs")
        return
    (tmp_path / "stock").mkdir()
    stock = stock_server(tmp_path / "stock", "Z5")
    yield stock
    stock.kill()


def start(storage, imported=None):
    """A process of its own that is given this storage, when it has ended."""
    head = f"%import {imported}\n" if imported else ""
    command = [sys.executable, "-c", textwrap.dedent(APPLICATION)]
    configuration = f"{head}<zodb>\n{textwrap.dedent(storage)}\n</zodb>\n"
    return subprocess.run(command, input=configuration, capture_output=True, text=True, timeout=60)


def run(storage, imported=None):
    """What it says."""
    ended = start(storage, imported)
    assert (ended.returncode, ended.stderr) == (0, "")
    return tuple(ended.stdout.split()[:2])


def test_clientstorage_is_switched_by_its_import(tmp_path, server):
    section = f"""
        <clientstorage>
          server {server.address[0]}:{server.address[1]}
          cache-size 1MB
          cache-path {tmp_path}/kept
          blob-dir {tmp_path}/cache-of-blobs
          wait-timeout 20
        </clientstorage>
    """
    assert run(section, "ZEO") == ("ZEO", "1")
    assert run(section, "zodium.clientstorage") == ("zodium", "2")
    assert run(section, "zodium.clientstorage") == ("zodium", "3")
    assert run(section, "ZEO") == ("ZEO", "4")


def test_zeoclient_is_switched_by_an_import(tmp_path, server):
    section = f"""
        <zeoclient>
          server {server.address[0]}:{server.address[1]}
          client kept
          var {tmp_path}
          min-disconnect-poll 1
          username nobody
        </zeoclient>
    """
    assert run(section) == ("ZEO", "1")
    assert run(section, "zodium.zeoclient") == ("zodium", "2")
    assert run(section, "zodium.zeoclient") == ("zodium", "3")
    assert run(section) == ("ZEO", "4")


def test_zodium_is_a_section_of_its_own(server):
    section = f"<zodium>\n  server {server.address[0]}:{server.address[1]}\n</zodium>"
    assert run(section, "zodium") == ("zodium", "1")
    # Beside ZEO's, in one configuration.
    assert run(section, "ZEO\n%import zodium") == ("zodium", "2")


@pytest.mark.parametrize("ours", ["zodium", "zodium.clientstorage clientstorage"])
@pytest.mark.parametrize("stock", ["ZEO clientstorage", "ZODB zeoclient"])
def test_sections_have_all_keys_of_those_of_zeo(ours, stock):
    expected = keys_of(*stock.split())
    found = keys_of(*(ours.split() if " " in ours else [ours, "zodium"]))
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("ours", ["zodium zodiumssl", "zodium.clientstorage ssl"])
def test_sections_of_tls_have_the_keys_of_those_of_zeo(ours):
    assert set(keys_of("ZEO", "ssl")) <= set(keys_of(*ours.split()))


def keys_of(imported, section_type):
    """{name: what it is, and what it is when it is not there} of a section's type."""
    schema = io.StringIO(f'<schema><import package="{imported}"/></schema>')
    section = ZConfig.loadSchemaFile(schema).gettype(section_type)
    return {
        info.attribute: (
            name,
            info.ismulti(),
            None if info.issection() else info.datatype,
            getattr(info.getdefault(), "value", None),
        )
        for name, info in section
    }


@pytest.fixture(params=["zodium", "stock"])
def tls_server(request, tmp_path, start_server):
    """A server that talks to holders of certificates only, and the site whose it is."""
    site = Site(tmp_path)
    if request.param == "zodium":
        yield start_server(tmp_path / "Data.fs", *site.options()), site
        return
    port, configuration = free_port(), tmp_path / "zeo.conf"
    configuration.write_text(f"""
        <zeo>
          address localhost:{port}
          <ssl>
            certificate {site.certificate}
            key {site.key}
            authenticate {site.trusted}/ca.pem
          </ssl>
        </zeo>
        <filestorage 1>
          path {tmp_path}/Data.fs
        </filestorage>
    """)
    stock = ServerProcess([STOCK_SERVER, "-C", str(configuration)], port, tmp_path)
    yield stock, site
    stock.kill()


def test_sections_of_tls_mean_the_same(tmp_path, monkeypatch, tls_server):
    server, site = tls_server
    alice = site.authority.issue("alice")
    certificate, key = alice.write(tmp_path, "alice")
    key.write_bytes(alice.key_pem(b"open sesame"))
    (tmp_path / "secrets_of_alice.py").write_text('def password():\n    return "open sesame"\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    password_file = tmp_path / "password"
    password_file.write_text("open sesame\n")
    section = f"""
        <clientstorage>
          server localhost:{server.port}
          wait-timeout 20
          <ssl>
            certificate {certificate}
            key {key}
            password-function secrets_of_alice.password
            authenticate {site.trusted}/ca.pem
          </ssl>
        </clientstorage>
    """
    other_name = section.replace("</ssl>", "  server-hostname other\n          </ssl>")
    any_name = other_name.replace("</ssl>", "  check-hostname no\n          </ssl>")
    assert run(section, "ZEO") == ("ZEO", "1")
    assert run(section, "zodium.clientstorage") == ("zodium", "2")
    assert run(any_name, "zodium.clientstorage") == ("zodium", "3")
    assert run(any_name, "ZEO") == ("ZEO", "4")
    uri = (
        f"zodium://localhost:{server.port}?wait_timeout=20&ssl_certificate={certificate}"
        f"&ssl_key={key}&ssl_key_password_file={password_file}"
        f"&ssl_authenticate={site.trusted}/ca.pem"
    )
    resolve_uri(uri)[0]().close()
    refused = start(other_name.replace("timeout 20", "timeout 2"), "zodium.clientstorage")
    assert "other" in refused.stderr.splitlines()[-1]
    assert "ClientDisconnected" in refused.stderr.splitlines()[-1]


def test_a_function_that_is_not_there_is_named(tmp_path):
    text = f"""
        %import zodium.clientstorage
        <clientstorage>
          server localhost:8100
          <ssl>
            authenticate {tmp_path}
            password-function nowhere.at.all
          </ssl>
        </clientstorage>
    """
    with pytest.raises(ZConfig.DataConversionError, match="nowhere.at.all"):
        ZODB.config.storageFromString(textwrap.dedent(text))


@pytest.mark.parametrize("path", ["", "/1"])
def test_a_uri_names_storage_and_database(server, path):
    host, port = server.address
    uri = (
        f"zodium://{host}:{port}{path}?storage=1&wait_timeout=20&cache_size=1MB"
        "&connection_cache_size=77&connection_cache_size_bytes=2MB&database_name=main"
    )
    open_storage, arguments = resolve_uri(uri)
    assert arguments == {
        "cache_size": 77,
        "cache_size_bytes": 2 << 20,
        "database_name": "main",
        "pool_size": 7,
    }
    database = ZODB.DB(open_storage(), **arguments)
    assert type(database.storage) is zodium.ClientStorage
    assert database.getCacheSize() == 77
    database.close()


def test_a_uri_takes_all_options_of_one_of_zeo(tmp_path, server):
    from zodburi.resolvers import ClientStorageURIResolver as Stock

    values = {
        "wait": "true",
        "wait_timeout": "20",
        "wait_for_server_on_startup": "on",
        "storage": "1",
        "name": "the name",
        "client": "kept",
        "var": str(tmp_path),
        "blob_dir": str(tmp_path / "cache-of-blobs"),
        "cache_size": "1MB",
        "blob_cache_size": "10MB",
        "blob_cache_size_check": "20",
        "read_only": "1",
        "read_only_fallback": "0",
        "shared_blob_dir": "0",
        "demostorage": "1",
    }
    names = {*Stock._int_args, *Stock._string_args, *Stock._bytesize_args}
    query = "&".join(f"{name}={values.get(name, '1')}" for name in sorted(names))
    open_storage, arguments = resolve_uri(
        f"zodium://{server.address[0]}:{server.address[1]}?{query}"
    )
    storage = open_storage()
    try:
        assert type(storage) is DemoStorage
        assert storage.base.getName() == "the name (connected)"
        assert storage.base.isReadOnly()
        assert storage.base.blob_dir == str(tmp_path / "cache-of-blobs")
    finally:
        storage.close()


def test_of_several_servers_the_first_that_answers_is_taken(server):
    (host, port), silent = server.address, free_port()
    uri = f"zodium://{host}:{silent},{host}:{port}/1?wait_timeout=20"
    storage = resolve_uri(uri)[0]()
    assert storage.is_connected()
    storage.close()


@pytest.mark.parametrize("package", [ZEO, zodium])
def test_in_a_list_of_addresses_a_port_may_be_text(server, package):
    host, port = server.address
    storage = package.client([(host, str(port))], wait_timeout=20)
    assert storage.is_connected()
    storage.close()


def test_an_address_that_says_more_than_an_address_is_refused():
    for url in "zodium://localhost:8100/main", "zodium://localhost:8100?wait=0":
        with pytest.raises(ValueError, match="separate parameters"):
            zodium.ClientStorage(url, wait=False)


def test_a_uri_that_says_what_nobody_understands_is_refused():
    with pytest.raises(UnknownDatabaseKeywords, match="cache-size"):
        resolve_uri("zodium://localhost:8100?cache-size=1")
    with pytest.raises(ValueError, match="wait_timeout"):
        resolve_uri("zodium://localhost:8100?wait_timeout=soon")
