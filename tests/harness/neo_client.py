"""A ZODB application over NEO/py's client, told what to do by lines on standard input.

neo_client.py CHECKOUT CONFIGURATION

A line is [command, {arguments}] in JSON; the answer is ["done", value] or
["raised", text].  Commands are the methods of Application.
"""

import json
import sys
import time

sys.path.insert(0, sys.argv[1])

import transaction  # noqa: E402
import ZODB  # noqa: E402
from neo.client.Storage import Storage  # noqa: E402
from persistent.mapping import PersistentMapping  # noqa: E402
from ZODB.utils import p64  # noqa: E402


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
