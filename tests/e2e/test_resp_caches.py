"""Caches and sessions of applications that commits empty: set_tied, dogpile.cache, Pyramid."""

import threading
import time
import urllib.parse

import pytest
import redis
import transaction
import ZODB
from harness import package
from harness.process import HOST, free_port
from harness.resp import RespServer
from persistent.mapping import PersistentMapping
from ZODB.DemoStorage import DemoStorage

package.use()

import zodium.redis  # noqa: E402
from zodium.redis._cache import (  # noqa: E402
    COMPUTATIONS_MAX,
    Running,
    TiedCache,
    depends_on,
)

pytestmark = pytest.mark.zodium


@pytest.fixture(autouse=True)
def nothing_is_told(monkeypatch):
    """Have each test begin as in a new thread."""
    monkeypatch.setattr(zodium.redis._cache, "RUNNING", Running())


@pytest.fixture
def port(start_server, tmp_path):
    port = free_port()
    start_server(tmp_path / "Data.fs", "--resp", f"{HOST}:{port}")
    return port


@pytest.fixture
def keys(port):
    with redis.Redis(port=port) as keys:
        yield keys


@pytest.fixture
def database(port, start_server, open_native):
    database = ZODB.DB(open_native(start_server.servers[0].address))
    with database.transaction() as connection:
        for name in "abc":
            connection.root()[name] = PersistentMapping()
    yield database
    database.close()


def change(database, name):
    with database.transaction() as connection:
        connection.root()[name]["value"] = connection.root()[name].get("value", 0) + 1


def test_a_value_is_set_at_the_view_of_its_objects(database, keys):
    connection = database.open()
    root = connection.root()
    assert zodium.redis.set_tied(keys, "key", "1", root["a"], root["b"], ex=100)
    assert keys.get("key") == b"1" and keys.ttl("key") > 90
    change(database, "b")
    assert keys.get("key") is None
    # This connection does not know of it yet.
    assert not zodium.redis.set_tied(keys, "key", "2", root["b"])
    assert zodium.redis.set_tied(keys, "key", "3", root["a"])
    transaction.begin()
    assert zodium.redis.set_tied(keys, "key", "4", root["b"])
    # What only this transaction sees is not for others.
    root["a"]["value"] = 1
    assert not zodium.redis.set_tied(keys, "key", "5", root["a"])
    assert not zodium.redis.set_tied(keys, "key", "6", root["b"], PersistentMapping())
    transaction.abort()
    assert keys.get("key") == b"4"
    connection.close()


def test_a_view_is_known_after_a_savepoint_and_of_the_past(database, keys):
    connection = database.open()
    root = connection.root()
    seen = zodium.redis.view(connection)
    root["a"]["value"] = 1
    transaction.savepoint()
    assert zodium.redis.view(connection) == seen
    assert not zodium.redis.set_tied(keys, "key", "1", root["b"])
    transaction.commit()
    past = database.open(transaction.TransactionManager(), at=seen)
    assert zodium.redis.view(past) == seen
    assert zodium.redis.set_tied(keys, "key", "2", past.root()["b"])
    assert not zodium.redis.set_tied(keys, "other", "3", past.root()["a"])
    past.close()
    connection.close()


def test_no_value_is_tied_to_objects_of_a_demo_storage(database, keys, start_server, open_native):
    """The server never hears of its commits."""
    for wrapped in (lambda storage: storage, Around):
        storage = wrapped(DemoStorage(base=open_native(start_server.servers[0].address)))
        with ZODB.DB(storage).transaction() as connection:
            assert not zodium.redis.set_tied(keys, "key", "1", connection.root()["a"])
    with database.transaction() as connection:
        assert zodium.redis.set_tied(keys, "key", "1", connection.root()["a"])


class Around:
    """A wrapper of a storage."""

    def __init__(self, base):
        self.base = base

    def __getattr__(self, name):
        return getattr(self.base, name)


