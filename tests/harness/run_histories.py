"""Runs random histories (harness/histories.py), many at once, and sums up what they met.

    python -m harness.run_histories --count 1000 --jobs 2 [--seed N] [--keep FOLDER]

Each history has a seed of its own, so that a fault is replayed alone.
"""

import argparse
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from .histories import SIZES, Fault, World


def run_one(seed, sizes=SIZES, keep=None, parent=None):
    """(seed, seconds, counts, "" or the fault with its history)."""
    started = time.monotonic()
    folder = tempfile.mkdtemp(prefix=f"history-{seed}-", dir=parent)
    world = None
    fault = ""
    try:
        world = World(seed, folder, sizes)
        world.run()
    except Fault as found:
        fault = str(found)
    except Exception:
        fault = f"harness: {traceback.format_exc()}"
    if fault and world:
        fault += "\n    ".join(["", *world.steps])
    if fault and keep:
        kept = Path(keep) / f"history-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
        (kept / "fault.txt").write_text(fault)
    shutil.rmtree(folder, ignore_errors=True)
    counts = world.counts if world else Counter()
    return seed, time.monotonic() - started, counts, fault


def main():
    logging.getLogger().addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="histories to run")
    parser.add_argument("--seed", type=int, help="the first seed [default: the time]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once")
    parser.add_argument("--keep", help="a folder for the files of the histories that fail")
    parser.add_argument("--folder", help="where the files are [default: the temporary folder]")
    parser.add_argument("--minutes", type=float, help="begin no further history after so long")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(time.time()) * 1000
    sys.exit(run_all(options, range(seed, seed + options.count)))


def run_all(options, seeds):
    """Run them, print each fault and a summary; the exit code."""
    started = time.monotonic()
    total, faults, done = Counter(), [], 0
    jobs = [(seed, SIZES, options.keep, options.folder) for seed in seeds]
    with multiprocessing.Pool(options.jobs, maxtasksperchild=20) as pool:
        for seed, seconds, counts, fault in pool.imap_unordered(run_job, jobs):
            done += 1
            total += counts
            if fault:
                faults.append((seed, fault))
                print(f"FAULT in history {seed} ({seconds:.1f} s): {fault}", flush=True)
                print(f"  replay: make histories HISTORIES=1 SEED={seed}", flush=True)
            elapsed = time.monotonic() - started
            if done % 25 == 0:
                print(f"{done} histories, {len(faults)} faults, {elapsed:.0f} s", flush=True)
            if options.minutes and elapsed > options.minutes * 60:
                pool.terminate()
                break
    kinds = Counter(fault.split(":")[0] for _, fault in faults)
    print(f"{done} histories in {time.monotonic() - started:.0f} s: {len(faults)} with a fault")
    print("  faults:", dict(kinds) or "none")
    print("  seeds:", [seed for seed, _ in faults] or "none")
    print("  steps:", dict(total.most_common()))
    return 1 if faults else 0


def run_job(job):
    return run_one(*job)


if __name__ == "__main__":
    main()
