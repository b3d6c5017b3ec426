"""Redis commands that take effect with a ZODB transaction, or not at all."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
import transaction
import ZODB
from harness import package
from harness.process import HOST, free_port
from harness.waiting import wait_for
from persistent import Persistent
from persistent.mapping import PersistentMapping
from ZODB.POSException import ConflictError, StorageTransactionError

package.use()

import zodium.redis  # noqa: E402

pytestmark = pytest.mark.zodium
TESTS = Path(__file__).resolve().parents[1]
# `make queue-kills` has ZODIUM_TEST_QUEUE_KILLS of each.
KILLS, SERVER_KILLS = 6, 3
NAMES = ["one", "two", "three"]


class Number(Persistent):
    value = 0


@pytest.fixture
def served(start_server, tmp_path):
    port = free_port()
    server = start_server(tmp_path / "Data.fs", "--resp", f"{HOST}:{port}")
    keys = redis.Redis(port=port, decode_responses=True)
    yield server, keys
    keys.close()


@pytest.fixture(params=["zodium", "ZEO"])
def database(request, served, open_native, connect):
    opener = open_native if request.param == "zodium" else connect
    server = served[0]
    storage = open_native(server.address) if opener is open_native else connect(server)
    database = ZODB.DB(storage)
    with database.transaction() as connection:
        connection.root()["number"] = Number()
    yield database
    database.close()


def test_commands_take_effect_with_their_transaction(served, database):
    keys = served[1]
    connection = database.open()
    commands = zodium.redis.join(keys)
    assert zodium.redis.join(keys) is commands
    commands.rpush("tasks", "1", "2").incr("count")
    connection.root()["number"].value = 1
    assert not keys.exists("tasks", "count")
    transaction.commit()
    assert keys.lrange("tasks", 0, -1) == ["1", "2"] and keys.get("count") == "1"
    with pytest.raises(ValueError):
        commands.incr("count")
    # An aborted one has none, nor one that conflicts.
    zodium.redis.join(keys).incr("count")
    connection.root()["number"].value = 2
    transaction.abort()
    zodium.redis.join(keys).incr("count")
    connection.root()["number"].value = 3
    with database.transaction() as other:
        other.root()["number"].value = 4
    with pytest.raises(ConflictError):
        transaction.commit()
    transaction.abort()
    assert keys.get("count") == "1"
    # A savepoint takes back what came after it, and the rest stays.
    zodium.redis.join(keys).incr("count")
    savepoint = transaction.savepoint()
    zodium.redis.join(keys).incrby("count", 100)
    savepoint.rollback()
    connection.root()["number"].value = 5
    transaction.commit()
    assert keys.get("count") == "2"
    # Without a change of the database they are a transaction of their own.
    zodium.redis.join(keys).incr("count")
    transaction.commit()
    assert keys.get("count") == "3"
    connection.close()


def test_a_savepoint_before_the_first_commands_takes_them_back(served, database):
    keys = served[1]
    connection = database.open()
    for again in (False, True):
        connection.root()["number"].value += 1
        savepoint = transaction.savepoint()
        zodium.redis.join(keys).incr("count")
        savepoint.rollback()
        if again:
            zodium.redis.join(keys).incrby("count", 10)
        transaction.commit()
        assert keys.get("count") == ("10" if again else None)
    # Without a change of the database.
    savepoint = transaction.savepoint()
    zodium.redis.join(keys).incr("count")
    savepoint.rollback()
    savepoint.rollback()
    transaction.commit()
    assert keys.get("count") == "10" and connection.root()["number"].value == 2
    connection.close()


def test_commands_of_an_undone_transaction_stay(served, database):
    keys = served[1]
    connection = database.open()
    number = connection.root()["number"]
    number.value = 1
    zodium.redis.join(keys).rpush("tasks", "1")
    transaction.commit()
    assert zodium.redis.set_tied(keys, "tied", "1", number)
    database.undo(database.undoLog(0, 1)[0]["id"])
    transaction.commit()
    transaction.begin()
    assert number.value == 0
    assert keys.lrange("tasks", 0, -1) == ["1"] and keys.get("tied") is None
    connection.close()


def test_a_vote_refuses_commands_that_cannot_take_effect(served, database, start_server, tmp_path):
    server, keys = served
    connection = database.open()

    def refused(queue, error):
        transaction.begin()
        queue(zodium.redis.join(keys))
        connection.root()["number"].value += 1
        with pytest.raises(error):
            transaction.commit()
        transaction.abort()

    refused(lambda commands: commands.get("key"), redis.ResponseError)
    refused(lambda commands: commands.execute_command("NOSUCH"), redis.ResponseError)
    refused(lambda commands: commands.execute_command("SET", "key"), redis.ResponseError)
    refused(lambda commands: commands.execute_command("SUBSCRIBE", "x"), redis.ResponseError)
    # A server that has none of the databases claims nothing.
    port = free_port()
    (tmp_path / "other").mkdir()
    start_server(tmp_path / "other" / "Data.fs", "--resp", f"{HOST}:{port}")
    with redis.Redis(port=port) as elsewhere:
        zodium.redis.join(elsewhere).incr("count")
        connection.root()["number"].value += 1
        with pytest.raises(StorageTransactionError):
            transaction.commit()
        transaction.abort()
        assert not elsewhere.exists("count")
    # What is parked is dropped with its connection, and a transaction that needs it is refused.
    with redis.Redis(port=keys.connection_pool.connection_kwargs["port"]) as gone:
        pipe = gone.connection_pool.get_connection()
        for words in (["MULTI"], ["INCR", "count"], ["ZEXEC", "token"], ["ZSTATE", "token"]):
            pipe.send_command(*words)
            answer = pipe.read_response()
        assert answer == b"parked"
        pipe.disconnect()
    wait_for(lambda: keys.execute_command("ZSTATE", "token") == "none", "no parked commands")
    transaction.get().setExtendedInfo("zodium.exec", "token")
    connection.root()["number"].value += 1
    with pytest.raises(Exception, match="no commands under the token"):
        transaction.commit()
    transaction.abort()
    assert not keys.exists("count")
    connection.root()["number"].value += 1
    transaction.commit()
    connection.close()


def test_who_pops_a_task_finds_its_object(served, database, open_native):
    """The worker's storage knows of the commit of its task, after one round trip."""
    server, keys = served
    worker = open_native(server.address)
    port = keys.connection_pool.connection_kwargs["port"]
    connection = database.open()
    with redis.Redis(port=port) as popping:
        for number in range(100):
            zodium.redis.join(keys).rpush("tasks", number)
            connection.root()["number"].value = number
            transaction.commit()
            _, task = popping.blpop("tasks")
            worker.ping()
            assert int(task) == number and worker.lastTransaction() >= database.lastTransaction()
    connection.close()