def test_a_value_depends_on_what_it_was_computed_from(database, keys):
    cache = TiedCache(keys, "cache:", expire=100)
    computed = []

    def compute(key, names, inner=()):
        found = cache.get(key)
        if found is not None:
            return found
        with database.transaction() as connection:
            for each in inner:
                compute(each, each)
            root = connection.root()
            depends_on(*(root[name] for name in names))
            computed.append(key)
            cache.set(key, b"value of " + key.encode())
        return None

    compute("c", "c")
    for names in ("a", "b"):
        compute(names, names)
    compute("outer", "a", inner="bc")
    assert computed == ["c", "a", "b", "outer"]
    assert compute("outer", "a") == b"value of outer"
    change(database, "c")
    assert not keys.exists("cache:outer", "cache:c") and keys.exists("cache:a", "cache:b") == 2
    compute("outer", "a", inner="bc")
    change(database, "a")
    assert not keys.exists("cache:outer") and keys.exists("cache:b", "cache:c") == 2
    # Values of one call depend on the objects of all.
    connection = database.open()
    assert cache.get_many(["x", "y"]) == [None, None]
    depends_on(connection.root()["b"])
    cache.set("x", b"1")
    cache.set("y", b"2")
    assert cache.get_many(["x", "y"]) == [b"1", b"2"]
    change(database, "b")
    assert cache.get_many(["x", "y"]) == [None, None]
    # A computation that has seen two transactions gives no value to keep.
    depends_on(connection.root()["a"])
    transaction.begin()
    depends_on(connection.root()["c"])
    cache.set("y", b"3")
    assert cache.get("y") is None
    connection.close()
    assert keys.set("plain", "") and cache.get("plain") is None
    assert cache.set("plain", b"no objects")
    assert cache.get("plain") == b"no objects" and keys.ttl("cache:plain") > 90


def test_a_value_of_changes_after_its_objects_were_told_is_not_kept(database, keys):
    cache = TiedCache(keys, "cache:")
    connection = database.open()
    each = connection.root()["a"]
    assert cache.get("key") is None
    depends_on(each)
    each["value"] = 1
    assert not cache.set("key", b"1")
    transaction.abort()
    assert cache.get("key") is None
    # Nor after a savepoint, when no object is registered as changed.
    depends_on(each)
    each["value"] = 2
    transaction.savepoint()
    assert not cache.set("key", b"2")
    transaction.abort()
    assert not keys.exists("cache:key")
    connection.close()


def test_a_value_is_not_newer_than_the_cached_ones_that_it_was_computed_from(database, keys):
    cache = TiedCache(keys, "cache:")

    def compute_inner():
        assert cache.get("inner") is None
        with database.transaction() as connection:
            depends_on(connection.root()["c"])
            assert cache.set("inner", b"inner")

    def compute_outer(changes):
        """The inner value is used before there is a view, and a commit comes in between."""
        assert cache.get("outer") is None
        assert cache.get("inner") == b"inner"
        change(database, changes)
        with database.transaction() as connection:
            depends_on(connection.root()["a"])
            return cache.set("outer", b"of inner")

    compute_inner()
    assert compute_outer(changes="b")
    change(database, "c")
    assert not keys.exists("cache:outer")
    compute_inner()
    assert not compute_outer(changes="c")
    assert not keys.exists("cache:outer")


def test_what_is_told_belongs_to_the_values_that_are_computed(database, keys):
    cache = TiedCache(keys, "cache:")
    connection = database.open()
    a, b = connection.root()["a"], connection.root()["b"]
    # Many values are found in between.
    others = [f"other {number}" for number in range(2 * COMPUTATIONS_MAX)]
    for name in others:
        assert cache.set(name, b"")
    assert cache.get("outer") is None
    depends_on(a)
    assert [cache.get(name) for name in others] == [b""] * len(others)
    depends_on(b)
    assert cache.set("outer", b"1")
    # The first computation of this one is ended by an exception.
    assert cache.get("key") is None
    depends_on(a)
    assert cache.get("key") is None
    depends_on(b)
    assert cache.set("key", b"1")
    change(database, "a")
    assert not keys.exists("cache:outer") and keys.exists("cache:key")
    change(database, "b")
    assert not keys.exists("cache:key")
    # Values without a get, before and after something is told. What the computation that was ended
    # was told may concern the first.
    transaction.begin()
    assert not cache.set("alone", b"0")
    assert cache.set("alone", b"1")
    depends_on(a)
    assert not cache.set("alone", b"2") and not keys.exists("cache:alone")
    assert cache.set("alone", b"3") and keys.exists("cache:alone")
    # One that was found is not kept if it has seen two transactions, and its older value goes.
    assert cache.get("alone") == b"3"
    depends_on(a)
    change(database, "c")
    transaction.begin()
    depends_on(b)
    assert not cache.set("alone", b"4") and not keys.exists("cache:alone")
    connection.close()


