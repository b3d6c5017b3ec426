"""Times a Plone site with cold caches: ZEO's client and server, and Zodium's.

The site's file in the process itself is the bound: what is left there is the work of Plone.

`make plone-speed` runs it. Each measurement is a process of its own with empty caches. Its code is
warm: the process is forked from one that has shown the same pages over a copy of the site in a
file. With --processes, whole starts of an instance are measured as well, imports included.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import servers
from plone_application import configured, request

HERE = pathlib.Path(__file__).parent
ZEO, ZODIUM, FILE = "ZEO", "zodium", "file"
# A name, its server, its client, and whether it keeps a warm-up list.
VARIANTS = (
    ("ZEO, ZEO", ZEO, ZEO, False),
    ("Zodium, ZEO", ZODIUM, ZEO, False),
    ("Zodium, Zodium without list", ZODIUM, ZODIUM, False),
    ("Zodium, Zodium", ZODIUM, ZODIUM, True),
    ("ZEO, Zodium", ZEO, ZODIUM, True),
    ("a file", None, FILE, False),
)
OURS = "Zodium, Zodium"
SECTIONS = {
    ZEO: """
        <clientstorage>
            server 127.0.0.1:{port}
            cache-size 128MB
            blob-dir {folder}/blobs
            wait-timeout 60
        </clientstorage>""",
    ZODIUM: """
        <zodium>
            server 127.0.0.1:{port}
            cache-size 128MB
            warm-up {warm_up}
            blob-dir {folder}/blobs
            wait-timeout 60
        </zodium>""",
    FILE: """
        <filestorage>
            path {folder}/Data.fs
            blob-dir {folder}/blobs
        </filestorage>""",
}
FIRST, SECOND = "/Plone/folder-1", "/Plone/folder-1/page-7"
SEARCH = "/Plone/@search?SearchableText=garden&sort_on=modified&b_size=100"
JSON = "application/json"
STEPS = ("open", "first page", "second page", "search", "new page", "first page again")


def main():
    options = arguments()
    if options.visit:
        visit(options.folder, json.loads(options.visit))
        return
    site = options.folder / "site"
    if not (site / "Data.fs").exists():
        create = [sys.executable, HERE / "create.py", site, str(options.documents)]
        subprocess.run(create, check=True)
    results = {}
    for milliseconds in options.round_trips:
        with servers.started(options, site, milliseconds) as ports:
            measure_forked(options, ports, milliseconds, results)
            for _ in range(options.processes):
                measure_processes(options, ports, milliseconds, results)
    print_tables(results)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="?", help="zodium")
    parser.add_argument("bench", nargs="?", help="zodium-bench, for its delaying proxy")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("var/plone-speed"))
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=0, help="rounds of whole starts")
    parser.add_argument("--round-trips", type=float, nargs="+", default=[0, 1], help="in ms")
    parser.add_argument("--visit", help=argparse.SUPPRESS)
    return parser.parse_args()


def section(options, ports, variant):
    """The section of a configuration for the storage of a variant, and its import."""
    name, server, client, is_warm = variant
    folder = options.folder.resolve() / name.replace(", ", "-").replace(" ", "-")
    if client == FILE and not folder.exists():
        shutil.copytree(options.folder / "site", folder)
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    warm_up = f"{folder}/warm-up" if is_warm else "off"
    text = SECTIONS[client].format(port=ports.get(server), folder=folder, warm_up=warm_up)
    return folder, "" if client == FILE else f"%import {client}", text


# Forked processes: the code is warm.


def measure_forked(options, ports, milliseconds, results):
    """In a process of its own: Zope is configured once in a process."""
    read, write = os.pipe()
    if os.fork() == 0:
        with leaving(), os.fdopen(write, "w") as output:
            warm_code(options)
            # The first round writes the lists.
            for number in range(options.rounds + 1):
                for variant in VARIANTS:
                    found = forked(section(options, ports, variant), number)
                    if number > 0:
                        print(json.dumps([variant[0], found]), file=output, flush=True)
    os.close(write)
    with os.fdopen(read) as lines:
        for name, found in map(json.loads, lines):
            for step, values in found.items():
                results.setdefault((milliseconds, name, step), []).append(values)
    _, status = os.wait()
    if status != 0:
        sys.exit("a measurement failed")


def warm_code(options):
    copy = options.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(options.folder / "site", copy)
    path = copy.resolve()
    storage = f"<filestorage>\npath {path}/Data.fs\nblob-dir {path}/blobs\n</filestorage>"
    configured(copy, storage)
    count_loads()
    for number in range(3):
        pages(number)


def forked(section, number):
    """What a new process measures."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with leaving(), os.fdopen(write, "w") as output:
            json.dump(with_storage(section, number), output)
    os.close(write)
    with os.fdopen(read) as lines:
        text = lines.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError("a measurement failed")
    return json.loads(text)


