"""Random histories of one data file: Zodium, the stock server and operators in turns.

harness/run_histories.py runs many of them.

Zodium and the stock server serve, commit, undo and pack; the operator packs, restores backups,
copies older files over the present one and truncates it; Zodium is killed at random moments.
Key decision: a model of the file is not kept.  After each step the stock FileStorage reads all of
it (harness/judge.py), and what it calls sound Zodium must call sound: in `zodium check`, in
`zodium recover`, in every load, in its log and in the index that it leaves.  And the other side: a
bit that flips in bytes that Zodium wrote last must be found, whatever happened before.

A seed decides everything but the moments of kills and the tids.
"""

import base64
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

from ZODB.scripts import repozo

from . import judge, servers, sides
from .graph import Graph
from .monitor import Monitor
from .process import ServerFailed

# (largest number of objects, share of histories): small files hide faults, and are quick.
SIZES = [(12, 0.05), (500, 0.2), (5_000, 0.25), (20_000, 0.43), (50_000, 0.07)]
SMALL = [(12, 0.3), (500, 0.7)]
OBJECTS_MIN = 2
# Lengths of the filler of an object.  Where all have one, transactions may have the same length.
LENGTHS = [range(60), range(400), range(1_500), range(2_500), [40]]
PLANTED_MAX = 150  # transactions, of which each waits for the disk
STEPS = range(5, 11)
BACKUPS_MAX = 3
FLIPS = 4
RECOVERED_SHARE = 0.4  # of the files that are sound
FLIP_SHARE = 0.6  # of the sessions of Zodium
FLIPPED_SERVED_SHARE = 1  # of these
COVERED_SECONDS = 60
COMMAND_SECONDS = 300

# What Zodium keeps beside a file, and the stock server.
SIDES = re.compile(r"Data\.fs\.(?!lock|tmp|old|pack|tr\d|part)[\w.]+$")
# That an index or checksums are not used is no complaint: others write the file, too, and a kill
# leaves them unfinished.
UNUSED_LINE = re.compile(r"checksums beside the data file are not used|index not usable")
BAD_LINE = re.compile(r"damage|does not fit|corrupt", re.IGNORECASE)
# The end of the file was no transaction any more.
CUT_LINE = re.compile(r"put aside|transactions are lost", re.IGNORECASE)
LOST_LINE = re.compile(r"transactions are lost", re.IGNORECASE)


class Fault(Exception):
    """Zodium is wrong about a file.  The first word names the kind of fault."""


