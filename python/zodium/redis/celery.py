"""A transport of kombu whose messages are sent if the current transaction commits, for Celery.

    with kombu.Connection("redis://127.0.0.1:6379/0", transport=Transport) as connection:
        task.apply_async(args, connection=connection)

Celery's workers connect with kombu's own transport.
"""

try:
    from kombu.transport import redis as stock
except ImportError:  # pragma: no cover
    stock = None

from ._join import Redis, name_of

# What sends a message. Declarations of queues are not part of a transaction.
SENDING = frozenset(["LPUSH", "RPUSH", "PUBLISH"])


class SendingRedis(Redis):
    """A client whose messages wait for the transaction."""

    def waits(self, args):
        return name_of(args) in SENDING


class Channel(stock.Channel if stock else object):
    def _get_client(self):
        return SendingRedis


class Transport(stock.Transport if stock else object):
    Channel = Channel
