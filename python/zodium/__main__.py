"""The `zodium` command: `python -m zodium` is the same."""

import sys

from ._native import run_program


def main():
    if sys.argv[1:2] == ["bench"]:
        # The benchmarks start servers from the program's own binary.
        print(
            "zodium: bench needs the binary: run `make build`, then target/release/zodium bench",
            file=sys.stderr,
        )
        return 2
    return run_program(["zodium", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
