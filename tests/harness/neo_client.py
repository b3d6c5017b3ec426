"""A ZODB application over NEO/py's client, told what to do by lines on standard input.

neo_client.py CHECKOUT CONFIGURATION

A line is [command, {arguments}] in JSON; the answer is ["done", value] or
["raised", text].  Commands are the methods of Application.
"""

import json
import os
import sys
import time

sys.path.insert(0, sys.argv[1])

import transaction  # noqa: E402
import ZODB  # noqa: E402
from neo.client.Storage import Storage  # noqa: E402
from persistent.mapping import PersistentMapping  # noqa: E402
from ZODB.utils import p64  # noqa: E402


class Failing:
    """A resource manager that votes last, and against the transaction."""

    def __init__(self, transaction_manager):
        self.transaction_manager = transaction_manager

    def sortKey(self):
        return "~"

    def tpc_vote(self, _):
        raise RuntimeError("voted against")

    def abort(self, _):
        pass

    tpc_begin = commit = tpc_finish = tpc_abort = abort


class Application:
    def __init__(self, configuration):
        self.storage = Storage(**configuration)
        self.database = ZODB.DB(self.storage)
        self.transactions = transaction.TransactionManager()
        self.connection = self.database.open(self.transactions)

    def set(self, **values):
        """Commits values of the root."""
        self.transactions.begin()
        self.connection.root().update(values)
        self.transactions.commit()

    def get(self):
        """What the root holds."""
        self.transactions.begin()
        self.connection.cacheMinimize()
        return {name: value for name, value in self.connection.root().items() if name[0] != "_"}

    def fill(self, count, size=100):
        """Commits so many objects, one in a transaction."""
        for number in range(count):
            self.transactions.begin()
            self.connection.root()[f"_{number}"] = PersistentMapping(data="x" * size, n=number)
            self.transactions.commit()

    def filled(self):
        """Which of these objects can be loaded."""
        self.transactions.begin()
        self.connection.cacheMinimize()
        found = [value for name, value in self.connection.root().items() if name[0] == "_"]
        return sorted(value["n"] for value in found)

    def fill_many(self, transactions, objects, size=500):
        """Commits so many transactions of so many objects each."""
        for number in range(transactions):
            self.transactions.begin()
            batch = [PersistentMapping(data="x" * size, n=n) for n in range(objects)]
            for one in batch:
                self.connection.add(one)
            self.connection.root()[f"_batch_{number}"] = PersistentMapping(all=batch, n=number)
            self.transactions.commit()

    def commit_large(self, objects, size, fails=False):
        """Commits objects with random data in one transaction, or gives it up after its vote."""
        self.transactions.begin()
        batch = [PersistentMapping(data=os.urandom(size), n=n) for n in range(objects)]
        self.connection.root()["_large"] = PersistentMapping(all=batch, n=objects)
        if fails:
            self.transactions.get().join(Failing(self.transactions))
        self.transactions.commit()

    def work(self, name, stop):
        """Counts in an object of its own, and reads, until the file `stop` exists.

        Gives the last acknowledged count, the number of commits, and the errors, each
        with its number.
        """
        acknowledged, commits, errors = 0, 0, {}
        while not os.path.exists(stop):
            try:
                self.transactions.begin()
                root = self.connection.root()
                if name not in root:
                    root[name] = PersistentMapping(count=0)
                    self.transactions.commit()
                    self.transactions.begin()
                # What was not acknowledged may have been committed.
                count = max(acknowledged, root[name]["count"]) + 1
                root[name]["count"] = count
                sum(one.get("count", 0) for key, one in root.items() if key.startswith("worker"))
                self.transactions.commit()
                acknowledged, commits = count, commits + 1
            except Exception as error:
                self.transactions.abort()
                kind = f"{type(error).__name__}: {error}"
                errors[type(error).__name__] = errors.get(type(error).__name__, 0) + 1
                print(kind, file=sys.stderr, flush=True)
                time.sleep(0.05)
        return [acknowledged, commits, errors]

    def counted(self):
        """The count of each worker."""
        self.transactions.begin()
        self.connection.cacheMinimize()
        root = self.connection.root()
        return {key: one["count"] for key, one in root.items() if key.startswith("worker")}

    def begin_set(self, **values):
        """Changes values without committing them."""
        self.transactions.begin()
        self.connection.root().update(values)

    def commit(self):
        try:
            self.transactions.commit()
        finally:
            self.transactions.abort()

    def undo(self):
        """Undoes the last transaction."""
        last = self.database.undoLog(0, 1)[0]["id"]
        self.transactions.begin()
        self.database.undo(last, self.transactions.get())
        self.transactions.commit()

    def history(self):
        """The number of revisions of the root."""
        return len(self.storage.history(p64(0), size=100))

    def transactions_of_log(self):
        """The number of transactions, and of their records."""
        counts = [len(list(one)) for one in self.storage.iterator()]
        return [len(counts), sum(counts)]

    def pack(self):
        self.storage.app.wait_for_pack = True
        self.database.pack(time.time() + 1)

    def order_pack_of_root(self):
        """Orders a pack of the root alone; returns when it is ordered."""
        self.storage.app.pack(self.storage.lastTransaction(), [p64(0)])

    def last(self):
        """The last tid, in hexadecimal digits."""
        return self.storage.lastTransaction().hex()


def main():
    application = Application(json.loads(sys.argv[2]))
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer = ["done", getattr(application, command)(**arguments)]
        except Exception as error:
            answer = ["raised", f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), flush=True)


main()
