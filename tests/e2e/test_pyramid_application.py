"""An application of Pyramid is switched by the scheme of its URI, its server by another command.

Two processes serve it at a time, and what either commits is there for all that follow.
"""

import json
import sys
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import files, package
from harness.process import ServerProcess, free_port
from harness.servers import stock_server
from harness.waiting import wait_for

package.use()

TESTS = Path(__file__).resolve().parents[1]
SEEN_SECONDS_MAX = 20  # until one process has heard what another has committed
NOTES = 24
WRITERS = 4
SCHEMES = {"ZEO": "zeo", "zodium": "zodium"}


@pytest.fixture
def served(start_server, tmp_path):
    """served(server, client): addresses of two processes; those before are stopped."""
    running = []

    def serve(server, client):
        stop()
        path = tmp_path / "Data.fs"
        started = stock_server(tmp_path, "Z5") if server == "ZEO" else start_server(path)
        running.append(started)
        uri = f"{SCHEMES[client]}://127.0.0.1:{started.port}?storage=1&connection_cache_size=500"
        for _ in range(2):
            port = free_port()
            words = [sys.executable, "-m", "harness.notes", uri, str(port)]
            running.append(ServerProcess(words, port, TESTS, tmp_path / f"notes-{port}.log"))
        return [f"http://127.0.0.1:{process.port}/" for process in running[1:]]

    def stop():
        while running:
            running.pop().stop()

    yield serve
    stop()
    for log in tmp_path.glob("notes-*.log"):
        print(f"--- {log.name}\n{log.read_text()[-800:]}")


def ask(address, **values):
    data = urllib.parse.urlencode(values).encode() if values else None
    with urllib.request.urlopen(address, data, timeout=30) as answer:
        return json.load(answer)


def test_an_application_of_pyramid_is_switched_and_switched_back(tmp_path, served):
    notes, tally = {}, {}
    for server, client in [
        ("ZEO", "ZEO"),
        ("ZEO", "zodium"),
        ("zodium", "zodium"),
        ("zodium", "ZEO"),
        ("ZEO", "ZEO"),
    ]:
        processes = served(server, client)
        assert [ask(process) for process in processes] == [seen(notes, tally)] * 2
        number = len(tally)
        who = f"{number} {client} {server}"
        new = {f"{number}-{one}": f"{one} by {who}" for one in range(NOTES)}
        with ThreadPoolExecutor(WRITERS) as writers:
            written = [
                writers.submit(ask, processes[one % 2], name=name, text=text, who=who)
                for one, (name, text) in enumerate(new.items())
            ]
        assert [answer.result() for answer in written] == [{}] * NOTES
        notes.update(new)
        tally[who] = NOTES
        for process in processes:
            wait_until_seen(process, seen(notes, tally))
    files.check(tmp_path / "Data.fs")


def seen(notes, tally):
    return {"notes": notes, "count": len(notes), "tally": tally}


def wait_until_seen(process, expected):
    wait_for(lambda: ask(process) == expected, lambda: ask(process), SEEN_SECONDS_MAX)
