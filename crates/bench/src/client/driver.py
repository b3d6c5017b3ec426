"""Run one case of a Python client, given as JSON in the only argument; print results as JSON lines.

Only the operation itself is timed, with the processor time of the whole process. Checksums over
everything loaded are computed afterwards. Each pass has a new client with an empty cache; the
first pass is not reported. crates/bench/src/client/native.rs does the same without Python.
"""

import json
import os
import sys
import tempfile
import threading
import time
import zlib

JOB = json.loads(sys.argv[1])
CACHE_BYTES = 256 << 20
CLASS = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\0."
BEFORE = b"\x7f" + b"\xff" * 7  # After all that was ever committed.
OIDS = [number.to_bytes(8, "big") for number in range(JOB["objects"])]


def connect():
    address = (JOB["host"], JOB["port"])
    if JOB["client"] == "zodium":
        from zodium import ClientStorage
    else:
        from ZEO.ClientStorage import ClientStorage
    return ClientStorage(address, wait_timeout=30, cache_size=CACHE_BYTES)


def timed(run):
    """Return its result, the elapsed time and the processor time of the process."""
    cpu, began = time.process_time(), time.perf_counter()
    result = run()
    return result, (time.perf_counter() - began, time.process_time() - cpu)


def tell(step, count, taken, data):
    checksum = 0
    for record in data:
        checksum = zlib.crc32(record, checksum)
    seconds, cpu_seconds = taken
    line = {"step": step, "count": count, "seconds": seconds, "cpu_seconds": cpu_seconds}
    print(json.dumps({**line, "crc32": f"{checksum:08x}"}))


def again_and_again(one_pass):
    """Repeat a pass until the measurement is long enough; the first pass warms up."""
    one_pass(lambda *line: None)
    began = time.perf_counter()
    while True:
        one_pass(tell)
        if time.perf_counter() - began > JOB["seconds"]:
            break


def load(tell):
    storage = connect()
    for step in "uncached", "cached":
        data, taken = timed(lambda: [storage.loadBefore(oid, BEFORE)[0] for oid in OIDS])
        tell(step, len(OIDS), taken, data)
    storage.close()


def threads(tell):
    storage = connect()
    count = JOB["threads"]
    parts = [None] * count

    def load_part(part):
        parts[part] = [storage.loadBefore(oid, BEFORE)[0] for oid in OIDS[part::count]]

    def load_all():
        running = [threading.Thread(target=load_part, args=(part,)) for part in range(count)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    _, taken = timed(load_all)
    # Back in the order of the oids.
    data = [parts[index % count][index // count] for index in range(len(OIDS))]
    tell("uncached", len(OIDS), taken, data)
    storage.close()


def bulk(tell):
    storage = connect()

    def load_all():
        storage.prefetch(OIDS, BEFORE)
        return [storage.loadBefore(oid, BEFORE)[0] for oid in OIDS]

    data, taken = timed(load_all)
    tell("bulk", len(OIDS), taken, data)
    storage.close()


def commit():
    from ZODB.Connection import TransactionMetaData

    storage = connect()
    oids = [storage.new_oid() for _ in range(JOB["objects"])]
    serials = [bytes(8)] * len(oids)
    pool = os.urandom(1 << 16)
    count = 0

    def data_of(oid, count):
        state = oid + count.to_bytes(8, "big")
        state += pool[count % 1000 :][: JOB["bytes"] - len(CLASS) - len(state) - 8]
        return CLASS + b"\x80\x03B" + len(state).to_bytes(4, "little") + state + b"."

    def commit_one():
        nonlocal serials, count
        count += 1
        transaction = TransactionMetaData("user", "a commit", {})
        storage.tpc_begin(transaction)
        for oid, serial in zip(oids, serials):
            storage.store(oid, serial, data_of(oid, count), "", transaction)
        storage.tpc_vote(transaction)
        serials = [storage.tpc_finish(transaction)] * len(oids)

    def commit_for(seconds):
        done, began = 0, time.perf_counter()
        while not done or time.perf_counter() - began < seconds:
            commit_one()
            done += 1
        return done

    commit_for(JOB["warm_up"])
    done, taken = timed(lambda: commit_for(JOB["seconds"]))
    storage.close()
    storage = connect()
    for oid in oids:
        data, serial = storage.loadBefore(oid, BEFORE)[:2]
        if (data, serial) != (data_of(oid, count), serials[0]):
            sys.exit(f"the data of object {oid.hex()} are not what was stored")
    tell("commit", done, taken, [])
    storage.close()


def iterate():
    storage = connect()
    stop = bytes.fromhex(JOB["last_tid"])

    def records():
        found, patience = [], time.perf_counter() + JOB["patience"]
        for transaction in storage.iterator(None, stop):
            found.extend(record.data for record in transaction)
            if time.perf_counter() > patience:
                break
        return found

    data, taken = timed(records)
    tell("record", len(data), taken, data)
    storage.close()


def main():
    # ZEO's client writes files.
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        case = JOB["case"]
        if case in ("commit", "iterate"):
            {"commit": commit, "iterate": iterate}[case]()
        else:
            again_and_again({"load": load, "threads": threads, "bulk": bulk}[case])


main()
