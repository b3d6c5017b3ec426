"""Runs many commands of neoctl in one process, for harness/neo.py.

    PYTHON neo_commands.py CHECKOUT OPTION ... < [[WORD ...] ...]

Each command is given to neoctl's own `main`, with the options before it.  Prints a list
of exit codes, outputs and errors, in JSON.
"""

import contextlib
import io
import json
import sys
import traceback

sys.path.insert(0, sys.argv[1])
from neo.scripts.neoctl import main  # noqa: E402


def run(words):
    """The exit code, output and errors of a command, as of a process."""
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main([*sys.argv[2:], *words])
        except SystemExit as end:
            code = end.code or 0
            if not isinstance(code, int):
                print(code, file=sys.stderr)
                code = 1
        except Exception:
            traceback.print_exc()
            code = 1
    return code, output.getvalue(), errors.getvalue()


print(json.dumps([run(words) for words in json.load(sys.stdin)]))
