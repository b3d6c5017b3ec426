"""Keys, queues and caches beside a ZODB, on a server that was started with --resp.

    commands = zodium.redis.join(client)            # take effect if the transaction commits
    commands.lpush("tasks", task)

    zodium.redis.set_tied(client, key, value, obj)  # a commit that changes obj removes the key

`client` is a redis.Redis of redis-py (or valkey-py) that is connected to that server.
"""

from ._join import Commands, Redis, join
from ._ties import Ties, set_tied, view

__all__ = ["Commands", "Redis", "Ties", "join", "set_tied", "view"]
