"""Serving what a configuration says: runzeo's zeo.conf as it is, or our TOML."""

import os
import signal
import sqlite3
import subprocess
import time

import pytest
from harness import files
from harness.process import HOST, REPOSITORY, ServerProcess, free_port
from harness.waiting import wait_for
from harness.wire import Z64, ErrorReply, Wire
from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ServerException
from ZODB import DB
from ZODB.FileStorage.FileStorage import FileStorage

pytestmark = pytest.mark.zodium

SECONDS = 20

# As Plone's recipes write it.
ZEO_CONF = """
%define INSTANCE {folder}

<zeo>
  address {port}
  read-only false
  invalidation-queue-size 100
  pid-filename $INSTANCE/zeo.pid
  transaction-timeout 60
</zeo>

<filestorage 1>
  path $INSTANCE/Data.fs
  pack-gc false
</filestorage>

<filestorage catalog>
  path $INSTANCE/Catalog.fs
</filestorage>

<eventlog>
  level info
  <logfile>
    path $INSTANCE/zeo.log
    format %(asctime)s %(message)s
  </logfile>
</eventlog>

<runner>
  program $INSTANCE/bin/runzeo
  daemon true
</runner>
"""


@pytest.fixture
def serve(binary, tmp_path):
    """serve(text, *options, name="zeo.conf"): a server told by a configuration file."""
    servers = []

    def start(text, *options, name="zeo.conf", env=None, **how):
        port = free_port()
        config = tmp_path / name
        config.write_text(text.format(folder=tmp_path, port=port))
        words = [binary, "serve", "-C", str(config), *map(str, options)]
        servers.append(ServerProcess(words, port, tmp_path, env=env, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
        print(f"--- {server.log_path.name}\n{server.log_tail()}")


@pytest.fixture
def config(binary, tmp_path):
    """config(command, text, name="zeo.conf"): what `zodium config` says about it."""

    def run(command, text, name="zeo.conf"):
        path = tmp_path / name
        path.write_text(text.format(folder=tmp_path, port=8100))
        words = [binary, "config", command, str(path)]
        return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)

    return run


def open_storage(server, name="1", **options):
    options = {"wait": True, "wait_timeout": 30, "server_sync": True, **options}
    return ClientStorage(server.address, storage=name, **options)


def refusal(server, storage, read_only=False):
    """The exception with which a client is told that it may not use a storage."""
    with Wire(server.address) as client:
        with pytest.raises(ErrorReply) as refused:
            client.register(storage, read_only)
        return refused.value.args[0]


def greeting(server):
    """The encoding that a server announces, without the version."""
    with Wire(server.address) as client:
        return client.announced[:2]


def commit_root(db, key, value):
    with db.transaction() as connection:
        connection.root()[key] = value


# ------------------------------------------------------------------------ zeo.conf


def test_a_zeo_conf_with_two_storages_and_a_log_is_served(tmp_path, serve):
    server = serve(ZEO_CONF)
    dbs = {name: DB(open_storage(server, name)) for name in ("1", "catalog")}
    for name, db in dbs.items():
        commit_root(db, "name", name)
        db.close()
    log = tmp_path / "zeo.log"
    assert f":{server.port}" in log.read_text() and "Catalog.fs" in log.read_text()
    assert (tmp_path / "zeo.pid").read_text() == f"{server.process.pid}\n"
    moved = tmp_path / "zeo.log.1"
    log.rename(moved)
    server.process.send_signal(signal.SIGUSR2)
    assert server.stop() == 0
    assert not (tmp_path / "zeo.pid").exists()
    for name, path in (("1", "Data.fs"), ("catalog", "Catalog.fs")):
        db = DB(FileStorage(str(tmp_path / path), read_only=True))
        with db.transaction() as connection:
            assert connection.root()["name"] == name
        db.close()


def test_a_reload_tells_of_mistakes_and_of_settings_that_need_a_restart(tmp_path, serve):
    text = "[server]\naddress = {port}\n[[storage]]\nname = '1'\npath = '{folder}/Data.fs'\n"
    name = "zodium.toml"
    server, path = serve(text, name=name), tmp_path / name
    before = path.read_text()
    settings = "take effect at a restart"

    def reload(content, words):
        path.write_text(content)
        server.process.send_signal(signal.SIGUSR2)
        wait_for(lambda: words in server.log(), words)

    reload(before, "SIGUSR2")
    reload(
        before.replace("[server]", "[server]\ninvalidation-queue-size = 'many'"),
        "the next start would fail",
    )
    assert settings not in server.log()
    reload(before.replace("[server]", "[server]\ninvalidation-queue-size = 7"), settings)
    assert "`invalidation-queue-size` of [server]" in server.log()
    path.unlink()
    server.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: server.log().count("the next start would fail") == 2, "the file is gone")
    commit_root(DB(open_storage(server)), "goes", "on")
    assert server.stop() == 0


