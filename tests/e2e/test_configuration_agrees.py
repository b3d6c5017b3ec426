"""ZConfig, with ZEO's own schema, reads the same out of a zeo.conf as we do.

The files are those of crates/configuration/tests, whose Rust tests hold them against TOML; here
`zodium config convert` is held against what runzeo would be told.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ZConfig
import ZConfig.loader
import ZEO
import ZEO.runzeo
from harness.servers import BINARY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILES = Path(__file__).parents[2] / "crates/configuration/tests"
ACCEPTED = sorted((FILES / "accepted").glob("*.conf"))
REFUSED = sorted((FILES / "refused").glob("*.conf"))

# As in crates/configuration/tests/all/files.rs.
VARIABLES = {"HOME": "/srv/zope", "ZEO_PORT": "8765", "ZODIUM_KEY_PASSWORD": "secret"}

pytestmark = pytest.mark.zodium


# What our TOML leaves out.
SERVER = {
    "encoding": "pickle",
    "read-only": False,
    "invalidation-queue-size": 100,
    "invalidation-age": None,
    "transaction-timeout": None,
    "client-conflict-resolution": False,
    "pid-file": None,
    "tls": None,
}
STORAGE = {
    "path": None,
    "memory": False,
    "truncate": False,
    "blob-directory": None,
    "read-only": False,
    "quota": None,
    "pack": {},
}
LOG = {"to": ["stderr"], "format": "human", "level": "info"}

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1, "m": 60, "h": 3600, "d": 86400}

LEVELS = {"error": 40, "warn": 30, "info": 20, "debug": 10, "trace": 5}


def schema():
    """ZEO's schema, without its looks at the disk: no directory and no certificate is there."""
    registry = ZConfig.datatypes.Registry(
        {**ZConfig.datatypes.stock_datatypes, "existing-dirpath": os.path.expanduser}
    )
    registry.register("ZEO.zconfig.server_ssl", lambda section: section)
    for name in ("existing_parent_dirpath", "existing_parent_directory"):
        registry.register(f"zdaemon.zdoptions.{name}", str)
    loader = ZConfig.loader.SchemaLoader(registry)
    return loader.loadURL(str(Path(ZEO.__file__).with_name("schema.xml")))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name in ("ZEO_MSGPACK", "INSTANCE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def convert(path):
    command = [BINARY, "config", "convert", str(path)]
    return subprocess.run(command, capture_output=True, text=True)


def by_zconfig(path):
    config, _ = ZConfig.loadConfig(schema(), str(path))
    zeo = config.zeo
    server = {
        "address": [address_text(zeo.address)],
        "encoding": "msgpack" if zeo.msgpack else "pickle",
        "read-only": zeo.read_only,
        "invalidation-queue-size": zeo.invalidation_queue_size,
        "invalidation-age": zeo.invalidation_age,
        "transaction-timeout": zeo.transaction_timeout,
        "client-conflict-resolution": zeo.client_conflict_resolution,
        "pid-file": absolute(zeo.pid_filename),
        "tls": zeo.ssl and tls(zeo.ssl),
    }
    storages = [storage(factory) for factory in config.storages]
    return {"server": server, "storage": storages, "log": log(config.eventlog)}


def absolute(path):
    return os.path.abspath(path) if path else None


def address_text(address):
    if isinstance(address.address, str):
        return absolute(address.address)
    host, port = address.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tls(section):
    found = {
        "certificate": absolute(section.certificate),
        "key": absolute(section.key),
        "authenticate": absolute(section.authenticate),
        "key-password-environment": section.password_function and "ZODIUM_KEY_PASSWORD",
    }
    return {key: value for key, value in found.items() if value}


def storage(factory):
    kind, config = type(factory).__name__, factory.config
    if kind == "BlobStorage":
        inner = {**storage(config.base), "blob-directory": absolute(config.blob_dir)}
        return {**inner, "name": factory.name or "1"}
    found = {**STORAGE, "name": factory.name or "1"}
    if kind == "MappingStorage":
        return {**found, "memory": True}
    assert kind == "FileStorage"
    flags = [("garbage-collection", config.pack_gc), ("keep-old", config.pack_keep_old)]
    return {
        **found,
        "path": absolute(config.path),
        "truncate": bool(config.create),
        "blob-directory": absolute(config.blob_dir),
        "read-only": bool(config.read_only),
        "quota": config.quota,
        "pack": {key: False for key, value in flags if not value},
    }


def log(eventlog):
    if eventlog is None:
        return LOG
    handlers = [factory.section for factory in eventlog.handler_factories]
    files = [section for section in handlers if hasattr(section, "path")]
    streams = {"STDOUT": "stdout", "STDERR": "stderr"}
    threshold = min(max(eventlog.level, section.level) for section in files)
    passing = [name for name, level in LEVELS.items() if level >= threshold]
    return {
        "to": [streams.get(section.path) or absolute(section.path) for section in files],
        "format": "human",
        "level": min(passing, key=LEVELS.get),
    }


def number(value):
    if not isinstance(value, str):
        return value
    unit = value.lstrip("0123456789.")
    return float(value[: len(value) - len(unit)]) * UNITS[unit]


def by_us(path):
    converted = convert(path)
    assert converted.returncode == 0, converted.stderr
    read = tomllib.loads(converted.stdout)
    server = {**SERVER, **read["server"]}
    # A definition that runzeo does not use.
    server.pop("python-resolver", None)
    for key in ("invalidation-age", "transaction-timeout"):
        server[key] = number(server[key])
    storages = [{**STORAGE, **storage} for storage in read["storage"]]
    for storage in storages:
        storage["quota"] = number(storage["quota"])
    return {"server": server, "storage": storages, "log": {**LOG, **read.get("log", {})}}


@pytest.mark.parametrize("path", ACCEPTED, ids=lambda path: path.stem)
def test_what_runzeo_reads_is_read_the_same(path, monkeypatch):
    monkeypatch.setattr(ZConfig.loader.ConfigLoader, "importSchemaComponent", do_not_import)
    assert by_us(path) == by_zconfig(path)


def do_not_import(loader, package):
    """As we do; ZConfig would not find all the packages."""


def test_white_space_is_the_same():
    path = Path("white_space.conf").absolute()
    lines = [
        b"\t<ZEO\x0b>\r",
        b"\xc2\x85\xc2\xa0 # nothing\r",
        b"\x1c address\x0c \t8100\x1f\r",
        b"</zeo\t>\x0b",
        b"<filestorage\xe3\x80\x80\xc3\x84 >\r",
        b"path(var)/\ta \x0b b.fs \r",
        b"</filestorage>",
    ]
    path.write_bytes(b"\n".join(lines))
    assert by_us(path) == by_zconfig(path)


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_what_runzeo_refuses_is_refused(path):
    converted = convert(path)
    assert converted.returncode != 0 and converted.stdout == ""
    first, second = path.read_text().splitlines()[:2]
    line = first.split("line ")[1].split(":")[0]
    assert f"{path}:{line}:" in converted.stderr
    if second.startswith("# runzeo too, once"):
        pytest.raises(SystemExit, realize, path)
    elif second.startswith("# runzeo too"):
        with pytest.raises((ZConfig.ConfigurationError, RecursionError, OSError)):
            by_zconfig(path)
    else:
        assert second == "# but runzeo reads it"
        ZConfig.loadConfig(schema(), str(path))


def realize(path):
    """What runzeo does before it starts."""
    ZEO.runzeo.ZEOOptions().realize(["-C", str(path)])
