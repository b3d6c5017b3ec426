"""Libraries that programs use Redis through, each by its smallest real use.

They are in tests/requirements-resp.txt.  What is not installed is skipped, with a warning.
"""

import asyncio
import importlib
import subprocess
import sys
import threading
import warnings

import pytest
import redis

from tests.harness.resp import RespServer
from tests.harness.waiting import wait_for


def imported(name):
    """A module; without it the test is skipped, and a warning says so."""
    try:
        return importlib.import_module(name)
    except ImportError:
        warnings.warn(f"{name} is not installed: it is NOT tried", stacklevel=2)
        pytest.skip(f"{name} is not installed (tests/requirements-resp.txt)")


@pytest.fixture(scope="module")
def server():
    with RespServer(workers=2) as server:
        yield server


@pytest.fixture
def url(server):
    redis.Redis(port=server.port).flushall()
    return f"redis://127.0.0.1:{server.port}/0"


@pytest.mark.parametrize("version", [2, 3])
def test_redis_py_locks(url, version):
    client = redis.Redis.from_url(url, protocol=version)
    with client.lock("lock", timeout=10) as lock:
        assert not client.lock("lock").acquire(blocking=False)
        assert lock.extend(10)
        lock.reacquire()
    assert not client.exists("lock")
    lock = client.lock("lock", timeout=10)
    assert lock.acquire()
    client.set("lock", "of another one")
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.release()


def test_redis_py_scripts(url):
    client = redis.Redis.from_url(url, decode_responses=True)
    take = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert [take(keys=["n"], args=[5]), take(keys=["n"], args=[2])] == [5, 7]
    client.script_flush()
    with client.pipeline() as pipe:
        take(keys=["n"], args=[1], client=pipe)
        assert pipe.execute() == [8]
    assert client.script_exists(take.sha) == [True]


def test_valkey_py_locks(url):
    valkey = imported("valkey")
    client = valkey.Valkey.from_url(url)
    with client.lock("lock", timeout=10):
        assert not client.lock("lock").acquire(blocking=False)
    assert not client.exists("lock")


DJANGO = """
import sys, django
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": sys.argv[2], "LOCATION": sys.argv[1]}})
django.setup()
from django.core.cache import cache
cache.set("a", {"b": 1}, 30)
assert cache.get("a") == {"b": 1}
assert cache.add("a", 2) is False and cache.get_or_set("c", 5) == 5
cache.set_many({"x": 1, "y": 2})
assert cache.get_many(["x", "y", "z"]) == {"x": 1, "y": 2}
assert cache.incr("x", 4) == 5
assert cache.touch("y", 10)
cache.delete_many(["x", "y"])
assert cache.get("x") is None
if "django_redis" in sys.argv[2]:
    with cache.lock("lock", timeout=5):
        pass
    cache.set("p:1", 1)
    cache.set("p:2", 1)
    assert cache.delete_pattern("p:*") == 2
    assert cache.ttl("a") > 20
cache.clear()
assert cache.get("a") is None
"""


@pytest.mark.parametrize(
    ("module", "backend"),
    [
        ("django", "django.core.cache.backends.redis.RedisCache"),
        ("django_redis", "django_redis.cache.RedisCache"),
    ],
)
def test_caches_of_django(url, module, backend):
    imported(module)
    subprocess.run([sys.executable, "-c", DJANGO, url, backend], check=True, timeout=120)


def test_dogpile_cache(url):
    dogpile = imported("dogpile.cache")
    region = dogpile.make_region().configure(
        "dogpile.cache.redis",
        expiration_time=60,
        arguments={"url": url, "distributed_lock": True, "thread_local_lock": False},
    )
    made = []

    @region.cache_on_arguments()
    def double(number):
        made.append(number)
        return 2 * number

    assert [double(3), double(3), double(4)] == [6, 6, 8] and made == [3, 4]
    double.invalidate(3)
    assert double(3) == 6 and made == [3, 4, 3]


