"""Waiting for what a process does in its own time.

Key decision: a condition that does not come true fails the test, and says which one it was.
"""

import time

WAIT_SECONDS = 60  # many times what a busy machine takes


def wait_for(condition, what, seconds=WAIT_SECONDS, pause=0.01):
    """Waits until `condition` gives something true, and gives it.

    `what` is a text, or a function that gives one when the time is over.
    """
    end = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)
