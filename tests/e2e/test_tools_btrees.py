"""zodium check --btrees, judged by BTrees.check on trees of all families, whole and damaged."""

import datetime
import json
import os
from contextlib import closing

import BTrees
import BTrees.check
import BTrees.IFBTree
import BTrees.IOBTree
import BTrees.OOBTree
import pytest
import transaction
import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.utils import u64

pytestmark = pytest.mark.zodium
RUN_SECONDS = 60
FAMILIES = ["OO", "OI", "OL", "IO", "II", "LO", "LL", "QQ", "UU", "LF", "fs"]


@pytest.fixture
def run(run):
    def run_command(path):
        code, out, said = run("check", "--btrees", "--json", path)
        assert said == ""
        lines = [json.loads(line) for line in out.splitlines()]
        damages = {line["oid"]: line["what"] for line in lines if line["kind"] == "btree"}
        summary = next(line for line in lines if line["kind"] == "btrees")
        return code, damages, summary

    return run_command


def module(family):
    return getattr(BTrees, f"{family}BTree") if family != "fs" else BTrees.fsBTree


def key_of(family, number):
    if family == "fs":
        return number.to_bytes(2, "big")
    return f"k{number:05}" if family[0] == "O" else number


def value_of(family, number):
    if family == "fs":
        return number.to_bytes(6, "big")
    return number if family[1] != "O" else str(number)


def fill(connection, random, families=FAMILIES, count=400):
    root = connection.root()
    for family in families:
        module = __import__(f"BTrees.{family}BTree", fromlist=["x"])
        prefix = family
        tree, keys = getattr(module, f"{prefix}BTree")(), getattr(module, f"{prefix}TreeSet")()
        for number in random.sample(range(1, 20000), count):
            tree[key_of(family, number)] = value_of(family, number)
            keys.add(key_of(family, number))
        root[family], root[f"{family}-keys"] = tree, keys
        few = getattr(module, f"{prefix}BTree")()
        few[key_of(family, 3)] = value_of(family, 3)
        root[f"{family}-few"], root[f"{family}-none"] = few, getattr(module, f"{prefix}BTree")()


