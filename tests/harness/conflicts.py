"""Conflicts of BTrees' classes, and what Python makes of them.

A case is three data records of one object: what two transactions began with, what
the first committed, and what the second wants to store.
"""

import datetime
import importlib
import io
from typing import NamedTuple, Optional

from BTrees.Length import Length
from ZODB._compat import PersistentPickler, PersistentUnpickler, _protocol
from ZODB.ConflictResolution import (
    ConflictResolvingStorage,
    PersistentReference,
    find_global,
    persistent_id,
)
from ZODB.POSException import ConflictError
from ZODB.utils import p64

FAMILIES = [
    "IF",
    "II",
    "IO",
    "IU",
    "LF",
    "LL",
    "LO",
    "LQ",
    "OI",
    "OL",
    "OO",
    "OQ",
    "OU",
    "QF",
    "QL",
    "QO",
    "QQ",
    "UF",
    "UI",
    "UO",
    "UU",
    "fs",
]  # noqa: SIM905
SHAPES = ("Bucket", "Set", "BTree", "TreeSet")
RANGES = {
    "I": (-(1 << 31), (1 << 31) - 1),
    "L": (-(1 << 63), (1 << 63) - 1),
    "U": (0, (1 << 32) - 1),
    "Q": (0, (1 << 64) - 1),
}


class Case(NamedTuple):
    name: str
    must: bool  # what Python resolves, the server has to resolve too
    old: bytes
    committed: bytes
    new: bytes


class Judge(ConflictResolvingStorage):
    """ZODB's own resolution of one case."""

    def resolve(self, case) -> Optional[bytes]:
        old = {b"old": case.old, b"committed": case.committed}
        self.loadSerial = lambda oid, serial: old[serial]
        try:
            return self.tryToResolveConflict(p64(1), b"committed", b"old", case.new)
        except ConflictError:
            return None


def record(cls, state):
    """What a connection stores."""
    out = io.BytesIO()
    pickler = PersistentPickler(persistent_id, out, _protocol)
    pickler.dump(cls)
    pickler.dump(state)
    return out.getvalue()


def loaded(data):
    """Class and state of a record, in a form in which types count too."""
    unpickler = PersistentUnpickler(
        find_global, lambda reference: ("reference", reference), io.BytesIO(data)
    )
    return repr((unpickler.load(), unpickler.load()))


def reference(rng, cls, kinds=4):
    oid = p64(rng.randrange(1, 4))
    forms = [
        (oid, cls),
        oid,
        ["m", ("other", oid, cls)],
        ["w", (oid,)],
    ]
    return PersistentReference(forms[rng.randrange(kinds)])


def cases(rng, rounds):
    """`rounds` cases of every class there is."""
    for family in FAMILIES:
        module = importlib.import_module(f"BTrees.{family}BTree")
        for shape in SHAPES:
            for _ in range(rounds):
                yield tree_case(rng, family, shape, getattr(module, family + shape))
    for _ in range(rounds):
        states = [rng.choice((0, 5, -3, 1 << 70)) for _ in range(3)]
        yield Case("Length", True, *(record(Length, state) for state in states))


def tree_case(rng, family, shape, cls):
    leaf = shape in ("Bucket", "Set")
    is_set = "Set" in shape
    make_key, key_must, key_kind = key_maker(rng, family)
    make_value, value_must, value_kind = value_maker(rng, family, cls)
    value_must = value_must or is_set
    old = {make_key(): make_value() for _ in range(rng.choice((0, 1, 3, 8, 20)))}
    following = None
    if leaf and rng.random() < 0.4:
        following = reference(rng, cls, 1)
    records = []
    for edits in (0, 1, 1):
        content = edit(rng, old, make_key, make_value) if edits else old
        last = following
        if edits and leaf and rng.random() < 0.03:
            last = reference(rng, cls, 1)
        records.append(record(cls, state_of(cls, content, is_set, leaf, last)))
    name = f"{cls.__name__}, {key_kind} keys, {value_kind} values"
    return Case(name, key_must and value_must, *records)


def edit(rng, old, make_key, make_value):
    content = dict(old)
    if rng.random() < 0.03:
        return {}
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        content[make_key()] = make_value()
    kept = list(old)
    for key in rng.sample(kept, min(len(kept), rng.choice((0, 0, 1, 2)))):
        content.pop(key, None)
    for key in rng.sample(kept, min(len(kept), rng.choice((0, 0, 1)))):
        if key in content:
            content[key] = make_value()
    return content


def state_of(cls, content, is_set, leaf, following):
    keys = sorted(content, key=lambda key: (key is not None, key))
    items = tuple(keys) if is_set else tuple(part for key in keys for part in (key, content[key]))
    if leaf:
        return (items,) if following is None else (items, following)
    if not items:
        return None
    if len(keys) > 15:  # as if it had split
        return ((PersistentReference((p64(7), cls)),), PersistentReference((p64(7), cls)))
    return (((items,),),)


def key_maker(rng, family):
    letter = family[0]
    if family == "fs":
        return lambda: bytes(rng.choices(b"\0a\xff", k=2)), True, "fs"
    if letter in RANGES:
        low, high = RANGES[letter]
        some = [low, low + 1, high - 1, high, *range(0, 60, 2)]
        return lambda: rng.choice(some), True, "int"
    texts = [text + end for text in ("", "a", "B", "\xe9", "\uffff", "\U00010000") for end in "xyz"]
    kinds = {
        "int": (lambda: rng.choice((rng.randrange(-9, 40), 1 << 80, -(1 << 140))), True),
        "str": (lambda: rng.choice(texts), True),
        "bytes": (lambda: bytes(rng.choices(b"\0a\xff", k=rng.randrange(1, 4))), True),
        "tuple": (lambda: (rng.choice(texts), rng.randrange(5)), True),
        "None and str": (lambda: rng.choice((None, *texts)), True),
        "float and int": (lambda: rng.choice((0.5, -1.5, 1e30, 7, 8, 1 << 60)), True),
        "date": (lambda: datetime.date(2020, 1, rng.randrange(1, 29)), False),
    }
    kind = rng.choice(list(kinds))
    return *kinds[kind], kind


def value_maker(rng, family, cls):
    letter = family[1]
    if family == "fs":
        return lambda: bytes(rng.choices(b"\0a", k=6)), True, "fs"
    if letter in RANGES:
        low, high = RANGES[letter]
        return lambda: rng.choice((low, high, 0, 1, 2)), True, "int"
    if letter == "F":
        return lambda: rng.choice((0.0, -1.5, 0.1, 1e300, float("inf"), 3)), True, "float"
    kinds = {
        "int": (lambda: rng.choice((0, True, 2.0, 3, 1 << 90)), True),
        "str": (lambda: rng.choice(("", "a", "long text", "\xe9")), True),
        "tuple": (lambda: (rng.randrange(3), None, (b"a", "b")), True),
        "list": (lambda: [rng.randrange(2), ["a"]], True),
        "reference": (lambda: reference(rng, cls), True),
        "None or reference": (lambda: rng.choice((None, reference(rng, cls, 1))), True),
        "any": (lambda: rng.choice((None, 1, "a", b"a", 0.5, (1,), [2])), True),
        "dict": (lambda: {"a": rng.randrange(2)}, False),
        "date": (lambda: datetime.date(2020, 1, rng.randrange(1, 3)), False),
    }
    kind = rng.choice(list(kinds))
    return *kinds[kind], kind
