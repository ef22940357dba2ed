"""fedmap beside its peers and beside a plain PyTorch loop: the same rounds, in turns, on this
machine.

    python benchmarks/compare.py [--workloads lenet,mlp] [--contenders fedmap,bare,flower]
                                 [--rounds 5] [--out DIR]
    python benchmarks/compare.py --checkout pfllib=PATH ...
    python benchmarks/compare.py --out DIR --write docs/performance.md

Each contender is a process of its own, each peer in an environment of its own (installed at first
use, kept in the cache). Contenders take turns round by round, so that the machine's moods hit all
alike: a ratio is the median of the ratios within a turn. The first round of each is a warm-up and
counts as start-up. Before that, every contender shows on a small case that it does the same work.
The second form adds a peer that is no package: the folder of its repository. The third form
measures nothing; it writes the tables and the plot of DIR/results.json into a page."""

import argparse
import json
import math
from pathlib import Path
from statistics import median
from typing import Any

from catalog import CONTENDERS, WORKLOADS, able, check_out, title
from measure import machine, measure, with_images

BEGIN, END = "<!-- comparison:begin -->", "<!-- comparison:end -->"
Results = dict[str, Any]
Entry = dict[str, Any]


def compare(workloads: list[str], contenders: list[str], rounds: int, out: Path) -> Results:
    """Measure, print, and keep in results.json; workloads that an earlier call measured stay."""
    file, logs = out / "results.json", out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    results: Results = {"workloads": {}, "versions": {}}
    if file.exists():
        results = json.loads(file.read_text())
    results |= {"machine": machine(), "command": command(workloads, contenders, rounds)}
    for key in workloads:
        workload = WORKLOADS[key]
        result = measure(with_images(workload, out), able(contenders, workload), rounds, logs)
        for entry in result["contenders"].values():
            results["versions"] |= entry.pop("versions")
        results["workloads"][key] = result
        show(key, result)
        file.write_text(json.dumps(results, indent=1) + "\n")
    return results


def command(workloads: list[str], contenders: list[str], rounds: int) -> str:
    """What was asked for, without the folders of this machine."""
    words = ["python benchmarks/compare.py"]
    words += [f"--checkout {name}=PATH" for name in contenders if CONTENDERS[name].repository]
    if workloads != list(WORKLOADS):
        words.append(f"--workloads {','.join(workloads)}")
    if contenders != all_ready():
        words.append(f"--contenders {','.join(contenders)}")
    return " ".join([*words, f"--rounds {rounds}"])


def all_ready() -> list[str]:
    """The contenders that need no checkout or have one."""
    return [name for name, contender in CONTENDERS.items() if contender.ready]


# Tables.


def ratio(entry: Entry, reference: Entry) -> float:
    """The median over the turns of this contender's time against fedmap's in the same turn."""
    pairs = zip(entry["seconds"], reference["seconds"], strict=True)
    return float(median(seconds / fedmap for seconds, fedmap in pairs))


def by_speed(result: Results) -> list[tuple[str, Entry]]:
    """The contenders' entries, fastest first."""
    return sorted(result["contenders"].items(), key=lambda item: median(item[1]["seconds"]))


def heads(result: Results) -> list[str]:
    """The names of a table's columns."""
    unit = "s a round" if result["workload"]["epochs"] else "ms a client call"
    speed = ["ratio to fedmap", "GFLOP/s (of peak)"]
    return ["contender", unit, "from to", *speed, "start s", "memory MB", "differs"]


def rows(result: Results) -> list[list[str]]:
    """One row for each contender, fastest first."""
    return [row(name, entry, result) for name, entry in by_speed(result)]


def row(name: str, entry: Entry, result: Results) -> list[str]:
    """The cells of one contender."""
    workload, reference = result["workload"], result["contenders"].get("fedmap")
    trains = workload["epochs"] > 0
    scale, digits = (1.0, 2) if trains else (1e3 / workload["clients_a_round"], 3)
    seconds = entry["seconds"]
    middle, least, most = (
        f"{value * scale:.{digits}f}" for value in (median(seconds), min(seconds), max(seconds))
    )
    rate = entry["flop"] / median(seconds)
    return [
        name,
        middle,
        f"{least} to {most}",
        f"{ratio(entry, reference):.2f}" if reference else "-",
        f"{rate / 1e9:.0f} ({rate / result['peak']:.0%})" if trains else "-",
        f"{entry['start']:.1f}",
        f"{entry['memory']:.0f}",
        "; ".join(entry["remarks"]),
    ]


def caption(key: str, result: Results) -> str:
    """What a table shows: the workload's title, its key on the command line, and its size."""
    workload = result["workload"]
    rounds = max((len(entry["seconds"]) for entry in result["contenders"].values()), default=0)
    about = [f"samples of {'x'.join(str(n) for n in workload['shape'])}"]
    if workload["epochs"]:
        about.append(f"E = {workload['epochs']}, {workload['train']} for each client")
    about.append(f"{workload['clients_a_round']} clients a round")
    return f"{title(workload)} ({key}): {', '.join(about)}; {rounds} rounds"


