"""Calls out of turn, with too many or too few arguments, or the wrong types."""

from harness.wire import MAXTID, Z64

from .stage import after_notice, aftermath, answer, refuses_as_much, scenario

READ_ONLY = ("error", "ZODB.POSException.ReadOnlyError")
STRICTER = "the stock server takes much nonsense for data, and fails on the rest by accident"

# Each method with arguments that are right, for a transaction numbered 7.
ARGUMENTS = {
    "get_info": (),
    "lastTransaction": (),
    "getInvalidations": (Z64,),
    "new_oids": (1,),
    "loadBefore": (Z64, MAXTID),
    "loadSerial": (Z64, MAXTID),
    "getTid": (Z64,),
    "history": (Z64, 1),
    "ping": (),
    "server_status": (),
    "set_client_label": ("label",),
    "record_iternext": (Z64,),
    "tpc_begin": (7, b"", b"", {}, None, " "),
    "storea": (Z64, Z64, b"data", 7),
    "deleteObject": (Z64, Z64, 7),
    "checkCurrentSerialInTransaction": (Z64, Z64, 7),
    "restorea": (Z64, Z64, b"data", None, 7),
    "vote": (7,),
    "tpc_finish": (7,),
    "tpc_abort": (7,),
    "iterator_start": (None, None),
    "iterator_next": (0,),
    "iterator_record_start": (0, Z64),
    "iterator_record_next": (0,),
    "iterator_gc": ([0],),
}
NEED_NONE = {"new_oids", "record_iternext"}
NEED_FEWER = {"history": 1, "tpc_begin": 4}
WRONG = [None, True, 5, -1, 1.5, "text", b"", b"short", b"0123456789", [], {}]


def kind(seen):
    """An answer without its value or text: ok, the error's name, or how it ended."""
    if isinstance(seen, tuple) and seen and seen[0] in ("ok", "error"):
        return seen[:1] if seen[0] == "ok" else seen[:2]
    return seen


# Before the types below: the stock server never recovers from a restored oid
# of a wrong length, it fails in new_oids until it is restarted.
@scenario("new_oids: how many")
def how_many_oids(stage):
    wire = stage.client()
    found = {}
    for count in (0, -1, 1, 99, 100, 101, 10**9):
        oids = wire.call("new_oids", count)
        found[count] = len(oids), list(oids) == sorted(set(oids))
    return found


# ------------------------------------------------------------- before register


def before_register(name, args):
    @scenario(f"before register: {name}")
    def play(stage):
        return answer(stage.stranger(), name, *args)

    @scenario(f"before register: {name}, asynchronous")
    def play_notice(stage):
        return after_notice(stage.stranger(), name, *args)


for _name in ("get_info", "ping", "lastTransaction", "loadBefore", "tpc_begin", "vote"):
    before_register(_name, ARGUMENTS[_name])


@scenario("before register: heartbeats are accepted")
def early_heartbeat(stage):
    wire = stage.stranger()
    wire.send(-1, False, ".reply", None)
    return kind(answer(wire, "register", "1", False)), aftermath(wire)


@scenario("before register: unknown method")
def early_nonsense(stage):
    return answer(stage.stranger(), "no_such_method")


# -------------------------------------------------------------------- register


@scenario("register: unknown storage")
def unknown_storage(stage):
    return answer(stage.stranger(), "register", "2", False)


@scenario("register: unknown storage, then the right one")
def second_try(stage):
    wire = stage.stranger()
    return (
        answer(wire, "register", "2", False),
        kind(answer(wire, "register", "1", False)),
        aftermath(wire),
    )


@scenario("register: unknown storage, asynchronous")
def unknown_storage_notice(stage):
    return after_notice(stage.stranger(), "register", "2", False)


@scenario("register: asynchronous")
def register_notice(stage):
    return after_notice(stage.stranger(), "register", "1", False)


@scenario("register: twice")
def register_twice(stage):
    return answer(stage.client(), "register", "1", False)


@scenario("register: twice, asynchronous")
def register_twice_notice(stage):
    return after_notice(stage.client(), "register", "1", False)


def register_with(name, *args, **options):
    @scenario(f"register: {name}", **options)
    def play(stage):
        wire = stage.stranger()
        return kind(answer(wire, "register", *args)), kind(answer(wire, "register", "1", False))


