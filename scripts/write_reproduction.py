"""Writes docs/reproduction.md, the studies' pages in docs/reproduction and their pictures from the
numbers in results/*.csv alone; no run folder is needed.

    python scripts/write_reproduction.py [--results results] [--docs docs]

A CSV is called STUDY-SCALE.csv, as `fedmap study STUDY --scale SCALE --out FOLDER` writes it.
Verdicts follow from the numbers by the rules beside each study; the reasons are written by hand, in
docs/reproduction/reasons.md."""

import argparse
from pathlib import Path

from fedmap.paper.page import write_pages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    given = parser.parse_args()
    write_pages(given.results, given.docs / "reproduction/reasons.md", given.docs)


if __name__ == "__main__":
    main()