@pytest.mark.parametrize("is_found", [False, True])
@pytest.mark.parametrize("is_after_another", [False, True])
def test_a_value_without_a_get_that_uses_a_cached_one_is_not_kept(
    database, keys, is_found, is_after_another
):
    cache = TiedCache(keys, "cache:")

    def compute(key):
        if cache.get(key) is None:
            with database.transaction() as connection:
                depends_on(connection.root()["a"])
                assert cache.set(key, b"1")

    def renew():
        if is_after_another:
            assert cache.get("another") == b""
        compute("inner")
        is_kept.append(cache.set("outer", b"of inner"))
        # Nothing was told since.
        is_kept.append(cache.set("outer", b"of nothing"))

    is_kept = []
    assert keys.set("cache:another", "\n")
    if is_found:
        compute("inner")
    threaded(renew)
    assert is_kept == [False, True]


def test_a_value_that_uses_one_of_another_storage_is_not_kept(database, keys):
    inner = TiedCache(keys, "inner:", storage="1")
    outer, same = TiedCache(keys, "outer:"), TiedCache(keys, "same:", storage="1")
    connection = database.open()
    assert inner.get("key") is None
    depends_on(connection.root()["a"])
    assert inner.set("key", b"inner")
    for cache, is_kept in (same, True), (outer, False):
        assert cache.get("key") is None
        assert inner.get("key") == b"inner"
        depends_on(connection.root()["b"])
        assert cache.set("key", b"of inner") == is_kept
    change(database, "a")
    assert not keys.exists("same:key")
    connection.close()


def test_a_server_without_storages_caches_what_depends_on_no_object():
    with RespServer() as server, redis.Redis(port=server.port) as keys:
        cache = TiedCache(keys, "cache:")
        assert cache.set("inner", b"inner")
        assert cache.get("outer") is None
        assert cache.get("inner") == b"inner"
        assert cache.set("outer", b"of inner")
        assert cache.get("outer") == b"of inner"


def dogpile_value(database, port, computed, runner=None, **options):
    """A region, and a function of it that reads an object and notes its name in `computed`."""
    dogpile_cache = pytest.importorskip("dogpile.cache")
    from zodium.redis.dogpile import depends_on

    region = dogpile_cache.make_region(async_creation_runner=runner).configure(
        "zodium.redis", arguments={"url": f"redis://{HOST}:{port}/0", "prefix": "d:"}, **options
    )

    @region.cache_on_arguments()
    def value(name):
        computed.append(name)
        with database.transaction() as connection:
            each = connection.root()[name]
            depends_on(each)
            return each.get("value", 0)

    return region, value


def test_dogpile_computes_again_after_a_change(database, keys, port):
    computed = []
    region, value = dogpile_value(database, port, computed)

    @region.cache_multi_on_arguments()
    def values(*names):
        computed.extend(names)
        with database.transaction() as connection:
            depends_on(*(connection.root()[name] for name in names))
            return [connection.root()[name].get("value", 0) for name in names]

    assert [value("a"), value("a"), value("b")] == [0, 0, 0] and computed == ["a", "b"]
    change(database, "a")
    assert [value("a"), value("b")] == [1, 0] and computed == ["a", "b", "a"]
    value.invalidate("b")
    assert value("b") == 0 and computed[3:] == ["b"]
    assert values("a", "c") == values("a", "c") == [1, 0] and computed[4:] == ["a", "c"]
    change(database, "c")
    assert values("a", "c") == [1, 1] and computed[6:] == ["a", "c"]
    # Without a get in their thread.
    threaded(lambda: values.refresh("a", "c"))
    for name in "ac":
        change(database, name)
    assert values("a", "c") == [2, 2]


