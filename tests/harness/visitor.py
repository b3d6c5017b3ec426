#!/usr/bin/env python3
"""One client process of a site: pages with files in one storage, a catalog in another.

visitor.py DATABASES.conf NAME ROUNDS [--check EXPECTED.json]

Key decision: it knows no server, only a ZConfig file with two databases, as a
Zope instance would.  Each round is one transaction over both storages, tried
again on conflict.  What was acknowledged is printed as JSON; --check compares
all of it, of all visitors, with what is stored.
"""

import json
import random
import sys

import transaction
import ZODB.config
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.POSException import ConflictError

TRIES = 100


def main(conf, name, rounds, expected=None):
    with open(conf) as text:
        main_database = ZODB.config.databaseFromString(text.read())
    connection = main_database.open()
    if expected:
        with open(expected) as text:
            check(connection, json.load(text))
    else:
        print(json.dumps(visit(connection, name, int(rounds))))
    connection.close()
    for database in main_database.databases.values():
        database.close()


def visit(connection, name, rounds):
    """{page id: its text and its file's text} of the pages that were acknowledged."""
    choose = random.Random(name)
    written = {}
    for number in range(rounds):
        page_id = f"{name}-{choose.randrange(rounds)}"
        words = " ".join(choose.choices(["all", "the", "words", "of", "the", "site"], k=50))
        for _ in range(TRIES):
            try:
                connection.sync()
                put_page(connection, page_id, words, choose.randrange(1, 200_000))
                transaction.get().note(f"{name} {number}")
                transaction.commit()
                break
            except ConflictError:
                transaction.abort()
        else:
            raise RuntimeError(f"{TRIES} conflicts in a row")
        written[page_id] = words
    return written


def put_page(connection, page_id, words, size):
    root = connection.root()
    catalog = connection.get_connection("catalog").root()
    if "pages" not in root:
        root["pages"] = OOBTree()
        root["visits"] = Length()
    if "index" not in catalog:
        catalog["index"] = OOBTree()
    page = root["pages"].get(page_id)
    if page is None:
        page = root["pages"][page_id] = PersistentMapping(file=Blob())
    page["words"] = words
    with page["file"].open("w") as file:
        file.write(words.encode() * (size // len(words) + 1))
    root["visits"].change(1)
    catalog["index"][page_id] = (len(words), page["file"]._p_oid)


def check(connection, expected):
    root = connection.root()
    catalog = connection.get_connection("catalog").root()
    found = {page_id: page["words"] for page_id, page in root["pages"].items()}
    assert found == expected["pages"], "pages differ"
    assert set(catalog["index"]) == set(found), "the catalog differs"
    assert root["visits"]() == expected["visits"], root["visits"]()
    for page_id, page in root["pages"].items():
        with page["file"].open() as file:
            content = file.read()
        words = page["words"].encode()
        assert content and content == words * (len(content) // len(words)), page_id


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *sys.argv[5:])