@pytest.mark.parametrize("piped, hangs", [("zeo.conf", False), ("more.conf", True)])
def test_a_reload_waits_for_no_pipe(tmp_path, serve, piped, hangs):
    password, port = tmp_path / "password", free_port()
    password.write_text("secret\n")
    (tmp_path / "more.conf").write_text("%define unused 1\n")
    zeo = "%include more.conf\n<zeo>\n address {port}\n</zeo>\n"
    storage = "<filestorage 1>\n path {folder}/Data.fs\n</filestorage>\n"
    options = ("--resp", f"{HOST}:{port}", "--resp-password-file", password)
    server = serve(zeo + storage, *options)
    (tmp_path / piped).unlink()
    os.mkfifo(tmp_path / piped)
    server.process.send_signal(signal.SIGUSR2)
    time.sleep(0.2)
    password.write_text("another\n")
    server.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: "read the new password of RESP" in server.log(), "the new password")
    waits = "the file of the configuration is still being read"
    if hangs:
        wait_for(lambda: waits in server.log(), "a warning")
    assert (waits in server.log()) == hangs and "the next start" not in server.log()
    assert server.stop() == 0


def test_options_override_the_file(tmp_path, serve):
    port = free_port()
    options = ("-a", f"{HOST}:{port}", "-f", tmp_path / "other.fs", "--read-only")
    server = serve(ZEO_CONF, *options, wait=False)
    server.port = port
    server.wait_listening()
    assert refusal(server, "1") == "ZODB.POSException.ReadOnlyError"
    assert refusal(server, "catalog", read_only=True) == "builtins.ValueError"
    assert not (tmp_path / "Data.fs").exists()


def test_our_toml_is_served(tmp_path, serve):
    text = """
[server]
address = "127.0.0.1:{port}"
encoding = "msgpack"

[[storage]]
path = "Data.fs"

[[storage]]
name = "scratch"
memory = true
"""
    server = serve(text, name="zodium.toml")
    for name in ("1", "scratch"):
        db = DB(open_storage(server, name))
        commit_root(db, "name", name)
        db.close()
    assert (tmp_path / "Data.fs").stat().st_size > 4


def test_what_is_not_understood_is_told_with_its_line(serve):
    server = serve(ZEO_CONF.replace("transaction-timeout", "transaction-timout"), wait=False)
    assert server.process.wait(SECONDS) == 1
    line = ZEO_CONF[: ZEO_CONF.index("transaction-timeout")].count("\n") + 1
    assert f"zeo.conf:{line}" in server.log()
    assert "transaction-timeout" in server.log()


# ---------------------------------------------------------------- kinds of storages


def test_a_mapping_storage_forgets_with_its_server(tmp_path, serve):
    text = "<zeo>\n address {port}\n</zeo>\n<mappingstorage 1>\n</mappingstorage>\n"
    server = serve(text)
    before = set(tmp_path.iterdir())
    storage = open_storage(server)
    db = DB(storage)
    for number in range(20):
        commit_root(db, "data", os.urandom(200_000))
        commit_root(db, "number", number)
    grown = storage.getSize()
    assert grown > 20 * 200_000
    storage.pack(time.time(), lambda *_: [])
    assert storage.getSize() < grown / 10
    with db.transaction() as connection:
        assert connection.root()["number"] == 19
    db.close()
    assert server.stop() == 0
    assert set(tmp_path.iterdir()) == before
    with Wire(serve(text).address) as client:
        assert client.register() == Z64


def test_create_true_begins_a_new_file(tmp_path, serve):
    text = "<zeo>\n address {port}\n</zeo>\n<filestorage 1>\n path {folder}/Data.fs\n"
    keep, create = text + "</filestorage>", text + " create true\n</filestorage>"
    for source, expected in ((keep, 1), (create, 1), (keep, 2), (create, 1)):
        server = serve(source)
        with Wire(server.address) as client:
            last = client.register()
            client.commit(1, [(bytes(7) + last[-1:], Z64, b"data")])
        assert server.stop() == 0
        assert len(files.read(tmp_path / "Data.fs")) == expected
        files.check(tmp_path / "Data.fs")
        assert "index not usable" not in server.log()


