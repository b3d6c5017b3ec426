"""A cache for plone.memoize whose values go when the objects that they depend on change.

    chooser = zodium.redis.memoize.CacheChooser(redis.Redis(port=6379))
    zope.component.provideUtility(chooser, plone.memoize.interfaces.ICacheChooser)

A function that is cached with plone.memoize.ram then calls `depends_on` with the objects that its
result depends on. Values are pickled, and must come from clients that are trusted.
"""

import hashlib
import pickle

from ._cache import TiedCache, depends_on

__all__ = ["CacheChooser", "Cache", "depends_on"]


class CacheChooser:
    """Gives each function a cache. The options are those of TiedCache."""

    def __init__(self, client, prefix="memoize:", **options):
        self.client = client
        self.prefix = prefix
        self.options = options

    def __call__(self, function_name):
        return Cache(TiedCache(self.client, f"{self.prefix}{function_name}:", **self.options))


class Cache:
    """A mapping, as plone.memoize uses it."""

    def __init__(self, cache):
        self.cache = cache

    def __getitem__(self, key):
        value = self.cache.get(hashed(key))
        if value is None:
            raise KeyError(key)
        return pickle.loads(value)

    def get(self, key, default=None):
        try:
            return self[key]
        except KeyError:
            return default

    def __setitem__(self, key, value):
        self.cache.set(hashed(key), pickle.dumps(value))


def hashed(key):
    """Return a short key of its own for each text."""
    return hashlib.sha256(str(key).encode()).hexdigest()