def test_kombu_queues(url):
    kombu = imported("kombu")
    with kombu.Connection(url) as connection:
        queue = connection.SimpleQueue("tasks")
        for number in range(3):
            queue.put({"number": number})
        for number in range(3):
            message = queue.get(timeout=60)
            assert message.payload == {"number": number}
            message.ack()
        queue.close()


CELERY = """
import sys
from celery import Celery, chord, group
app = Celery("tasks", broker=sys.argv[1], backend=sys.argv[1])

@app.task(name="add")
def add(one, other):
    return one + other

@app.task(name="total")
def total(numbers):
    return sum(numbers)

if __name__ == "__main__":
    app.worker_main(["worker", "--pool", "solo", "--without-gossip", "--without-mingle",
                     "--without-heartbeat", "-l", "error"])
"""


def test_celery_results_groups_and_chords(url, tmp_path):
    imported("celery")
    program = tmp_path / "tasks.py"
    program.write_text(CELERY)
    worker = subprocess.Popen([sys.executable, str(program), url], cwd=tmp_path)
    try:
        space = {"sys": type("sys", (), {"argv": ["tasks", url]}), "__name__": "tasks"}
        exec(CELERY.replace("import sys", ""), space)
        add, total = space["add"], space["total"]
        assert add.delay(2, 3).get(timeout=120) == 5
        assert space["group"](add.s(n, n) for n in range(3))().get(timeout=120) == [0, 2, 4]
        assert space["chord"]((add.s(n, n) for n in range(4)), total.s())().get(timeout=120) == 12
    finally:
        worker.terminate()
        worker.wait(20)


def work(text):
    """A task."""
    return text.upper()


def test_rq_jobs(url):
    rq = imported("rq")
    connection = redis.Redis.from_url(url)
    queue = rq.Queue(connection=connection)
    job = queue.enqueue("tests.e2e.test_resp_libraries.work", "text")
    worker = rq.SimpleWorker([queue], connection=connection)
    worker.work(burst=True, logging_level="ERROR")
    assert job.return_value(refresh=True) == "TEXT"
    assert job.latest_result().return_value == "TEXT"


def test_huey_tasks(url):
    huey = imported("huey")
    app = huey.RedisHuey("app", url=url, results=True)

    @app.task()
    def add(one, other):
        return one + other

    result = add(2, 3)
    app.execute(app.dequeue())
    assert result.get(blocking=True, timeout=60) == 5
    later = add.schedule((1, 1), delay=60)
    assert app.scheduled_count() == 0
    app.execute(app.dequeue())
    assert app.scheduled_count() == 1 and later.get() is None
    with app.lock_task("lock"):
        assert app.is_locked("lock")


def test_dramatiq_actors(url):
    dramatiq = imported("dramatiq")
    broker = importlib.import_module("dramatiq.brokers.redis").RedisBroker(url=url)
    dramatiq.set_broker(broker)
    done = []

    @dramatiq.actor(broker=broker)
    def act(number):
        done.append(number)

    worker = dramatiq.Worker(broker, worker_threads=2, worker_timeout=100)
    worker.start()
    try:
        for number in range(5):
            act.send(number)
        broker.join("default", timeout=60_000)
        wait_for(lambda: len(done) >= 5, lambda: f"5 tasks are done, not {done}")
    finally:
        worker.stop()
    assert sorted(done) == list(range(5))


def test_channels_layers(url):
    core = imported("channels_redis.core")

    async def talk():
        layer = core.RedisChannelLayer(hosts=[url])
        name = await layer.new_channel()
        await layer.send(name, {"type": "one"})
        await layer.group_add("group", name)
        await layer.group_send("group", {"type": "two"})
        got = [await asyncio.wait_for(layer.receive(name), 60) for _ in range(2)]
        await layer.flush()
        await layer.close_pools()
        return [message["type"] for message in got]

    assert asyncio.run(talk()) == ["one", "two"]


