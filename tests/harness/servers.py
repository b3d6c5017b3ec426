"""The server under test, and the stock server it is measured against.

ZODIUM_SERVER_COMMAND is a template with {path}, {port}, {options} and {config};
the default is the binary of ZODIUM_TESTED_PROFILE (debug).  For the stock server in its place:
"$PWD/.venv/bin/runzeo -C {config}".
"""

import os
import shlex
import sys
from pathlib import Path

from .process import DEFAULT_COMMAND, ServerProcess, command_words, free_port

COMMAND = os.environ.get("ZODIUM_SERVER_COMMAND") or DEFAULT_COMMAND
BINARY = shlex.split(COMMAND)[0]
IS_ZODIUM = Path(BINARY).name == "zodium"
STOCK_SERVER = str(Path(sys.executable).with_name("runzeo"))


def spawn(command, path, options=(), encoding="Z5", wait=True, prefix=()):
    """A server started by `command`, after the words of `prefix`, on the file at `path`."""
    path, port = Path(path), free_port()
    options = [*options, *(["--msgpack"] if encoding == "M5" else [])]
    # Not beside the file: a test may mount another file system there.
    config = path.parents[1] / f"server-{port}.conf"
    config.write_text(zconfig(path, port, options))
    words = command_words(command, options, path=path, port=port, config=config)
    return ServerProcess([*prefix, *words], port, path.parent, wait=wait)


def zconfig(path, port, options):
    """What the stock server reads; it leaves conflicts to clients as Zodium does."""
    words = iter(options)
    flags, blob_dir = "", ""
    for word in words:
        if word == "--blob-dir":
            blob_dir = f"  blob-dir {next(words)}\n"
        else:
            flags += f"  {word.lstrip('-')} true\n"
    return (
        f"<zeo>\n  address 127.0.0.1:{port}\n  client-conflict-resolution true\n{flags}</zeo>\n"
        f"<filestorage 1>\n  path {path}\n{blob_dir}</filestorage>\n"
    )


def stock_server(folder, encoding):
    return spawn(f"{STOCK_SERVER} -C {{config}}", folder / "Data.fs", (), encoding)
