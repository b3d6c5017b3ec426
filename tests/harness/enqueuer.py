"""A process that commits objects and tasks together, until it is killed.

python -m harness.enqueuer ZEO-PORT RESP-PORT NAME SEED: each transaction stores a number under NAME
and enqueues a task with the same number. Some are aborted; their tasks have the word `aborted`.
"""

import contextlib
import random
import sys


def main(port, resp_port, name, seed):
    import redis
    import transaction
    import zodium
    import zodium.redis

    choose = random.Random(seed)
    database = zodium.DB(("127.0.0.1", int(port)))
    keys = redis.Redis(port=int(resp_port))
    connection = database.open()
    print("ready", flush=True)
    while True:
        transaction.begin()
        root = connection.root()
        number = root["numbers"][name]["value"] + 1
        is_aborted = choose.random() < 0.3
        tasks = zodium.redis.join(keys)
        tasks.rpush("tasks", f"{name} aborted" if is_aborted else f"{name} {number}")
        tasks.hincrby("counts", name, 1 if not is_aborted else 1000)
        root["numbers"][name]["value"] = number
        if is_aborted:
            # Half of them after the vote has begun.
            if choose.random() < 0.5:
                transaction.get().join(Refusing())
                with contextlib.suppress(Refused):
                    transaction.commit()
            transaction.abort()
        else:
            transaction.commit()


class Refused(Exception):
    pass


class Refusing:
    """The last to vote, and against."""

    def sortKey(self):
        return "~~~"

    def tpc_vote(self, _):
        raise Refused

    def ignore(self, _):
        pass

    abort = tpc_begin = commit = tpc_finish = tpc_abort = ignore


if __name__ == "__main__":
    main(*sys.argv[1:])