class World:
    """One file, and everything that happens to it."""

    def __init__(self, seed, folder, sizes=SIZES):
        self.seed, self.random = seed, random.Random(seed)
        self.folder = Path(folder)
        self.path = self.folder / "site" / "Data.fs"
        for name in ("site", "judge", "repository", "backups"):
            (self.folder / name).mkdir()
        (limits, weights) = zip(*sizes)
        limit = self.random.choices(limits, weights)[0]
        least = max([OBJECTS_MIN, *(size for size in limits if size < limit)])
        self.objects = self.random.randrange(least, limit + 1)
        self.lengths = self.random.choice(LENGTHS)
        self.has_gc = self.random.random() < 0.6
        self.truth = None
        self.planted = set()  # the first transactions
        self.backups = 0  # copies made so far; the last of them are there
        self.is_index_foreign = False  # a file was put back, and the index beside is another's
        self.may_be_lost = False  # transactions, since Zodium served last
        self.written_from = None  # where the bytes begin that Zodium wrote last
        self.has_sums = True  # unless its last session was without
        self.steps, self.counts = [], Counter()

    def run(self):
        self.plant()
        for _ in range(self.random.choice(STEPS)):
            self.step()
        self.zodium()
        self.look()

    def note(self, text):
        self.steps.append(text)
        self.counts[text.split()[0]] += 1

    def step(self):
        kinds = [
            (self.zodium, 36),
            (self.stock, 27),
            (self.runzeo, 2),
            (self.pack_offline, 6),
            (self.repozo_backup, 4),
            (self.repozo_restore, 6),
            (self.copy, 6),
            (self.put_back, 9),
            (self.truncate, 6),
        ]
        steps, weights = zip(*kinds)
        step = self.random.choices(steps, weights)[0]
        step()
        self.look()

    def roll(self, share):
        return self.random.random() < share

    # What happens.

    def plant(self):
        """The first transactions, by either side."""
        graph = Graph(self.random, {}, self.lengths)
        changes = graph.planted(self.objects)
        batch = max(self.random.choice([10, 100, 1_000]), self.objects // PLANTED_MAX)
        parts = list(changes.items())
        parts = [dict(parts[at : at + batch]) for at in range(0, len(parts), batch)]
        longest = max(self.lengths)
        self.note(f"planted {self.objects} objects of up to {longest} bytes by {batch}")
        if self.roll(0.6):
            opened = sides.Opened(self.path, self.has_gc)
            self.commit_each(opened, graph, parts)
            opened.close()
        else:
            with self.serve([]) as served:
                self.commit_each(served, graph, parts)
            self.written_from = 4
        self.look()

    def commit_each(self, side, graph, parts):
        for part in parts:
            tid = side.commit(part, graph.serial)
            graph.committed(part, tid)
            self.planted.add(tid)

    def stock(self):
        """The stock FileStorage, opened in this process."""
        self.written_from = None
        if self.is_index_foreign:
            # What ZODB's documentation says to do with an index that belongs to another file.
            Path(f"{self.path}.index").unlink(missing_ok=True)
        opened = sides.Opened(self.path, self.has_gc)
        try:
            if self.truth.is_sound:
                self.expect(
                    judge.entries(opened.storage._index) == self.truth.index,
                    "index: the stock server was misled by the index beside the file",
                )
            self.is_index_foreign = False
            self.use(opened, "stock")
        finally:
            if self.roll(0.15):
                self.note("stock-crashed")
                opened.crash()
            else:
                opened.close()

    def runzeo(self):
        self.written_from = None
        if self.is_index_foreign:
            Path(f"{self.path}.index").unlink(missing_ok=True)
        self.is_index_foreign = False
        server = servers.stock_server(self.path.parent, "Z5")
        try:
            served = sides.Served(server)
            self.use(served, "runzeo")
            served.close()
        finally:
            server.stop()

    def use(self, side, name):
        """Commits, a pack, commits, an undo: each of them or not."""
        graph = Graph(self.random, self.current(), self.lengths)
        self.commit_some(side, graph, name)
        if self.roll(0.5):
            moment = self.pack_moment()
            self.note(f"{name}-packed {side.pack(moment)} to {moment:.3f}")
            if self.roll(0.5):
                self.commit_some(side, graph, name)
        if self.roll(0.3):
            self.note(f"{name}-undid {side.undo(self.chosen)}")

    def current(self):
        """The objects as they are now: an unfinished tail is cut when a side opens the file."""
        if not self.truth.is_sound:
            self.truth = judge.read(self.path, self.folder / "judge")
        return self.truth.current

    def commit_some(self, side, graph, name):
        sizes = []
        for _ in range(self.random.choice([0, 1, 2, 5, 20])):
            changes = self.some_changes(graph)
            graph.committed(changes, side.commit(changes, graph.serial))
            sizes.append(len(changes))
        self.note(f"{name}-committed {sizes}")

    def some_changes(self, graph):
        count = self.random.choice([1, 1, 3, 8, 60, len(graph.live) // 50, len(graph.live) // 8])
        return graph.changed(max(1, count))

    def chosen(self, log):
        """A transaction to undo; none of those without which little is left."""
        log = [one for one in log if base64.decodebytes(one["id"])[:8] not in self.planted]
        return self.random.choice(log) if log else None

    def pack_moment(self):
        """Now, or the time of one of the later transactions."""
        if self.roll(0.5) or not self.truth.tids:
            return sides.now()
        tids = self.truth.tids
        return sides.moment_of(self.random.choice(tids[len(tids) // 2 :]))

    @contextlib.contextmanager
    def serve(self, options):
        """Zodium serves, stops in order, and has nothing to complain of."""
        server = self.start(options)
        try:
            served = sides.Served(server)
            yield served
            served.close()
            status = server.stop()
        finally:
            server.kill()
        self.expect(status == 0, f"stop: exit status {status}: {server.log_tail()}")
        self.look_at_log(server)
        self.look_at_index()
        self.may_be_lost = False

    def start(self, options, wait=True):
        options = [*options, *([] if self.has_gc else ["--no-pack-gc"])]
        encoding = self.random.choice(["M5", "M5", "Z5"])
        return servers.spawn(servers.COMMAND, self.path, options, encoding, wait)

    def zodium(self):
        """A session of Zodium: served, changed, stopped or killed."""
        options, self.has_sums = [], True
        kind = self.random.random()
        if kind < 0.05:
            options, self.has_sums = ["--checksums", "off"], False
        elif kind < 0.15:
            options = ["--checksums", "commit"]
        if self.roll(0.2):
            options += ["--scrub-interval", "0.01"]
        self.note(f"zodium {' '.join(options)}")
        size = self.truth.size
        if not self.truth.is_sound:
            size = self.truth.starts[-1] if self.truth.starts else 4
        if self.roll(0.3):
            self.killed(options, size)
            return
        monitor = Monitor() if self.has_sums and self.roll(0.8) else None
        with self.serve([*options, *(monitor.options if monitor else [])]) as served:
            self.look_at_loads(served)
            graph = Graph(self.random, self.current(), self.lengths)
            was_packed = self.change(served, graph)
            if self.roll(0.1):
                self.copy()
            if monitor:
                monitor.wait_until(is_covered, COVERED_SECONDS)
        self.is_covered = monitor is not None
        self.written_from = 4 if was_packed else size
        if self.has_sums and self.roll(FLIP_SHARE):
            self.look()
            self.flip()

    def change(self, served, graph):
        """Changes by a client of Zodium; what it was told must be so.  Whether it packed."""
        was_packed = False
        self.commit_some(served, graph, "zodium")
        self.look_at_commits(served, graph)
        if self.roll(0.2):
            moment = self.pack_moment()
            was_packed = served.pack(moment)
            self.note(f"zodium-packed {was_packed} to {moment:.3f}")
            self.look_at_commits(served, graph)
            if self.roll(0.5):
                self.commit_some(served, graph, "zodium")
        if self.roll(0.15):
            self.note(f"zodium-undid {served.undo(self.chosen)}")
        return was_packed

    def killed(self, options, size):
        """A session of Zodium that is killed: at its start, when idle, in a commit, in a pack."""
        point = self.random.choice(["start", "idle", "commit", "commit", "pack"])
        self.note(f"killed at {point}")
        server = self.start(options, wait=point != "start")
        acknowledged, pending = {}, {}
        try:
            if point == "start":
                time.sleep(self.random.random() * 0.2)
            else:
                served = sides.Served(server)
                graph = Graph(self.random, self.current(), self.lengths)
                if self.roll(0.7):
                    self.look_at_loads(served)
                for _ in range(self.random.choice([0, 1, 3])):
                    changes = self.some_changes(graph)
                    tid = served.commit(changes, graph.serial)
                    graph.committed(changes, tid)
                    acknowledged.update({oid: (data, tid) for oid, data in changes.items()})
                if point == "commit":
                    pending = self.some_changes(graph)
                    served.commit_and_do_not_wait(pending, graph.serial)
                    time.sleep(self.random.random() * 0.006)
                elif point == "pack":
                    served.pack_and_do_not_wait(self.pack_moment())
                    time.sleep(self.random.random() * (0.05 + self.truth.size / 100e6))
        finally:
            server.kill()
        self.look_at_log(server)
        self.written_from = None
        self.read()
        if point == "pack":
            # It may have ended, and garbage is gone then.
            live = set(graph.live)
            acknowledged = {oid: one for oid, one in acknowledged.items() if oid in live}
        for oid, (data, tid) in acknowledged.items():
            found, found_tid = self.truth.current.get(oid, (None, None))
            is_there = (found, found_tid) == (data, tid) or (data is None and found is None)
            self.expect(
                is_there or (oid in pending and pending[oid] == found),
                f"lost: object {oid.hex()} of acknowledged transaction {tid.hex()}",
            )
        if acknowledged and self.truth.is_sound and self.has_sums and self.roll(FLIP_SHARE):
            self.is_covered, self.written_from = False, size
            self.flip()

    def pack_offline(self):
        self.note("packed-offline")
        options = [] if self.has_gc else ["--no-gc"]
        if self.roll(0.5):
            options += ["--days", f"{self.random.random() * 1e-4:.7f}"]
        done = self.run_binary("pack", *options, str(self.path))
        # A file that was cut may have no root any more, or had none at that time.
        is_without_root = "no root object" in done.stderr and self.has_gc
        self.expect(
            done.returncode == 0 or is_without_root,
            f"pack: exit status {done.returncode}: {done.stderr[-500:]}",
        )
        self.look_at_text(done.stderr, "pack")
        self.written_from = None

    def repozo_backup(self):
        self.note("repozo-backup")
        options = ["-F"] if self.roll(0.3) else ["-Q"] if self.roll(0.5) else []
        repository = self.folder / "repository"
        self.repozo("-B", *options, "-r", str(repository), "-f", str(self.path))

    def repozo_restore(self):
        repository = self.folder / "repository"
        if not any(repository.iterdir()):
            return self.repozo_backup()
        self.note("repozo-restored")
        self.repozo("-R", "-r", str(repository), "-o", str(self.path))
        self.replaced()
        # The command puts the backup's index there.
        self.is_index_foreign = False

    def repozo(self, *words):
        """The stock command, in this process; each call has a second of its own."""
        self.clock = getattr(self, "clock", 0) + 1
        now = time.gmtime(1_700_000_000 + self.clock)[:6]
        kept, repozo.gen_filedate = repozo.gen_filedate, lambda options: now
        try:
            repozo.main(list(words))
        finally:
            repozo.gen_filedate = kept

    def side_files(self):
        return [one for one in self.path.parent.iterdir() if SIDES.match(one.name)]

    def copy(self):
        """The operator copies the file with what is beside it; a server may be running."""
        self.note("copied")
        folder = self.folder / "backups" / str(self.backups)
        folder.mkdir()
        for one in [self.path, *self.side_files()]:
            with contextlib.suppress(FileNotFoundError):
                shutil.copy2(one, folder / one.name)
        self.backups += 1
        if self.backups > BACKUPS_MAX:
            shutil.rmtree(self.folder / "backups" / str(self.backups - BACKUPS_MAX - 1))

    def put_back(self):
        """The operator copies an older file over the present one."""
        if not self.backups:
            return self.copy()
        number = self.random.randrange(max(0, self.backups - BACKUPS_MAX), self.backups)
        folder = self.folder / "backups" / str(number)
        is_same_inode = self.roll(0.5)
        sides_kept = self.random.choice(["left", "removed", "put back", "put back over"])
        self.note(f"put-back {number} same inode: {is_same_inode}; side files {sides_kept}")
        if sides_kept in ("removed", "put back"):
            for one in self.side_files():
                one.unlink()
        names = ["Data.fs"]
        if sides_kept.startswith("put back"):
            names += [one.name for one in folder.iterdir() if one.name != "Data.fs"]
        for name in names:
            target = self.path.parent / name
            if is_same_inode:
                target.write_bytes((folder / name).read_bytes())
            else:
                part = self.path.parent / "Data.fs.part"
                shutil.copyfile(folder / name, part)
                part.replace(target)
        self.replaced()

    def truncate(self):
        starts = self.truth.starts
        if len(starts) < 3:
            return
        last = self.roll(0.5)
        number = self.random.randrange(max(1, len(starts) - 5) if last else 1, len(starts))
        self.note(f"truncated to {starts[number]}, {number} of {len(starts)} transactions")
        os.truncate(self.path, starts[number])
        self.replaced()

    def replaced(self):
        self.is_index_foreign = self.may_be_lost = True
        self.written_from = None

    # What must be so.

    def expect(self, is_so, fault):
        if not is_so:
            raise Fault(fault)

    def read(self):
        self.truth = judge.read(self.path, self.folder / "judge")

    def look(self):
        """What the stock FileStorage calls sound is sound."""
        self.read()
        self.counts["sound" if self.truth.is_sound else "not sound"] += 1
        if not self.truth.is_sound:
            self.expect(self.truth.is_torn, f"unsound: {self.truth.problem}")
            self.note(f"judged: {self.truth.problem}")
            return
        done = self.run_binary("check", "--json", str(self.path))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.expect(lines, f"check: {done.stderr[-500:]}")
        damages = [line for line in lines[:-1] if not self.is_known(line)]
        self.expect(
            not damages and (done.returncode == 0 or len(lines) > 1),
            f"check: {len(damages)} damages in a sound file, the first: {damages[:1]}",
        )
        if self.roll(RECOVERED_SHARE):
            self.look_at_recovered()

    def is_known(self, damage):
        """An index that belongs to another file, since the operator left it there."""
        return damage["kind"] == "index" and self.is_index_foreign

    def look_at_recovered(self):
        out = self.folder / "judge" / "Recovered.fs"
        done = self.run_binary("recover", "--json", str(self.path), str(out))
        is_same = out.exists() and out.read_bytes() == self.path.read_bytes()
        size = out.stat().st_size if out.exists() else 0
        for one in out.parent.glob("Recovered.fs*"):
            one.unlink()
        self.expect(
            is_same and done.returncode == 0,
            f"recover: {size} of {self.truth.size} bytes of a sound file: {done.stdout[:300]}"
            f"{done.stderr[-300:]}",
        )

    def look_at_loads(self, served):
        """Zodium answers each object as it is in the file."""
        expected = self.current()
        found = served.load_all(expected)
        wrong = [oid for oid, one in expected.items() if not is_answer(found[oid], one)]
        self.expect(
            not wrong,
            f"load: {len(wrong)} of {len(expected)} objects, the first {wrong[:1]}: "
            f"{short(found.get(wrong[0])) if wrong else ''}",
        )

    def look_at_commits(self, served, graph):
        sample = self.random.sample(sorted(graph.live), min(200, len(graph.live)))
        found = served.load_all(sample)
        for oid in sample:
            self.expect(
                found[oid] == graph.current[oid],
                f"load: object {oid.hex()} after commits: {short(found[oid])}",
            )

    def look_at_log(self, server):
        self.look_at_text(server.log(), "log")

    def look_at_text(self, text, kind):
        for line in text.splitlines():
            if ("WARN" not in line and "ERROR" not in line) or UNUSED_LINE.search(line):
                continue
            self.counts["warnings"] += 1
            self.expect(
                not BAD_LINE.search(line) and (self.may_be_lost or not LOST_LINE.search(line)),
                f"{kind}: {line[:500]}",
            )

    def look_at_index(self):
        """The index beside the file is what the stock FileStorage makes of the log."""
        self.read()
        self.is_index_foreign = False
        if not self.truth.is_sound:
            raise Fault(f"unsound: after an orderly stop {self.truth.problem}")
        beside = judge.index_beside(self.path)
        if beside is None:
            raise Fault("index: none after an orderly stop")
        end, entries = beside
        wrong = sum(entries.get(key) != one for key, one in self.truth.index.items())
        self.expect(
            end == self.truth.size and entries == self.truth.index,
            f"index: up to {end} of {self.truth.size}, {wrong} pages of it wrong",
        )

    def flip(self):
        """A bit that flips in what Zodium wrote last is found, and forgotten when it is back."""
        if self.truth.size <= self.written_from:
            return
        if not self.is_covered and self.uncovered():
            self.counts["uncovered"] += 1
            return
        self.note(f"flipped from {self.written_from} on")
        for _ in range(FLIPS):
            at = self.random.randrange(self.written_from, self.truth.size)
            bit = 1 << self.random.randrange(8)
            self.flip_one(at, bit)
            done = self.run_binary("check", "--json", str(self.path))
            self.flip_one(at, bit)
            self.expect(
                done.returncode == 1,
                f"flip: bit {bit} at {at} of {self.truth.size} is not found: {done.stdout[-300:]}",
            )
            self.counts["flips"] += 1
        if self.roll(FLIPPED_SERVED_SHARE):
            self.serve_flipped(at, bit)
        done = self.run_binary("check", "--json", str(self.path))
        self.expect(done.returncode == 0, f"flip: still damaged: {done.stdout[:300]}")

    def serve_flipped(self, at, bit):
        """Zodium serves a file with a flipped bit: no client gets other bytes, and the damage is
        still found afterwards, unless it was in the end, which was put aside with a warning."""
        self.note(f"served with bit {bit} at {at} flipped")
        kept = self.folder / "kept"
        kept.mkdir()
        names = ["Data.fs", *(one.name for one in self.side_files())]
        for name in names:
            shutil.copy2(self.path.parent / name, kept / name)
        self.flip_one(at, bit)
        self.look_at_flipped(at, bit)
        for one in self.side_files():
            one.unlink()
        for name in names:
            # The data file stays the same inode, as a disk that reads right again has it.
            shutil.copyfile(kept / name, self.path.parent / name)
            shutil.copystat(kept / name, self.path.parent / name)
        shutil.rmtree(kept)
        self.written_from = None

    def look_at_flipped(self, at, bit):
        try:
            server = self.start([])
        except ServerFailed as refused:
            self.expect("damage" in str(refused), f"flip: bit {bit} at {at}: {refused}")
            self.note("the start was refused")
            return
        try:
            served = sides.Served(server)
            found = served.load_all(self.truth.current)
            served.close()
            server.stop()
        finally:
            server.kill()
        is_cut = bool(CUT_LINE.search(server.log()))
        for oid, one in self.truth.current.items():
            answer = found[oid]
            is_error = answer is not None and isinstance(answer[0], str)
            self.expect(
                is_error or is_cut or answer == one,
                f"flip: bit {bit} at {at}: object {oid.hex()} is answered {short(answer)}",
            )
        done = self.run_binary("check", "--json", str(self.path))
        self.expect(
            done.returncode == 1 or is_cut,
            f"flip: bit {bit} at {at} of {self.truth.size} is not found once it was served: "
            f"{done.stdout[-300:]}{server.log_tail()}",
        )
        beside = judge.index_beside(self.path)
        self.expect(
            is_cut
            or beside is None
            # Another length: it was there before, of a file that was cut since, and is not used.
            or beside[0] != self.truth.size
            or beside[1] == self.truth.index,
            f"flip: bit {bit} at {at} of {self.truth.size}: a wrong index was saved",
        )

    def flip_one(self, at, bit):
        """As decay does it: no time of the file changes."""
        status = self.path.stat()
        with open(self.path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ bit]))
        os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def uncovered(self):
        done = self.run_binary("check", "--json", str(self.path))
        return json.loads(done.stdout.splitlines()[-1])["uncovered"]

    def run_binary(self, *words):
        return subprocess.run(
            [str(servers.BINARY), *words], capture_output=True, text=True, timeout=COMMAND_SECONDS
        )


def is_covered(status):
    storage = status["storages"][0]
    return storage["checksums"]["covered_bytes"] == storage["size_bytes"]


def is_answer(found, expected):
    if expected[0] is None:
        return found[0] == sides.NO_SUCH_OBJECT
    return found == expected


def short(found):
    return repr(found)[:300]