register_with("no arguments")
register_with("one argument", "1")
register_with("three arguments", "1", False, False)
register_with("storage is None", None, False)
register_with("storage is an int", 1, False)
register_with(
    "storage is bytes",
    b"1",
    False,
    judge=lambda found, stock: found in (stock, (("ok",), "closed"), (READ_ONLY, ("ok",))),
    because="Python 2 sends its native text so; in pickles it can only read",
)
register_with("storage is a map", {}, False)
register_with("storage is an empty text", "", False)
register_with("read-only is None", "1", None)
register_with("read-only is 1", "1", 1)
register_with("read-only is text", "1", "no")


# -------------------------------------------------------------- unknown methods


def unknown(title, name):
    @scenario(f"unknown method: {title}")
    def play(stage):
        return answer(stage.client(), name)

    @scenario(f"unknown method: {title}, asynchronous")
    def play_notice(stage):
        return after_notice(stage.client(), name)


for _name in ("no_such_method", "__class__", "notify_disconnected", "load"):
    unknown(_name, _name)
unknown("no name", "")
unknown("100,000 letters", "x" * 100_000)


@scenario("known but never implemented: new_oid")
def new_oid(stage):
    return kind(answer(stage.client(), "new_oid"))


@scenario("known but never implemented: new_oid, asynchronous")
def new_oid_notice(stage):
    return after_notice(stage.client(), "new_oid")


# ------------------------------------------------------------------------ arity


def arity(name, args):
    needed = NEED_FEWER.get(name, 0 if name in NEED_NONE else len(args))
    if needed:

        @scenario(f"arity: {name} with one argument too few")
        def play_few(stage):
            wire = stage.client()
            return kind(answer(wire, name, *args[: needed - 1])), aftermath(wire)

        @scenario(f"arity: {name} with one too few, asynchronous")
        def play_few_notice(stage):
            return after_notice(stage.client(), name, *args[: needed - 1])

    @scenario(f"arity: {name} with one argument too many")
    def play_many(stage):
        wire = stage.client()
        return kind(answer(wire, name, *args, None)), aftermath(wire)


for _name, _args in ARGUMENTS.items():
    arity(_name, _args)


# ------------------------------------------------------------------------ types


def types(name, args):
    """Each argument in turn replaced by each wrong value, in a fresh session."""

    @scenario(f"types: {name}", judge=refuses_as_much, because=STRICTER)
    def play(stage):
        seen = {}
        for position in range(len(args)):
            for wrong in WRONG:
                wire = stage.client()
                if name.startswith("iterator_") and name != "iterator_start":
                    wire.call("iterator_start", None, None)
                changed = (*args[:position], wrong, *args[position + 1 :])
                seen[f"{position}: {wrong!r}"] = (
                    kind(answer(wire, name, *changed)),
                    aftermath(wire),
                )
                wire.close()
        return seen


TRANSACTIONAL = {"storea", "deleteObject", "checkCurrentSerialInTransaction", "restorea"}
for _name, _args in ARGUMENTS.items():
    if _args and _name not in TRANSACTIONAL:
        types(_name, _args)


def transactional_types(name, args):
    """As `types`, inside a transaction: what is wrong may show at vote only."""

    @scenario(f"types: {name}, then vote", judge=refuses_as_much, because=STRICTER)
    def play(stage):
        seen = {}
        for position in range(len(args) - 1):
            for wrong in WRONG:
                wire = stage.client()
                wire.notify("tpc_begin", *ARGUMENTS["tpc_begin"])
                changed = (stage.oid(), *args[1:])
                changed = (*changed[:position], wrong, *changed[position + 1 :])
                end = after_notice(wire, name, *changed)
                vote = kind(answer(wire, "vote", 7)) if end == ("open",) else None
                seen[f"{position}: {wrong!r}"] = end, vote
                wire.close()
        return seen


for _name in sorted(TRANSACTIONAL):
    transactional_types(_name, ARGUMENTS[_name])


# ------------------------------------------------------------- harmless or odd


@scenario("set_client_label: synchronous")
def label(stage):
    return answer(stage.client(), "set_client_label", "label")


@scenario("set_client_label: 1 MB")
def long_label(stage):
    return after_notice(stage.client(), "set_client_label", "x" * (1 << 20))


@scenario("ping: asynchronous")
def ping_notice(stage):
    return after_notice(stage.client(), "ping")


@scenario("server_status: its keys")
def status_keys(stage):
    return sorted(stage.client().call("server_status"))


@scenario(
    "get_info: its keys",
    judge=lambda found, stock: found == (*stock, "zodium_methods"),
    because="what only we can do has to be announced, for nobody to ask a stock server for it",
)
def info_keys(stage):
    return sorted(stage.client().call("get_info"))