def test_a_server_that_only_reads_begins_no_file_anew(tmp_path, serve):
    text = (
        "<zeo>\n address {port}\n read-only true\n</zeo>\n"
        "<filestorage 1>\n path {folder}/Data.fs\n create true\n</filestorage>\n"
    )
    (tmp_path / "Data.fs").write_bytes(b"FS30")
    server = serve(text, wait=False)
    assert server.process.wait(SECONDS) == 1
    assert "Data.fs" in server.log() and "recreate" in server.log()
    assert (tmp_path / "Data.fs").read_bytes() == b"FS30"


@pytest.mark.parametrize("encoding", ["pickle", "msgpack"])
def test_a_quota_refuses_commits_until_a_pack_makes_room(tmp_path, serve, encoding):
    text = (
        "<zeo>\n address {port}\n</zeo>\n"
        "<filestorage 1>\n path {folder}/Data.fs\n quota 100KB\n</filestorage>\n"
    )
    server = serve(text, *(["--msgpack"] if encoding == "msgpack" else []))
    db = DB(open_storage(server))
    # Which is how a stock client shows an exception that it does not make its own.
    with pytest.raises(ServerException, match="FileStorageQuotaError.* exceeded.*102400"):
        for _ in range(20):
            commit_root(db, "data", os.urandom(10_000))
    size = (tmp_path / "Data.fs").stat().st_size
    assert 80 << 10 < size <= 100 << 10
    with db.transaction() as connection:
        assert len(connection.root()["data"]) == 10_000
    db.pack()
    commit_root(db, "data", b"fits again")
    db.close()
    assert server.stop() == 0
    # Without the quota the same file takes more.
    db = DB(open_storage(serve(text.replace(" quota 100KB\n", ""))))
    commit_root(db, "data", os.urandom(200_000))
    db.close()


def test_one_storage_can_be_read_only_beside_another(tmp_path, serve):
    text = (
        "<zeo>\n address {port}\n</zeo>\n"
        "<filestorage 1>\n path {folder}/Data.fs\n</filestorage>\n"
        "<filestorage old>\n path {folder}/Old.fs\n read-only true\n</filestorage>\n"
    )
    storage = FileStorage(str(tmp_path / "Old.fs"))
    db = DB(storage)
    commit_root(db, "name", "old")
    db.close()
    (tmp_path / "Old.fs").chmod(0o444)
    server = serve(text)
    db = DB(open_storage(server))
    commit_root(db, "name", "new")
    db.close()
    assert refusal(server, "old") == "ZODB.POSException.ReadOnlyError"
    db = DB(open_storage(server, "old", read_only=True))
    with db.transaction() as connection:
        assert connection.root()["name"] == "old"
    db.close()


# -------------------------------------------------------------------- environment


def test_the_environment_stands_in_for_options(tmp_path, binary):
    """A container needs neither a file nor arguments."""
    port = free_port()
    env = {
        "ZODIUM_PATH": str(tmp_path / "Data.fs"),
        "ZODIUM_ADDRESS": f"{HOST}:{port}",
        "ZODIUM_LOG_FORMAT": "json",
        "ZODIUM_LOG_FILE": "STDOUT",
        "ZODIUM_MSGPACK": "1",
    }
    server = ServerProcess([binary, "serve"], port, tmp_path, env=env)
    try:
        storage = ClientStorage(server.address, wait=True, wait_timeout=30)
        storage.close()
        assert server.log().startswith("{")
    finally:
        server.stop()


def image(folder):
    """The variables that packaging/Dockerfile sets for a storage, with another folder."""
    lines = (REPOSITORY / "packaging" / "Dockerfile").read_text().replace("\\\n", " ")
    words = next(line for line in lines.splitlines() if line.startswith("ENV ")).split()[1:]
    variables = dict(word.split("=", 1) for word in words)
    return {
        name: variables[name].replace("/data", str(folder))
        for name in ("ZODIUM_PATH", "ZODIUM_BLOB_DIR", "ZODIUM_LOG_FORMAT")
    }


@pytest.mark.parametrize("storages", [["1"], ["main", "catalog"]])
def test_the_storages_of_a_file_are_served_in_an_image(tmp_path, serve, storages):
    (tmp_path / "data").mkdir()
    sections = [
        f"<filestorage {name}>\n path {{folder}}/{name}.fs\n blob-dir {{folder}}/{name}\n"
        "</filestorage>\n"
        for name in storages
    ]
    text = "<zeo>\n address {port}\n</zeo>\n" + "".join(sections)
    server = serve(text, env=image(tmp_path / "data"))
    for name in storages:
        db = DB(open_storage(server, name))
        commit_root(db, "name", name)
        db.close()
    assert server.stop() == 0
    assert os.listdir(tmp_path / "data") == []
    for name in storages:
        assert (tmp_path / name).is_dir()


