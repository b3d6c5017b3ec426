"""The ZConfig section `<zodium>`, with the keys of `<clientstorage>`; needs `%import zodium`."""

import importlib

from ZODB.config import BaseConfig

from ._tls import TLS

# Keys by their parameter names; `<zeoclient>` lacks some of them.
OPTIONS = (
    "storage",
    "name",
    "cache_size",
    "cache_path",
    "client",
    "var",
    "warm_up",
    "blob_dir",
    "shared_blob_dir",
    "blob_cache_size",
    "blob_cache_size_check",
    "read_only",
    "read_only_fallback",
    "server_sync",
    "wait",
    "wait_timeout",
    "silence_timeout",
    "client_label",
    "ssl",
)
RENAMED = {"cache_path": "cache"}


def function(name):
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (AttributeError, ImportError, ValueError) as error:
        raise ValueError(f"{name!r} is not the name of a function: {error}") from None


def tls(section):
    return TLS(
        certificate=section.certificate,
        key=section.key,
        password_file=section.password_file,
        authenticate=section.authenticate,
        server_hostname=section.server_hostname,
        password=section.password_function,
        check_hostname=section.check_hostname,
    )


class ClientStorageConfig(BaseConfig):
    """Opens the storage of a section."""

    def open(self):
        from ._storage import ClientStorage

        addresses = [server.address for server in self.config.server]
        given = {option: getattr(self.config, option, None) for option in OPTIONS}
        options = {RENAMED.get(o, o): value for o, value in given.items() if value is not None}
        return ClientStorage(addresses, **options)
