"""The `zodium` command: `python -m zodium` is the same."""

import sys

from ._native import run_program


def main():
    return run_program(["zodium", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
