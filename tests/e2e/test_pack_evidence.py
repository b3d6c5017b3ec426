"""Packs held against the stock packer's: every form of reference, deletions, undo, memory.

Random histories of hand-made records are packed by both, and after that every
object has to load the same at every tid from the pack time on.
"""

import datetime
import io
import shutil
import subprocess
import time

import pytest
import ZODB.FileStorage
from harness import files, longfile
from harness.history import CLASS
from harness.servers import BINARY
from persistent.TimeStamp import TimeStamp
from ZODB._compat import PersistentPickler
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError, UndoError
from ZODB.serialize import referencesf
from ZODB.utils import p64, z64

OBJECTS = 24
HISTORIES = 16


class Reference:
    """What a pickler is to write as a persistent reference."""

    def __init__(self, persistent_id):
        self.persistent_id = persistent_id


def strong(oid):
    return [oid, (oid, None)]


def harmless(oid):
    """References that keep nothing alive in this database."""
    return [
        ["w", (oid,)],
        [oid],  # weak, as ZODB 3.2 wrote it
        ["w", (oid, "other")],
        ["n", ("other", oid)],
        ["m", ("other", oid, None)],
    ]


def record(random, oids):
    """Data that refer to objects in every form that ZODB has had."""
    references = [Reference(random.choice(strong(oid))) for oid in oids]
    for _ in range(random.randrange(3)):
        references.append(Reference(random.choice(harmless(p64(random.randrange(OBJECTS))))))
    random.shuffle(references)
    data = b"data" * random.randrange(50)
    if random.random() < 0.5:
        return (
            b"(cpersistent.mapping\nPersistentMapping\nNt." + python_2([*references, data]) + b"."
        )
    out = io.BytesIO()
    PersistentPickler(persistent_id, out, 3).dump({"references": references, "data": data})
    return CLASS + out.getvalue()


def persistent_id(item):
    return getattr(item, "persistent_id", None)


def python_2(value):
    """A value as Python 2 pickled it with protocol 1."""
    if isinstance(value, Reference):
        return python_2(value.persistent_id) + b"Q"
    if isinstance(value, (tuple, list)):
        items = b"".join(map(python_2, value))
        return b"(" + items + b"t" if isinstance(value, tuple) else b"](" + items + b"e"
    if value is None:
        return b"N"
    text = value.encode() if isinstance(value, str) else value
    return b"U" + bytes([len(text)]) + text


class Writer:
    """A history through the stock FileStorage; every object keeps those it refers to alive."""

    def __init__(self, path, random):
        self.random = random
        self.storage = ZODB.FileStorage.FileStorage(str(path))
        self.tids = []
        self.serials = {}
        self.commit({z64: []})

    def commit(self, objects, deleted=()):
        txn = TransactionMetaData("user", "description", {})
        self.storage.tpc_begin(txn)
        for oid, references in objects.items():
            serial = self.serials.get(oid, z64)
            self.storage.store(oid, serial, record(self.random, references), "", txn)
        for oid in deleted:
            self.storage.deleteObject(oid, self.serials[oid], txn)
        self.finish(txn, [*objects, *deleted])

    def finish(self, txn, oids):
        self.storage.tpc_vote(txn)
        tid = self.storage.tpc_finish(txn)
        self.tids.append(tid)
        self.serials.update(dict.fromkeys(oids, tid))

    def undo(self):
        """Undo one of the newest transactions, if that can be done."""
        choices = self.storage.undoLog(0, 4)
        txn = TransactionMetaData("user", "undo", {})
        self.storage.tpc_begin(txn)
        try:
            _, oids = self.storage.undo(self.random.choice(choices)["id"], txn)
        except (UndoError, POSKeyError):
            self.storage.tpc_abort(txn)
            return
        self.finish(txn, oids)

    def work(self, count):
        choose = self.random
        for _ in range(count):
            kind = choose.random()
            known = sorted(self.serials)
            if kind < 0.15 and len(self.tids) > 5:
                self.undo()
            elif kind < 0.22 and len(known) > 5:
                self.commit({}, [choose.choice([oid for oid in known if oid != z64])])
            else:
                oids = [p64(choose.randrange(OBJECTS)) for _ in range(choose.randrange(1, 5))]
                # Those referred to are there, or come with it.
                there = [*known, *oids]
                self.commit(
                    {oid: choose.sample(there, min(len(there), 3)) for oid in oids}
                    if choose.random() < 0.8
                    else {z64: choose.sample(there, min(len(known), 4))} | {o: [] for o in oids}
                )