def test_a_client_that_waits_is_served_by_the_commit(served, database):
    keys = served[1]
    port = keys.connection_pool.connection_kwargs["port"]
    connection = database.open()
    with redis.Redis(port=port) as waiting:
        pipe = waiting.connection_pool.get_connection()
        pipe.send_command("BLPOP", "tasks", 0)
        zodium.redis.join(keys).rpush("tasks", "1")
        connection.root()["number"].value = 1
        assert not pipe.can_read(0.1)
        transaction.commit()
        assert pipe.read_response() == [b"tasks", b"1"]
        waiting.connection_pool.release(pipe)
    connection.close()


def test_commands_of_a_client_wait_for_the_current_transaction(served, database):
    """As libraries use a client: commands that write wait, commands that read do not."""
    keys = served[1]
    port = keys.connection_pool.connection_kwargs["port"]
    client = zodium.redis.Redis(port=port, decode_responses=True)
    connection = database.open()
    assert client.set("key", "1") is None and client.get("key") is None
    with client.pipeline() as pipe:
        assert pipe.lpush("list", "a").expire("list", 100).execute() == [None, None]
    connection.root()["number"].value = 1
    transaction.commit()
    assert client.get("key") == "1" and keys.ttl("list") > 90
    client.delete("key")
    transaction.abort()
    assert client.get("key") == "1"
    # A watch would not hold until the commit.
    with client.pipeline() as pipe, pytest.raises(TypeError, match="watched"):
        pipe.watch("key")
    with pytest.raises(TypeError, match="watched"):
        client.transaction(lambda pipe: pipe.set("key", "2"), "key")
    # Nor would the element be answered that is taken away at the commit, or whether a key is set.
    for taken in (
        client.lpop,
        client.blpop,
        lambda key: client.execute_command(b"lpop", key),
        lambda key: client.pipeline().rpop(key).execute(),
        lambda key: client.getset(key, "2"),
        lambda key: client.set(key, "2", get=True),
        lambda key: client.execute_command("SET", key, "2", b"get"),
        lambda key: client.lmove(key, "other"),
        lambda key: client.xreadgroup("group", "me", {key: ">"}),
        lambda key: client.setnx(key, "2"),
        lambda key: client.hsetnx(key, "field", "2"),
        lambda key: client.set(key, "2", nx=True, ex=100),
        lambda key: client.pipeline().set(key, "2", xx=True).execute(),
        lambda key: client.execute_command("SET", key, "2", "IFEQ", "1"),
        lambda key: client.zadd(key, {"member": 1}, nx=True),
        lambda key: client.pipeline().zadd(key, {"member": 1}, gt=True, ch=True).execute(),
        lambda key: client.copy(key, "other"),
        lambda key: client.move(key, 1),
        lambda key: client.smove(key, "other", "member"),
    ):
        with pytest.raises(TypeError, match="would be lost"):
            taken("list")
    with pytest.raises(TypeError, match="scripts do not wait"):
        client.eval("return 1", 0)
    with pytest.raises(TypeError, match="a lock cannot wait"):
        client.lock("lock")
    assert client.execute_command(b"LLEN", "list") == 1
    # A key and a value of that name are no option.
    client.set("GET", "NX")
    client.zadd("scores", {"NX": 1, "CH": 2})
    client.zadd("scores", {"NX": 3}, gt=True)
    zodium.redis.join(client).set("key", "2", nx=True).set("new", "2", nx=True)
    transaction.commit()
    assert keys.lrange("list", 0, -1) == ["a"] and keys.get("GET") == "NX"
    assert keys.zrange("scores", 0, -1, withscores=True) == [("CH", 2), ("NX", 3)]
    assert keys.mget("key", "new") == ["1", "2"]
    connection.close()