def test_a_path_of_the_environment_is_no_storage_beside_those_of_options(tmp_path, binary):
    port = free_port()
    env = {"ZODIUM_PATH": str(tmp_path / "image.fs"), "ZODIUM_ADDRESS": f"{HOST}:{port}"}
    words = [binary, "serve", "-f", str(tmp_path / "a.fs")]
    server = ServerProcess(words, port, tmp_path, env=env)
    try:
        ClientStorage(server.address, wait=True, wait_timeout=30).close()
    finally:
        server.stop()
    assert (tmp_path / "a.fs").exists() and not (tmp_path / "image.fs").exists()


def test_several_files_are_served_in_an_image(tmp_path, binary):
    (tmp_path / "data").mkdir()
    port = free_port()
    files = [str(tmp_path / f"{name}.fs") for name in ("a", "b")]
    words = [binary, "serve", "-f", files[0], "-f", files[1], "-a", f"{HOST}:{port}"]
    server = ServerProcess(words, port, tmp_path, env=image(tmp_path / "data"))
    try:
        ClientStorage(server.address, storage="2", wait=True, wait_timeout=30).close()
    finally:
        server.stop()
    assert os.listdir(tmp_path / "data") == []


def test_empty_variables_of_the_environment_count_as_none(tmp_path, serve):
    names = ("PATH", "BLOB_DIR", "CONFIG", "ADDRESS", "READ_ONLY", "WORKERS", "MONITOR", "LOG")
    text = (
        "[server]\naddress = '{port}'\nread-only = true\n[[storage]]\npath = '{folder}/Data.fs'\n"
    )
    (tmp_path / "Data.fs").write_bytes(b"FS30")
    server = serve(text, env={f"ZODIUM_{name}": "" for name in names}, name="zodium.toml")
    assert refusal(server, "1") == "ZODB.POSException.ReadOnlyError"


def test_a_flag_of_the_environment_can_say_no_to_the_file(tmp_path, serve):
    text = (
        "[server]\naddress = '{port}'\nread-only = true\nencoding = 'msgpack'\n"
        "[[storage]]\npath = '{folder}/Data.fs'\n"
    )
    env = {"ZODIUM_READ_ONLY": "0", "ZODIUM_MSGPACK": "no"}
    server = serve(text, env=env, name="zodium.toml")
    assert greeting(server) == b"Z5"
    db = DB(open_storage(server))
    commit_root(db, "key", "value")
    db.close()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "<zeo>\n address {port}\n msgpack false\n</zeo>\n"
            "<filestorage 1>\n path {folder}/Data.fs\n</filestorage>\n",
            "zeo.conf",
        ),
        (
            "[server]\naddress = '{port}'\nencoding = 'pickle'\n"
            "[[storage]]\npath = '{folder}/Data.fs'\n",
            "zodium.toml",
        ),
    ],
    ids=["zeo.conf", "toml"],
)
def test_what_a_file_says_of_msgpack_counts_more_than_the_variable_of_zeo(serve, text, name):
    server = serve(text, env={"ZEO_MSGPACK": "1"}, name=name)
    assert greeting(server) == b"Z5"


