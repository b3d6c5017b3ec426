"""zodium.ClientStorage in a process that gevent or eventlet has patched: refused, with advice."""

import subprocess
import sys
import textwrap

import pytest
from harness import package

package.use()


def run(program):
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_patched_process_is_told_to_use_zeos_client():
    ended = run("""
        from gevent import monkey
        monkey.patch_all()
        import zodium
        try:
            zodium.ClientStorage(1, wait=False)
        except RuntimeError as error:
            print(error)
    """)
    assert "gevent" in ended.stdout and "Use ZEO.ClientStorage" in ended.stdout, ended.stderr


def test_a_process_that_eventlet_has_patched_is_told_so_too():
    # A stand-in of the function that is asked: eventlet is no longer developed further.
    ended = run("""
        import sys
        import types
        patcher = sys.modules["eventlet.patcher"] = types.ModuleType("eventlet.patcher")
        import zodium
        patched = ["time"]
        patcher.is_monkey_patched = patched.__contains__
        zodium.ClientStorage(1, wait=False).close()
        patched.append("socket")
        try:
            zodium.ClientStorage(1, wait=False)
        except RuntimeError as error:
            print(error)
    """)
    assert "eventlet's" in ended.stdout and "Use ZEO.ClientStorage" in ended.stdout, ended.stderr


@pytest.mark.parametrize("patch", ["", "monkey.patch_time()"])
def test_gevent_without_patched_sockets_is_no_reason(patch):
    ended = run(f"""
        from gevent import monkey
        {patch}
        import zodium
        zodium.ClientStorage(1, wait=False).close()
        print("opened")
    """)
    assert (ended.returncode, ended.stdout) == (0, "opened\n"), ended.stderr
