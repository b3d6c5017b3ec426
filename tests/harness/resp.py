"""A server for Redis and Valkey clients, ours or a stock one."""

import os
import shutil
import tempfile
from pathlib import Path

from .process import HOST, PROFILE, REPOSITORY, ServerProcess, free_port
from .waiting import wait_for

PROGRAM = REPOSITORY / "target" / PROFILE / "zodium"


class RespServer(ServerProcess):
    """`zodium resp` on a free port, until the block ends."""

    def __init__(self, workers=1, options=(), prefix=()):
        self.folder = tempfile.TemporaryDirectory()
        port = free_port()
        words = [*prefix, str(PROGRAM), "resp", "-a", f"{HOST}:{port}"]
        words += ["--workers", str(workers), *options]
        super().__init__(words, port, self.folder.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()


def stock_program():
    """A real Valkey: of the tree that VALKEY names, or in PATH; None if there is none."""
    tree = os.environ.get("VALKEY")
    if tree and (Path(tree) / "src/valkey-server").is_file():
        return str(Path(tree) / "src/valkey-server")
    return shutil.which("valkey-server")


class StockServer(ServerProcess):
    """A real Valkey on a free port, without a file, until the block ends."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        port = free_port()
        words = [stock_program(), "--port", str(port), "--bind", HOST, "--save", ""]
        super().__init__(words, port, self.folder.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()


def wait_for_blocked(client, number):
    """Until so many clients wait in a command."""
    wait_for(
        lambda: client.info("clients")["blocked_clients"] == number,
        lambda: f"{number} blocked clients, not {client.info('clients')['blocked_clients']}",
    )