def answers(path, tids):
    """{(oid, tid): what a load before that tid gives}, and the transactions."""
    storage = ZODB.FileStorage.FileStorage(str(path), read_only=True)
    found = {}
    for number in range(OBJECTS):
        for tid in tids:
            try:
                found[number, tid] = storage.loadBefore(p64(number), tid)
            except POSKeyError:
                found[number, tid] = "missing"
    storage.close()
    return found


def iso(tid):
    """A moment right after a transaction, for `zodium pack --to`, and for the stock packer."""
    seconds = TimeStamp(tid).timeTime() + 2e-6
    nanos = round(seconds * 1e6) * 1000
    whole, fraction = divmod(nanos, 10**9)
    moment = datetime.datetime.fromtimestamp(whole, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction:09}Z", nanos / 1e9


def check_answers(before, ours, stock):
    """What ours has is what was there; what the stock packer has kept of that, ours has too.

    The other way round does not hold: the stock one drops what only later transactions refer
    to, and takes what a later one points back to for what was current.
    """
    for question, answer in ours.items():
        if answer in (None, "missing"):
            is_right = stock[question] in (None, "missing") or stock[question] != before[question]
        else:
            is_right = answer == before[question]
        assert is_right, question


@pytest.mark.zodium
def test_ours_keeps_what_the_stock_packer_keeps(tmp_path, seeded, scale):
    packed, dangling = 0, 0
    for number in range(max(1, int(HISTORIES * scale))):
        original = tmp_path / f"{number}.fs"
        writer = Writer(original, seeded)
        writer.work(60)
        writer.storage.close()
        ours, stock = tmp_path / f"{number}-ours.fs", tmp_path / f"{number}-stock.fs"
        shutil.copy(original, ours)
        shutil.copy(original, stock)
        place = seeded.randrange(20, 60)
        pack_tid = writer.tids[min(place, len(writer.tids) - 1)]
        text, seconds = iso(pack_tid)
        subprocess.run([BINARY, "pack", ours, "--to", text], check=True, capture_output=True)
        storage = ZODB.FileStorage.FileStorage(str(stock))
        try:
            storage.pack(seconds, referencesf)
        except KeyError:
            # It gives up at a reference to an object that was deleted; ours goes on.
            dangling += 1
            storage.close()
            continue
        storage.close()
        later = [tid for tid in writer.tids if tid > pack_tid]
        tids = [*later, files.tid_after(writer.tids[-1])]
        check_answers(answers(original, tids), answers(ours, tids), answers(stock, tids))
        files.check(ours)
        packed += 1
    print(f"{packed} histories packed by both, {dangling} by ours alone")
    assert packed > 0


@pytest.mark.zodium
def test_memory_of_a_pack_is_16_bytes_an_object(tmp_path):
    """Beside the 8 of the index that every open file has."""
    small, large = 40_000, 480_000
    # Each run needs the same memory. A short run may end before its memory is read.
    peaks = [peak_bytes(tmp_path, objects, runs) for objects, runs in ((small, 4), (large, 1))]
    bytes_each = (peaks[1] - peaks[0]) / (large - small)
    print(f"{bytes_each:.1f} bytes an object; {peaks[0] >> 20} MiB and {peaks[1] >> 20} MiB in all")
    assert bytes_each < 8 + 16 + 1


def peak_bytes(folder, objects, runs):
    """The most memory that packs of so many objects had."""
    path = folder / f"{objects}.fs"
    # The first tenth of the objects is written twice, so that there is something to drop.
    longfile.write(path, objects * 11 // 10, objects, filler=1)
    copies = [folder / f"{objects}-{run}.fs" for run in range(runs)]
    return max(peak_of_pack(shutil.copy(path, copy)) for copy in copies)


def peak_of_pack(path):
    """The most memory of its own that a pack had; what the system tells of a child includes its
    parent's.

    Without the pages of its program: they are more when it takes so long that it reports its
    progress.
    """
    process = subprocess.Popen([BINARY, "pack", path], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        with open(f"/proc/{process.pid}/status") as status:
            own = [line for line in status if line.startswith(("RssAnon:", "RssShmem:"))]
            peak = max(peak, sum(int(line.split()[1]) * 1024 for line in own))
        time.sleep(0.002)
    assert process.returncode == 0
    return peak