def test_commands_that_read_are_answered_at_once(served, database):
    keys = served[1]
    port = keys.connection_pool.connection_kwargs["port"]
    client = zodium.redis.Redis(port=port, decode_responses=True)
    keys.rpush("list", 2, 1)
    keys.xadd("stream", {"a": 1})
    connection = database.open()
    connection.root()["number"].value = 1
    assert client.sort("list") == ["1", "2"] and client.sort("list", store="sorted") is None
    with client.pipeline() as pipe:
        assert pipe.touch("list").xread({"stream": "0"}).execute()[0] == 1
    transaction.commit()
    assert keys.lrange("sorted", 0, -1) == ["1", "2"]
    connection.close()


def test_each_command_of_the_server_waits_or_does_not(served):
    """A transaction takes commands that write; some of these have an answer that matters."""
    from zodium.redis._join import AT_ONCE, CONDITIONAL, SCRIPTS, TAKING

    # Subcommands of XGROUP write, and messages wait. The rest is the server's own transactions.
    others = {"DISCARD", "EXEC", "MULTI", "PUBLISH", "UNWATCH", "WATCH", "XGROUP", "ZEXEC"}
    commands = served[1].execute_command("COMMAND")
    flags = {each["name"].upper(): each["flags"] for each in commands.values()}
    reading = {name for name in flags if "write" not in flags[name]}
    assert reading - others - SCRIPTS == AT_ONCE
    answers = re.compile("POP|LMOVE|GET|CLAIM|READ")
    assert set(filter(answers.search, flags.keys() - reading)) == TAKING
    conditional = {name for name in flags if name.endswith("NX")}
    assert conditional | {"COPY", "MOVE", "SMOVE"} == CONDITIONAL


