"""Random histories of one file that Zodium, the stock server and operators have in turns.

harness/histories.py says what happens in them and what must be so.  A few short ones here; long
ones by `make histories`.

ZODIUM_TEST_HISTORIES    how many
"""

import os

import pytest
from harness.histories import SMALL
from harness.run_histories import run_one

COUNT = int(os.environ.get("ZODIUM_TEST_HISTORIES") or 8)


@pytest.mark.zodium
def test_what_stock_calls_sound_is_sound_and_flipped_bits_are_found(tmp_path, seeded):
    for _ in range(COUNT):
        seed = seeded.randrange(1 << 32)
        *_, fault = run_one(seed, SMALL, parent=tmp_path)
        assert not fault, f"history {seed}: {fault}"
