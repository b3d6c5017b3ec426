"""Classes of an application, for servers that resolve conflicts with them.

What a class tries in `_p_resolveConflict` it puts into the state that it returns, so
that a test sees what a resolver lets it do.
"""

import os
import signal
import socket
import subprocess
import sys

from persistent import Persistent


class Basket(Persistent):
    """Counts fruits, each of which is an object of its own in the database."""

    def __init__(self):
        self.count, self.fruits = 0, ()

    def add(self, fruit=None):
        self.count += 1
        if fruit is not None:
            self.fruits += (fruit,)

    def _p_resolveConflict(self, old, saved, new):
        added = [fruit for fruit in new["fruits"] if fruit not in old["fruits"]]
        return {
            "count": saved["count"] + new["count"] - old["count"],
            "fruits": saved["fruits"] + tuple(added),
        }


class Fruit(Persistent):
    def __init__(self, name):
        self.name = name


class Counter(Persistent):
    """What resolves its conflicts goes through `change` first."""

    def __init__(self):
        self.value = 0

    def change(self, new):
        pass

    def _p_resolveConflict(self, old, saved, new):
        self.change(new)
        return {**new, "value": saved["value"] + new["value"] - old["value"]}


class Endless(Counter):
    def change(self, new):
        while True:
            pass


class Crashing(Counter):
    def change(self, new):
        os.kill(os.getpid(), signal.SIGSEGV)


class Wrong(Counter):
    def change(self, new):
        raise ZeroDivisionError("of the application")


class Printing(Counter):
    def change(self, new):
        print("R" * 100_000)
        sys.stderr.write("R" * 100_000)
        sys.stdout.flush()


class Greedy(Counter):
    def change(self, new):
        self.memory = bytes(3 << 30)


class Curious(Counter):
    """Tries what a resolver is not to do; `new` says on what."""

    def change(self, new):
        new["tried"] = {
            "write": tried(lambda: open(new["folder"] + "/written", "w").close()),
            "truncate": tried(lambda: os.truncate(new["file"], 0)),
            "remove": tried(lambda: os.remove(new["file"])),
            "connect": tried(lambda: socket.create_connection(tuple(new["address"]), 5)),
            "signal": tried(lambda: os.kill(new["server"], signal.SIGCONT)),
            "run": tried(lambda: subprocess.run(["touch", new["folder"] + "/ran"], check=True)),
        }
        new["environment"] = sorted(os.environ)
        new["folder_of_work"] = os.getcwd()
        links = (f"/proc/self/fd/{number}" for number in range(3, 100))
        new["open"] = [os.readlink(link) for link in links if os.path.islink(link)]


def tried(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "done"
