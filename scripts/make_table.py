"""Write scikit-learn's handwritten digits as one table with a column that names the site, to try
`--data csv:PATH --client-column site`. Every site lacks some digits."""

import argparse
import csv
from pathlib import Path

from sklearn.datasets import load_digits

from fedmap.random import generator

# which digits a site has
SITES = {
    "oslo": (0, 1, 2, 3, 4, 5),
    "bergen": (4, 5, 6, 7, 8, 9),
    "tromso": (0, 2, 4, 6, 8),
    "bodo": (1, 3, 5, 7, 9),
    "molde": (0, 1, 7, 8, 9),
}


def main() -> None:
    """Give each image of a digit to one of the sites that have the digit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("destination", type=Path, help="the file to write, e.g. digits.csv")
    destination: Path = parser.parse_args().destination
    digits = load_digits()
    rng = generator(0, "table")
    with destination.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "digit", *digits.feature_names])
        for pixels, digit in zip(digits.data, digits.target, strict=True):
            holders = [site for site, held in SITES.items() if digit in held]
            rows.writerow([rng.choice(holders), f"digit {digit}", *pixels])
    print(f"{destination}: {len(digits.target)} rows of {len(SITES)} sites")


if __name__ == "__main__":
    main()