@pytest.fixture
def celery_task(served):
    """A task of Celery, and the address of its broker."""
    celery = pytest.importorskip("celery")
    url = f"redis://{HOST}:{served[1].connection_pool.connection_kwargs['port']}/0"
    application = celery.Celery("application", broker=url)

    @application.task(name="task")
    def task(number):
        return number

    return task, url


def test_a_task_of_celery_is_sent_by_the_commit(served, database, celery_task):
    kombu = pytest.importorskip("kombu")
    from zodium.redis.celery import Transport

    keys, (task, url) = served[1], celery_task
    connection = database.open()
    with kombu.Connection(url, transport=Transport) as broker:
        task.apply_async((1,), connection=broker)
        connection.root()["number"].value = 1
        assert keys.llen("celery") == 0
        transaction.commit()
        assert keys.llen("celery") == 1
        task.apply_async((2,), connection=broker)
        transaction.abort()
        assert keys.llen("celery") == 1
    connection.close()


def test_tasks_of_celery_have_the_prefix_of_their_transport(served, celery_task):
    kombu = pytest.importorskip("kombu")
    from zodium.redis.celery import Transport

    keys, (task, url) = served[1], celery_task
    options = {"global_keyprefix": "site:"}
    with kombu.Connection(url, transport=Transport, transport_options=options) as broker:
        task.apply_async((1,), connection=broker)
        with broker.channel().client.pipeline() as pipe:
            assert pipe.lpush("other", "2").execute() == [None]
        assert not keys.exists("site:celery", "site:other")
        transaction.commit()
    assert keys.llen("site:celery") == keys.llen("site:other") == 1
    assert all(key.startswith("site:") for key in keys.scan_iter())
    with kombu.Connection(url, transport_options=options) as broker:
        assert broker.SimpleQueue("celery").get(timeout=10).payload[0] == [1]


def test_a_transaction_takes_commands_through_several_pools(served, database, celery_task):
    kombu = pytest.importorskip("kombu")
    from zodium.redis.celery import Transport

    keys, (task, url) = served[1], celery_task
    port = keys.connection_pool.connection_kwargs["port"]
    connection = database.open()
    for number in range(2):
        with kombu.Connection(url, transport=Transport) as broker:
            task.apply_async((number,), connection=broker)
    zodium.redis.Redis(port=port).incr("count")
    alike = [
        redis.Redis(port=port),
        redis.Redis(port=str(port), db="0", encoding="UTF8"),
        redis.Redis(connection_pool=redis.ConnectionPool(port=port)),
        redis.Redis.from_url(f"redis://127.0.0.1:{port}/0"),
    ]
    for client in alike:
        zodium.redis.join(client).incr("count")
    others = [{"db": 1}, {"port": port + 1}, {"host": "192.0.2.1"}, {"unix_socket_path": "/none"}]
    for other in others:
        with pytest.raises(ValueError, match="one database of one RESP server"):
            zodium.redis.join(redis.Redis(**{"port": port, **other}))
    connection.root()["number"].value = 1
    transaction.commit()
    assert keys.llen("celery") == 2 and keys.get("count") == "5"
    connection.close()


def test_the_end_of_a_with_statement_leaves_commands_to_the_commit(served, database):
    keys = served[1]
    connection = database.open()
    zodium.redis.join(keys).incr("before")
    with zodium.redis.join(keys) as commands:
        commands.incr("count")
    zodium.redis.join(keys).reset()
    with pytest.raises(TypeError, match="the abort of their transaction"):
        commands.discard()
    connection.root()["number"].value = 1
    transaction.commit()
    assert keys.mget("before", "count") == ["1", "1"]
    connection.close()


