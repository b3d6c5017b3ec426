"""What each load and each commit costs in counts: cache lines that move between threads, system
calls, instructions.

Runs `zodium serve` under qemu-user with plugin.c, which models a cache for each thread.  The counts
do not depend on the machine: two processors show what 64 would have to move.  Needs qemu-user, a C
compiler and addr2line (Debian: apt install qemu-user gcc binutils).

  python tests/shared_lines/run.py target/release/zodium --workers 1,4,16,64 --clients 16,64

PRELOAD=libjemalloc.so.2 puts another allocator in the place of the system's.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.wire import MAXTID, Z64, Silent, Wire  # noqa: E402

# A line of the project's own crates; the standard library has a folder of that name too.
OWN = re.compile(r"(?<!/library)(?<!-arch)/crates/((?!core_arch|std_detect)[^ ]*)")
# System calls of x86-64 that a server makes.
CALLS = {
    0: "read",
    1: "write",
    9: "mmap",
    11: "munmap",
    18: "pwrite64",
    20: "writev",
    24: "sched_yield",
    28: "madvise",
    45: "recvfrom",
    75: "fdatasync",
    202: "futex",
    232: "epoll_wait",
    233: "epoll_ctl",
    277: "sync_file_range",
    285: "fallocate",
    296: "pwritev",
    327: "preadv2",
    332: "statx",
    262: "newfstatat",
    5: "fstat",
    10: "mprotect",
    228: "clock_gettime",
    44: "sendto",
    46: "sendmsg",
    281: "epoll_pwait",
}
# Objects that are loaded: so few that each worker has loaded each before it counts.
HOT = 16
DATA = b"cbuiltins\nobject\nq\x01.}q\x02." + b"x" * 400


def compile_plugin(folder):
    plugin = folder / "plugin.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", plugin, HERE / "plugin.c"], check=True)
    return plugin


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Counts:
    """The counts of a run: mapped files, instructions, system calls, moves by instruction."""

    def __init__(self):
        self.maps, self.moves, self.calls = [], {}, collections.Counter()
        self.instructions = 0


class Server:
    """A server whose threads are watched; `switch` counts while it is 1."""

    def __init__(self, program, plugin, folder, options):
        self.out, self.switch = folder / "out", folder / "switch"
        self.switch.write_bytes(b"\0")
        self.out.unlink(missing_ok=True)
        self.port = free_port()
        plugin = f"{plugin},switch={self.switch},out={self.out}"
        command = ["qemu-x86_64"]
        if preload := os.environ.get("PRELOAD"):
            command += ["-E", f"LD_PRELOAD={preload}"]
        command += ["-plugin", plugin, program, "serve", str(folder / "Data.fs")]
        command += ["-a", f"127.0.0.1:{self.port}", "--msgpack", "--log-level", "warn", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def connect(self):
        """A registered client."""
        deadline = time.monotonic() + 60
        while True:
            try:
                wire = Wire(("127.0.0.1", self.port), seconds=120)
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.1)
        wire.register()
        return wire

    @contextlib.contextmanager
    def counting(self):
        self._set(b"\1")
        yield
        self._set(b"\0")

    def stop(self):
        """Ends it, and reads what plugin.c has written."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        counts = Counts()
        for line in self.out.read_text().splitlines():
            words = line.split(" ", 4)
            if words[0] == "map":
                counts.maps.append((*(int(word, 16) for word in words[1:4]), words[4]))
            elif words[0] == "instructions":
                counts.instructions = int(words[1])
            elif words[0] == "call":
                counts.calls[CALLS.get(int(words[1]), f"call {words[1]}")] += int(words[2])
            else:
                counts.moves[int(words[0], 16)] = (int(words[1]), int(words[2]))
        return counts

    def _set(self, value):
        # What was under way ends first: timers, notices to other workers.
        time.sleep(0.3)
        with open(self.switch, "r+b") as file:
            file.write(value)


def fill(wire, clients):
    """Three objects for each client, and those to be loaded, in one transaction; their serials."""
    oids = [oid(n) for n in range(max(HOT, 3 * clients))]
    tid = wire.commit(b"fill", [(each, Z64, DATA) for each in oids])
    return dict.fromkeys(oids, tid)


def oid(number):
    return number.to_bytes(8, "big")


def loads(wires, times):
    """Each client loads an object, `times` times; all at once.  The number of loads."""
    for round_ in range(times):
        for at, wire in enumerate(wires):
            # As stock clients do it: the arguments are the id.
            wanted = (oid((round_ + at) % HOT), MAXTID)
            wire.send(wanted, False, "loadBefore", wanted)
        for at, wire in enumerate(wires):
            wire.reply((oid((round_ + at) % HOT), MAXTID))
    return times * len(wires)


