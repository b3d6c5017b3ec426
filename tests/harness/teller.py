"""A process with many clients that move money between accounts, whatever becomes of the server.

    python -m harness.teller FIRST CLIENTS ACCOUNTS SEED JOURNAL [--counters] [--cuts PART]

Each line on standard input, "ADDRESS SECONDS", sends all clients there for so long, or
until the server goes away; then a line with counts is printed.  With --counters the
clients count accounts up, every other one in the opposite order.  With --cuts they hang
up right after that part of their finishes.

Key decision: a client that did not get the answer to a finish asks before it goes on,
by loading its own book.  "Not there" is not final while the lost transaction may still
be on its way, so it goes on from the book's serial: then both cannot be committed.
"""

import argparse
import json
import random
import sys
import threading
import time

from harness import bank
from harness.wire import Z64, Closed, ErrorReply, Silent, Wire


class Client:
    def __init__(self, number, accounts, seed, is_counter, cuts, journal):
        self.number, self.accounts = number, accounts
        self.random = random.Random(seed * 1000 + number)
        self.is_counter, self.cuts, self.journal = is_counter, cuts, journal
        self.unknown = None  # a promise without its tid: its finish was not answered
        self.lost = []  # those that were not there when asked
        self.counts = {"acknowledged": 0, "conflicts": 0, "asked": 0, "there": 0}
        self.longest = 0.0  # seconds from one acknowledgement to the next

    def run(self, address, seconds):
        self.end = time.monotonic() + seconds
        try:
            while time.monotonic() < self.end:
                with Wire(address, seconds=60) as wire:
                    wire.register()
                    self.work(wire)
            with Wire(address, seconds=60) as wire:
                wire.register()
                self.settle(*self.final_answer(wire))
        except (Closed, ConnectionError, Silent):
            pass

    def work(self, wire):
        count, serial = bank.found(wire, bank.book(self.number))
        self.settle(count, serial)
        since = time.monotonic()
        txn = 1
        while time.monotonic() < self.end:
            txn += 1
            stores = self.transfer(wire, count, serial)
            user = b"client %d" % self.number
            kind = b"counters" if self.is_counter else b"transfer"
            if bank.is_refused(wire, txn, stores, user, kind):
                self.counts["conflicts"] += 1
                # Its own book may be why: a finish that was lost came through after all.
                count, serial = bank.found(wire, bank.book(self.number))
                self.settle_late(count, serial)
                continue
            digest = bank.digest((oid, data) for oid, _, data in stores)
            self.unknown = {"client": self.number, "count": count + 1, "digest": digest}
            asked = wire.request("tpc_finish", txn)
            if self.random.random() < self.cuts:
                time.sleep(self.random.choice([0, 0, 0.0005, 0.002, 0.01]))
                self.random.choice([wire.close, wire.reset])()
                return
            serial = wire.reply(asked)
            count += 1
            self.promise(self.unknown, serial, asked=False)
            self.counts["acknowledged"] += 1
            self.unknown, self.lost = None, []
            self.longest = max(self.longest, time.monotonic() - since)
            since = time.monotonic()

    def transfer(self, wire, count, serial):
        """The stores of one transaction."""
        if self.is_counter:
            chosen = sorted(self.random.sample(range(self.accounts), self.random.randrange(2, 9)))
            chosen = chosen[:: -1 if self.number % 2 else 1]
            amounts = [1] * len(chosen)
        else:
            chosen = self.random.sample(range(self.accounts), self.random.randrange(2, 5))
            amounts = [self.random.randrange(-9, 10) for _ in chosen]
            amounts[0] -= sum(amounts)
        stores = []
        for number, amount in zip(chosen, amounts):
            balance, current = bank.found(wire, bank.account(number))
            record = bank.record(balance + amount, self.random)
            stores.append((bank.account(number), current, record))
        stores.append((bank.book(self.number), serial, bank.record(count + 1, self.random)))
        return stores

    def final_answer(self, wire):
        """The count and serial of the own book, with nothing on its way that could change it.

        A vote that holds to the serial has to wait for the locks of a finish under way.
        """
        while True:
            count, serial = bank.found(wire, bank.book(self.number))
            wire.notify("tpc_begin", 1, b"", b"", {}, None, " ")
            wire.notify("checkCurrentSerialInTransaction", bank.book(self.number), serial, 1)
            try:
                wire.call("vote", 1)
                return count, serial
            except ErrorReply as error:
                if "Conflict" not in error.args[0] and serial != Z64:
                    raise
                if serial == Z64:  # nothing to hold to: it was never written
                    return count, serial
            finally:
                wire.call("tpc_abort", 1)

    def settle(self, count, serial):
        """What became of the finish that was not answered."""
        if self.unknown is not None:
            self.counts["asked"] += 1
            self.lost.append(self.unknown)
            self.unknown = None
        self.settle_late(count, serial)

    def settle_late(self, count, serial):
        # Of all that would have had this count one can be there: the one with its digest.
        if any(promise["count"] == count for promise in self.lost):
            self.counts["there"] += 1
            tried = [promise for promise in self.lost if promise["count"] == count]
            if len(tried) == 1:
                self.promise(tried[0], serial, asked=True)
            self.lost = []

    def promise(self, promise, tid, asked):
        self.journal(json.dumps({**promise, "tid": tid.hex(), "asked": asked}))


def main(words):
    parser = argparse.ArgumentParser()
    for name in ("first", "clients", "accounts", "seed"):
        parser.add_argument(name, type=int)
    parser.add_argument("journal")
    parser.add_argument("--counters", action="store_true")
    parser.add_argument("--cuts", type=float, default=0)
    given = parser.parse_args(words)
    journal = open(given.journal, "a", buffering=1)
    lock = threading.Lock()

    def write(line):
        with lock:
            journal.write(line + "\n")

    numbers = range(given.first, given.first + given.clients)
    options = given.accounts, given.seed, given.counters, given.cuts, write
    clients = [Client(number, *options) for number in numbers]
    for line in sys.stdin:
        *address, seconds = line.split()
        address = (address[0], int(address[1])) if len(address) == 2 else address[0]
        send(clients, address, float(seconds))
        totals = {key: sum(c.counts[key] for c in clients) for key in clients[0].counts}
        longest = max(client.longest for client in clients)
        idle = sum(not client.counts["acknowledged"] for client in clients)
        print(json.dumps({**totals, "longest": longest, "idle": idle}), flush=True)


def send(clients, address, seconds):
    threads = [threading.Thread(target=c.run, args=(address, seconds)) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1:])
