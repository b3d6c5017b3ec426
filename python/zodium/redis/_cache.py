"""Cached values that know the objects they were computed from.

Key decision: a get opens a computation, and the next set of the same key closes it. What
`depends_on` is told in between belongs to the value; so do the objects of other cached values that
were used. So no signature of a caching library has to change. A get that finds a value opens one
too, for libraries compute again what they take for too old.
"""

import threading

from ._ties import Ties, send, view

# More are not remembered. Most are of values that were found, and are not computed again.
COMPUTATIONS_MAX = 100
# What a server without storages answers to ZTID.
NO_STORAGE = "this server has no storage"


class Computation:
    """What was told between a get and the next one.

    A value that is computed after a get depends on this, and on what is told after later gets.
    """

    def __init__(self, places):
        self.places = places  # (cache, key) -> whether the get found no value
        self.is_miss = any(places.values())
        self.ties = Ties()
        self.storages = set()  # of the cached values that were used

    def give_up(self):
        """Have no value kept that depends on this."""
        self.ties = Ties()
        self.ties.is_usable = False


class Running(threading.local):
    """The computations of a thread, of which later ones may run within earlier ones."""

    def __init__(self):
        self.computations = []
        # Of objects, also by cached values, which may concern a value that has no get.
        self.is_told = False

    def begin(self, places):
        if len(self.computations) >= COMPUTATIONS_MAX:
            hits = (at for at, each in enumerate(self.computations) if not each.is_miss)
            self.remove(next(hits, 0))
        self.computations.append(Computation(places))

    def remove(self, at):
        """Leave what a computation was told to the one that it may run within."""
        ended = self.computations.pop(at)
        if at > 0:
            outer = self.computations[at - 1]
            outer.ties.absorb(ended.ties)
            outer.storages |= ended.storages

    def found(self, place):
        """Return where the computation of a place is, or None."""
        for at, each in enumerate(self.computations):
            if place in each.places:
                return at
        return None

    def leave(self, place):
        """End the computation of a place, if there is one; return whether its get was a miss."""
        at = self.found(place)
        if at is None:
            return False
        ended = self.computations[at]
        was_miss = ended.places.pop(place)
        if not ended.places:
            self.remove(at)
        return was_miss

    def ties_since(self, at, storage):
        """Return what a value depends on that was computed since a get."""
        ties = Ties(storage=storage)
        for each in self.computations[at:]:
            ties.absorb(each.ties)
            if not each.storages <= {storage}:
                # The transactions of two storages cannot be compared.
                ties.is_usable = False
        return ties

    def is_told_alone(self):
        """Whether anything was told that may concern a value without a get."""
        is_told, self.is_told = self.is_told, False
        return is_told


RUNNING = Running()


def depends_on(*objects):
    """Note that the values that are being computed depend on these persistent objects."""
    views = {view(each._p_jar) for each in objects if each._p_jar is not None}
    for each in RUNNING.computations:
        if each.ties.view is not None and views - {each.ties.view}:
            # It was ended by an exception, in an earlier transaction; or its objects are of several
            # databases, whose views cannot be compared.
            each.give_up()
    RUNNING.is_told = True
    if not RUNNING.computations:
        return
    last = RUNNING.computations[-1]
    if len(views) > 1:
        last.give_up()
    else:
        last.ties.add(*objects)


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
        """Return the bytes, or None. A computation begins."""
        return self.get_many([key])[0]

    def get_many(self, keys):
        """As get, for several keys, whose values will depend on the objects of all."""
        for key in keys:
            RUNNING.leave((self, key))
        answers, limit = self.answers([self.prefix + key for key in keys])
        values = [answer and self.used(answer, limit) for answer in answers]
        if keys:
            RUNNING.begin({(self, key): value is None for key, value in zip(keys, values)})
        return values

    def answers(self, names):
        """Return what the server has for keys, and a transaction at which that was current.

        The transaction is None if no missing value is being computed that may use the answers, and
        on a server without storages, where no value is tied.
        """
        if not names or not any(each.is_miss for each in RUNNING.computations):
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
            RUNNING.is_told = True
        if oids and RUNNING.computations:
            last = RUNNING.computations[-1]
            last.storages.add(self.storage)
            if limit is None:
                # If a value that was found is computed again now, the next get will miss it.
                last.ties.is_usable = False
            else:
                last.ties.add_cached(oids, limit)
        return value

    def set(self, key, value):
        """Set a key; it is not set if an object that it depends on has changed meanwhile.

        A value that is set without a get in this thread is not kept if `depends_on` was told
        anything meanwhile, or a cached value that depends on objects was found. If the get has
        found a value, or there was none, a value that is not kept leaves no older one.
        """
        return self.set_many({key: value})

    def set_many(self, values):
        """As set, for several keys whose values were computed together; whether all are kept."""
        is_any_alone = any(RUNNING.found((self, key)) is None for key in values)
        # Asked once: what was told may concern each of them.
        is_told = is_any_alone and RUNNING.is_told_alone()
        kept = [self.set_one(key, value, is_told) for key, value in values.items()]
        return all(kept)

    def set_one(self, key, value, is_told):
        """Set a key; `is_told` is of a value without a get."""
        at = RUNNING.found((self, key))
        if at is None:
            was_miss = False
            is_kept = not is_told and self.keep(key, value, Ties())
        else:
            ties = RUNNING.ties_since(at, self.storage)
            was_miss = RUNNING.leave((self, key))
            is_kept = self.keep(key, value, ties)
        if not is_kept and not was_miss:
            self.delete(key)
        return is_kept

    def keep(self, key, value, ties):
        if not ties.oids and ties.is_usable:
            return bool(self.client.set(self.prefix + key, b"\n" + value, ex=self.expire))
        if ties.view is None:
            # It depends on objects only by other cached values, so its own view is not known.
            return False
        head = " ".join(oid.hex() for oid in ties.oids).encode()
        return send(self.client, self.prefix + key, head + b"\n" + value, ties, self.expire)

    def delete(self, *keys):
        if keys:
            self.client.delete(*(self.prefix + key for key in keys))


def raised_or(answer):
    """Return an answer of a pipeline, or raise it if it is an exception."""
    if isinstance(answer, Exception):
        raise answer
    return answer
