"""Clients of a server whose file was restored from a copy, which others have committed to since."""

import shutil
from contextlib import closing

import pytest
import ZODB
from harness.process import ServerProcess
from harness.waiting import wait_for
from persistent.mapping import PersistentMapping

pytestmark = pytest.mark.zodium


@pytest.fixture(params=["stock", "native"])
def open_client(request, connect, open_native):
    return connect if request.param == "stock" else lambda server: open_native(server.address)


def put(database, number):
    with database.transaction() as connection:
        connection.root()["box"]["number"] = number


def test_clients_forget_what_lost_transactions_wrote(tmp_path, start_server, open_client):
    path, copy = tmp_path / "Data.fs", tmp_path / "copy.fs"
    server = start_server(path)
    storage = open_client(server)
    with closing(ZODB.DB(storage)) as database:
        with database.transaction() as connection:
            connection.root()["box"] = PersistentMapping()
        put(database, 1)
        shutil.copy(path, copy)
        put(database, 1000)
        connection = database.open()
        assert connection.root()["box"]["number"] == 1000
        lost = database.lastTransaction()
        server.stop()
        shutil.copy(copy, path)
        with closing(ZODB.DB(str(path))) as other, other.transaction() as opened:
            # Not to the object that the lost transaction wrote.
            opened.root()["other"] = 1
        start_server.servers.append(ServerProcess(server.words, server.port, tmp_path))
        wait_for(lambda: storage.is_connected() and storage.lastTransaction() > lost, "it is back")
        connection.sync()
        assert connection.root()["box"]["number"] == 1
        connection.close()
