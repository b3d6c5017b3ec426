"""The two-phase commit, in the wrong order or by the wrong client."""

import time

from harness.wire import MAXTID, Z64

from .calls import ARGUMENTS, kind
from .stage import after_notice, aftermath, answer, equals_or_refuses, refuses, scenario

BEGIN = ARGUMENTS["tpc_begin"]
UNKNOWN_TID = b"\0\0\0\0\0\0\0\1"

STATUS = "the stock server writes it into the file, which then cannot be read or loses it"
OUTSIDE = "no client sends it; refusing is as good as taking it"


def begun(stage, txn=7, wire=None):
    wire = wire or stage.client()
    wire.notify("tpc_begin", txn, b"", b"", {}, None, " ")
    return wire


def loaded(wire, oid):
    """The data other clients find for `oid`, or why they find none."""
    found = answer(wire, "loadBefore", oid, MAXTID)
    return found[1][0] if found[0] == "ok" and found[1] else kind(found)


# -------------------------------------------------------- without a transaction


def without_begin(name):
    args = ARGUMENTS[name]

    @scenario(f"no transaction: {name}")
    def play(stage):
        wire = stage.client()
        return answer(wire, name, *args), aftermath(wire)

    @scenario(f"no transaction: {name}, asynchronous")
    def play_notice(stage):
        return after_notice(stage.client(), name, *args)

    @scenario(f"another transaction: {name}")
    def play_other(stage):
        wire = begun(stage, 8)
        return answer(wire, name, *args), aftermath(wire)


for _name in (
    "storea",
    "deleteObject",
    "checkCurrentSerialInTransaction",
    "restorea",
    "vote",
    "tpc_finish",
    "tpc_abort",
):
    without_begin(_name)


@scenario("someone else's transaction: vote, finish and abort, which leave it whole")
def foreign(stage):
    owner, other = begun(stage), stage.client()
    owner.notify("storea", stage.oid(), Z64, b"owner's", 7)
    vote = answer(other, "vote", 7)
    finish = answer(other, "tpc_finish", 7)
    abort = answer(other, "tpc_abort", 7)
    own = kind(answer(owner, "vote", 7)), kind(answer(owner, "tpc_finish", 7))
    return vote, finish, abort, own, loaded(other, stage.oid())


@scenario("someone else's transaction while both have number 7: each keeps its own")
def same_number(stage):
    first, second = begun(stage), begun(stage)
    first.notify("storea", stage.oid(0), Z64, b"first's", 7)
    second.notify("storea", stage.oid(1), Z64, b"second's", 7)
    seen = [
        kind(answer(wire, name, 7)) for wire in (first, second) for name in ("vote", "tpc_finish")
    ]
    return seen, loaded(first, stage.oid(0)), loaded(first, stage.oid(1))


# ----------------------------------------------------------------------- begin


@scenario("begin: twice with the same number")
def begin_again(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"kept", 7)
    end = after_notice(wire, "tpc_begin", *BEGIN)
    return (
        end,
        kind(answer(wire, "vote", 7)),
        kind(answer(wire, "tpc_finish", 7)),
        loaded(wire, stage.oid()),
    )


@scenario("begin: twice with different numbers")
def begin_another(stage):
    return after_notice(begun(stage, 8), "tpc_begin", *BEGIN)


@scenario("begin: twice with different numbers, synchronous")
def begin_another_call(stage):
    wire = begun(stage, 8)
    return answer(wire, "tpc_begin", *BEGIN), kind(answer(wire, "vote", 8))


@scenario("begin: synchronous")
def begin_call(stage):
    return answer(stage.client(), "tpc_begin", *BEGIN)


@scenario("begin: transaction numbers of many kinds")
def transaction_numbers(stage):
    seen = {}
    for txn in (0, -1, 1 << 40, (1 << 64) - 1, "text", b"bytes", None, 1.5):
        wire = begun(stage, txn)
        seen[repr(txn)] = kind(answer(wire, "vote", txn)), kind(answer(wire, "tpc_finish", txn))
        wire.close()
    return seen


def committed_with(
    name,
    user=b"",
    description=b"",
    extension=(),
    tid=None,
    status=" ",
    encodings="ZM",
    **options,
):
    """What becomes of a transaction begun so: begin, vote, finish."""
    begin = user, description, {} if extension == () else extension, tid, status

    @scenario(f"begin: {name}", encodings=encodings, **options)
    def play(stage):
        wire = stage.client()
        end = after_notice(wire, "tpc_begin", 7, *begin)
        if end[-1] != "open":
            return end
        wire.notify("storea", stage.oid(), Z64, b"data", 7)
        return end, answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7))