def commits(wires, serials, times):
    """Each client changes three objects of its own, `times` times; all at once.  The commits."""
    for _ in range(times):
        asked = []
        for at, wire in enumerate(wires):
            txn = b"t%d" % at
            wire.notify("tpc_begin", txn, b"", b"", {}, None, " ")
            for mine in own(at):
                wire.notify("storea", mine, serials[mine], DATA, txn)
            asked.append(wire.request("vote", txn))
        for wire, number in zip(wires, asked):
            assert not wire.reply(number)
        asked = [wire.request("tpc_finish", b"t%d" % at) for at, wire in enumerate(wires)]
        for at, (wire, number) in enumerate(zip(wires, asked)):
            tid = wire.reply(number)
            serials.update((mine, tid) for mine in own(at))
            wire.notices.clear()
    return times * len(wires)


def own(client):
    return [oid(client * 3 + n) for n in range(3)]


def drain(wires):
    """Takes what has arrived."""
    for wire in wires:
        with contextlib.suppress(Silent):
            while True:
                wire.receive(0.001)


def measure(program, plugin, workers, clients, kind, times):
    """The counts, and how many operations they are of."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--workers={workers}", "--no-balance"]
        server = Server(program, plugin, pathlib.Path(folder), options)
        wires = [server.connect() for _ in range(clients)]
        serials = fill(wires[0], clients)
        drain(wires)
        run = loads if kind == "load" else lambda wires, times: commits(wires, serials, times)
        run(wires, 2 * HOT)
        with server.counting():
            operations = run(wires, times)
        for wire in wires:
            wire.close()
        return server.stop(), operations


def by_place(counts):
    """Moves by place in the sources."""
    files = collections.defaultdict(list)
    for address, moves in counts.moves.items():
        for start, end, _, path in counts.maps:
            if start <= address < end:
                base = min(m[0] - m[2] for m in counts.maps if m[3] == path and m[2] == 0)
                files[path].append((address - base, moves))
                break
    result = {}
    for path, entries in files.items():
        names = places(path, [address for address, _ in entries])
        for name, (_, (reads, writes)) in zip(names, entries):
            before = result.get(name, (0, 0))
            result[name] = (before[0] + reads, before[1] + writes)
    return result


def places(path, addresses):
    """For each address the innermost place in the project's own crates, else the function."""
    text = "\n".join(hex(address) for address in addresses)
    command = ["addr2line", "-a", "-i", "-f", "-C", "-e", path]
    output = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    names = []
    for block in re.split(r"^0x[0-9a-f]+\n", output, flags=re.M)[1:]:
        lines = block.splitlines()
        frames = list(zip(lines[::2], lines[1::2]))
        names.append(place(frames, os.path.basename(path)))
    return names


def place(frames, program):
    """A name for inlined frames, the innermost first."""
    for function, file in frames:
        if match := OWN.search(file):
            return f"{match[1]}  {short(function)}"
    # Inlined into no code of ours: the crate or library whose function that is.
    function, file = frames[-1]
    crate = re.search(r"/registry/src/[^/]+/(.+?)-[0-9]", file)
    library = crate[1] if crate else "std" if "/library/" in file else program
    return f"{library}  {short(function)}"


def short(function):
    """A function's path without its generic arguments and hash."""
    function, changed = re.sub(r"::h[0-9a-f]{16}$", "", function), True
    while changed:
        function, changed = re.subn(r"<[^<>]*>", "", function)
    return function


def by_file(moves):
    """The moves by source file, or by library."""
    files = collections.defaultdict(lambda: (0, 0))
    for name, (reads, writes) in moves.items():
        file = name.split("  ")[0].split(":")[0]
        files[file] = (files[file][0] + reads, files[file][1] + writes)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="zodium")
    parser.add_argument("--workers", default="1,4,16")
    parser.add_argument("--clients", default="16")
    parser.add_argument("--kinds", default="load,commit")
    parser.add_argument("--times", type=int, default=20, help="operations of each client")
    parser.add_argument(
        "--lines", action="store_true", help="show each line of the sources, not files"
    )
    parser.add_argument(
        "--least", type=float, default=0.05, help="moves an operation that are shown"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plugin = compile_plugin(pathlib.Path(folder))
        for kind in options.kinds.split(","):
            for clients in map(int, options.clients.split(",")):
                for workers in map(int, options.workers.split(",")):
                    counts, operations = measure(
                        options.program, plugin, workers, clients, kind, options.times
                    )
                    print(f"\n{kind}: {clients} clients, {workers} workers")
                    show(counts, operations, options)


def show(counts, operations, options):
    moves = by_place(counts)
    if not options.lines:
        moves = by_file(moves)
    reads, writes = (sum(entry[at] for entry in moves.values()) / operations for at in (0, 1))
    print(f"  instructions {counts.instructions / operations:.0f}")
    calls = [
        f"{name} {count / operations:.2f}"
        for name, count in counts.calls.most_common()
        if count / operations >= 0.005
    ]
    print(f"  system calls {sum(counts.calls.values()) / operations:.2f}: {', '.join(calls)}")
    print(f"  lines moved by reads {reads:.2f}, by writes {writes:.2f}")
    for name, (reads, writes) in sorted(moves.items(), key=lambda entry: -sum(entry[1])):
        if (reads + writes) / operations >= options.least:
            print(f"  {reads / operations:9.2f} {writes / operations:7.2f}  {name}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