def test_limits_of_rates(url):
    limits = imported("limits")
    storage = limits.storage.storage_from_string(url)
    each = limits.parse("3/minute")
    kinds = [
        limits.strategies.FixedWindowRateLimiter,
        limits.strategies.MovingWindowRateLimiter,
        limits.strategies.SlidingWindowCounterRateLimiter,
    ]
    for number, kind in enumerate(kinds):
        limiter = kind(storage)
        hits = [limiter.hit(each, f"user{number}") for _ in range(4)]
        assert hits == [True, True, True, False]
        limiter.clear(each, f"user{number}")


def test_python_redis_lock(url):
    redis_lock = imported("redis_lock")
    client = redis.Redis.from_url(url, protocol=2)
    lock = redis_lock.Lock(client, "name", expire=10, auto_renewal=False)
    assert lock.acquire(blocking=False)
    other = redis_lock.Lock(client, "name", expire=10)
    assert not other.acquire(blocking=False)
    threading.Timer(0.05, lock.release).start()
    assert other.acquire(timeout=5)
    other.extend(20)
    other.release()
    redis_lock.reset_all(client)


def test_beaker_sessions(url):
    imported("beaker")
    cache = importlib.import_module("beaker.cache")
    manager = cache.CacheManager(type="ext:redis", url=url, lock_dir=None)
    space = manager.get_cache("space", expire=60)
    assert space.get("key", createfunc=lambda: [1, 2]) == [1, 2]
    assert "key" in space and space.get("key") == [1, 2]
    space.remove_value("key")
    assert "key" not in space


def test_pyramid_session_redis(url):
    module = imported("pyramid_session_redis")
    testing = importlib.import_module("pyramid.testing")
    factory = module.RedisSessionFactory("secret", redis_url=url, timeout=60)
    request = testing.DummyRequest()
    request.registry = testing.setUp().registry
    session = factory(request)
    session["user"] = "name"
    session.do_persist()
    stored = redis.Redis.from_url(url).keys("*")
    assert len(stored) == 1
    testing.tearDown()


def test_aiohttp_sessions(url):
    storage = imported("aiohttp_session.redis_storage")
    aiohttp_session = importlib.import_module("aiohttp_session")
    web = importlib.import_module("aiohttp.web")
    test_utils = importlib.import_module("aiohttp.test_utils")

    async def handler(request):
        session = await aiohttp_session.get_session(request)
        session["count"] = session.get("count", 0) + 1
        return web.Response(text=str(session["count"]))

    async def visit():
        client = importlib.import_module("redis.asyncio").Redis.from_url(url)
        app = web.Application()
        aiohttp_session.setup(app, storage.RedisStorage(client))
        app.router.add_get("/", handler)
        async with test_utils.TestClient(test_utils.TestServer(app)) as browser:
            answers = [await (await browser.get("/")).text() for _ in range(3)]
        await client.aclose()
        return answers

    assert asyncio.run(visit()) == ["1", "2", "3"]


def test_flask_sessions(url):
    flask_session = imported("flask_session")
    flask = importlib.import_module("flask")
    app = flask.Flask(__name__)
    app.config.update(SESSION_TYPE="redis", SESSION_REDIS=redis.Redis.from_url(url))
    flask_session.Session(app)

    @app.route("/")
    def count():
        flask.session["count"] = flask.session.get("count", 0) + 1
        return str(flask.session["count"])

    browser = app.test_client()
    assert [browser.get("/").text for _ in range(3)] == ["1", "2", "3"]


def test_cachelib(url, server):
    cachelib = imported("cachelib")
    cache = cachelib.RedisCache(port=server.port, default_timeout=60)
    assert cache.set("a", {"b": 1}) and cache.get("a") == {"b": 1}
    assert cache.add("a", 1) is False and cache.inc("n", 2) == 2
    assert cache.set_many({"x": 1}) and cache.get_dict("x", "y") == {"x": 1, "y": None}
    assert cache.delete("a") and not cache.has("a")
    assert cache.clear()
