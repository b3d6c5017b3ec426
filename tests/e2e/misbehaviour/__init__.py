"""What no client should say to a server, as a table of named scenarios.

Each module adds scenarios to `stage.SCENARIOS`; test_hostile.py plays every one
against the stock server and against the server under test and compares.
"""

from . import calls, frames, handshakes, reads, transactions  # noqa: F401
