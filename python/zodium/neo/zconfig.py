"""The ZConfig section `<NEOStorage>`, with the keys of NEO's own."""

from ZConfig.datatypes import asBoolean
from ZODB.config import BaseConfig

# By their parameter names.
OPTIONS = (
    "master_nodes",
    "name",
    "compress",
    "read_only",
    "logfile",
    "cache_size",
    "dynamic_master_list",
    "ignore_wrong_checksum",
    "ca",
    "cert",
    "key",
    "wait_timeout",
    "wait",
    "server_sync",
)


def compress(text):
    try:
        return asBoolean(text)
    except ValueError:
        return text


class NEOStorageConfig(BaseConfig):
    """Opens the storage of a section."""

    def open(self):
        from .._neo import NEOStorage

        given = {option: getattr(self.config, option) for option in OPTIONS}
        options = {option: value for option, value in given.items() if value is not None}
        return NEOStorage(**options)
