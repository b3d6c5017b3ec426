"""The clock goes back, jumps ahead, stands still: tids increase, and the operator is told once."""

import itertools
import re

import pytest
from harness import files
from harness.wall_clock import WallClock
from harness.wire import Z64
from persistent.TimeStamp import TimeStamp

HOUR = 3600
YEAR = 365 * 24 * HOUR
OIDS = itertools.count(1)

pytestmark = pytest.mark.zodium


@pytest.fixture
def clock(tmp_path):
    return WallClock(tmp_path)


def commits(client, count=5):
    """Commit new objects; the tids."""
    tids = []
    for number in itertools.islice(OIDS, count):
        tids.append(client.commit(number, [(files.oid_of(number), Z64, b"data")]))
    return tids


def year(tid):
    return TimeStamp(tid).year()


def warnings(server):
    """What the log warns of about the clock, line by line."""
    lines = [line for line in server.log().splitlines() if " WARN " in line]
    return [re.search("put forward|ids are ahead", line).group() for line in lines]


def test_tids_increase_whatever_the_clock_does(tmp_path, start_server, wire, clock):
    path = tmp_path / "Data.fs"
    server = start_server(path, prefix=clock.prefix)
    client = wire(server)
    tids = commits(client)
    this_year = year(tids[0])
    clock.set(-HOUR)
    tids += commits(client)
    clock.set(-HOUR, still=True)
    tids += commits(client)
    assert warnings(server) == ["ids are ahead"], "once for all commits of an hour ago"
    clock.set()
    tids += commits(client)
    assert year(tids[-1]) == this_year
    told = ["ids are ahead", "put forward"]
    assert warnings(server) == told, "the clock was corrected"
    clock.set(10 * YEAR)
    tids += commits(client)
    assert year(tids[-1]) in (this_year + 9, this_year + 10)
    told.append("put forward")
    assert warnings(server) == told
    clock.set()
    tids += commits(client)
    assert warnings(server) == [*told, "ids are ahead"]
    assert tids == sorted(set(tids))
    assert server.stop() == 0
    assert [txn.tid for txn in files.read(path)] == tids
    files.check(path)


def test_a_file_from_the_future_is_told_of_at_the_start_and_goes_on(
    tmp_path, start_server, wire, clock
):
    path = tmp_path / "Data.fs"
    clock.set(10 * YEAR)
    server = start_server(path, prefix=clock.prefix)
    tids = commits(wire(server))
    assert server.stop() == 0
    assert warnings(server) == []
    server = start_server(path)
    client = wire(server)
    assert client.register_tid == tids[-1]
    assert warnings(server) == ["ids are ahead"]
    tids += commits(client)
    assert warnings(server) == ["ids are ahead"], "not again for commits"
    assert tids == sorted(set(tids))
    assert server.stop() == 0
    files.check(path)


def test_clients_time_out_by_the_time_that_passes_not_by_the_clock(
    tmp_path, start_server, wire, clock
):
    server = start_server(tmp_path / "Data.fs", "--transaction-timeout=60", prefix=clock.prefix)
    holder = wire(server)
    holder.notify("tpc_begin", 1, b"", b"", {}, None, " ")
    holder.notify("storea", Z64, Z64, b"held", 1)
    assert len(holder.call("vote", 1)) == 0
    clock.set(10 * YEAR)
    commits(wire(server))
    clock.set(-HOUR)
    commits(wire(server))
    assert holder.call("tpc_finish", 1)