def test_a_value_that_dogpile_computes_again_is_tied_too(database, port):
    computed = []
    region, value = dogpile_value(database, port, computed, expiration_time=100)

    @region.cache_on_arguments()
    def double(name):
        return 2 * value(name) + value("b") + len(each_of("c"))

    def each_of(name):
        with database.transaction() as connection:
            depends_on(connection.root()[name])
            return connection.root()[name]

    def is_right(name):
        with database.transaction() as connection:
            return value(name) == connection.root()[name].get("value", 0)

    renewals = [
        region.invalidate,
        lambda: region.invalidate(hard=False),
        lambda: value.refresh("a"),
        lambda: value.invalidate("a"),
        lambda: threaded(lambda: value.refresh("a")),
    ]
    for renew in renewals:
        assert is_right("a")
        renew()
        time.sleep(0.001)
        value("a")
        computed.clear()
        assert is_right("a") and not computed, "it is kept after a renewal"
        change(database, "a")
        assert is_right("a") and computed == ["a"]
    # Before any get, and what was computed in between is another value.
    value.refresh("b")
    change(database, "b")
    assert is_right("b")
    # A value that was found, and others that it uses when it is computed again.
    for name in ("a", "b", "c"):
        before = double("a")
        region.invalidate()
        time.sleep(0.001)
        assert double("a") == before
        change(database, name)
        assert double("a") == before + {"a": 2, "b": 1, "c": 1}[name]


def test_what_dogpile_renews_from_another_value_is_computed_after_its_change(database, port):
    def runner(cache, key, creator, mutex):
        threaded(lambda: cache.set(key, creator()))
        mutex.release()

    region, value = dogpile_value(database, port, [], runner, expiration_time=100)

    @region.cache_on_arguments()
    def double(name):
        return 2 * value(name)

    def renew_as_too_old():
        double("a")
        region.invalidate(hard=False)
        time.sleep(0.001)
        value("a")
        double("a")

    renewals = [
        lambda: double.refresh("a"),
        lambda: threaded(lambda: double.refresh("a")),
        renew_as_too_old,
    ]
    for number, renew in enumerate(renewals):
        for is_found in (False, True):
            value.invalidate("a")
            if is_found:
                value("a")
            renew()
            change(database, "a")
            assert double("a") == 2 * value("a") == 2 * (2 * number + is_found + 1)


def threaded(run):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_plone_memoize_gets_a_mapping(database, keys):
    from zodium.redis.memoize import CacheChooser, depends_on

    cache = CacheChooser(keys)("module.function")
    missing = object()
    connection = database.open()
    assert cache.get("key", missing) is missing
    depends_on(connection.root()["a"])
    cache["key"] = {"any": ["value"]}
    assert cache["key"] == {"any": ["value"]}
    change(database, "a")
    with pytest.raises(KeyError):
        cache["key"]
    connection.close()


def application(database, keys):
    """Two views over a session: one that changes it and one that fails."""
    from pyramid.config import Configurator
    from zodium.redis.session import session_factory

    def view(request):
        connection = database.open(request.tm)
        request.add_finished_callback(lambda _: connection.close())
        session, root = request.session, connection.root()
        if "value" in request.params:
            session["value"] = request.params["value"]
        if "merge" in request.params:
            session |= {"value": request.params["merge"]}
        if "new" in request.params:
            new = root[request.params["new"]] = PersistentMapping()
            if "add" in request.params:
                connection.add(new)
        if "change" in request.params:
            root[request.params["change"]]["other"] = request.params["value"]
        if "save" in request.params:
            request.tm.savepoint()
        if "tie" in request.params:
            session.tie(root[request.params["tie"]])
        if "flash" in request.params:
            session.flash("hello")
        if "end" in request.params:
            session.invalidate()
        if "others" in request.params:
            for _ in range(150):
                change(database, request.params["others"])
        if "fail" in request.params:
            raise ValueError
        return {"value": session.get("value"), "new": session.new, "flash": session.pop_flash()}

    with Configurator(settings={"tm.manager_hook": "pyramid_tm.explicit_manager"}) as config:
        config.include("pyramid_tm")
        config.set_session_factory(session_factory(keys, secret="s" * 32, timeout=100))
        config.add_route("view", "/")
        config.add_view(view, route_name="view", renderer="json")
        return config.make_wsgi_app()


