"""Redis commands that take effect with a ZODB transaction, or not at all.

Key decision: the commands are parked on the server under a token before the votes, and the token
is in the extension of the transaction. The vote of the storage claims them, and its finish
executes them; so they need no two-phase commit between two servers. Our vote comes after the
storage's, and only checks that the claim has happened.
"""

import codecs
import contextlib
import itertools
import logging
import secrets
import socket

import transaction as transactions
from redis import Redis as StockRedis
from redis.client import Pipeline
from ZODB.Connection import Connection
from ZODB.POSException import StorageTransactionError

logger = logging.getLogger("zodium.redis")

TOKEN_KEY = "zodium.exec"
# Commands that read, or that make no sense later, are sent at once.
NAMES = """
    ACL AUTH BGREWRITEAOF BGSAVE BITCOUNT BITFIELD_RO BITPOS CLIENT CLUSTER COMMAND CONFIG
    DBSIZE DUMP ECHO EVALSHA_RO EVAL_RO EXISTS EXPIRETIME FUNCTION GET GETBIT GETRANGE HELLO
    HEXISTS HGET HGETALL HKEYS HLEN HMGET HRANDFIELD HSCAN HSTRLEN HVALS INFO KEYS LASTSAVE
    LATENCY LCS LINDEX LLEN LPOS LRANGE MEMORY MGET MODULE MONITOR OBJECT PEXPIRETIME PING
    PSUBSCRIBE PTTL PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY READWRITE RESET ROLE SAVE SCAN
    SCARD SCRIPT SDIFF SELECT SHUTDOWN SINTER SINTERCARD SISMEMBER SLOWLOG SMEMBERS SMISMEMBER
    SORT_RO SRANDMEMBER SSCAN STRLEN SUBSCRIBE SUBSTR SUNION TIME TOUCH TTL TYPE UNSUBSCRIBE
    WAIT XINFO XLEN XPENDING XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZDIFF ZINTER ZINTERCARD
    ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE
    ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZSTATE ZTID ZUNION
"""
AT_ONCE = frozenset(NAMES.split())
# Commands that change what they answer: they take it away, move it, or give it to a consumer.
NAMES = """
    BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN GETDEL GETEX GETSET LMOVE
    LMPOP LPOP RPOP RPOPLPUSH SPOP XAUTOCLAIM XCLAIM XREADGROUP ZMPOP ZPOPMAX ZPOPMIN
"""
TAKING = frozenset(NAMES.split())
# Commands that only their answer tells to have changed anything, as a lock or a mark needs it.
CONDITIONAL = frozenset(["COPY", "HSETNX", "MOVE", "MSETNX", "RENAMENX", "SETNX", "SMOVE"])
# Options that have SET answer what it has found.
ANSWERING = frozenset(["GET", "IFEQ", "NX", "XX"])
# Options of ZADD, and those that have it answer which members it has added or changed.
ZADD_OPTIONS = frozenset(["CH", "GT", "INCR", "LT", "NX", "XX"])
ZADD_ANSWERING = frozenset(["CH", "NX"])
# No commit takes them: the server cannot know beforehand what they write.
SCRIPTS = frozenset(["EVAL", "EVALSHA"])

# The options of connections that lead to one database, with their usual values, as texts: a URL
# or a configuration file may have given them.
PLACE = {"port": "6379", "path": "", "db": "0"}
NO_WATCH = "keys cannot be watched until a transaction commits"


def join(client, transaction=None):
    """Return the commands of a transaction, by default the current one.

    They have the methods of a pipeline of redis-py, and are sent at the commit. Their results are
    not known.
    """
    if transaction is None:
        transaction = transactions.get()
    try:
        commands = transaction.data(join)
    except KeyError:
        commands = None
    # A rollback to a savepoint before the first join has ended them, and not the transaction.
    if commands is None or commands.is_over:
        commands = Commands(client)
        transaction.set_data(join, commands)
        transaction.join(DataManager(client, commands, transaction))
    pool = client.connection_pool
    if pool not in commands.pools:
        if not lead_alike(commands.connection_pool, pool):
            raise ValueError("a transaction takes commands for one database of one RESP server")
        commands.pools.append(pool)
    return commands


