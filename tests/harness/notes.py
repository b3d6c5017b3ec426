"""Notes on the web: an application of Pyramid as its users write it.

zodburi names its database, each request is a transaction, and one that meets a conflict is tried
again. `python -m harness.notes URI PORT` serves it.
"""

import sys

from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from persistent import Persistent
from persistent.mapping import PersistentMapping
from pyramid.config import Configurator
from pyramid_zodbconn import get_connection
from waitress import serve

ATTEMPTS = 50


class Tally(Persistent):
    """How many notes everybody wrote; counts of two transactions are added up."""

    def __init__(self):
        self.counts = {}

    def add(self, who):
        self.counts = {**self.counts, who: self.counts.get(who, 0) + 1}

    def _p_resolveConflict(self, before, committed, new):
        counts = dict(committed["counts"])
        for who, count in new["counts"].items():
            counts[who] = counts.get(who, 0) + count - before["counts"].get(who, 0)
        return {**new, "counts": counts}


def root_of(request):
    root = get_connection(request).root()
    if "app" not in root:
        root["app"] = PersistentMapping(notes=OOBTree(), count=Length(), tally=Tally())
    return root["app"]


def show(app, request):
    return {
        "notes": {name: note["text"] for name, note in app["notes"].items()},
        "count": app["count"](),
        "tally": app["tally"].counts,
    }


def add(app, request):
    app["notes"][request.params["name"]] = PersistentMapping(text=request.params["text"])
    app["count"].change(1)
    app["tally"].add(request.params["who"])
    return {}


def application(uri):
    settings = {
        "zodbconn.uri": uri,
        "tm.manager_hook": "pyramid_tm.explicit_manager",
        "retry.attempts": ATTEMPTS,
    }
    config = Configurator(settings=settings, root_factory=root_of)
    for module in "pyramid_retry", "pyramid_tm", "pyramid_zodbconn":
        config.include(module)
    config.add_view(show, request_method="GET", renderer="json")
    config.add_view(add, request_method="POST", renderer="json")
    return config.make_wsgi_app()


def main(uri, port):
    serve(application(uri), host="127.0.0.1", port=int(port), threads=4)


if __name__ == "__main__":
    # Under the name by which other processes find its classes.
    from harness import notes

    notes.main(*sys.argv[1:])
