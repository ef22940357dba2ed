"""All methods side by side on fashion-mini: the table in docs/methods/README.md and the last
section of every method's page.

    python scripts/measure_methods.py OUT [--rounds 40] [--seeds 0 1 2] [--workers 2] [--only NAME]

20 clients with incomplete classes, LeNet, every method with its defaults. Finished runs are kept
below OUT and not run again. With --only, some methods beside FedAvg: their pages and their lines of
the table. Seconds are compared within one go, so they have none.
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
BASELINES = ("local", "central")  # no methods, but there to compare with
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


def write_pages(
    comparison: fedmap.Comparison, seconds: dict[str, float], only: list[str], command: str
) -> None:
    """The table of all methods, and each method's page with FedAvg beside it."""
    found = {
        row.method: row._replace(seconds=f"{seconds[row.method]:.2f}" if seconds else "-")
        for row in rows(comparison.results, COLUMNS)
    }
    written = only or list(found)
    linked = [found[name]._replace(method=linked_name(name)) for name in written]
    every = as_table(linked, heads=COLUMNS.values()).markdown()
    index = DOCS / "methods/README.md"
    if only:
        write_lines(index, every.splitlines()[2:])
    else:
        write_below_mark(index, f"{every}\n{command}\n")
    for name in written:
        both = {"fedavg": comparison.results["fedavg"], name: comparison.results[name]}
        picture = plots.curves(both, DOCS / f"images/methods/{name}.png", dpi=80)
        image = f"![Accuracy by round](../images/methods/{picture.name})"
        table = as_table([found[key] for key in both], heads=COLUMNS.values()).markdown()
        write_below_mark(DOCS / f"methods/{name}.md", f"{image}\n\n{table}\n{command}\n")


def linked_name(name: str) -> str:
    """A method as the table names it."""
    return f"[{METHODS[name].__name__}]({name}.md)" + (" (baseline)" if name in BASELINES else "")


def write_lines(index: Path, lines: list[str]) -> None:
    """Put lines into the table of all methods, in the place of those of the same names or below."""
    new = {line.split("|")[1]: line for line in lines}
    there = [new.pop([*x.split("|"), ""][1], x) for x in index.read_text().splitlines()]
    last = max(number for number, line in enumerate(there) if line.startswith("| ["))
    index.write_text("\n".join([*there[: last + 1], *new.values(), *there[last + 1 :]]) + "\n")


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
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(set(METHODS) - {"fedavg"}))
    given = parser.parse_args()
    all_but = sorted(set(METHODS) - {"fedavg", *BASELINES})
    comparison = fedmap.compare(
        ["fedavg", *(given.only or [*all_but, *BASELINES])],
        seeds=given.seeds,
        out=given.out,
        on_progress=show,
        clients=20,
        net="lenet",
        rounds=given.rounds,
        workers=given.workers,
    )
    federation = fedmap.partition(fedmap.load("fashion-mini"), 20, seed=given.seeds[0])
    timed = [] if given.only else comparison.results
    seconds = {name: seconds_a_round(name, federation, given.workers) for name in timed}
    write_pages(comparison, seconds, given.only, how_it_was_made(given))


def how_it_was_made(given: argparse.Namespace) -> str:
    """The words below each table."""
    seeds = " ".join(str(seed) for seed in given.seeds)
    timed = f"; seconds a round with {given.workers} workers, median"
    only = f" --only {' '.join(given.only)}" if given.only else ""
    return (
        "The embedded part of Fashion-MNIST, 20 clients with incomplete classes, LeNet, "
        f"{given.rounds} rounds;\n"
        f"mean ± standard deviation over seeds {seeds}{'' if only else timed}. Made by\n"
        f"`python scripts/measure_methods.py runs/methods --rounds {given.rounds} --seeds "
        f"{seeds}{only}`."
    )


if __name__ == "__main__":
    main()