class Browser:
    def __init__(self, application):
        self.application = application
        self.cookies = ""

    def get(self, **params):
        from pyramid.request import Request

        request = Request.blank("/?" + urllib.parse.urlencode(params))
        request.headers["Cookie"] = self.cookies
        response = request.get_response(self.application)
        for cookie in response.headers.getall("Set-Cookie"):
            self.cookies = cookie.split(";")[0]
        return response.json


def test_a_session_is_written_with_the_transaction_of_its_request(database, keys):
    served = application(database, keys)
    one, other = Browser(served), Browser(served)
    assert one.get() == {"value": None, "new": True, "flash": []}
    assert one.cookies == "" and not keys.keys("session:*"), "what nobody has changed is not kept"
    assert one.get(value="1")["value"] == "1"
    assert one.get() == {"value": "1", "new": False, "flash": []}
    assert one.get(merge="0")["value"] == one.get()["value"] == "0"
    assert one.get(value="1")["value"] == "1"
    assert other.get()["value"] is None
    with pytest.raises(ValueError):
        one.get(value="2", fail="")
    assert one.get()["value"] == "1"
    (key,) = keys.keys("session:*")
    keys.expire(key, 10)
    one.get()
    assert keys.ttl(key) > 90
    assert one.get(end="", value="3") == {"value": None, "new": True, "flash": []}
    assert not keys.exists(key)
    # A forged cookie begins another session.
    one.cookies = "session=" + key.decode().removeprefix("session:")
    assert one.get()["new"]


def test_a_session_ends_with_the_change_of_an_object(database, keys):
    browser = Browser(application(database, keys))
    browser.get(value="1", tie="a")
    browser.get(value="2")
    change(database, "b")
    assert browser.get()["value"] == "2"
    change(database, "a")
    assert browser.get() == {"value": None, "new": True, "flash": []}
    # A login that changes the object itself goes on, until the next change.
    browser.get(value="3", tie="a", change="a")
    assert browser.get()["value"] == "3"
    browser.get(value="4")
    change(database, "a")
    assert browser.get()["value"] is None


def test_a_session_is_written_after_many_commits_of_others(database, keys, warnings):
    """During its request, more than the server remembers."""
    browser = Browser(application(database, keys))
    browser.get(value="1", tie="a")
    browser.get(value="2", others="b")
    assert browser.get()["value"] == "2"
    login = Browser(application(database, keys))
    login.get(value="3", tie="a", others="b")
    assert login.get()["value"] == "3" and not warnings
    # One of them changes the object.
    browser.get(value="4", others="a")
    assert browser.get()["new"]
    (warning,) = warnings
    assert "a session was not written" in warning


@pytest.mark.parametrize(
    "params",
    [
        {"change": "a", "tie": "a"},
        {"change": "a", "tie": "a", "save": ""},
        {"change": "b", "tie": "a", "save": ""},
        {"new": "d", "tie": "d", "add": ""},
        {"new": "d", "tie": "d", "save": ""},
    ],
)
@pytest.mark.parametrize("is_tied_before", [False, True])
def test_a_session_is_tied_to_objects_of_its_own_transaction(
    database, keys, params, is_tied_before
):
    browser = Browser(application(database, keys))
    browser.get(value="1", **({"tie": "a"} if is_tied_before else {}))
    browser.get(value="2", **params)
    assert browser.get() == {"value": "2", "new": False, "flash": []}
    change(database, "c")
    assert browser.get(value="3")["value"] == browser.get()["value"] == "3"
    change(database, params["tie"])
    assert browser.get() == {"value": None, "new": True, "flash": []}


def test_a_session_is_not_tied_to_an_object_without_a_connection(database, keys):
    browser = Browser(application(database, keys))
    with pytest.raises(ValueError, match="stored already"):
        browser.get(value="1", new="d", tie="d")