@contextlib.contextmanager
def leaving():
    """A forked process does not return to what its parent does next."""
    try:
        yield
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def with_storage(section, number):
    import ZODB.config
    import Zope2
    from Zope2.App.ClassFactory import ClassFactory

    _, imports, storage = section
    before, began = loaded(), time.perf_counter()
    text = f"{imports}\n<zodb>\ncache-size 30000\n{storage}\n</zodb>"
    database = ZODB.config.databaseFromString(text)
    database.classFactory = ClassFactory
    Zope2.bobo_application._db = database
    found = {"open": [time.perf_counter() - began, *since(before)]}
    found.update(pages(number))
    found["cold start"] = [sum(values) for values in zip(found["open"], found["first page"])]
    database.close()
    return found


def pages(number):
    """Seconds, seconds of loads, loads, and processor seconds of each request."""
    requests = (FIRST, SECOND, SEARCH, f"/Plone/folder-2/page-{20 + number}", FIRST)
    found = {}
    for step, path in zip(STEPS[1:], requests):
        before = loaded()
        seconds, _ = request(path, JSON if step == "search" else "text/html")
        found[step] = [seconds, *since(before)]
    return found


# What the storage was asked for.

totals = [0.0, 0]


def count_loads():
    from ZODB.mvccadapter import MVCCAdapterInstance

    load = MVCCAdapterInstance.load

    def counted(self, oid):
        began = time.perf_counter()
        try:
            return load(self, oid)
        finally:
            totals[0] += time.perf_counter() - began
            totals[1] += 1

    MVCCAdapterInstance.load = counted


def loaded():
    return (*totals, time.process_time())


def since(before):
    return [now - then for now, then in zip(loaded(), before)]


# Whole processes: an instance is started, and shows its first page.


def measure_processes(options, ports, milliseconds, results):
    for variant in VARIANTS:
        folder, imports, storage = section(options, ports, variant)
        given = json.dumps([str(folder), imports, storage])
        command = [sys.executable, __file__, "--folder", options.folder, "--visit", given]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        for step, values in json.loads(ended.stdout.splitlines()[-1]).items():
            results.setdefault((milliseconds, variant[0], step), []).append(values)


def visit(folder, given):
    began = time.perf_counter()
    count_loads()
    configured(*(given[i] for i in (0, 2, 1)))
    found = {"instance's start": [time.perf_counter() - began, *loaded()]}
    before = loaded()
    seconds, _ = request(FIRST)
    found["instance's first page"] = [seconds, *since(before)]
    import Zope2

    Zope2.bobo_application._db.close()
    print(json.dumps(found))


def print_tables(results):
    names = [name for name, *_ in VARIANTS]
    for index, title in ((0, "ms"), (1, "ms in loads"), (3, "CPU ms")):
        print(f"\n| round trip ms | {title} |", " | ".join(names), "| ZEO, ZEO / Zodium, Zodium |")
        print("|--:|---|" + "--:|" * (len(names) + 1))
        for milliseconds, step in dict.fromkeys((row, step) for row, _, step in results):
            measured = [
                [1e3 * values[index] for values in results[milliseconds, name, step]]
                for name in names
            ]
            print(
                f"| {milliseconds:g} | {step} |", *(f"{spread(one)} |" for one in measured), end=""
            )
            # Of the same round: a busy machine slows down all variants. A millisecond at least.
            pairs = zip(measured[0], measured[names.index(OURS)])
            print(f" {spread([one / max(other, 1) for one, other in pairs], 1)} |")


def spread(values, digits=0):
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


if __name__ == "__main__":
    main()