@pytest.mark.parametrize("word", ["maybe", "flase"])
def test_flags_of_the_environment_that_are_no_words_for_either_are_refused(binary, word):
    done = subprocess.run(
        [binary, "serve", "-a", "0"],
        env={**os.environ, "ZODIUM_READ_ONLY": word},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2 and f"'{word}' for '--read-only': give 1 or 0" in done.stderr


# ------------------------------------------------------------------ zodium config


def test_check_says_that_all_is_well(config):
    done = config("check", ZEO_CONF)
    assert done.returncode == 0, done.stderr
    assert "1, catalog" in done.stdout


def test_check_tells_all_that_is_wrong_with_lines(config):
    text = ZEO_CONF.replace("read-only false", "read-only maybe").replace("pack-gc", "pack-gb")
    done = config("check", text)
    assert (done.returncode, done.stdout) == (1, "")
    for word in ("read-only", "pack-gb"):
        line = text[: text.index(word)].count("\n") + 1
        assert f"zeo.conf:{line}" in done.stderr
    assert "panicked" not in done.stderr


def test_check_tells_what_only_the_machine_shows(tmp_path, config):
    done = config("check", ZEO_CONF.replace("$INSTANCE/Catalog.fs", "$INSTANCE/nowhere/C.fs"))
    assert done.returncode == 1
    assert str(tmp_path / "nowhere") in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[storage]]\nneo = "http://nonsense"\n', "does not begin with neo://"),
        ('[[storage]]\nmysql = "nonsense"\n', "is written mysql://user@host/database"),
        ("[neo-storage]\n{node}engine = 'foo'\nadapter = 'mysql'\n", "InnoDB or RocksDB"),
        ("[neo-storage]\n{node}adapter = 'importer'\n", "importer is not implemented"),
        ("[neo-storage]\n{node}[log]\nto = 'a.sqlite'\n", "is a database"),
    ],
)
def test_check_refuses_what_a_start_refuses(tmp_path, binary, config, text, expected):
    sqlite3.connect(tmp_path / "a.sqlite").execute("CREATE TABLE a (b)").connection.commit()
    text = text.format(node="cluster = 'a'\ndatabase = 'b'\n")
    done = config("check", text, name="a.toml")
    assert (done.returncode, done.stdout) == (1, "") and expected in done.stderr
    command = ["neo", "storage"] if "neo-storage" in text else ["serve"]
    words = [binary, *command, "-C", tmp_path / "a.toml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode in (1, 2) and expected in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[[storage]]\nmysql = "mysql://me:se%20cret@db/neo?engine=InnoDB"', "mysql://me@db/neo"),
        ('[neo-storage]\ncluster = "c"\nadapter = "mysql"\ndatabase = "me:secret@neo"', "me@neo"),
    ],
    ids=["served", "node"],
)
def test_passwords_are_not_shown(config, text, shown):
    done = config("show", text, name="zodium.toml")
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert "cret" not in done.stdout + done.stderr
    assert "ZODIUM_MYSQL_PASSWORD" in done.stderr


def test_what_is_converted_means_the_same(tmp_path, config):
    shown = config("show", ZEO_CONF)
    converted = config("convert", ZEO_CONF)
    assert (shown.returncode, converted.returncode) == (0, 0), converted.stderr
    assert converted.stdout == shown.stdout
    again = config("show", converted.stdout.replace("{", "{{"), name="zodium.toml")
    assert again.stdout == converted.stdout
    for said in (str(tmp_path / "Catalog.fs"), "8100", "garbage-collection"):
        assert said in converted.stdout


def test_a_file_that_is_not_there_is_named(tmp_path, binary):
    for words in (("config", "check"), ("config", "show"), ("serve", "-C")):
        done = subprocess.run(
            [binary, *words, str(tmp_path / "no.conf")], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert str(tmp_path / "no.conf") in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_host_without_an_address_is_named_by_the_check(tmp_path, binary):
    """With its setting; the names of another machine need not be known on this one."""
    path = tmp_path / "zodium.toml"
    path.write_text(
        '[server]\naddress = ["127.0.0.1:8100", "zeo.invalid:8100"]\n'
        '[[storage]]\nname = "1"\npath = "Data.fs"\n'
    )
    words = [binary, "config", "check", path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path}: `address`: the host zeo.invalid is not found" in done.stderr
    assert "as a systemd socket unit listens" in done.stderr
    # As in a script that becomes the server, which takes the sockets instead.
    with_sockets = {**os.environ, "LISTEN_FDS": "1"}
    socket = subprocess.run(words, capture_output=True, text=True, timeout=60, env=with_sockets)
    assert socket.returncode == 0, socket.stderr
    elsewhere = subprocess.run([*words, "--no-lookup"], capture_output=True, text=True, timeout=60)
    assert elsewhere.returncode == 0, elsewhere.stderr


@pytest.mark.parametrize("option", ["--pid-file", "--log-file"])
def test_a_data_file_is_no_pid_file_and_no_log(tmp_path, binary, option):
    for name in ("Data.fs", "Data.fs.index"):
        database = DB(FileStorage(str(tmp_path / "Data.fs")))
        commit_root(database, "key", "value")
        database.close()
        before = (tmp_path / name).read_bytes()
        words = [binary, "serve", "Data.fs", "-a", f"{HOST}:{free_port()}", option, f"./{name}"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 1 and "are one file" in done.stderr
        assert (tmp_path / name).read_bytes() == before


def test_a_log_is_no_file_of_keys(tmp_path, binary):
    words = [binary, "resp", "-a", f"{HOST}:{free_port()}", "--file", "keys", "--log-file", "keys"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1 and "are one file" in done.stderr
    assert os.listdir(tmp_path) == []