committed_with("description of 65,535 bytes", description=b"d" * 65535)
committed_with("description of 65,536 bytes", description=b"d" * 65536)
committed_with("user of 65,536 bytes", user=b"u" * 65536)
committed_with("extension of over 65,535 bytes", extension={"x": "y" * 65536})
committed_with("user is not UTF-8", user=b"\xff")
committed_with("extension is None", extension=None)
committed_with("status p", status="p")

for _name, _begin in {
    "user is text": {"user": "user"},
    "description is None": {"description": None},
    "extension is a pickle": {"extension": b"\x80\x03}X\x01\x00\x00\x00aK\x01s."},
    "extension is empty bytes": {"extension": b""},
    "extension is garbage bytes": {"extension": b"garbage"},
    "extension is a list": {"extension": []},
    "extension is a list of pairs": {"extension": [("a", 1)]},
    "extension with bytes as key": {"extension": {b"a": 1}},
    "extension with an int as key": {"extension": {1: 1}, "encodings": "Z"},
    "tid of 5 bytes": {"tid": b"12345"},
    "tid is an int": {"tid": 12345},
}.items():
    committed_with(_name, **_begin, judge=equals_or_refuses, because=OUTSIDE)


def status_of(name, status):
    @scenario(f"begin: status {name}", judge=refuses_or_keeps_sane, because=STATUS)
    def play(stage):
        wire = stage.client()
        end = after_notice(wire, "tpc_begin", 7, b"", b"", {}, None, status)
        if end[-1] != "open":
            return end
        vote = answer(wire, "vote", 7)
        if vote[0] != "ok":
            return vote
        tid = wire.call("tpc_finish", 7)
        number = wire.call("iterator_start", tid, tid)
        found = wire.call("iterator_next", number)
        return "written as", found and found[1]


def refuses_or_keeps_sane(found, stock):
    return refuses(found) or found in (("written as", " "), ("written as", "p"))


for _name, _status in [
    ("x", "x"),
    ("c", "c"),
    ("of two letters", "pp"),
    ("empty", ""),
    ("bytes", b"p"),
    ("not ASCII", "é"),
]:
    status_of(_name, _status)


@scenario(
    "begin: a tid that is not above the last",
    judge=lambda found, stock: found[-1] is True,
    because="the stock server would write it out of order; a server must not go back in time",
)
def tid_in_the_past(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    end = after_notice(wire, "tpc_begin", 7, b"", b"", {}, UNKNOWN_TID, " ")
    vote = answer(wire, "vote", 7)
    answer(wire, "tpc_abort", 7)
    return end, vote, stage.client().call("lastTransaction") == tid


# ------------------------------------------------------------------------ store


@scenario("store: one oid three times; the last wins")
def last_wins(stage):
    wire = begun(stage)
    for data in (b"one", b"two", b"three"):
        wire.notify("storea", stage.oid(), Z64, data, 7)
    return answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7)), loaded(wire, stage.oid())


@scenario("store: a new oid with a serial")
def new_with_serial(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), MAXTID, b"data", 7)
    return answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7)), loaded(wire, stage.oid())


@scenario(
    "store: empty data",
    judge=refuses,
    because="the stock server writes a record that cannot be read again",
)
def empty_data(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"", 7)
    return answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7)), loaded(wire, stage.oid())


@scenario("store: over a deleted object")
def over_deleted(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    begun(stage, 7, wire).notify("deleteObject", stage.oid(), tid, 7)
    wire.call("vote", 7)
    gone = wire.call("tpc_finish", 7)
    begun(stage, 8, wire).notify("storea", stage.oid(), gone, b"again", 8)
    return answer(wire, "vote", 8), kind(answer(wire, "tpc_finish", 8)), loaded(wire, stage.oid())


@scenario("store: over a deleted object as if it were new")
def over_deleted_as_new(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    begun(stage, 7, wire).notify("deleteObject", stage.oid(), tid, 7)
    wire.call("vote", 7)
    wire.call("tpc_finish", 7)
    begun(stage, 8, wire).notify("storea", stage.oid(), Z64, b"again", 8)
    return answer(wire, "vote", 8)


@scenario("store: after vote")
def store_after_vote(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(0), Z64, b"voted", 7)
    vote = answer(wire, "vote", 7)
    end = after_notice(wire, "storea", stage.oid(1), Z64, b"too late", 7)
    finish = kind(answer(wire, "tpc_finish", 7))
    other = stage.client()
    return vote, end, finish, loaded(other, stage.oid(0)), loaded(other, stage.oid(1))


@scenario("delete: an unknown oid")
def delete_unknown(stage):
    wire = begun(stage)
    wire.notify("deleteObject", stage.oid(), Z64, 7)
    return answer(wire, "vote", 7), answer(wire, "tpc_abort", 7)


@scenario("delete: with an old serial")
def delete_stale(stage):
    wire = stage.client()
    stage.stored(wire)
    begun(stage, 7, wire).notify("deleteObject", stage.oid(), UNKNOWN_TID, 7)
    return answer(wire, "vote", 7)


@scenario("restore: without a check, over anything")
def restore_over(stage):
    wire = stage.client()
    stage.stored(wire)
    begun(stage, 7, wire).notify("restorea", stage.oid(), UNKNOWN_TID, b"restored", None, 7)
    return answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7)), loaded(wire, stage.oid())


