"""Draws docs/images/benchmarks.svg from the figures of docs/benchmarks.md.

`python docs/benchmarks/chart.py` writes it; with --check it only says whether it is up to date.
"""

import pathlib
import re
import sys
from html import escape

DOCS = pathlib.Path(__file__).resolve().parents[1]
SOURCE, TARGET = DOCS / "benchmarks.md", DOCS / "images" / "benchmarks.svg"

# A row of the table, its title in the chart, the unit, and whether more is better.
ROWS = [
    ("16 clients, 3 objects each", "Commits, 16 clients", "/s", True),
    ("the same, 10 ms away", "Commits, 16 clients 10 ms away", "/s", True),
    ("one client: time of a load (median)", "Load of 4 KB, one client", "", False),
    ("16 clients: processor time of the server for a load", "Server time for a load", "", False),
    ("duration, beside ZODB's packer", "Pack of 522 MB", "", False),
    ("with ZODB's index", "Start with 1 M objects", "", False),
]
WIDTH, ROW, TOP, LEFT, BAR = 760, 58, 64, 262, 368
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1.0}

STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1a2420; }
  .title { font-size: 17px; font-weight: 650; } .quiet { fill: #56635d; font-size: 12.5px; }
  .paper { fill: #ffffff; stroke: #dce3df; } .zodium { fill: #0a6a60; } .zeo { fill: #b9c5c0; }
  .value { font-size: 12.5px; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e5ecea; } .quiet { fill: #9caba5; } .paper { fill: #181f1d; stroke: #2b3633; }
    .zodium { fill: #58cbbb; } .zeo { fill: #55635e; }
  }
"""


def figures(text):
    """The cells of Zodium and of ZEO/py by row: text, and value in seconds or a second."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        match = [re.match(r"([\d,.]+)(?: (s|ms|us)\b)?", cell) for cell in cells[1:3]]
        if len(cells) == 4 and all(match):
            values = [float(m[1].replace(",", "")) * UNITS[m[2] or ""] for m in match]
            found[cells[0]] = list(zip([m[0].replace("us", "µs") for m in match], values))
    return found


def draw(text):
    found = figures(text)
    height = TOP + ROW * len(ROWS) + 34
    title = "Zodium beside ZEO/py, the stock server"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{title}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="title" x="24" y="34">{title}</text>',
    ]
    for number, (row, name, unit, is_more_better) in enumerate(ROWS):
        y = TOP + number * ROW
        ours, theirs = found[row]
        factor = ours[1] / theirs[1] if is_more_better else theirs[1] / ours[1]
        digits = 0 if factor >= 10 else 1
        what = f"{factor:.{digits}f} times " + ("as many" if is_more_better else "as fast")
        parts.append(f'<text x="24" y="{y + 18}">{escape(name)}</text>')
        parts.append(f'<text class="quiet" x="24" y="{y + 36}">{what}</text>')
        most = max(ours[1], theirs[1])
        for place, (kind, label, (shown, value)) in enumerate(
            [("zodium", "Zodium", ours), ("zeo", "ZEO/py", theirs)]
        ):
            width, at = max(2.0, value / most * BAR), y + 6 + place * 20
            parts.append(
                f'<rect class="{kind}" x="{LEFT}" y="{at}" width="{width:.1f}" height="15" rx="3"/>'
            )
            parts.append(
                f'<text class="value" x="{LEFT + width + 7:.1f}" y="{at + 12}">'
                f"{escape(label)} {escape(shown)}{unit}</text>"
            )
    note = "Medians; spread and method: docs/benchmarks.md. Two virtual processors."
    parts.append(f'<text class="quiet" x="24" y="{height - 16}">{note}</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    drawn = draw(SOURCE.read_text())
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(drawn)
    elif TARGET.read_text() != drawn:
        sys.exit(f"{TARGET} has other figures than {SOURCE}: run `python docs/benchmarks/chart.py`")


if __name__ == "__main__":
    main()
