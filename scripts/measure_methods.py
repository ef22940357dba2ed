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
from fedmap.methods import METHODS
from fedmap.report import plots
from fedmap.report.table import markdown, rows
from fedmap.simulate import Run, Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
MARK = "<!-- measured -->"


def measure(
    out: Path, rounds: int, seeds: list[int], workers: int
) -> dict[str, list[fedmap.Result]]:
    dataset = fedmap.load("fashion-mini")
    results: dict[str, list[fedmap.Result]] = {
        name: [] for name in ["fedavg", *sorted(set(METHODS) - {"fedavg"})]
    }
    for seed in seeds:
        federation = fedmap.partition(dataset, 20, seed=seed)
        for name, runs in results.items():
            made = Settings.of(
                {"method": name, "net": "lenet", "rounds": rounds, "seed": seed, "workers": workers}
            ).resolved(federation)
            runs.append(Run(made, federation, out / made.name).go(resume=True))
            final = runs[-1].final
            print(
                f"seed {seed}  {name:<10} global {final['global_accuracy_last_10']}  personal "
                f"{final['personal_accuracy_last_10']}",
                flush=True,
            )
    return results


def seconds_a_round(name: str, federation: fedmap.Federation, workers: int) -> float:
    """Measured apart, in rounds of their own one method after the other, so that the long runs may
    share the machine."""
    result = fedmap.run(name, federation, net="lenet", rounds=6, workers=workers)
    seconds: list[float] = [record["seconds"] for record in result.rounds]
    return median(seconds[1:])


def write_pages(
    results: dict[str, list[fedmap.Result]], seconds: dict[str, float], command: str
) -> None:
    table = [row._replace(seconds=f"{seconds[row.method]:.2f}") for row in rows(results)]
    intro = (DOCS / "methods/README.md").read_text().partition(MARK)[0]
    linked = [
        row._replace(method=f"[{METHODS[row.method].__name__}]({row.method}.md)") for row in table
    ]
    (DOCS / "methods/README.md").write_text(f"{intro}{MARK}\n\n{markdown(linked)}\n{command}\n")
    by_name = {row.method: row for row in table}
    for name, runs in results.items():
        both = {"fedavg": results["fedavg"], name: runs}
        picture = plots.curves(both, DOCS / f"images/methods/{name}.png", dpi=80)
        page = DOCS / f"methods/{name}.md"
        text = page.read_text().partition(MARK)[0]
        lines = markdown([by_name[key] for key in both])
        page.write_text(
            f"{text}{MARK}\n\n![Accuracy by "
            f"round](../images/methods/{picture.name})\n\n{lines}\n{command}\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    results = measure(given.out, given.rounds, given.seeds, given.workers)
    federation = fedmap.partition(fedmap.load("fashion-mini"), 20, seed=given.seeds[0])
    seconds = {name: seconds_a_round(name, federation, given.workers) for name in results}
    seeds = " ".join(str(seed) for seed in given.seeds)
    write_pages(
        results,
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
