"""Handle forks and the end of the interpreter for open storages."""

import atexit
import os
import sys
import weakref

from . import _native

_open = weakref.WeakSet()


def track(storage):
    _open.add(storage)


def untrack(storage):
    """Leave a closed storage closed in forked children too."""
    _open.discard(storage)


# The modules that patch others, and their functions that say whether they have patched one.
PATCHES = {"gevent.monkey": "is_module_patched", "eventlet.patcher": "is_monkey_patched"}


def refuse_greenlets():
    """Refuse the monkey patches of gevent and eventlet: a native wait would block all greenlets."""
    for module, is_patched in PATCHES.items():
        patcher = sys.modules.get(module)
        # None is how an import is forbidden.
        if patcher is not None and getattr(patcher, is_patched)("socket"):
            name = module.partition(".")[0]
            raise RuntimeError(
                f"zodium waits for its server in native code, which {name}'s monkey patches do not "
                "reach: all greenlets would wait with it. Use ZEO.ClientStorage in this process; "
                "the server is the same"
            )


def close_all():
    """Close all storages, so that no native thread calls a finalized interpreter."""
    for storage in list(_open):
        storage.close()
    _native.before_exit()


def after_fork_in_child():
    for storage in list(_open):
        storage._after_fork_in_child()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    if sys.version_info < (3, 12):
        # Native threads take a lock of the interpreter that only later versions make anew.
        os.register_at_fork(
            before=_native.before_fork,
            after_in_parent=_native.after_fork_in_parent,
            after_in_child=_native.after_fork_in_child,
        )
    # Behind the hook above: it begins threads that attach.
    os.register_at_fork(after_in_child=after_fork_in_child)
