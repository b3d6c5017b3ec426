"""Parse the addresses of servers."""

import os
from urllib.parse import unquote, urlsplit

SCHEMES = ("zeo", "zodium")
PORT = 8100


def addresses(given):
    """Return a list of (host, port) tuples and of paths of Unix sockets.

    `given` is one address or a sequence of them. Each one is a port of this machine, a
    (host, port) tuple, the path of a Unix socket, or a zodium:// URL.
    """
    if is_one(given):
        given = [given]
    found = [address for one in given for address in addresses_of(one)]
    if not found:
        raise ValueError("no server address was given")
    return found


def is_one(given):
    if isinstance(given, (int, str, os.PathLike)):
        return True
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], str)
        and isinstance(given[1], int)
    )


def has_text_port(given):
    """Whether it is a pair with a port from the environment, which ZEO's client takes in a list.

    Alone it would be the paths of two sockets.
    """
    is_pair = isinstance(given, tuple) and len(given) == 2
    return is_pair and all(isinstance(part, str) for part in given) and given[1].isdecimal()


def addresses_of(given):
    if isinstance(given, str) and given.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        found, storage = from_url(given)
        if storage is not None or "?" in given:
            raise ValueError(
                f"{given!r} contains more than an address: pass the storage and options as "
                "separate parameters"
            )
        return found
    return [address(given)]


def address(given):
    if isinstance(given, int):
        return "127.0.0.1", given
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given)
    if is_one(given):
        return given[0] or "127.0.0.1", given[1]
    if has_text_port(given):
        return given[0] or "127.0.0.1", int(given[1])
    raise ValueError(
        f"{given!r} is no address: write a port, (host, port), or the path of a Unix socket"
    )


def from_url(url):
    """Return (addresses, storage or None) of zodium://host:port,host:port/storage.

    Without a host the path is that of a Unix socket, and the URL contains no storage.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{url!r} does not begin with zodium:// or zeo://")
    path = unquote(parts.path)
    if not parts.netloc:
        if not path:
            raise ValueError(f"{url!r} names neither a host nor the path of a socket")
        return [path], None
    try:
        servers = [urlsplit(f"//{server}") for server in parts.netloc.split(",")]
        found = [(server.hostname or "127.0.0.1", server.port or PORT) for server in servers]
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from None
    return found, path.strip("/") or None