def test_clients_of_valkey_py_take_part_in_transactions(served, database):
    valkey = pytest.importorskip("valkey")
    keys = served[1]
    client = valkey.Valkey(port=keys.connection_pool.connection_kwargs["port"])
    connection = database.open()
    zodium.redis.join(client).incr("count")
    connection.root()["number"].value = 1
    transaction.commit()
    zodium.redis.join(client).incr("count").execute_command("NONE")
    connection.root()["number"].value = 2
    with pytest.raises(Exception, match="unknown command"):
        transaction.commit()
    transaction.abort()
    assert keys.get("count") == "1"
    assert zodium.redis.set_tied(client, "tied", "1", connection.root()["number"])
    connection.close()


def test_a_job_of_rq_is_enqueued_by_the_commit(served, database):
    rq = pytest.importorskip("rq")
    keys = served[1]
    port = keys.connection_pool.connection_kwargs["port"]
    queue = rq.Queue(connection=zodium.redis.Redis(port=port))
    connection = database.open()
    job = queue.enqueue("time.sleep", 0)
    connection.root()["number"].value = 1
    assert keys.llen("rq:queue:default") == 0
    transaction.commit()
    assert keys.lrange("rq:queue:default", 0, -1) == [job.id]
    assert keys.exists(f"rq:job:{job.id}")
    connection.close()


def test_no_task_of_a_killed_client_is_lost_or_without_its_transaction(
    served, seeded, scale, open_native
):
    server, keys = served
    database = ZODB.DB(open_native(server.address))
    with database.transaction() as connection:
        connection.root()["numbers"] = numbers = PersistentMapping()
        for name in NAMES:
            numbers[name] = PersistentMapping(value=0)
    port = keys.connection_pool.connection_kwargs["port"]

    def start(name):
        words = [sys.executable, "-m", "harness.enqueuer", str(server.port), str(port), name]
        words.append(str(seeded.randrange(1 << 30)))
        paths = {**os.environ, "PYTHONPATH": str(package.build())}
        return subprocess.Popen(words, cwd=TESTS, stdout=subprocess.PIPE, text=True, env=paths)

    kills = int(os.environ.get("ZODIUM_TEST_QUEUE_KILLS", KILLS * scale))
    running = {name: start(name) for name in NAMES}
    try:
        for process in running.values():
            assert process.stdout.readline() == "ready\n"
        for _ in range(kills):
            time.sleep(seeded.random() / 10)
            name = seeded.choice(NAMES)
            process = running[name]
            process.kill()
            process.communicate()
            running[name] = start(name)
            assert running[name].stdout.readline() == "ready\n"
        wait_for(lambda: have_counted(keys), "a transaction of each client")
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    wait_until_gone(server, clients=1)
    # Commits take effect in their order, so all of them have when this one has.
    with database.transaction() as connection:
        connection.root()["is_over"] = True
    with database.transaction() as connection:
        values = {name: each["value"] for name, each in connection.root()["numbers"].items()}
    tasks = {name: [] for name in NAMES}
    for task in keys.lrange("tasks", 0, -1):
        name, number = task.split()
        tasks[name].append(number)
    print(values)
    assert min(values.values()) > 0
    for name, value in values.items():
        assert tasks[name] == [str(number) for number in range(1, value + 1)]
        assert int(keys.hget("counts", name)) == value
    database.close()


def have_counted(keys):
    """Whether each client has committed, before this kill or the ones before."""
    return all(keys.hexists("counts", name) for name in NAMES)


