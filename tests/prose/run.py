"""Checks the English of documents and comments with harper, which works without a network.

Key decision: only rules that were right more often than wrong here. A word that harper does not
know goes to words.txt if it is right.

    python tests/prose/run.py [FILE or FOLDER ...]
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = Path(__file__).with_name("words.txt")
KINDS = (".md", ".rs", ".py")

# Rules that are wrong here, with an example of what they object to.
IGNORED = {
    "AWhile": "can take a while",
    "AdjectiveDoubleDegree": "the most number of arguments",
    "AdjectiveOfA": "big of a",
    "AnA": "a `str`",
    "AskNoPreposition": "told to it",
    "AvoidAndAlso": "and also",
    "AwaitFor": "waiting for an answer",
    "ByOnesOwn": "by our own",
    "Bypass": "pass by pass",
    "ClientOrServerSide": "the server's side",
    "CommaFixes": '","',
    "CompoundNouns": "file system, lock file",
    "CondenseAllThe": "all of the",
    "Dashes": "--option",
    "DiscourseMarkers": "Otherwise the file is scanned",
    "DisjointPrefixes": "re-read",
    "EllipsisLength": "..",
    "Everyone": "every one of them",
    "ExpandAlloc": "the crate alloc",
    "ExpandArgument": "args",
    "ExpandConfiguration": "zodium config",
    "ExpandControl": "Ctrl-C",
    "ExpandDirectory": "--blob-dir",
    "ExpandMemoryShorthands": "4 KB",
    "ExpandMinimum": "min",
    "ExpandPerformance": "the tool perf",
    "ExpandStandardInputAndOutput": "stderr",
    "ExpandTimeShorthands": "10 ms",
    "FindOut": "find out",
    "HavePronoun": "who have",
    "LongSentences": "xtask's rule `prose` looks at them",
    "MassNouns": "storages, a sync",
    "MergeWords": "a side file",
    "MissingPreposition": "the one that loads",
    "MissingTo": "whatever failed",
    "Months": "may",
    "MostNumber": "most of them",
    "MultipleFrequencyAdverbs": "sometimes often enough",
    "NoFrenchSpaces": "two spaces behind a sentence",
    "NumericRangeEnDash": "0.26-0.29",
    "OkToOkay": "the answer ok",
    "OneOfTheSingular": "the one of the session",
    "OrthographicConsistency": "pid",
    "Overall": "over all of them",
    "OxfordComma": "reads, writes and syncs",
    "PhrasalVerbAsCompoundNoun": "clean-shutdown",
    "PronounInflectionBe": "those before it are closed",
    "QuantifierNumeralConflict": "each 16 bytes",
    "SentenceCapitalization": "cells of tables",
    "SimplePastToPastParticiple": "bit flips",
    "SingleBe": "what there is is read",
    "Spaces": "tables",
    "SplitWords": "msgpack",
    "ThatThan": "nothing yet that",
    "ThereIsAgreement": "what is there waits",
    "ThereToTheir": "there, where",
    "ToTwoToo": "up to",
    "UnclosedQuotes": '"-x"',
    "UseEllipsisCharacter": "...",
    "UseTitleCase": "headings",
    "WhomSubjectOfVerb": "whom",
    "WrongNegative": "des",
}


def main(names):
    files = find(names)
    words, count = set(WORDS.read_text().split()), 0
    for path, lints in zip(files, lint(files)):
        for lint_ in sorted(lints, key=lambda one: (one["line"], one["column"])):
            # harper does not know the genitive of a word that it was given.
            if lint_["matched_text"].rstrip(".").removesuffix("'s") not in words:
                print(f"{path}:{lint_['line']}:{lint_['column']}: {describe(lint_)}")
                count += 1
    print(
        f"prose: {count} to mend in {len(files)} files" if count else f"prose: {len(files)} files"
    )
    return 1 if count else 0


def find(names):
    """The files below these names, or all; as git knows them."""
    command = ["git", "ls-files", "-z", "--", *names]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name.endswith(KINDS)]


def lint(files):
    """What harper finds in each file, in the order of the files."""
    harper = Path(sys.executable).with_name("harper")
    options = ["--no-color", "--quiet", "--no-parallel", "--format", "json", "--dialect", "uk"]
    options += ["--user-dict-path", str(WORDS), "--ignore", ",".join(IGNORED)]
    done = subprocess.run(
        [str(harper), "lint", *options, *files], cwd=ROOT, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    # The names in its answer have no folders.
    assert [one["file"] for one in found] == [Path(name).name for name in files], done.stderr
    return [one["lints"] for one in found]


def describe(lint_):
    if lint_["rule"] == "SpellCheck":
        return f"unknown word {lint_['matched_text']!r}: mend it, or add it to {WORDS.name}"
    return f"{lint_['matched_text']!r}: {lint_['message']} ({lint_['rule']})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
