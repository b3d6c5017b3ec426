"""zodium:// URIs for zodburi, as used by Pyramid and other applications.

zodium://localhost:8100/1?wait_timeout=5&connection_cache_size=10000
zodium:///run/zodium.sock?storage=main
zodium://one:8100,other:8100/1?ssl_certificate=own.pem&ssl_authenticate=servers.pem

The options are those of zeo:// URIs, so that only the scheme has to be changed, and a few
more.
"""

from urllib.parse import parse_qsl, urlsplit, urlunsplit

from zodburi.datatypes import convert_bytesize, convert_int

from ._addresses import from_url
from ._tls import TLS

CONVERTERS = {
    "storage": str,
    "name": str,
    "client": str,
    "var": str,
    "cache_path": str,
    "cache_size": convert_bytesize,
    "warm_up": str,
    "blob_dir": str,
    "shared_blob_dir": convert_int,
    "blob_cache_size": convert_bytesize,
    "blob_cache_size_check": convert_int,
    "read_only": convert_int,
    "read_only_fallback": convert_int,
    "server_sync": convert_int,
    "wait": convert_int,
    "wait_for_server_on_startup": convert_int,
    "wait_timeout": convert_int,
    "silence_timeout": float,
    "client_label": str,
    "demostorage": str,
}
TLS_NAMES = {
    "ssl_certificate": "certificate",
    "ssl_key": "key",
    "ssl_key_password_file": "password_file",
    "ssl_authenticate": "authenticate",
    "ssl_server_hostname": "server_hostname",
}
RENAMED = {"cache_path": "cache", "wait_for_server_on_startup": "wait"}
# Options of zeo:// URIs that no longer have an effect.
IGNORED = (
    "debug",
    "min_disconnect_poll",
    "max_disconnect_poll",
    "drop_cache_rather_verify",
    "username",
    "password",
    "realm",
)


def resolve(uri):
    """Return (storage factory, database options), as zodburi expects it."""
    parts = urlsplit(uri)
    addresses, storage = from_url(urlunsplit(parts._replace(query="", fragment="")))
    options = {} if storage is None else {"storage": storage}
    tls, database = {}, {}
    for name, text in parse_qsl(parts.query):
        if name in CONVERTERS:
            options[RENAMED.get(name, name)] = converted(uri, name, text)
        elif name in TLS_NAMES:
            tls[TLS_NAMES[name]] = text
        elif name not in IGNORED:
            database[name] = text
    if tls:
        options["ssl"] = TLS(**tls)
    demo = options.pop("demostorage", None) is not None

    def open_storage():
        from ._storage import ClientStorage

        storage = ClientStorage(addresses, **options)
        return over(storage) if demo else storage

    return open_storage, database


def converted(uri, name, text):
    try:
        return CONVERTERS[name](text)
    except ValueError as error:
        raise ValueError(f"{uri!r}, {name}: {error}") from None


def over(storage):
    """Wrap the storage in a DemoStorage, which keeps commits in this process."""
    from ZODB.DemoStorage import DemoStorage

    return DemoStorage(base=storage)
