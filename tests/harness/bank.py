"""Accounts that many clients move money between: what is half done, lost or done twice shows.

A transaction changes two to four accounts, and the book of the client that makes it, which
counts its transactions.  So in every prefix of the log the sum of all accounts is
the same, and each book counts up by one.

Key decision: Bank reads the log itself with the stock iterator, and knows of each
transaction only what it must be: the judge shares no code with the server.
"""

import hashlib
import json

from ZODB.FileStorage import FileIterator
from ZODB.FileStorage.format import CorruptedDataError

from .files import oid_of
from .wire import MAXTID, Z64, Conflict, ErrorReply

BALANCE = 1000  # of each account in the beginning
BOOKS = 1 << 32  # oid of the book of client 0
LARGE = 200_000  # bytes; some records are larger than any buffer


def account(number):
    return oid_of(1 + number)


def book(client):
    return oid_of(BOOKS + client)


def record(number, random):
    """A record that says a number, of any size."""
    size = LARGE if random.random() < 0.005 else random.randrange(200)
    return b"%d " % number + random.randbytes(size)


def number_of(data):
    return int(data.split(b" ", 1)[0])


def digest(stores):
    """What a transaction wrote, in a few bytes; `stores` are (oid, data) in any order."""
    total = hashlib.sha1()
    for oid, data in sorted(stores):
        total.update(oid + hashlib.sha1(data).digest())
    return total.hexdigest()


def found(wire, oid):
    """(the number in an object, its serial); a new object says 0."""
    try:
        data, serial, _ = wire.call("loadBefore", oid, MAXTID)
    except ErrorReply as error:
        if "POSKeyError" not in error.args[0]:
            raise
        return 0, Z64
    return number_of(data), serial


def open_accounts(wire, accounts, random):
    stores = [(account(n), Z64, record(BALANCE, random)) for n in range(accounts)]
    wire.commit(1, stores, b"founder")


def is_refused(wire, txn, stores, user, description=b""):
    """Store and vote; whether it conflicts, and is over with that."""
    wire.notify("tpc_begin", txn, user, description, {}, None, " ")
    for oid, serial, data in stores:
        wire.notify("storea", oid, serial, data, txn)
    try:
        conflicts = wire.call("vote", txn)
        if conflicts:
            raise Conflict(conflicts)
    except (Conflict, ErrorReply) as error:
        if isinstance(error, ErrorReply) and "Conflict" not in error.args[0]:
            raise
        wire.call("tpc_abort", txn)
        return True
    return False


def whole_transactions(path):
    """The transactions of a file whose server may have been killed over the next one.

    From the beginning, because the stock iterator cannot start in the middle of a file of more
    than 1 MiB that ends in half a transaction.
    """
    transactions = FileIterator(str(path))
    last = Z64
    while True:
        try:
            transaction = next(transactions)
        except StopIteration:
            return
        except CorruptedDataError:  # the file ends in less than a transaction's header
            return
        assert transaction.tid > last, f"{transaction.tid.hex()} after {last.hex()}"
        last = transaction.tid
        yield transaction


class Bank:
    """What the log says, transaction by transaction, and what clients were promised."""

    def __init__(self, accounts):
        self.accounts = accounts
        self.numbers = {}  # oid -> what its last record says
        self.serials = {}
        self.digests = {}  # tid -> (client or None, its count, digest)
        self.last = Z64
        self.promised = 0  # transactions that clients were told of
        self.asked = 0  # outcomes that clients had to ask for
        self.read_to = {}  # journal -> bytes of it that were compared

    def read(self, path):
        """Take in the transactions that are new in the file."""
        for transaction in whole_transactions(path):
            if transaction.tid > self.last:
                self._take(transaction)

    def _take(self, transaction):
        tid = transaction.tid
        stores = {entry.oid: entry.data for entry in transaction}
        before = sum(self.numbers.get(oid, 0) for oid in stores if oid < book(0))
        books = [oid for oid in stores if oid >= book(0)]
        for oid, data in stores.items():
            if oid in books:
                assert number_of(data) == self.numbers.get(oid, 0) + 1, f"{tid.hex()}: not once"
            self.numbers[oid] = number_of(data)
            self.serials[oid] = tid
        after = sum(self.numbers[oid] for oid in stores if oid < book(0))
        if transaction.user == b"founder":
            assert (len(stores), after) == (self.accounts, self.accounts * BALANCE)
            client = count = None
        else:
            changed = len(stores) - len(books)
            assert len(books) == 1 and changed >= 2, f"{tid.hex()} is half a transaction"
            earned = changed if transaction.description == b"counters" else 0
            assert after - before == earned, f"{tid.hex()}: {after - before} out of nowhere"
            client = int.from_bytes(books[0], "big") - BOOKS
            count = self.numbers[books[0]]
        self.digests[tid] = client, count, digest(stores.items())
        self.last = tid

    def compare(self, journals):
        """Whatever the journals say since the last time is true of the log."""
        for journal in journals:
            with open(journal) as lines:
                lines.seek(self.read_to.get(journal, 0))
                for line in iter(lines.readline, ""):
                    self._compare(json.loads(line))
                self.read_to[journal] = lines.tell()

    def _compare(self, promise):
        tid = bytes.fromhex(promise["tid"])
        assert tid in self.digests, f"lost: {promise}"
        expected = promise["client"], promise["count"], promise["digest"]
        assert self.digests[tid] == expected, f"{self.digests[tid]}, promised {promise}"
        self.promised += not promise["asked"]
        self.asked += promise["asked"]

    def compare_served(self, wire, oids):
        """The server at `wire` loads what the log has."""
        for oid in oids:
            expected = self.numbers.get(oid, 0), self.serials.get(oid, Z64)
            assert found(wire, oid) == expected, oid.hex()

    def sum(self):
        return sum(number for oid, number in self.numbers.items() if oid < book(0))

    def transfers(self):
        return sum(number for oid, number in self.numbers.items() if oid >= book(0))
