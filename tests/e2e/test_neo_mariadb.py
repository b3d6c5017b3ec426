"""NEO databases on a MariaDB server: served to stock ZEO clients, and exchanged with NEO/py.

NEOPPOD          a checkout of NEO/py, and
NEOPPOD_PYTHON   a Python with msgpack, six and PyMySQL: NEO's own adapter reads the database too

The server is started in a folder of the test.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from harness import mariadb
from harness.certificates import Authority
from harness.damage import fill
from harness.monitor import Monitor
from harness.neo import Cluster, OwnCluster, needs_neo
from harness.neo_databases import (
    commit_through_kills,
    commit_undo_and_pack,
    opening,
    records_by_neo,
    records_by_zeo,
    run_neo,
    serving,
    set_values,
    values_of,
)
from harness.process import ServerFailed, free_port
from harness.waiting import wait_for
from ZEO.ClientStorage import ClientStorage
from ZODB.POSException import ReadOnlyError, StorageError
from ZODB.utils import p64, z64

pytestmark = [
    pytest.mark.zodium,
    pytest.mark.skipif(bool(mariadb.missing()), reason="NO DATABASE IN MARIADB IS TESTED"),
]
ROUNDS = 3


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "mariadb-template"


@pytest.fixture(scope="module")
def maria(tmp_path_factory, template):
    server = mariadb.MariaDB(tmp_path_factory.mktemp("maria"), template=template)
    # A killed process loses nothing of what the system has.
    server.options.append("--innodb-flush-log-at-trx-commit=2")
    yield server.start()
    server.stop()


@pytest.fixture
def serve(tmp_path):
    """serve(url, *options): a server of a database."""
    with serving(tmp_path) as start:
        yield lambda url, *options, **environment: start(
            url,
            *options,
            prefix=["env", *(f"{name}={value}" for name, value in environment.items())],
        )


@pytest.fixture
def open_database():
    with opening() as open_one:
        yield open_one


def by_neo(maria, name, command="read", *arguments):
    return records_by_neo(f"mysql:{maria.neo(name)}", command, *arguments)


def test_objects_history_undo_and_pack(serve, open_database, maria):
    name = maria.database()
    large = os.urandom(20 << 20)
    expected = commit_undo_and_pack(lambda: serve(maria.url(name)), open_database, large=large)
    found = by_neo(maria, name)
    assert found is None or found == expected


@pytest.mark.parametrize("dedup", ["0", "1"])
def test_databases_of_neo_are_served_and_go_back(serve, open_database, maria, dedup):
    name = maria.database()
    written = by_neo(maria, name, "write", "3", dedup)
    if written is None:
        return
    server = serve(maria.url(name))
    assert records_by_zeo(server) == written
    storage = ClientStorage(server.address, wait=True, wait_timeout=30)
    assert storage.load(p64(1))[0]
    storage.close()
    server.stop()
    continued = by_neo(maria, name, "continue")
    assert records_by_zeo(serve(maria.url(name))) == continued


def schema(maria, name):
    tables = [table for (table,) in maria.run("SHOW TABLES", name)]
    texts = [maria.run(f"SHOW CREATE TABLE {table}", name)[0][1] for table in tables]
    return [text.split(" AUTO_INCREMENT=")[0] for text in texts]


def test_the_schema_is_that_of_neo(serve, maria):
    ours, theirs = maria.database(), maria.database()
    if by_neo(maria, theirs, "write", "1", "0") is None:
        return
    serve(maria.url(ours)).stop()
    assert schema(maria, ours) == schema(maria, theirs)


def test_tools_write_check_and_compare_such_a_database(binary, maria, tmp_path):
    fill(tmp_path / "Data.fs")
    url = maria.url(maria.database())
    dump = subprocess.run([binary, "dump", tmp_path / "Data.fs"], capture_output=True, timeout=60)
    subprocess.run([binary, "load", "-q", url], input=dump.stdout, check=True, timeout=60)
    for words in (["cmp", tmp_path / "Data.fs", url], ["check", "--references", "--btrees", url]):
        done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert "whole (" in done.stdout


# Takes a database of two partitions back to version 1 of the schema.
OLDER = """
    UPDATE config SET value = '1' WHERE name = 'version';
    INSERT INTO config VALUES ('partitions', '2');
    DROP TABLE pack;
    DROP TABLE pt;
    CREATE TABLE pt (rid INT UNSIGNED NOT NULL, nid INT NOT NULL, state TINYINT UNSIGNED NOT NULL,
        PRIMARY KEY (rid, nid)) ENGINE=InnoDB;
    INSERT INTO pt VALUES (0, 1, 0), (1, 1, 0);
    ALTER TABLE obj DROP PRIMARY KEY, DROP KEY tid, ADD PRIMARY KEY (`partition`, tid, oid),
        ADD KEY `partition` (`partition`, oid, tid);
