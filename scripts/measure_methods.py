"""All methods side by side on fashion-mini: the table in docs/methods/README.md and the last
section of every method's page.

    python scripts/measure_methods.py OUT [--rounds 40] [--seeds 0 1 2] [--workers 2]

20 clients with incomplete classes, LeNet, every method with its defaults. Finished runs are kept
below OUT and not run again.
"""

import argparse
from pathlib import Path
from statistics import median

import fedmap
from fedmap.experiment.progress import Progress
from fedmap.methods import METHODS
from fedmap.report import plots
from fedmap.report.table import as_table, rows
from fedmap.simulate.result import STEADY

DOCS = Path(__file__).resolve().parent.parent / "docs"
MARK = "<!-- measured -->"
COLUMNS = {
    "global_accuracy": "global, last round",
    f"global_accuracy_last_{STEADY}": f"global, last {STEADY}",
    "personal_accuracy": "personal, last round",
    f"personal_accuracy_last_{STEADY}": f"personal, last {STEADY}",
    "personal_accuracy_all_clients": "personal, all clients",
}


def show(progress: Progress) -> None:
    """One line for each finished run."""
    if progress.step == progress.steps:
        print(f"{progress.label:<14} {progress.now}", flush=True)


def seconds_a_round(name: str, federation: fedmap.Federation, workers: int) -> float:
    """Measured apart, in rounds of their own one method after the other, so that the long runs may
    share the machine."""
    result = fedmap.run(name, federation, net="lenet", rounds=6, workers=workers)
    seconds: list[float] = [record["seconds"] for record in result.rounds]
    return median(seconds[1:])


def write_pages(comparison: fedmap.Comparison, seconds: dict[str, float], command: str) -> None:
    """The table of all methods, and each method's page with FedAvg beside it."""
    found = {
        row.method: row._replace(seconds=f"{seconds[row.method]:.2f}")
        for row in rows(comparison.results, COLUMNS)
    }
    linked = [
        row._replace(method=f"[{METHODS[name].__name__}]({name}.md)") for name, row in found.items()
    ]
    every = as_table(linked, heads=COLUMNS.values()).markdown()
    write_below_mark(DOCS / "methods/README.md", f"{every}\n{command}\n")
    for name, runs in comparison.results.items():
        both = {"fedavg": comparison.results["fedavg"], name: runs}
        picture = plots.curves(both, DOCS / f"images/methods/{name}.png", dpi=80)
        image = f"![Accuracy by round](../images/methods/{picture.name})"
        table = as_table([found[key] for key in both], heads=COLUMNS.values()).markdown()
        write_below_mark(DOCS / f"methods/{name}.md", f"{image}\n\n{table}\n{command}\n")


def write_below_mark(page: Path, text: str) -> None:
    """Put the text in the place of what follows the page's mark."""
    before = page.read_text().partition(MARK)[0]
    page.write_text(f"{before}{MARK}\n\n{text}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    comparison = fedmap.compare(
        ["fedavg", *sorted(set(METHODS) - {"fedavg"})],
        seeds=given.seeds,
        out=given.out,
        on_progress=show,
        clients=20,
        net="lenet",
        rounds=given.rounds,
        workers=given.workers,
    )
    federation = fedmap.partition(fedmap.load("fashion-mini"), 20, seed=given.seeds[0])
    seconds = {
        name: seconds_a_round(name, federation, given.workers) for name in comparison.results
    }
    seeds = " ".join(str(seed) for seed in given.seeds)
    write_pages(
        comparison,
        seconds,
        "The embedded part of Fashion-MNIST, 20 clients with incomplete classes, LeNet, "
        f"{given.rounds} rounds;\n"
        f"mean ± standard deviation over seeds {seeds}; seconds a round with {given.workers} "
        "workers, median. Made by\n"
        f"`python scripts/measure_methods.py runs/methods --rounds {given.rounds} --seeds "
        f"{seeds}`.",
    )


if __name__ == "__main__":
    main()