def test_keys_agree_with_the_storage_after_a_kill_of_the_server(
    start_server, tmp_path, seeded, open_native
):
    """With a file of keys: what is in Data.fs took effect in the keyspace, and nothing else."""
    kills = int(os.environ.get("ZODIUM_TEST_QUEUE_KILLS", SERVER_KILLS))
    options = ["--resp-file", str(tmp_path / "keys.log")]

    def start():
        port = free_port()
        return start_server(tmp_path / "Data.fs", "--resp", f"{HOST}:{port}", *options), port

    server, port = start()
    database = ZODB.DB(open_native(server.address))
    with database.transaction() as connection:
        connection.root()["numbers"] = numbers = PersistentMapping()
        for name in NAMES:
            numbers[name] = PersistentMapping(value=0)
    database.close()
    paths = {**os.environ, "PYTHONPATH": str(package.build())}
    for _ in range(kills):
        running = []
        for name in NAMES:
            words = [sys.executable, "-m", "harness.enqueuer", str(server.port), str(port), name]
            words.append(str(seeded.randrange(1 << 30)))
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            running.append(subprocess.Popen(words, cwd=TESTS, env=paths, **pipes))
        try:
            for process in running:
                assert process.stdout.readline() == "ready\n"
            with redis.Redis(port=port) as keys:
                before = keys.llen("tasks")
                wait_for(lambda keys=keys: have_counted(keys), "a transaction of each client")
                wait_for(
                    lambda keys=keys, most=before + 5: keys.llen("tasks") >= most, "5 tasks more"
                )
            time.sleep(seeded.random() / 20)
            server.process.kill()
            server.process.wait()
        finally:
            for process in running:
                process.kill()
                process.communicate()
        server, port = start()
        database = ZODB.DB(open_native(server.address))
        with database.transaction() as connection:
            values = {name: each["value"] for name, each in connection.root()["numbers"].items()}
        database.close()
        with redis.Redis(port=port, decode_responses=True) as keys:
            tasks = {name: [] for name in NAMES}
            for task in keys.lrange("tasks", 0, -1):
                name, number = task.split()
                tasks[name].append(number)
            for name, value in values.items():
                assert tasks[name] == [str(number) for number in range(1, value + 1)]
                assert int(keys.hget("counts", name) or 0) == value
    assert min(values.values()) > 0


def test_tied_keys_come_back_unless_their_objects_have_changed(start_server, tmp_path, open_native):
    options = ["--resp-file", str(tmp_path / "keys.log"), "--resp-sync", "always"]
    port = free_port()
    server = start_server(tmp_path / "Data.fs", "--resp", f"{HOST}:{port}", *options)
    database = ZODB.DB(open_native(server.address))
    with database.transaction() as connection:
        connection.root()["number"] = Number()
        connection.root()["other"] = Number()
    with database.transaction() as connection:
        oids = [connection.root()[name]._p_oid.hex() for name in ("number", "other")]
    with redis.Redis(port=port) as keys:
        for name, oid in zip(["number", "other"], oids):
            keys.execute_command("SET", name, "cached", "TIE", oid)
        keys.execute_command("COPY", "number", "copied")
        keys.save()
        keys.execute_command("ZTIE", "other", oids[1])
    server.process.kill()
    server.process.wait()
    database.close()
    # One of the objects changes while no RESP server is beside the storage.
    alone = start_server(tmp_path / "Data.fs")
    database = ZODB.DB(open_native(alone.address))
    with database.transaction() as connection:
        connection.root()["number"].value = 1
    database.close()
    alone.stop()
    server = start_server(tmp_path / "Data.fs", "--resp", f"{HOST}:{port}", *options)
    database = ZODB.DB(open_native(server.address))
    with redis.Redis(port=port) as keys:
        assert keys.mget("number", "copied", "other") == [None, None, b"cached"]
        # It is tied still.
        with database.transaction() as connection:
            connection.root()["other"].value = 1
        assert keys.get("other") is None
    database.close()


def wait_until_gone(server, clients):
    """Until only so many clients are left, and all that others sent was taken."""
    from harness.wire import Wire

    with Wire(server.address) as wire:
        wire.register()

        def are_gone():
            status = wire.call("server_status")
            return status["connections"] == clients + 1 and not status["active_txns"]

        wait_for(are_gone, lambda: f"only {clients} clients: {wire.call('server_status')}")