"""


def test_older_databases_are_migrated_as_neo_does(serve, maria):
    ours, theirs = maria.database(), maria.database()
    written = by_neo(maria, ours, "write", "2", "0")
    if written is None:
        return
    assert by_neo(maria, theirs, "write", "2", "0") == written
    maria.run(OLDER, ours)
    maria.run(OLDER, theirs)
    assert by_neo(maria, theirs, "migrate") == written
    server = serve(maria.url(ours))
    assert records_by_zeo(server) == written
    server.stop()
    assert schema(maria, ours) == schema(maria, theirs)
    assert by_neo(maria, ours) == written


def test_a_second_process_is_refused(serve, open_database, maria):
    name = maria.database()
    database = open_database(serve(maria.url(name)))
    set_values(database, a=1)
    with pytest.raises(ServerFailed, match="in use by another process"):
        serve(maria.url(name))
    run = run_neo("read", f"mysql:{maria.neo(name)}")
    assert run is None or run.returncode != 0
    set_values(database, a=2)


def test_a_process_that_was_taken_over_never_commits_again(serve, open_database, maria):
    """As on two nodes of Galera, which both grant the lock."""
    name = maria.database()
    server = serve(maria.url(name))
    database = open_database(server)
    set_values(database, a=1)
    other = "00000000000000ff 99 0"
    maria.run(f"UPDATE config SET value = '{other}' WHERE name = 'zodium'", name)
    refusals = "taken the database over|an earlier write failed"
    for _ in range(2):
        with pytest.raises(StorageError, match=refusals):
            set_values(database, a=2)
    assert [other] in maria.run("SELECT value FROM config WHERE name = 'zodium'", name)
    assert "taken the database over" in server.log_path.read_text()
    assert "will be reopened" not in server.log_path.read_text()
    server.kill()
    again = open_database(serve(maria.url(name)))
    assert values_of(again) == {"a": 1}
    set_values(again, a=3)


def test_passwords_are_not_shown(serve, open_database, maria, tmp_path):
    name = maria.database("keeper", "geheim")
    url = maria.url(name, "keeper")
    with pytest.raises(ServerFailed, match="Access denied"):
        serve(url)
    server = serve(url, ZODIUM_MYSQL_PASSWORD="geheim")
    set_values(open_database(server), a=1)
    server.stop()
    options = tmp_path / "my.cnf"
    options.write_text("[client]\nuser = keeper\npassword = geheim\n")
    by_file = f"{maria.url(name).replace('root@', '')}&defaults_file={options}"
    for url in (by_file, maria.url(name, "keeper:geheim")):
        server = serve(url)
        assert values_of(open_database(server)) == {"a": 1}
        assert b"geheim" not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert "geheim" not in server.log_path.read_text()
        server.stop()


def test_a_server_with_tls_is_verified_and_one_without_is_refused(
    serve, open_database, tmp_path, template
):
    authority, port = Authority("Example authority"), free_port()
    ca, _ = authority.write(tmp_path, "ca")
    other, _ = Authority("Another authority").write(tmp_path, "other")
    certificate, key = authority.issue("database", is_server=True).write(tmp_path, "server")
    own, own_key = authority.issue("zodium").write(tmp_path, "client")
    options = [f"--ssl-ca={ca}", f"--ssl-cert={certificate}", f"--ssl-key={key}"]
    maria = mariadb.MariaDB(tmp_path, options, template, port).start()
    name = maria.database("keeper", "geheim")
    maria.run("ALTER USER keeper@localhost REQUIRE X509")

    def url(*query, host="localhost"):
        return f"mysql://keeper:geheim@{host}:{port}/{name}?{'&'.join(query)}"

    pair = [f"ssl-cert={own}", f"ssl_key={own_key}"]
    for refused, reason in (
        (url(f"ssl-ca={other}", *pair), "no authority in the file of ssl-ca"),
        (url(f"ssl-ca={ca}", *pair, host="127.0.0.1"), "ssl-mode=VERIFY_CA"),
        (url(f"ssl-ca={ca}"), "Access denied"),
        (url(), "Access denied"),
        (url(f"ssl-ca={ca}", pair[0]), "belong together"),
        (url(f"ssl-ca={tmp_path / 'absent'}"), "cannot read .*absent"),
    ):
        with pytest.raises(ServerFailed, match=reason):
            serve(refused)
    server = serve(url(f"ssl-ca={ca}", *pair))
    set_values(open_database(server), a=1)
    accepted = maria.run(
        "SELECT DISTINCT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS"
        " WHERE VARIABLE_NAME = 'SSL_FINISHED_ACCEPTS'"
    )
    assert int(accepted[0][0]) > 0
    server.stop()
    file = tmp_path / "my.cnf"
    file.write_text(f"[client]\nssl-ca = {ca}\nssl-cert = {own}\nssl-key = {own_key}\n")
    server = serve(url(f"defaults_file={file}", "ssl-mode=VERIFY_CA", host="127.0.0.1"))
    assert values_of(open_database(server)) == {"a": 1}
    server.stop()
    maria.run("ALTER USER keeper@localhost REQUIRE NONE")
    maria.stop()
    maria.options.append("--skip-ssl")
    maria.start()
    with pytest.raises(ServerFailed, match="offers no TLS"):
        serve(url(f"ssl-ca={ca}", *pair))
    maria.stop()


def commit_until(database, acknowledged, done):
    """Commits, and notes what was acknowledged, until `done` is set."""
    number = 0
    while not done.is_set():
        number += 1
        set_values(database, **{f"k{number}": "x" * 2000})
        acknowledged.append(number)


def test_commits_go_on_when_the_database_server_is_killed(serve, open_database, tmp_path, template):
    maria = mariadb.MariaDB(tmp_path, template=template).start()
    name = maria.database()
    server = serve(maria.url(name))
    database = open_database(server)
    acknowledged, done = [], threading.Event()
    writer = threading.Thread(target=commit_until, args=(database, acknowledged, done))
    writer.start()
    for _ in range(ROUNDS):
        before = len(acknowledged)
        while len(acknowledged) < before + 20 and writer.is_alive():
            time.sleep(0.01)
        maria.kill()
        maria.start()
    done.set()
    writer.join(60)
    values = values_of(open_database(server))
    assert set(values) == {f"k{number}" for number in acknowledged}
    expected = records_by_zeo(server)
    server.stop()
    found = by_neo(maria, name)
    maria.stop()
    assert found is None or found == expected


def end_sessions(maria, user):
    find = f"SELECT id FROM information_schema.processlist WHERE user = '{user}'"
    for (number,) in maria.run(find):
        with contextlib.suppress(subprocess.CalledProcessError):
            maria.run(f"KILL {number}")


def wait_health(monitor, expected, words):
    def is_told():
        code, _, body = monitor.fetch("/health")
        return code == expected and words in body.decode()

    wait_for(is_told, words)


def test_health_and_log_say_why_a_database_server_serves_nothing(
    serve, open_database, tmp_path, template
):
    maria, monitor = mariadb.MariaDB(tmp_path, template=template).start(), Monitor()
    server = serve(maria.url(maria.database("keeper", "one"), "keeper:one"), *monitor.options)
    database = open_database(server)
    set_values(database, a=1)
    wait_health(monitor, 200, "")
    maria.stop()
    writer = threading.Thread(target=set_values, args=(database,), kwargs={"a": 2})
    writer.start()
    wait_health(monitor, 503, "cannot be reached")
    assert "cannot connect to the database, trying again" in server.log()
    maria.start()
    writer.join(60)
    wait_health(monitor, 200, "")
    assert "connected to the database again" in server.log()

    maria.run("ALTER USER keeper@localhost IDENTIFIED BY 'two'")
    end_sessions(maria, "keeper")
    with pytest.raises(Exception, match="Access denied"):
        set_values(database, a=3)
    wait_health(monitor, 503, "Access denied")
    maria.run("ALTER USER keeper@localhost IDENTIFIED BY 'one'")
    # No client asks for anything meanwhile.
    wait_health(monitor, 200, "")
    set_values(database, a=4)

    maria.run("SET GLOBAL read_only = 1")
    with pytest.raises(ReadOnlyError):
        set_values(database, a=5)
    wait_health(monitor, 503, "the server is read-only")
    maria.run("SET GLOBAL read_only = 0")
    wait_health(monitor, 200, "")
    set_values(database, a=6)
    assert values_of(database) == {"a": 6}
    server.stop()
    maria.stop()


def test_a_node_says_why_its_database_server_serves_nothing(
    serve, open_database, tmp_path, template
):
    maria, monitor = mariadb.MariaDB(tmp_path, template=template).start(), Monitor()
    cluster = OwnCluster(tmp_path, storages=1)
    [node] = cluster.storages
    keep_in_maria(node, maria.neo(maria.database()))
    node.words += monitor.options
    try:
        cluster.start()
        database = open_database(serve(cluster.url()))
        set_values(database, a=1)
        maria.stop()
        writer = threading.Thread(target=set_values, args=(database,), kwargs={"a": 2})
        writer.start()
        wait_health(monitor, 503, "cannot be reached")
        maria.start()
        writer.join(60)
        wait_health(monitor, 200, "")
        assert values_of(database) == {"a": 2}
    finally:
        cluster.end()
        maria.stop()


def test_defaults_of_the_database_server_change_nothing(serve, open_database, tmp_path, template):
    maria = mariadb.MariaDB(tmp_path, template=template)
    maria.options += ["--autocommit=0", "--transaction-isolation=READ-COMMITTED"]
    maria.options += ["--completion-type=RELEASE"]
    # There is no option for these, and root is spared them.
    maria.options += ["--init-connect=SET sql_select_limit=1, sql_safe_updates=1"]
    maria.start()
    server = serve(maria.url(maria.database("user"), "user"))
    database = open_database(server)
    for number in range(5):
        set_values(database, **{f"k{number}": number})
        assert values_of(open_database(server))[f"k{number}"] == number
    iterator = database.storage.iterator()
    transactions = [next(iterator)]
    database.pack()
    # An iterator goes on with what there was at its beginning.
    assert len([*transactions, *iterator]) == 6
    maria.stop()


def test_acknowledged_commits_survive_kills(serve, open_database, maria, seeded):
    url = maria.url(maria.database())
    commit_through_kills(lambda: serve(url), open_database, ROUNDS, seeded)


def test_a_node_whose_database_server_hangs_ends_when_it_is_told(
    serve, open_database, tmp_path, template
):
    server = mariadb.MariaDB(tmp_path, template=template).start()
    cluster = OwnCluster(tmp_path, storages=1)
    [node] = cluster.storages
    keep_in_maria(node, server.neo(server.database()))
    try:
        cluster.start()
        database = open_database(serve(cluster.url()))
        set_values(database, a=1)
        old = database.storage.lastTransaction()
        set_values(database, a=2)
        # The node has only current records in memory.
        load = threading.Thread(target=loads_of_root, args=(database.storage, old), daemon=True)
        server.process.send_signal(signal.SIGSTOP)
        load.start()
        load.join(1)
        assert load.is_alive()
        began = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - began < 20
    finally:
        server.process.send_signal(signal.SIGCONT)
        cluster.end()
        server.stop()


def loads_of_root(storage, serial):
    with contextlib.suppress(StorageError):
        storage.loadSerial(z64, serial)


def keep_in_maria(node, database):
    """Has a storage node keep its cells on a server."""
    node.words[node.words.index("SQLite")] = "MySQL"
    node.words[node.words.index("--database") + 1] = database


@needs_neo
def test_a_storage_node_keeps_its_cells_there_and_so_does_that_of_neo(maria, tmp_path):
    cluster = Cluster(tmp_path, storages=2, partitions=3, replicas=1)
    first, second = cluster.storages
    neo, name = cluster.neo_storage_node(1), maria.database()
    for node in (first, neo):
        keep_in_maria(node, maria.neo(name))
    try:
        cluster.start()
        client = cluster.client()
        client.call("fill", count=20)
        first.kill()
        client.call("set", a=1)
        first.start()
        cluster.wait_up_to_date(2)
        assert first.stop() == 0
        client.call("set", a=2)
        cluster.storages[0] = neo
        neo.start()
        cluster.wait_up_to_date(2)
        second.kill()
        assert cluster.client().call("get")["a"] == 2
        assert cluster.client().call("filled") == list(range(20))
    finally:
        cluster.end()
