"""Cached values that know the objects they were computed from.

Key decision: a miss opens a computation, and the next set of the same key closes it. What
`depends_on` is told in between belongs to the value; so do the objects of other cached values that
were used. So no signature of a caching library has to change.
"""

import threading

from ._ties import Ties, send, view

# More computations than these do not run within each other: exceptions have ended the oldest.
COMPUTATIONS_MAX = 100
# What a server without storages answers to ZTID.
NO_STORAGE = "this server has no storage"


class Computation:
    """Values that are being computed: those of one get."""

    def __init__(self, places, storage):
        self.places = places
        self.ties = Ties(storage=storage)


class Running(threading.local):
    def __init__(self):
        self.computations = []


RUNNING = Running()


def depends_on(*objects):
    """Note that the values that are being computed depend on these persistent objects."""
    views = {view(each._p_jar) for each in objects if each._p_jar is not None}
    for each in RUNNING.computations:
        if each.ties.view is not None and views - {each.ties.view}:
            # It was ended by an exception, in an earlier transaction; or its objects are of several
            # databases, whose views cannot be compared.
            each.ties.is_usable = False
        else:
            each.ties.add(*objects)


class TiedCache:
    """Bytes under keys, each until an object that it depends on changes.

    `storage` is the name of the storage of the objects, if it is not the first one of the server;
    `expire` is the most seconds that a value is kept. A value that uses one of a cache with another
    `storage` is not kept.
    """

    def __init__(self, client, prefix="", expire=None, storage=None):
        self.client = client
        self.prefix = prefix
        self.expire = expire
        self.storage = storage

    def get(self, key):
        """Return the bytes, or None: then a computation begins."""
        return self.get_many([key])[0]

    def get_many(self, keys):
        """As get, for several keys, whose values will depend on the objects of all."""
        for key in keys:
            self.end(key)
        answers, limit = self.answers([self.prefix + key for key in keys])
        values = [answer and self.used(answer, limit) for answer in answers]
        missing = {(self, key) for key, value in zip(keys, values) if value is None}
        if missing:
            RUNNING.computations.append(Computation(missing, self.storage))
            del RUNNING.computations[:-COMPUTATIONS_MAX]
        return values

    def answers(self, names):
        """Return what the server has for keys, and a transaction at which that was current.

        The transaction is None if no value is being computed that may use the answers, and on a
        server without storages, where no value is tied.
        """
        if not names or not RUNNING.computations:
            return self.client.mget(names) if names else [], None
        with self.client.pipeline(transaction=False) as pipe:
            # In this order: a change after that transaction ends the values that use these.
            pipe.execute_command("ZTID", *([self.storage] if self.storage else []))
            last, answers = pipe.mget(names).execute(raise_on_error=False)
        if isinstance(last, Exception) and NO_STORAGE in str(last):
            return raised_or(answers), None
        last, answers = raised_or(last), raised_or(answers)
        return answers, bytes.fromhex(last if isinstance(last, str) else last.decode())

    def used(self, answer, limit):
        """Note that the values that are being computed depend on this one, current at `limit`."""
        head, _, value = answer.partition(b"\n")
        oids = [bytes.fromhex(oid) for oid in head.decode().split()]
        if oids:
            for each in RUNNING.computations:
                if limit is None or each.ties.storage != self.storage:
                    # The transactions of two storages cannot be compared.
                    each.ties.is_usable = False
                else:
                    each.ties.add_cached(oids, limit)
        return value

    def set(self, key, value):
        """Set a key; it is not set if an object that it depends on has changed meanwhile."""
        ties = self.end(key)
        if ties is None or not ties.oids and ties.is_usable:
            return bool(self.client.set(self.prefix + key, b"\n" + value, ex=self.expire))
        if ties.view is None:
            # It depends on objects only by other cached values, so its own view is not known.
            return False
        head = " ".join(oid.hex() for oid in ties.oids).encode()
        return send(self.client, self.prefix + key, head + b"\n" + value, ties, self.expire)

    def end(self, key):
        """End the computation of a key, and those that were begun since; return its ties."""
        for at, each in enumerate(RUNNING.computations):
            if (self, key) in each.places:
                each.places.remove((self, key))
                del RUNNING.computations[at + bool(each.places) :]
                return each.ties
        return None

    def delete(self, *keys):
        if keys:
            self.client.delete(*(self.prefix + key for key in keys))


def raised_or(answer):
    """Return an answer of a pipeline, or raise it if it is an exception."""
    if isinstance(answer, Exception):
        raise answer
    return answer