def lead_alike(one, other):
    """Whether two pools lead to the same database of one server, as far as can be told."""
    hosts = host_of(one), host_of(other)
    one, other = one.connection_kwargs, other.connection_kwargs
    if any(
        str(one.get(name) or usual) != str(other.get(name) or usual)
        for name, usual in PLACE.items()
    ):
        return False
    if codec_of(one) != codec_of(other):
        return False
    if one.get("path") or None not in hosts and hosts[0] == hosts[1]:
        return True
    return not addresses(hosts[0]).isdisjoint(addresses(hosts[1]))


def codec_of(options):
    return codecs.lookup(options.get("encoding") or "utf-8").name


def host_of(pool):
    """Return the host that a pool leads to; None if it asks a sentinel."""
    if hasattr(pool, "sentinel_manager"):
        return None
    return pool.connection_kwargs.get("host") or "localhost"


def addresses(host):
    """Return the addresses of a server."""
    if host is None:
        return set()
    try:
        return {host, *(each[4][0] for each in socket.getaddrinfo(host, None))}
    except OSError:
        return {host}


def connection_of(pool):
    """Take a connection from a pool."""
    with contextlib.suppress(TypeError):
        return pool.get_connection()
    # redis-py before 5.3 and valkey-py ask for a command; later ones warn of it.
    return pool.get_connection("MULTI")


def is_connected(connection):
    """Whether an error has left a connection as it was."""
    # redis-py before 5.3 and valkey-py do not tell.
    return getattr(connection, "is_connected", getattr(connection, "_sock", None) is not None)


def name_of(args):
    return word(args[0]).split()[0]


def word(arg):
    return (arg.decode(errors="replace") if isinstance(arg, bytes) else str(arg)).upper()


def needs_answer(args):
    """Whether a command is of little use without its answer."""
    name = name_of(args)
    if name == "SET":
        # Its options come after the key and the value.
        return not ANSWERING.isdisjoint(map(word, args[3:]))
    if name == "ZADD":
        # Its options come before the first score.
        options = itertools.takewhile(ZADD_OPTIONS.__contains__, map(word, args[2:]))
        return not ZADD_ANSWERING.isdisjoint(options)
    return name in TAKING or name in CONDITIONAL


class Commands(Pipeline):
    """Commands that wait for the end of their transaction."""

    def __init__(self, client):
        super().__init__(
            client.connection_pool, client.response_callbacks, transaction=True, shard_hint=None
        )
        # It begins so in redis-py before 5.3.
        super().reset()
        self.is_over = False
        # The pools that lead to the server.
        self.pools = [client.connection_pool]

    def execute_command(self, *args, **options):
        if self.is_over:
            raise ValueError("the transaction of these commands is over: call join again")
        self.command_stack.append((args, options))
        return self

    def execute(self, raise_on_error=True):
        raise TypeError("these commands are executed by the commit of their transaction")

    def watch(self, *names):
        raise TypeError(NO_WATCH)

    def discard(self):
        raise TypeError("these commands are given up by the abort of their transaction")

    def reset(self):
        """Do nothing: the end of a with statement is not that of the transaction."""

    def __bool__(self):
        return True


class Redis(StockRedis):
    """A client whose commands that write wait for the current transaction, for RQ and the like.

    Their results are None. Commands that read are answered at once, and do not see the changes of
    the transaction.
    """

    def __init__(self, *args, manager=transactions.manager, **options):
        super().__init__(*args, **options)
        self.manager = manager

    def execute_command(self, *args, **options):
        if not self.waits(args):
            return super().execute_command(*args, **options)
        self.wait_with([(args, options)])
        return None

    def wait_with(self, stack):
        """Have commands, with their options, wait for the transaction."""
        for args, _ in stack:
            if needs_answer(args):
                raise TypeError(
                    f"the answer of {name_of(args)} would be lost, as this client gets none of "
                    "commands that write: use another client, or zodium.redis.join if the answer "
                    "does not matter"
                )
            if name_of(args) in SCRIPTS:
                raise TypeError("scripts do not wait for a transaction: use another client")
        commands = join(self, self.manager.get())
        for args, options in stack:
            commands.execute_command(*args, **options)

    def waits(self, args):
        """Whether a command waits for the transaction."""
        name = name_of(args)
        if name == "SORT":
            # Behind its key.
            return "STORE" in map(word, args[2:])
        return name not in AT_ONCE

    def lock(self, *args, **options):
        raise TypeError("a lock cannot wait for a transaction: use another client")

    def pipeline(self, transaction=True, shard_hint=None):
        return WaitingPipeline(self, transaction)