def show(key: str, result: Results) -> None:
    """Print one workload's table."""
    table = [heads(result), *rows(result)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print(f"\n{caption(key, result)}")
    for cells in table:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        print("  ".join(padded).rstrip(), flush=True)


# The page.


def write(results: Results, page: Path) -> None:
    """The tables into a page, between its markers, and the plot beside it."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(
            f"{page} needs one line {BEGIN} and one line {END}; what is between them is replaced"
        )
    measured = results["workloads"]
    results["workloads"] = {key: measured[key] for key in WORKLOADS if key in measured}
    draw(results, page.parent / "images/comparison.png")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}")


def markdown(results: Results) -> str:
    """The part of the page between the markers. The picture stands above, with a table of the
    ratios that tests/test_performance.py compares with these."""
    lines = introduction(results)
    for key, result in results["workloads"].items():
        lines += ["", f"**{caption(key, result)}**", "", *table(result)]
    seen = {name for result in results["workloads"].values() for name in result["contenders"]}
    lines += ["", *(f"- {name}: {CONTENDERS[name].about}" for name in CONTENDERS if name in seen)]
    return "\n".join(lines)


def introduction(results: Results) -> list[str]:
    """The machine, the versions, and how the numbers came to be."""
    about = results["machine"]
    peak = max(result["peak"] for result in results["workloads"].values()) / 1e9
    versions = ", ".join(f"{name} {number}" for name, number in sorted(results["versions"].items()))
    return [
        f"Measured on {about['cpu']}, {about['cores']} cores; Python {about['python']}, "
        f"{versions}.",
        f"A float32 matrix product reaches {peak:.0f} GFLOP/s on two threads. Medians of rounds "
        "taken in turns, as many as each title",
        f"says, from `{results['command']}`. GFLOP/s are those of the",
        "dense formulas; fedmap's native code leaves out products with a zero, so its share can "
        "pass 100 %.",
    ]


def table(result: Results) -> list[str]:
    """One workload's table in Markdown, and who did not take part."""
    head = heads(result)
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows(result)]
    if result["failed"]:
        lines.append("")
    return lines + [f"- {name} did not take part: {why}" for name, why in result["failed"].items()]


def draw(results: Results, path: Path) -> None:
    """One panel for each workload."""
    from matplotlib.figure import Figure

    shown = results["workloads"].values()
    columns = min(len(shown), 3)
    height = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(4.2 * columns, 2.8 * height), layout="tight")
    axes = figure.subplots(height, columns, squeeze=False).flat
    for panel in axes[len(shown) :]:
        panel.remove()
    for panel, result in zip(axes, shown, strict=False):
        draw_bars(panel, result)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def draw_bars(panel: Any, result: Results) -> None:
    """A bar for each contender, fastest on top, with its least and its most as a line."""
    names, entries = zip(*reversed(by_speed(result)), strict=True)
    times = [entry["seconds"] for entry in entries]
    middles = [median(seconds) for seconds in times]
    below = [middle - min(seconds) for middle, seconds in zip(middles, times, strict=True)]
    above = [max(seconds) - middle for middle, seconds in zip(middles, times, strict=True)]
    colors = ["tab:orange" if name == "fedmap" else "tab:blue" for name in names]
    panel.barh(names, middles, xerr=[below, above], color=colors, error_kw={"linewidth": 0.8})
    panel.set_title(title(result["workload"]))
    panel.set_xlabel("seconds a round")
    panel.spines[["top", "right"]].set_visible(False)


# The command.


def chosen(given: str, known: dict[str, Any], what: str) -> list[str]:
    """The names in a list with commas, each of them known."""
    names = given.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no {what} {name!r}; there are: {', '.join(known)}")
    return names


def chosen_contenders(given: str | None) -> list[str]:
    """Those named, or all that are ready."""
    contenders = chosen(given, CONTENDERS, "contender") if given else all_ready()
    for name in contenders:
        if not CONTENDERS[name].ready:
            raise SystemExit(
                f"{name} needs --checkout {name}=PATH, the folder of {CONTENDERS[name].repository}"
            )
    return contenders


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--workloads", default=",".join(WORKLOADS), help="some of: %(default)s")
    every = f"some of: {','.join(CONTENDERS)}; without it all that need no checkout or have one"
    option("--contenders", help=every)
    where = "where a peer that is no package lies"
    option("--checkout", action="append", default=[], metavar="NAME=PATH", help=where)
    counted = "that count, after one that does not (%(default)s)"
    option("--rounds", type=int, default=5, help=counted)
    folder = "folder of results.json and logs (%(default)s)"
    option("--out", type=Path, default=Path("runs/comparison"), help=folder)
    page = "measure nothing; write the results into this page"
    option("--write", type=Path, metavar="PAGE", help=page)
    return parser.parse_args()


def main() -> None:
    given = parse()
    if given.write:
        write(json.loads((given.out / "results.json").read_text()), given.write)
        return
    check_out(given.checkout)
    workloads = chosen(given.workloads, WORKLOADS, "workload")
    compare(workloads, chosen_contenders(given.contenders), given.rounds, given.out)


if __name__ == "__main__":
    main()
