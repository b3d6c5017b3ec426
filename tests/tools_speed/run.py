"""Processor time of the tools for databases, beside the stock tools on the same file.

`make tools-speed` runs it; with ZODBTOOLS=PYTHON, a Python with zodbtools, its commands run too.
Of the rounds of each command the least time counts: other programs only add to it.
"""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

STOCK = "from ZODB.{module} import {name}; import sys; {name}({arguments})"
# A name, the command, and the stock one: words for zodbtools, or a statement for ZODB's scripts.
COMMANDS = [
    ("dump", "dump {}", "dump {}"),
    ("analyze", "analyze {}", "analyze {}"),
    ("cmp", "cmp {} {}", "cmp {} {}"),
    ("info", "info {}", "info {}"),
    ("fsdump", "dump --format fsdump {}", ("FileStorage.fsdump", "fsdump", "sys.argv[1]")),
    ("stats", "stats {}", ("scripts.space", "run", "sys.argv[1]")),
    ("tail", "tail {}", ("scripts.fstail", "main", "sys.argv[1], 10")),
    ("oids", "oids {} 1000", None),
    ("refs", "refs {}", None),
    ("refs --to --path", "refs --to {oid} --path {}", None),
    ("check", "check {}", None),
    ("check --btrees", "check --btrees {}", None),
    ("catobj", "catobj {} 1000", None),
    ("dump --pretty", "dump --pretty zpickledis {}", None),
]
# As above, of commands that write into a new folder. The others need what the first ones made.
WRITING = [
    ("backup", "backup {file} {new}/own", None),
    ("restore", "restore {kept}/own {new}/file.fs", None),
    ("repozo", "backup --format repozo {file} {new}", "-B -F -r {new} -f {file}"),
    ("repozo restore", "restore {kept} {new}/file.fs", "-R -w -r {kept} -o {new}/file.fs"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("var/tools-speed"))
    parser.add_argument("--mb", type=int, default=450)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="names of commands, with commas between them")
    options = parser.parse_args()
    path = options.folder / f"{options.mb}.fs"
    if not path.exists():
        write(options.program, path, options.mb << 20)
    size = path.stat().st_size / 1e6
    print(f"{path}: {size:.0f} MB, processor seconds, the least of {options.rounds}")
    print(f"{'command':18}{'seconds':>9}{'MB/s':>8}{'memory':>9}{'stock':>9}{'times':>7}")
    for name, line, stock in COMMANDS:
        if options.only and name not in options.only.split(","):
            continue
        words = line.format(path, path, oid=objects_of(options.mb << 20) - 1).split(" ")
        seconds, memory = least([options.program, *words], options.rounds)
        row = f"{name:18}{seconds:9.3f}{size / max(seconds, 0.001):8.0f}{memory / 1024:7.0f} MB"
        if command := stock_command(stock, path):
            stock_seconds, _ = least(command, 1)
            row += f"{stock_seconds:9.2f}{stock_seconds / max(seconds, 0.001):7.1f}"
        print(row, flush=True)
    for name, line, stock in WRITING:
        if options.only and name not in options.only.split(","):
            continue
        print(row_of_writing(options, name, line, stock, path, size), flush=True)


def row_of_writing(options, name, line, stock, path, size):
    kept = options.folder / ("own" if "{kept}/own" in line else "repozo")
    if "{kept}" in line and not kept.exists():
        kept.mkdir()
        making = WRITING[0 if kept.name == "own" else 2][1]
        run([options.program, *making.format(file=path, new=kept).split(" ")])

    def measured(words, line):
        with tempfile.TemporaryDirectory(dir=options.folder) as new:
            return run([*words, *line.format(file=path, new=new, kept=kept).split(" ")])

    seconds, memory = min(measured([options.program], line) for _ in range(options.rounds))
    row = f"{name:18}{seconds:9.3f}{size / seconds:8.0f}{memory / 1024:7.0f} MB"
    if stock:
        repozo = [sys.executable, "-m", "ZODB.scripts.repozo"]
        stock_seconds, _ = min(measured(repozo, stock) for _ in range(options.rounds))
        row += f"{stock_seconds:9.2f}{stock_seconds / seconds:7.1f}"
    return row


def stock_command(stock, path):
    if isinstance(stock, tuple):
        module, name, arguments = stock
        return [
            sys.executable,
            "-c",
            STOCK.format(module=module, name=name, arguments=arguments),
            path,
        ]
    python = os.environ.get("ZODBTOOLS")
    if stock is None or python is None:
        return None
    return [python, "-m", "zodbtools.zodb", *stock.format(path, path).split(" ")]


def least(words, rounds):
    return min(run(words) for _ in range(rounds))


def run(words):
    """Processor seconds and most kilobytes of memory of a program."""
    with open(os.devnull, "wb") as nowhere:
        pid = os.posix_spawn(
            str(words[0]),
            [str(word) for word in words],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)],
        )
        _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{words}: exit status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss


OBJECT_BYTES = 1300
PER_TRANSACTION = 100
CHILDREN = 10


def objects_of(size):
    return size // (OBJECT_BYTES + 42)


def write(program, path, size):
    """Objects that refer to ten others each, so that all are reached from the root."""
    path.parent.mkdir(parents=True, exist_ok=True)
    objects = objects_of(size)
    loading = subprocess.Popen([program, "load", "-q", str(path)], stdin=subprocess.PIPE)
    with loading.stdin as dump:
        for first in range(0, objects, PER_TRANSACTION):
            tid = 0x0400_0000_0000_0000 + first * 1_000_000
            dump.write(b'txn %016x " "\nuser ""\ndescription ""\nextension ""\n' % tid)
            for oid in range(first, min(first + PER_TRANSACTION, objects)):
                data = record(oid, objects)
                digest = hashlib.sha1(data).hexdigest().encode()
                dump.write(b"obj %016x %d sha1:%s\n%s\n" % (oid, len(data), digest, data))
            dump.write(b"\n")
    if loading.wait():
        raise SystemExit("the file was not written")


def record(oid, objects):
    class_ = b"cpersistent.mapping\nPersistentMapping\n"
    references = b"".join(
        b"(U\x08" + child.to_bytes(8, "big") + class_ + b"tQ"
        for child in range(oid * CHILDREN + 1, (oid + 1) * CHILDREN + 1)
        if child < objects
    )
    head = b"\x80\x03" + class_ + b"q\x01.\x80\x03}q\x02(U\x04data(" + references + b"l"
    text = b"%012d" % oid * ((OBJECT_BYTES - len(head)) // 12)
    return head + b"U\x04textX" + len(text).to_bytes(4, "little") + text + b"u."


if __name__ == "__main__":
    main()