class WaitingPipeline(Pipeline):
    """A pipeline whose commands wait for the current transaction, unless all of them read."""

    def __init__(self, client, transaction):
        super().__init__(client.connection_pool, client.response_callbacks, transaction, None)
        self.client = client

    def watch(self, *names):
        raise TypeError(NO_WATCH)

    def execute(self, raise_on_error=True):
        stack = list(self.command_stack)
        if not any(self.client.waits(args) for args, _ in stack):
            return super().execute(raise_on_error)
        self.client.wait_with(stack)
        self.reset()
        return [None] * len(stack)


class DataManager:
    """Brings the commands of a transaction to the server."""

    def __init__(self, client, commands, transaction):
        self.transaction_manager = transaction._manager
        self.pool = client.connection_pool
        self.commands = commands
        self.transaction = transaction
        self.token = secrets.token_hex(16)
        self.connection = None
        self.is_alone = False
        # ZODB's connections hand this to their storages.
        transaction.setExtendedInfo(TOKEN_KEY, self.token)

    def sortKey(self):
        # After the storages.
        return "~zodium.redis"

    def savepoint(self):
        return Savepoint(self.commands)

    def tpc_begin(self, transaction):
        pass

    def commit(self, transaction):
        """Park the commands: every storage votes after this."""
        self.connection = connection_of(self.pool)
        self._send("ZEXEC", self.token)

    def tpc_vote(self, transaction):
        """Check that a storage of the server has claimed them."""
        state = self._ask("ZSTATE", self.token)
        if state in (b"voted", "voted"):
            return
        if any(isinstance(other, Connection) for other in transaction._resources):
            raise StorageTransactionError(
                "the Redis commands of this transaction are parked on a server that serves none of "
                "its databases: connect the Redis client to the --resp address of their server"
            )
        self.is_alone = True

    def tpc_finish(self, transaction):
        """The finish of the storage has executed them, unless there is none."""
        if self.is_alone:
            self._ask("ZDISCARD", self.token)
            self._send("EXEC")
        self._end()

    def tpc_abort(self, transaction):
        if self.connection is not None:
            try:
                self._ask("ZDISCARD", self.token)
            except Exception:
                # The server drops them with the connection.
                self.connection.disconnect()
                logger.info("the connection of an aborted transaction is lost", exc_info=True)
        self._end()

    def abort(self, transaction):
        """The transaction is aborted, or goes on without the commands after a rollback."""
        if transaction.extension.get(TOKEN_KEY) == self.token:
            # Nothing will be parked under it, and a vote would look for that.
            del transaction.extension[TOKEN_KEY]
        self.tpc_abort(transaction)

    def _send(self, *last):
        """Send the commands between MULTI and another word; raise the first error."""
        connection = self.connection
        stack = [args for args, _ in self.commands.command_stack]
        words = [("MULTI",), *stack, last]
        connection.send_packed_command(connection.pack_commands(words))
        failure = None
        for _ in words:
            try:
                connection.read_response()
            except Exception as error:
                if not is_connected(connection):
                    raise
                failure = failure or error
        if failure is not None:
            raise failure

    def _ask(self, *words):
        self.connection.send_command(*words)
        return self.connection.read_response()

    def _end(self):
        self.commands.is_over = True
        self.commands.command_stack = []
        connection, self.connection = self.connection, None
        if connection is not None:
            self.pool.release(connection)


class Savepoint:
    """Takes back the commands that came after it."""

    def __init__(self, commands):
        self.commands = commands
        self.length = len(commands.command_stack)

    def rollback(self):
        del self.commands.command_stack[self.length :]
