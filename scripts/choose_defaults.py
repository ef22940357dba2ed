"""Which parameters should be the defaults of the methods whose published ones do not carry over?

The test set plays no part: the last fifth of each class's training images of fashion-mini is held
out and scored instead, and the seeds are not those of the reported tables. The contenders are the
paper's three groups and the originals' values. The rule was set beforehand: the score is the mean
of the global model's and of all clients' own accuracy (of the latter alone where there is no global
model), a contender that diverges with any seed is out, and today's default stays unless another is
above it by two standard errors of the difference over the seeds. Finished runs are kept below OUT
and not run again; the table goes to standard output.

    python scripts/choose_defaults.py OUT [--rounds 40] [--methods feddyn fedaws] [--workers 2]
"""

import argparse
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from choose_map_default import SEEDS, held_out

import fedmap
from fedmap.errors import DivergenceError
from fedmap.methods import METHODS
from fedmap.paper.groups import GROUPS
from fedmap.report.table import Table, percent
from fedmap.simulate.result import STEADY

# what the originals, other methods' defaults or their neighbors add to the paper's groups
MORE: dict[str, list[dict[str, Any]]] = {
    "dittors": [{"alpha": 0.9, "weight": 0.1}],
    "fedaws": [],
    "feddecorr": [
        {"weight": 0.1},
        {"weight": 0.01},
        {"within": True, "weight": 0.01},
        {"within": True, "weight": 0.00001},
    ],
    "feddyn": [],
    "fedgela": [
        {"adapt": True},
        {"adapt": True, "scale": 5.0},
        {"adapt": False},
        {"loss": "etf", "temperature_factor": 10.0},
        {"loss": "etf", "temperature_factor": 1.0},
    ],
    "fedlc": [{"tau": 1.0}, {"tau": 0.1}],
    "fedlesam": [{"rho": 0.1}, {"rho": 0.1, "direction": "local"}],
    "fedloge": [
        {"scale": 0.1, "head": "aligned"},
        {"scale": 1.0, "head": "aligned"},
        {"scale": 1.0, "head": "fixed"},
        {"scale": 1.0, "head": "plain"},
    ],
    "fednh": [{"scale": scale} for scale in (1.0, 10.0, 20.0, 30.0)],
    "fedntd": [{"temperature": 1.0}, {"temperature": 3.0}],
    "fedphp": [{"transfer": "kd", "weight": 0.01}],
    "fedproto": [{"weight": 1.0}],
    "fedvls": [
        {"weight": 0.1, "form": "code", "suppression": 0.005},
        {"weight": 0.5, "form": "code", "suppression": 0.005},
        {"weight": 0.1, "form": "paper", "suppression": 1.0},
    ],
    "knnper": [{"mix": None}, {"mix": 0.5}],
    "perfedavg": [{"inner": 0.3, "beta": beta} for beta in (0.1, 0.05, 0.01)],
    "scaffold": [{"server_lr": 1.0}],
    "scars": [{"alpha": 0.9, "server_lr": 1.0}],
    "scamap": [{"transfer": "kd", "weight": 0.01, "alpha": 0.9, "server_lr": 1.0}],
}
Scores = list[tuple[float | None, float]]  # of each seed: the global model, all clients' own


def scores(
    method: str,
    params: dict[str, Any],
    federations: dict[int, fedmap.Federation],
    out: Path,
    rounds: int,
    workers: int,
) -> Scores | None:
    """A contender's accuracies by seed; none where it diverges."""
    found: Scores = []
    words = "-".join(f"{name}={value}" for name, value in params.items())
    for seed, federation in federations.items():
        try:
            run = fedmap.run(
                method, federation, out=out / f"{method}-{words}-{rounds}-{seed}", resume=True,
                net="lenet", rounds=rounds, seed=seed, params=params, workers=workers,
            )  # fmt: skip
        except DivergenceError:
            return None
        final = run.final
        own = final["personal_accuracy_all_clients"]
        found.append((final[f"global_accuracy_last_{STEADY}"], own))
    return found


def score(pair: tuple[float | None, float]) -> float:
    """The mean of both accuracies, or the only one."""
    whole, own = pair
    return own if whole is None else (whole + own) / 2


def chosen(found: list[Scores | None], today: int) -> int:
    """The best contender's place: today's, unless another is above it by two standard errors."""
    scored = {i: [score(pair) for pair in pairs] for i, pairs in enumerate(found) if pairs}
    if not scored:
        return today
    best = max(scored, key=lambda i: mean(scored[i]))
    if today not in scored:
        return best
    gains = [a - b for a, b in zip(scored[best], scored[today], strict=True)]
    return best if mean(gains) > 2 * stdev(gains) / len(gains) ** 0.5 else today


def lines_of(method: str, found: list[Scores | None]) -> list[list[str]]:
    """A line for each contender: its parameters, accuracies and what became of it."""
    contenders = GROUPS.get(method, []) + MORE[method]
    plain = METHODS[method]().params
    today = [METHODS[method](**params).params for params in contenders].index(plain)
    best, lines = chosen(found, today), []
    for i, (params, pairs) in enumerate(zip(contenders, found, strict=True)):
        words = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                          for name, value in params.items())  # fmt: skip
        marks = ["default"] * (i == today) + ["chosen"] * (i == best)
        cells = ["diverges"] * 3
        if pairs:
            whole = [a for a, _ in pairs if a is not None]
            columns = [whole, [b for _, b in pairs], [score(pair) for pair in pairs]]
            cells = [percent(column) if column else "-" for column in columns]
        lines.append([METHODS[method].__name__, words, *cells, ", ".join(marks)])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--methods", nargs="+", default=list(MORE))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    dataset = held_out(fedmap.load("fashion-mini"))
    federations = {seed: fedmap.partition(dataset, 20, seed=seed) for seed in SEEDS}
    lines = []
    for method in given.methods:
        contenders = GROUPS.get(method, []) + MORE[method]
        where = (federations, given.out, given.rounds, given.workers)
        lines += lines_of(method, [scores(method, params, *where) for params in contenders])
    head = ["method", "parameters", "global, last 10", "personal, all clients", "score", ""]
    print(Table("", head, lines).markdown(), flush=True)


if __name__ == "__main__":
    main()