def test_whole_trees_of_all_families_are_whole(run, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        with database.transaction() as connection:
            fill(connection, seeded)
        # Trees that have shrunk and grown again.
        with database.transaction() as connection:
            for tree in connection.root().values():
                for key in seeded.sample(list(tree.keys()), len(tree) * 9 // 10):
                    tree.remove(key) if hasattr(tree, "add") else tree.pop(key)
    code, damages, summary = run(path)
    assert (code, damages) == (0, {})
    assert summary["trees"] >= 4 * len(FAMILIES) and summary["leaves"] > 0
    assert summary["uncertain"] == summary["unread"] == 0


def odd_values():
    """Values and keys that a BTree may have, though they are no plain data."""
    itself = []
    itself.append(itself)
    deep = []
    for _ in range(300):
        deep = [deep]
    roles = [f"role {number}" for number in range(20)]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "contains itself": BTrees.IOBTree.IOBTree({number: itself for number in range(99)}),
        "deep": BTrees.IOBTree.IOBTree({number: deep for number in range(99)}),
        "shared": BTrees.IOBTree.IOBTree({number: roles for number in range(500)}),
        "times": BTrees.IOBTree.IOBTree({number: now for number in range(500)}),
        "not a number": BTrees.IFBTree.IFBTree({1: float("nan"), 2: 1.5}),
        "no text": BTrees.OOBTree.OOBTree(
            {os.fsdecode(b"%04d\xe9" % number): number for number in range(2000)}
        ),
    }


def test_trees_of_odd_values_are_not_called_damaged(run, tmp_path):
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        with database.transaction() as connection:
            connection.root().update(odd_values())
        with database.transaction() as connection:
            for tree in connection.root().values():
                tree._check()
                BTrees.check.check(tree)
            connection.root()["plain"] = BTrees.IOBTree.IOBTree(
                {number: 0 for number in range(2000)}
            )
    code, damages, summary = run(path)
    assert (code, damages) == (0, {})
    # Only what nests deeper than any page shows is not read.
    assert summary["trees"] == 7 and summary["unread"] > 0


def damage_order(leaf, random):
    state = leaf.__getstate__()
    items = list(state[0])
    items[0], items[2] = items[2], items[0]
    leaf.__setstate__((tuple(items), *state[1:]))


def damage_next(leaf, random):
    state = leaf.__getstate__()
    leaf.__setstate__((state[0], state[1]._next) if state[1]._next is not None else state[:1])


def damage_bounds(leaf, random):
    state = leaf.__getstate__()
    leaf.__setstate__(((*state[0][:-2], 10**6, state[0][-1]), *state[1:]))


def damage_emptiness(leaf, random):
    state = leaf.__getstate__()
    leaf.__setstate__(((), *state[1:]))


@pytest.mark.parametrize("spoil", [damage_order, damage_next, damage_bounds, damage_emptiness])
def test_what_the_stock_check_refuses_is_found(run, tmp_path, seeded, spoil):
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        with database.transaction() as connection:
            fill(connection, seeded, ["IO", "II"])
        assert run(path)[:2] == (0, {})
        manager = transaction.TransactionManager()
        connection = database.open(manager)
        tree = connection.root()["II"]
        leaf = tree.__getstate__()[1]
        for _ in range(seeded.randrange(4)):
            following = leaf.__getstate__()[1]
            # The last one has no next one to damage.
            if len(following.__getstate__()) > 1:
                leaf = following
        leaf._p_activate()
        spoil(leaf, seeded)
        leaf._p_changed = True
        manager.commit()
        connection.cacheMinimize()
        with pytest.raises((AssertionError, TypeError)):
            tree._check()
            BTrees.check.check(tree)
        spoiled = f"{u64(leaf._p_oid):016x}"
    code, damages, summary = run(path)
    assert code == 1 and summary["damages"] == len(damages) >= 1
    assert spoiled in damages
    assert len(damages) <= 2


def test_a_bucket_that_is_gone_is_told(run, tmp_path, seeded):
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        with database.transaction() as connection:
            fill(connection, seeded, ["OO"])
            connection.savepoint()
            leaf = connection.root()["OO"].__getstate__()[1]
            leaf._p_activate()
            following = leaf.__getstate__()[1]
            gone = following._p_oid
        storage, serial = database.storage, database.storage.load(gone)[1]
        from harness.databases import with_transaction

        with_transaction(storage, lambda txn: storage.deleteObject(gone, serial, txn))
    code, damages, _ = run(path)
    assert code == 1 and "creation was undone" in damages[gone.hex()]


def last_leaf(tree):
    leaf = tree._firstbucket
    while leaf._next is not None:
        leaf = leaf._next
    return leaf


@pytest.mark.parametrize("leads_to", ["removed", "living"])
def test_a_cleared_tree_is_whole_and_a_tree_that_leads_on_is_not(run, tmp_path, leads_to):
    """Inner nodes that clear() has removed stay until a pack, and their leaves lead on."""
    path = tmp_path / "Data.fs"
    with closing(ZODB.DB(FileStorage(str(path)))) as database:
        with database.transaction() as connection:
            root = connection.root()
            root["big"] = BTrees.OOBTree.OOBTree(dict.fromkeys(map(str, range(12000)), 1))
            root["small"] = BTrees.OOBTree.OOBTree(dict.fromkeys(range(200), 1))
            # Another database may refer to this one.
            connection.add(other := BTrees.OOBTree.OOBTree(dict.fromkeys(range(200), 1)))
        with database.transaction() as connection:
            root, other = connection.root(), connection.get(other._p_oid)
            first_of = {"removed": root["big"]._firstbucket, "living": root["small"]._firstbucket}
            root["big"].clear()
            for tree in root.values():
                tree._check()
                BTrees.check.check(tree)
        assert run(path)[:2] == (0, {})
        with database.transaction() as connection:
            tree = connection.root()["small"] if leads_to == "removed" else other
            leaf = last_leaf(tree)
            wrong = connection.get(first_of[leads_to]._p_oid)
            leaf.__setstate__((leaf.__getstate__()[0], wrong))
            leaf._p_changed = True
            spoiled, wrong = leaf._p_oid.hex(), wrong._p_oid.hex()
    code, damages, summary = run(path)
    assert (code, summary["damages"], list(damages)) == (1, 1, [spoiled])
    assert f"the next bucket is {wrong}" in damages[spoiled]
