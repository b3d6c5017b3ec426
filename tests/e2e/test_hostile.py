"""Misuse: the server under test answers as the stock server does, and goes on.

Every scenario of misbehaviour/ is played against the stock server and against
the server under test, in the same test.  What they did must be equal, but for
what the stock server itself gets wrong (each such scenario has its own judge,
and the reason) and for the words of Python's own exceptions.
"""

import misbehaviour  # noqa: F401  fills the table
import pytest
from harness.servers import COMMAND, IS_ZODIUM, spawn, stock_server
from harness.wire import Closed, ErrorReply, Silent, Wire
from misbehaviour.stage import SCENARIOS, Stage, quiet_after

# Exceptions that say "Python could not", with a text that is Python's.
PYTHON_ERRORS = {
    "builtins.AssertionError",
    "builtins.AttributeError",
    "builtins.Exception",
    "builtins.TypeError",
    "struct.error",
}
TIMES = range(0x03, 0x06)  # first byte of a tid of 1988 to 2090
MILLIONS = range(1_000_000, 2_000_000)  # oids of the scenarios


@pytest.fixture(scope="module", params=["Z5", "M5"])
def pair(request, tmp_path_factory):
    """(the stock server, the server under test), in one encoding."""
    folder = tmp_path_factory.mktemp(f"hostile-{request.param}")
    (folder / "stock").mkdir()
    stock = stock_server(folder / "stock", request.param)
    try:
        tested = spawn(COMMAND, folder / "Data.fs", [], request.param)
        yield stock, tested
        tested.kill()
        print(tested.log_tail())
    finally:
        stock.kill()


@pytest.mark.parametrize(
    "number", range(len(SCENARIOS)), ids=[scenario.name for scenario in SCENARIOS]
)
def test_misuse(number, pair, tmp_path):
    scenario, (stock, tested) = SCENARIOS[number], pair
    with Wire(stock.address) as wire:
        letter = wire.announced[:1].decode()
    if letter not in scenario.encodings:
        pytest.skip(f"says nothing in {letter}5")
    if scenario.because and not IS_ZODIUM:
        pytest.skip(f"not the measure: {scenario.because}")
    # On a busy machine a server is silent for longer before it closes: a difference has to stay
    # however long one waits.
    for attempt, seconds in enumerate([0.3, 3, 20]):
        with quiet_after(seconds):
            place = number + attempt * len(SCENARIOS)  # for oids of its own
            folder = tmp_path / str(attempt)
            folder.mkdir()
            measure = play(scenario, place, stock, folder)
            found = play(scenario, place, tested, folder)
        assert_still_serving(tested)
        if scenario.judge(found, measure):
            return
    pytest.fail(explain(scenario, found, measure))


def play(scenario, number, server, folder):
    """What a server does in a scenario, in a form that can be compared."""
    with Stage(server.address, number, folder) as stage:
        try:
            return comparable(scenario.play(stage))
        except (Closed, Silent, ErrorReply) as end:
            return "raised", type(end).__name__, comparable(end.args)


def comparable(seen):
    """`seen` with names for tids and oids, and without Python's own words."""
    if isinstance(seen, bytes) and len(seen) == 8:
        return short(seen)
    if isinstance(seen, dict):
        return {comparable(key): comparable(value) for key, value in seen.items()}
    if not isinstance(seen, (list, tuple)):
        return seen
    if len(seen) > 1 and isinstance(seen[1], str) and seen[1] in PYTHON_ERRORS:
        return "error", "a Python error"
    if "error" in seen[2:3] and seen[3:4] and seen[3] in PYTHON_ERRORS:
        return (*map(comparable, seen[:3]), "a Python error")
    return tuple(map(comparable, seen))


def short(number):
    value = int.from_bytes(number, "big")
    if value in MILLIONS:
        return f"oid {value % 100}"
    return "tid" if number[0] in TIMES else number


def assert_still_serving(server):
    with Wire(server.address) as wire:
        wire.register()
        wire.call("ping")


def explain(scenario, found, measure):
    """Only what differs, of scenarios that have many cases."""
    if isinstance(found, dict) and isinstance(measure, dict):
        cases = {**measure, **found}
        measure = {c: measure.get(c) for c in cases if measure.get(c) != found.get(c)}
        found = {c: found.get(c) for c in measure}
    reason = f"\n{scenario.because}" if scenario.because else ""
    return f"{reason}\nfound {found}\nstock {measure}"