@scenario(
    "restore: from a transaction that is not there",
    judge=lambda found, stock: found == stock or found[-1] == b"restored",
    because="the source is a hint; FileStorage says so too, and fails by an oversight",
)
def restore_from_nowhere(stage):
    wire = begun(stage)
    wire.notify("restorea", stage.oid(), UNKNOWN_TID, b"restored", UNKNOWN_TID, 7)
    return answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7)), loaded(wire, stage.oid())


# ------------------------------------------------------------------------- vote


@scenario("conflict: store with an old serial; then abort")
def conflict(stage):
    wire = stage.client()
    stage.stored(wire)
    begun(stage, 7, wire).notify("storea", stage.oid(), UNKNOWN_TID, b"second", 7)
    vote, again = answer(wire, "vote", 7), answer(wire, "tpc_abort", 7)
    return vote, again, loaded(wire, stage.oid())


@scenario("conflict: two objects at once")
def two_conflicts(stage):
    wire = stage.client()
    stage.stored(wire, 0)
    stage.stored(wire, 1)
    begun(stage, 7, wire)
    for number in (0, 1):
        wire.notify("storea", stage.oid(number), UNKNOWN_TID, b"second", 7)
    kind_of, conflicts = answer(wire, "vote", 7)
    return kind_of, sorted(conflicts, key=lambda conflict: conflict["oid"])


@scenario("conflict: resolved by the client, voted again, finished")
def resolved(stage):
    wire = stage.client()
    tid = stage.stored(wire)
    begun(stage, 7, wire).notify("storea", stage.oid(), UNKNOWN_TID, b"second", 7)
    first = kind(answer(wire, "vote", 7))
    wire.notify("storea", stage.oid(), tid, b"resolved", 7)
    return (
        first,
        answer(wire, "vote", 7),
        kind(answer(wire, "tpc_finish", 7)),
        loaded(wire, stage.oid()),
    )


@scenario("conflict: finish without a second vote")
def finish_in_conflict(stage):
    wire = stage.client()
    stage.stored(wire)
    begun(stage, 7, wire).notify("storea", stage.oid(), UNKNOWN_TID, b"second", 7)
    wire.call("vote", 7)
    return kind(answer(wire, "tpc_finish", 7)), aftermath(wire), loaded(stage.client(), stage.oid())


@scenario("read conflict: the object has changed")
def read_conflict(stage):
    wire = stage.client()
    stage.stored(wire)
    begun(stage, 7, wire).notify("checkCurrentSerialInTransaction", stage.oid(), UNKNOWN_TID, 7)
    return answer(wire, "vote", 7), answer(wire, "vote", 7), answer(wire, "tpc_abort", 7)


@scenario("read conflict: an unknown oid")
def read_unknown(stage):
    wire = begun(stage)
    wire.notify("checkCurrentSerialInTransaction", stage.oid(), Z64, 7)
    return answer(wire, "vote", 7)


