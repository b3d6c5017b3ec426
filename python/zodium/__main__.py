"""The `zodium` command: `python -m zodium` is the same."""

import os
import sys

from ._native import run_program


def open_standard_streams():
    """Opens those of the three streams that are closed, so that no other file gets their numbers.

    What is written to a stream would be written into a data file then.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The least number that is free is this one.
            os.open(os.devnull, os.O_RDWR)


def main():
    open_standard_streams()
    return run_program(["zodium", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
