"""A fault of the server itself ends the whole process, is told, and the next start is whole.

The fault is a real one: a worker that has to start a thread and gets none from the system.
"""

import resource
import signal
import time
from pathlib import Path

import pytest
from harness import files
from harness.process import crash_of
from harness.wire import MAXTID, Z64, Closed

pytestmark = pytest.mark.zodium

SIGABRT_SECONDS = 60


def leave_no_room_for_a_thread(pid):
    """As when a container is at its limit: no memory can be mapped any more."""
    status = Path(f"/proc/{pid}/status").read_text()
    size = next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmSize" in line)
    room = size + (1 << 20)  # enough for all else, less than a stack
    resource.prlimit(pid, resource.RLIMIT_AS, (room, room))


def test_a_panic_of_one_thread_ends_the_process_and_a_restart_has_everything(
    tmp_path, start_server, wire
):
    path = tmp_path / "Data.fs"
    server = start_server(path, "--log-format", "json", "--workers", "3")
    # One to each worker; that of the third has not needed a thread yet.
    client, other, third = wire(server), wire(server), wire(server)
    tid = client.commit(1, [(Z64, Z64, b"kept")])
    other.notify("tpc_begin", 2, b"", b"", {}, None, " ")
    other.notify("storea", Z64, tid, b"voted and never finished", 2)
    assert len(other.call("vote", 2)) == 0
    leave_no_room_for_a_thread(server.process.pid)
    with pytest.raises((Closed, ConnectionError)):
        third.call("pack", time.time(), True)
    assert server.process.wait(SIGABRT_SECONDS) == -signal.SIGABRT
    assert crash_of(server)
    start_server.servers.remove(server)
    with pytest.raises((Closed, ConnectionError)):
        other.call("tpc_finish", 2)
    told = server.log()
    assert "a bug in the server" in told
    assert '"thread":"worker-' in told and '"place":"' in told
    again = wire(start_server(path))
    assert again.register_tid == tid
    assert again.call("loadBefore", Z64, MAXTID) == (b"kept", tid, None)
    assert again.commit(1, [(Z64, tid, b"goes on")])
    files.check(path)
