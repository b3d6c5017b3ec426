"""Counting outcomes, and saying them.

Key decision: the last line is "N passed, N failed", alone, for whoever watches.
An error is a failure there; a suite that ran nothing is one too.
"""

import json

OUTCOMES = ("passed", "failed", "error", "skipped", "local")
BAD = ("failed", "error")
REMARKS = (("skipped", "skipped"), ("local", "without a server"))


class Report:
    """The outcomes of all suites so far."""

    def __init__(self, verbose=False, strict=False):
        self.verbose = verbose
        self.strict = strict  # a skipped test is a failed one
        self.suites = {}
        self.totals = dict.fromkeys(OUTCOMES, 0)
        self.empty = []

    def add(self, name, results, seconds):
        """Print the line of one suite, and the last line of each failure."""
        if self.strict:
            results = [refuse_skip(result) for result in results]
        count = {kind: sum(r["outcome"] == kind for r in results) for kind in OUTCOMES}
        remarks = "".join(f"  {count[kind]} {word}" for kind, word in REMARKS if count[kind])
        figures = f"{count['passed']}/{count['failed']}/{count['error']}"
        print(f"{name:44} {figures}{remarks}  {seconds:.1f} s", flush=True)
        for result in results:
            if result["outcome"] in BAD:
                self._print_failure(result)
        if not count["passed"] + count["failed"] + count["error"]:
            self.empty.append(name)
        self.suites[name] = results
        for kind, number in count.items():
            self.totals[kind] += number

    def close(self):
        """Print the closing lines; the exit status."""
        for name in self.empty if self.strict else ():
            print(f"no test of {name} was run")
        failed = sum(self.totals[kind] for kind in BAD)
        failed += len(self.empty) if self.strict else 0
        for kind, word in REMARKS:
            if self.totals[kind]:
                print(f"{self.totals[kind]} {word}")
        print(f"{self.totals['passed']} passed, {failed} failed")
        return 0 if self.totals["passed"] and not failed else 1

    def write(self, path, server):
        with open(path, "w") as out:
            found = {"server": server, "totals": self.totals, "suites": self.suites}
            json.dump(found, out, indent=1)

    def _print_failure(self, result):
        last = (result["text"].strip().splitlines() or [""])[-1]
        print(f"    {result['outcome']}: {result['id']}: {last[:160]}", flush=True)
        if self.verbose:
            print(result["text"])


def refuse_skip(result):
    if result["outcome"] != "skipped":
        return result
    return {**result, "outcome": "failed", "text": f"skipped: {result['text']}"}
