"""A transport of kombu whose messages are sent if the current transaction commits, for Celery.

    with kombu.Connection("redis://127.0.0.1:6379/0", transport=Transport) as connection:
        task.apply_async(args, connection=connection)

Celery's workers connect with kombu's own transport.
"""

import functools

try:
    from kombu.transport import redis as stock
except ImportError:  # pragma: no cover
    stock = None

from ._join import Redis, WaitingPipeline, name_of

# What sends a message. Declarations of queues are not part of a transaction.
SENDING = frozenset(["LPUSH", "RPUSH", "PUBLISH"])


class SendingRedis(Redis):
    """A client whose messages wait for the transaction."""

    def waits(self, args):
        return name_of(args) in SENDING


class PrefixedPipeline(*([stock.GlobalKeyPrefixMixin] if stock else []), WaitingPipeline):
    """A pipeline of SendingRedis with the transport option global_keyprefix."""


class PrefixedRedis(*([stock.PrefixedStrictRedis] if stock else []), SendingRedis):
    """As SendingRedis, with the transport option global_keyprefix."""

    def __init__(self, *args, global_keyprefix, **options):
        SendingRedis.__init__(self, *args, **options)
        self.global_keyprefix = global_keyprefix

    def pipeline(self, transaction=True, shard_hint=None):
        pipeline = PrefixedPipeline(self, transaction)
        pipeline.global_keyprefix = self.global_keyprefix
        return pipeline


class Channel(stock.Channel if stock else object):
    def _get_client(self):
        if self.global_keyprefix:
            return functools.partial(PrefixedRedis, global_keyprefix=self.global_keyprefix)
        return SendingRedis


class Transport(stock.Transport if stock else object):
    Channel = Channel
