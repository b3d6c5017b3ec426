"""Reads of what is not there, and iterators misused."""

from harness.wire import MAXTID, Z64

from .calls import kind
from .stage import after_notice, aftermath, answer, scenario


def missing(name, *args):
    @scenario(f"unknown oid: {name}")
    def play(stage):
        return answer(stage.client(), name, stage.oid(), *args)


missing("loadBefore", MAXTID)
missing("loadBefore", Z64)
missing("loadSerial", MAXTID)
missing("getTid")
missing("history", 1)


@scenario("unknown oid: record_iternext")
def iterate_from_nowhere(stage):
    return kind(answer(stage.client(), "record_iternext", stage.oid()))


@scenario("existing oid: loads at every edge")
def edges(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    later = (int.from_bytes(tid, "big") + 1).to_bytes(8, "big")
    oid = stage.oid()
    return [
        answer(wire, "loadBefore", oid, Z64),
        answer(wire, "loadBefore", oid, tid),
        answer(wire, "loadBefore", oid, later),
        answer(wire, "loadBefore", oid, b"\xff" * 8),
        answer(wire, "loadSerial", oid, Z64),
        answer(wire, "loadSerial", oid, later),
        answer(wire, "loadSerial", oid, tid),
        answer(wire, "getTid", oid),
    ]


@scenario("history: sizes")
def history_sizes(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    stage.stored(wire, data=b"second", serial=tid)
    found = {}
    for size in (-1, 0, 1, 2, 3, 1 << 40):
        entries = wire.call("history", stage.oid(), size)
        found[size] = [(sorted(entry), entry["size"]) for entry in entries]
    return found, len(wire.call("history", stage.oid()))


@scenario("getInvalidations: from before, at and after the last tid")
def invalidations(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    last = stage.stored(wire, 1)
    after = (int.from_bytes(last, "big") + 1).to_bytes(8, "big")
    return [answer(wire, "getInvalidations", since) for since in (tid, last, after, MAXTID)]


@scenario("deleted object: every read")
def deleted(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    wire.notify("tpc_begin", 7, b"", b"", {}, None, " ")
    wire.notify("deleteObject", stage.oid(), tid, 7)
    wire.call("vote", 7)
    gone = wire.call("tpc_finish", 7)
    oid = stage.oid()
    return [
        answer(wire, "loadBefore", oid, MAXTID),
        answer(wire, "loadBefore", oid, gone),
        answer(wire, "loadSerial", oid, gone),
        answer(wire, "loadSerial", oid, tid),
        answer(wire, "getTid", oid),
        [entry["size"] for entry in answer(wire, "history", oid, 5)[1:][0]],
    ]


# --------------------------------------------------------------------- iterators


@scenario("iterator: unknown id")
def unknown_iterator(stage):
    return answer(stage.client(), "iterator_next", 77)


@scenario("iterator: unknown record iterator id")
def unknown_record_iterator(stage):
    return answer(stage.client(), "iterator_record_next", 77)


@scenario("iterator: records of an unknown one")
def records_of_unknown(stage):
    return answer(stage.client(), "iterator_record_start", 77, Z64)


@scenario("iterator: records before the first transaction")
def records_too_early(stage):
    wire = stage.client()
    stage.stored(wire)
    number = wire.call("iterator_start", None, None)
    return answer(wire, "iterator_record_start", number, Z64)


@scenario("iterator: records of another transaction than the last")
def records_out_of_order(stage):
    wire = stage.client()
    stage.stored(wire)
    number = wire.call("iterator_start", None, None)
    wire.call("iterator_next", number)
    return kind(answer(wire, "iterator_record_start", number, Z64))


@scenario("iterator: someone else's")
def foreign_iterator(stage):
    wire, other = stage.client(), stage.client()
    number = wire.call("iterator_start", None, None)
    return number, answer(other, "iterator_next", number)


@scenario("iterator: used on after its end")
def past_the_end(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    number = wire.call("iterator_start", tid, tid)
    return [answer(wire, "iterator_next", number) for _ in range(3)]


@scenario("iterator: a transaction iterator used as a record iterator")
def wrong_kind(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    number = wire.call("iterator_start", tid, tid)
    first = answer(wire, "iterator_next", number)
    records = wire.call("iterator_record_start", number, tid)
    return first, records, kind(answer(wire, "iterator_next", records)), aftermath(wire)


@scenario("iterator: start after stop")
def backwards(stage):
    wire = stage.client()
    first = stage.stored(wire)
    last = stage.stored(wire, 1)
    number = wire.call("iterator_start", last, first)
    return answer(wire, "iterator_next", number)


@scenario("iterator: start in the future")
def from_the_future(stage):
    wire = stage.client()
    number = wire.call("iterator_start", MAXTID, None)
    return answer(wire, "iterator_next", number)


@scenario("iterator_gc: unknown ids")
def collect_unknown(stage):
    wire = stage.client()
    return after_notice(wire, "iterator_gc", [5, 6]), answer(wire, "iterator_gc", [5])


@scenario("iterator_gc: a live one is gone")
def collect_live(stage):
    wire = stage.client()
    number = wire.call("iterator_start", None, None)
    wire.notify("iterator_gc", [number])
    return answer(wire, "iterator_next", number)


@scenario("iterator: ids count up and are shared with record iterators")
def counted(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    numbers = [wire.call("iterator_start", tid, tid) for _ in range(3)]
    wire.call("iterator_next", numbers[1])
    return numbers, wire.call("iterator_record_start", numbers[1], tid)