@scenario("vote: twice")
def vote_twice(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    return (
        answer(wire, "vote", 7),
        answer(wire, "vote", 7),
        kind(answer(wire, "tpc_finish", 7)),
        loaded(wire, stage.oid()),
    )


@scenario("vote: asynchronous, then finish")
def vote_notice(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    return after_notice(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7))


@scenario("vote: of an empty transaction, and finish")
def vote_empty(stage):
    wire = begun(stage)
    return answer(wire, "vote", 7), kind(answer(wire, "tpc_finish", 7))


def waiting(stage):
    """Two clients that want one object: the first has voted, the second waits."""
    first = stage.client()
    tid = stage.stored(first)
    second = stage.client()
    for wire, data in ((first, b"first's"), (second, b"second's")):
        begun(stage, 7, wire).notify("storea", stage.oid(), tid, data, 7)
    first.call("vote", 7)
    return first, second, second.request("vote", 7)


@scenario("vote: while waiting for someone else's lock")
def vote_waiting(stage):
    first, second, vote = waiting(stage)
    again = answer(second, "vote", 7)
    first.call("tpc_abort", 7)
    return again, second.reply(vote), kind(answer(second, "tpc_finish", 7))


@scenario("vote: a waiting client may ping, and abort")
def abort_waiting(stage):
    first, second, _ = waiting(stage)
    seen = answer(second, "ping"), answer(second, "tpc_abort", 7)
    finish = kind(answer(first, "tpc_finish", 7))
    return seen, finish, aftermath(second), loaded(second, stage.oid())


@scenario("vote: the lock's owner goes away")
def owner_leaves(stage):
    first, second, vote = waiting(stage)
    first.close()
    return second.reply(vote), kind(answer(second, "tpc_finish", 7)), loaded(second, stage.oid())


@scenario("vote: the one who waits goes away")
def waiter_leaves(stage):
    first, second, _ = waiting(stage)
    second.close()
    return kind(answer(first, "tpc_finish", 7)), loaded(first, stage.oid())


@scenario("vote: the one who waits loses, when the owner finishes")
def owner_finishes(stage):
    first, second, vote = waiting(stage)
    first.call("tpc_finish", 7)
    return second.reply(vote)


# --------------------------------------------------------------- finish and abort


@scenario("finish: without vote")
def finish_unvoted(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    return kind(answer(wire, "tpc_finish", 7)), aftermath(wire), loaded(stage.client(), stage.oid())


@scenario("finish: without vote, then vote and finish")
def finish_then_vote(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    return [kind(answer(wire, name, 7)) for name in ("tpc_finish", "vote", "tpc_finish")], loaded(
        stage.client(), stage.oid()
    )


@scenario("finish: twice")
def finish_twice(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    wire.call("vote", 7)
    return kind(answer(wire, "tpc_finish", 7)), answer(wire, "tpc_finish", 7)


@scenario("finish: asynchronous")
def finish_notice(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    wire.call("vote", 7)
    end, other = after_notice(wire, "tpc_finish", 7), stage.client()
    # A server may go on to the ping before the disk is done with the commit.
    for _ in range(100):
        if loaded(other, stage.oid()) == b"data":
            break
        time.sleep(0.02)
    return end, loaded(other, stage.oid())


@scenario("finish: of another number than voted; the lock is kept")
def finish_other(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    wire.call("vote", 7)
    return answer(wire, "tpc_finish", 8), kind(answer(wire, "tpc_finish", 7))


@scenario("abort: after vote; nothing is stored, and the next transaction works")
def abort_voted(stage):
    wire = begun(stage)
    wire.notify("storea", stage.oid(), Z64, b"data", 7)
    seen = answer(wire, "vote", 7), answer(wire, "tpc_abort", 7), loaded(wire, stage.oid())
    begun(stage, 8, wire)
    return seen, answer(wire, "vote", 8), kind(answer(wire, "tpc_finish", 8))


@scenario("abort: asynchronous")
def abort_notice(stage):
    wire = begun(stage)
    return after_notice(wire, "tpc_abort", 7), answer(wire, "vote", 7)


def leaves(name, votes):
    @scenario(f"the client goes away after {name}; nothing is stored")
    def play(stage):
        wire = begun(stage)
        wire.notify("storea", stage.oid(), Z64, b"data", 7)
        if votes:
            wire.call("vote", 7)
        else:
            wire.call("ping")
        wire.close()
        other = stage.client()
        begun(stage, 8, other).notify("storea", stage.oid(1), Z64, b"other's", 8)
        return (
            answer(other, "vote", 8),
            kind(answer(other, "tpc_finish", 8)),
            loaded(other, stage.oid(0)),
        )


leaves("store", False)
leaves("vote", True)


# -------------------------------------------------------------------- read-only


@scenario("read-only session: every call that writes")
def read_only(stage):
    seen = {}
    for name in (
        "tpc_begin",
        "storea",
        "deleteObject",
        "checkCurrentSerialInTransaction",
        "restorea",
        "vote",
        "tpc_finish",
        "tpc_abort",
        "new_oids",
    ):
        wire = stage.client(read_only=True)
        seen[name] = (
            answer(wire, name, *ARGUMENTS[name]),
            after_notice(wire, name, *ARGUMENTS[name]),
        )
        wire.close()
    return seen
