"""zodium:// URIs for zodburi, which Pyramid's and other applications name databases with.

zodium://localhost:8100/1?wait_timeout=5&connection_cache_size=10000
zodium:///run/zodium.sock?storage=main
"""

from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ._addresses import from_url


def truth(text):
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


def size(text):
    unit = UNITS.get(text[-2:].lower())
    return int(text) if unit is None else int(text[:-2]) * unit


# Of the storage, then of the database on it.
STORAGE = {
    "storage": str,
    "name": str,
    "client": str,
    "var": str,
    "cache_path": str,
    "cache_size": size,
    "blob_dir": str,
    "shared_blob_dir": truth,
    "blob_cache_size": size,
    "blob_cache_size_check": int,
    "read_only": truth,
    "read_only_fallback": truth,
    "server_sync": truth,
    "wait": truth,
    "wait_timeout": int,
    "client_label": str,
}
DATABASE = {
    "connection_pool_size": ("pool_size", int),
    "connection_cache_size": ("cache_size", int),
    "connection_pool_timeout": ("pool_timeout", int),
    "connection_cache_size_bytes": ("cache_size_bytes", size),
    "database_name": ("database_name", str),
}


def resolve(uri):
    """(what opens the storage, arguments of ZODB.DB) of a URI, as zodburi has it."""
    parts = urlsplit(uri)
    address, storage = from_url(urlunsplit(parts._replace(query="", fragment="")))
    options = {} if storage is None else {"storage": storage}
    database = {"database_name": "unnamed"}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name in STORAGE:
            options[name] = STORAGE[name](text)
        elif name in DATABASE:
            target, convert = DATABASE[name]
            database[target] = convert(text)
        else:
            raise ValueError(f"{uri!r} has {name!r}, which is no option of a storage or database")
    if "cache_path" in options:
        options["cache"] = options.pop("cache_path")

    def open_storage():
        from ._storage import ClientStorage

        return ClientStorage(address, **options)

    return open_storage, database
