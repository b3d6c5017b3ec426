"""neo:// URIs for zodburi, as NEO's own client has them.

neo://cluster@10.0.0.1:10000,10.0.0.2:10000?cache_size=100MB&connection_pool_size=4
neos://cluster@10.0.0.1:10000, with $NEO_CA, $NEO_CERT and $NEO_KEY

Options of <NEOStorage> go to the storage, with hyphens or underscores. Others are for the database.
"""

import os
from urllib.parse import parse_qsl, unquote, urlsplit

from zodburi.datatypes import convert_bytesize, convert_int

from .zconfig import compress

CONVERTERS = {
    "compress": compress,
    "read_only": convert_int,
    "logfile": str,
    "cache_size": convert_bytesize,
    "dynamic_master_list": str,
    "ignore_wrong_checksum": convert_int,
    "ca": str,
    "cert": str,
    "key": str,
    "wait_timeout": convert_int,
    "server_sync": convert_int,
}
# As in the URLs of the command zodium.
RENAMED = {"wait": "wait_timeout"}


def resolve(uri):
    """Return (storage factory, database options), as zodburi expects it."""
    parts = urlsplit(uri)
    name, _, masters = parts.netloc.rpartition("@")
    if not name or not masters or parts.path.strip("/") or parts.fragment:
        raise ValueError(f"{uri!r}: write neo://CLUSTER@HOST:PORT,HOST:PORT?OPTIONS")
    options, database = {}, {}
    for given, text in parse_qsl(parts.query):
        option = given.replace("-", "_")
        option = RENAMED.get(option, option)
        if option in CONVERTERS:
            options[option] = converted(uri, option, text)
        else:
            database[given] = text
    if parts.scheme == "neos":
        for option in ("ca", "cert", "key"):
            options.setdefault(option, os.environ.get(f"NEO_{option.upper()}"))
            if not options[option]:
                raise ValueError(f"{uri!r}: neither {option} nor $NEO_{option.upper()} is given")

    def open_storage():
        from .._neo import NEOStorage

        return NEOStorage(masters, unquote(name), **options)

    return open_storage, database


def converted(uri, name, text):
    try:
        return CONVERTERS[name](text)
    except ValueError as error:
        raise ValueError(f"{uri!r}, {name}: {error}") from None
