"""The child process that runs the tests of one suite.

Key decision: it prints one JSON line when a test begins and one when it ends, so
that its parent can end a test that hangs, count it, and go on with the rest.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import tempfile
import time
import traceback
import unittest

from .databases import SUITES, Storages, database_tests, replace_storages
from .mixins import MIXINS, mixin_tests
from .server import NOT_SUPPORTED, Server
from .zeo_suites import zeo_tests


def tests_of(suite):
    if suite in MIXINS:
        return mixin_tests(suite)
    return database_tests(suite) if suite in SUITES else zeo_tests()[suite]


def work(suite, wanted):
    """Run the tests of `suite` numbered in `wanted`, reporting on stdout."""
    logging.getLogger().addHandler(logging.NullHandler())
    # What a test itself prints must not be taken for a report.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if suite in SUITES:
        replace_storages()
    for number, test in enumerate(tests_of(suite)):
        if number not in wanted:
            continue
        out.write(json.dumps({"begin": number, "id": test.id()}) + "\n")
        start = time.monotonic()
        try:
            outcome, text = run_one(test)
        except Exception:
            outcome, text = "error", traceback.format_exc()
        report = {
            "end": number,
            "id": test.id(),
            "outcome": outcome,
            "text": text,
            "seconds": round(time.monotonic() - start, 3),
        }
        out.write(json.dumps(report) + "\n")
    out.write(json.dumps({"done": True}) + "\n")


def run_one(test):
    """(outcome, text) of one test, in a folder of its own."""
    Server.started, here = 0, os.getcwd()
    folder = tempfile.mkdtemp(prefix="conformance-")
    os.chdir(folder)
    result, noise = unittest.TestResult(), io.StringIO()
    try:
        with contextlib.redirect_stdout(noise):
            test.run(result)
    finally:
        os.chdir(here)
        Storages.close_all()
        for server in list(Server.running):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    for outcome, found in (("error", result.errors), ("failed", result.failures)):
        if found:
            text = found[0][1]
            return ("skipped" if NOT_SUPPORTED in text else outcome), text
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return ("passed" if Server.started else "local"), ""
