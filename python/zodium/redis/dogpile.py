"""A backend of dogpile.cache whose values go when the objects that they depend on change.

    import zodium.redis.dogpile

    region = dogpile.cache.make_region().configure(
        "zodium.redis", arguments={"url": "redis://127.0.0.1:6379/0"}
    )

    @region.cache_on_arguments()
    def titles(path):
        folder = root[path]
        zodium.redis.dogpile.depends_on(folder, *folder.values())
        return [each.title for each in folder.values()]

The arguments are those of TiedCache, and `url` in place of `client`.
"""

import redis

from ._cache import TiedCache, depends_on

try:
    from dogpile.cache import register_backend
    from dogpile.cache.api import NO_VALUE, BytesBackend
except ImportError:  # pragma: no cover
    NO_VALUE, BytesBackend, register_backend = None, object, None


__all__ = ["Backend", "depends_on"]


class Backend(BytesBackend):
    def __init__(self, arguments):
        arguments = dict(arguments)
        url = arguments.pop("url", None)
        client = arguments.pop("client", None) or redis.Redis.from_url(url)
        self.cache = TiedCache(client, **arguments)

    def get_serialized(self, key):
        value = self.cache.get(key)
        return NO_VALUE if value is None else value

    def get_serialized_multi(self, keys):
        return [NO_VALUE if value is None else value for value in self.cache.get_many(list(keys))]

    def set_serialized(self, key, value):
        self.cache.set(key, value)

    def set_serialized_multi(self, mapping):
        self.cache.set_many(mapping)

    def delete(self, key):
        self.cache.delete(key)

    def delete_multi(self, keys):
        self.cache.delete(*keys)


if register_backend:
    register_backend("zodium.redis", "zodium.redis.dogpile", "Backend")
