"""Writes docs/reproduction.md and its pictures from the numbers in results/*.csv alone; no run
folder is needed.

    python scripts/write_reproduction.py [--results results] [--page docs/reproduction.md]

A CSV is called STUDY-SCALE.csv, as `fedmap study STUDY --scale SCALE --out FOLDER` writes it.
Verdicts follow from the numbers by the rules beside each study; the reasons are written by hand, in
docs/reasons.md."""

import argparse
from pathlib import Path

from fedmap.paper.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--reasons", type=Path, default=Path("docs/reasons.md"))
    parser.add_argument("--page", type=Path, default=Path("docs/reproduction.md"))
    given = parser.parse_args()
    write_page(given.results, given.reasons, given.page)


if __name__ == "__main__":
    main()
