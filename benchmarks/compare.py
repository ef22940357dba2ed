"""fedmap beside its peers and beside a plain PyTorch loop: the same rounds, in turns, on this
machine.

    python benchmarks/compare.py [--workloads w1,w2] [--contenders fedmap,bare,flower] [--rounds 5]
    [--out DIR]
    python benchmarks/compare.py --checkout pfllib=PATH ...     # also one that is no package: the
    folder of its repository
    python benchmarks/compare.py --out DIR --write docs/performance.md

Each contender is a process of its own, each peer in an environment of its own (made at first use,
kept in the cache). Contenders take turns round by round, so that the machine's moods hit all alike:
a ratio is the median of the ratios within a turn. The first round of each is a warm-up and counts
as start-up. Before that, every contender shows on a small case that it does the same work. The
second form measures nothing; it writes table and plot of DIR/results.json into a page."""

import argparse
import json
import math
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "contenders"))

from workload import Workload  # noqa: E402

from fedmap.data import load  # noqa: E402
from fedmap.errors import FedmapError  # noqa: E402
from nets import flop, parameters  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedmap-benchmarks"
PATIENCE = 1800  # seconds that a contender may take to start, or for a round
BEGIN, END = "<!-- comparison:begin -->", "<!-- comparison:end -->"
Results = dict[str, Any]

W1 = Workload(
    "lenet", (1, 32, 32), train=480, test=120, global_test=10_000, epochs=5, data="fashion-mnist"
)
DEEP = Workload(
    "vgg8",
    (3, 32, 32),
    train=400,
    test=100,
    global_test=2_000,
    epochs=1,
    clients_a_round=4,
    data="cifar-10",
)
WORKLOADS = {
    "w1": W1,
    "w2": replace(W1, net="mlp"),
    "w3": replace(
        W1, net="conv2", shape=(3, 32, 32), train=400, test=100, epochs=2, data="cifar-10"
    ),
    "vgg8": DEEP,
    "resnet20": replace(DEEP, net="resnet20"),
    "empty": Workload(
        "linear", (1, 4, 4), train=1, test=1, global_test=10, epochs=0, clients_a_round=100
    ),
    "w1-map": replace(
        W1, method="map", clients=20
    ),  # who comes again has a teacher, so all come every round
    "w1-scaffold": replace(W1, method="scaffold"),
    "w1-ditto": replace(W1, method="ditto"),
}


class Contender(NamedTuple):
    about: str
    script: str
    environment: str | None = (
        None  # the peer's list of requirements; None is the environment that the harness runs in
    )
    methods: tuple[str, ...] = ("fedavg",)
    options: dict[str, Any] = {}
    launcher: tuple[str, ...] = ()
    repository: str = (
        ""  # of a peer that is no package: it takes part where the folder of a checkout is given
    )


OTHERS = ("map", "scaffold", "ditto")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
CONTENDERS = {
    "fedmap": Contender(
        "two workers, native kernels; also scores every client's download",
        "run_fedmap.py",
        methods=("fedavg", *OTHERS),
    ),
    "fedmap-torch": Contender(
        "two workers, PyTorch's kernels",
        "run_fedmap.py",
        methods=("fedavg", *OTHERS),
        options={"kernels": "torch"},
    ),
    "fedmap-fedavg": Contender(
        "FedAvg, to see what the method costs beside it",
        "run_fedmap.py",
        methods=OTHERS,
        options={"method": "fedavg"},
    ),
    "bare": Contender("plain PyTorch loop, two threads", "run_bare.py"),
    "pfl": Contender(
        "two processes with a thread each; no shuffling", "run_pfl.py", "pfl", launcher=TORCHRUN
    ),
    "pfl-one": Contender(
        "one process with two threads; no shuffling", "run_pfl.py", "pfl", ("fedavg", "scaffold")
    ),
    "flower": Contender(
        "simulation on Ray, two actors with a thread each", "run_flower.py", "flower"
    ),
    "fedlab": Contender(
        "standalone pipeline, two threads", "run_fedlab.py", "fedlab", ("fedavg", "scaffold")
    ),
    "fluke": Contender(
        "two threads; Ditto's personal steps without momentum",
        "run_fluke.py",
        "fluke",
        ("fedavg", "scaffold", "ditto"),
    ),
    "pfllib": Contender(
        "two threads; sends to all clients; Ditto's personal steps without momentum",
        "run_pfllib.py",
        "pfllib",
        ("fedavg", "scaffold", "ditto"),
        repository="TsingZ0/PFLlib",
    ),
    "fl-bench": Contender(
        "two threads, tensors in memory",
        "run_fl_bench.py",
        "fl-bench",
        ("fedavg", "scaffold", "ditto"),
        repository="KarhouTam/FL-bench",
    ),
    "authors": Contender(
        "two threads, tensors in memory; clips gradients; MAP's stages have 35 and 5 steps, "
        "fedmap's 20 and 20",
        "run_authors.py",
        "authors",
        ("fedavg", "map"),
        repository="lxcnju/MAP",
    ),
}


class ContenderError(Exception):
    """A contender that cannot take part, with one line that says why."""


# Environments and processes.


def interpreter(environment: str | None) -> str:
    """The Python of a peer's environment, which is made, or made anew, where the requirements are
    not those it was made with."""
    if environment is None:
        return sys.executable
    wanted, home = HERE / "environments" / f"{environment}.txt", CACHE / environment
    python, mark = home / "bin" / "python", home / "installed.txt"
    if not mark.exists() or mark.read_text() != wanted.read_text():
        print(f"installing {environment} into {home} ...", flush=True)
        venv.create(home, clear=True, with_pip=True)
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            str(wanted),
        ]
        made = subprocess.run(pip, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ContenderError(f"cannot be installed: {reason(made.stderr)}")
        mark.write_text(wanted.read_text())
    return str(python)


def reason(text: str) -> str:
    """The line of a log that tells most: the last error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    return next(
        (line for line in reversed(lines) if "Error: " in line or "ERROR: " in line), lines[-1]
    )


class Player:
    """A contender's process. It does a round when it is told to, and sleeps otherwise."""

    def __init__(self, name: str, workload: Workload, log: Path) -> None:
        contender = CONTENDERS[name]
        script = HERE / "contenders" / contender.script
        command = [
            interpreter(contender.environment),
            *contender.launcher,
            str(script),
            workload.write(),
        ]
        self.log, began = log, time.perf_counter()
        self.everyone: dict[
            int, str
        ] = {}  # its processes, with their times of birth: numbers are used again
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
            )
        self.ready = self._answer()
        self.start = time.perf_counter() - began

    def round(self) -> dict[str, Any]:
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the missing answer tells more
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.close()
            raise ContenderError(f"gave no answer within {PATIENCE} s; its log is {self.log}")
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise ContenderError(
                f"{reason(self.log.read_text(errors='replace'))} (all of it: {self.log})"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def memory(self) -> float:
        """MB that all of its processes hold now; what they share counts once."""
        self._meet_everyone()
        return sum(share_of_memory(pid) for pid in family(self.process.pid)) / 1e6

    def _meet_everyone(self) -> None:
        self.everyone |= {pid: birth(pid) for pid in family(self.process.pid)}

    def close(self) -> None:
        """Its standard input ends, which ends it; what it has started and left behind is ended by
        number."""
        self._meet_everyone()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for pid, born in self.everyone.items():
            if born and birth(pid) == born:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                yield from family(int(child))


def birth(pid: int) -> str:
    """When a process began, in the kernel's ticks; nothing where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def share_of_memory(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1e3
    return 0.0


# The measurement.


def with_images(workload: Workload, folder: Path) -> Workload:
    """The workload with its data set in a file that every contender can read: pixels and labels, in
    an order drawn once."""
    if workload.data == "noise":
        return workload
    try:
        data = load(workload.data)
    except FedmapError as missing:
        print(f"noise instead of {workload.data}: {missing}", flush=True)
        return replace(workload, data="noise")
    file = folder / f"{workload.data}.pt"
    order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(0))
    torch.save(
        {"train": (data.train_x[order], data.train_y[order]), "test": (data.test_x, data.test_y)},
        file,
    )
    return replace(workload, images=str(file.resolve()))


def fitted(name: str, workload: Workload) -> Workload:
    """The workload with the contender's options; one of them may be another method."""
    options = dict(CONTENDERS[name].options)
    return replace(workload, method=options.pop("method", workload.method), options=options)


def remarks(name: str, workload: Workload, log: Path) -> list[str]:
    """How a contender's work differs from what is asked for, counted in the second round of a small
    case."""
    small = replace(
        workload,
        clients=4,
        clients_a_round=2,
        global_test=min(workload.global_test, 500),
        rounds=2,
        count=True,
    )
    player = Player(name, small, log)
    size, wanted = player.ready["parameters"], parameters(small.build())
    player.round()
    work = player.round()
    player.close()
    found = []
    if size != wanted:
        found.append(f"a net of {size} parameters instead of {wanted}")
    if work["steps"] != small.steps:
        found.append(f"{work['steps']} steps instead of {small.steps} in the small case")
    if (
        work["scored"] != small.scored and small.method != "map"
    ):  # the teacher of MAP's second stage classifies too
        found.append(f"scores {work['scored']} samples instead of {small.scored} in the small case")
    return found


def measure(workload: Workload, names: list[str], rounds: int, logs: Path) -> Results:
    """Every contender's rounds, in turns. One that fails is left out, and the others go on."""
    players: dict[str, Player] = {}
    entries: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}

    def fails(name: str, why: ContenderError) -> None:
        failed[name] = str(why)
        print(f"{name}: {why}", flush=True)
        players.pop(name, None)
        entries.pop(name, None)

    try:
        for name in names:
            try:
                work, log = fitted(name, workload), logs / f"{name}.log"
                differs = remarks(name, work, log)
                players[name] = Player(name, replace(work, rounds=rounds + 1), log)
                ready = players[name].ready
                entries[name] = {
                    "seconds": [],
                    "memory": 0.0,
                    "remarks": differs,
                    "start": players[name].start,
                    **ready,
                }
                entries[name]["flop"] = operations(work)
            except ContenderError as why:
                fails(name, why)
        for turn in range(rounds + 1):
            for name in list(players)[:: -1 if turn % 2 else 1]:
                try:
                    entries[name]["seconds"].append(players[name].round()["seconds"])
                    entries[name]["memory"] = max(entries[name]["memory"], players[name].memory)
                except ContenderError as why:
                    fails(name, why)
    finally:
        for player in players.values():
            player.close()
    for entry in entries.values():
        warm_up, *entry["seconds"] = entry["seconds"]
        entry["start"] += max(warm_up - statistics.median(entry["seconds"]), 0.0)
    return {
        "contenders": entries,
        "failed": failed,
        "peak": matmul_peak(),
        "workload": json.loads(workload.write()),
    }


def operations(workload: Workload) -> float:
    """FLOP of a round. What a method adds to its local steps, such as MAP's teacher, is not
    counted."""
    forward, step = flop(workload.net, workload.shape)
    epochs = workload.epochs * (2 if workload.method == "ditto" else 1)
    return forward * workload.scored + step * workload.train * epochs * workload.clients_a_round


def matmul_peak(size: int = 2048, repeats: int = 20) -> float:
    """FLOP/s of the best of some float32 matrix products on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - began)
    torch.set_num_threads(before)
    return 2 * size**3 / best


def machine() -> dict[str, Any]:
    with suppress(OSError):
        models = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        return {"cpu": models[0], "cores": os.cpu_count(), "python": platform.python_version()}
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


# What comes out.


def ratio(entry: dict[str, Any], reference: dict[str, Any]) -> float:
    """The median over the turns of this contender's time against fedmap's in the same turn."""
    return float(
        statistics.median(
            a / b for a, b in zip(entry["seconds"], reference["seconds"], strict=True)
        )
    )


def rows(result: Results) -> list[list[str]]:
    """A row a contender, fastest first."""
    workload, entries = result["workload"], result["contenders"]
    reference = entries.get("fedmap")
    made = []
    for name, entry in sorted(
        entries.items(), key=lambda item: statistics.median(item[1]["seconds"])
    ):
        seconds = statistics.median(entry["seconds"])
        rate = entry["flop"] / seconds
        scale, digits = (1.0, 2) if workload["epochs"] else (1e3 / workload["clients_a_round"], 3)
        made.append(
            [
                name,
                f"{seconds * scale:.{digits}f}",
                f"{min(entry['seconds']) * scale:.{digits}f} to "
                f"{max(entry['seconds']) * scale:.{digits}f}",
                f"{ratio(entry, reference):.2f}" if reference else "-",
                f"{rate / 1e9:.0f} ({rate / result['peak']:.0%})" if workload["epochs"] else "-",
                f"{entry['start']:.1f}",
                f"{entry['memory']:.0f}",
                "; ".join(entry["remarks"]),
            ]
        )
    return made


def heads(result: Results) -> list[str]:
    unit = "s a round" if result["workload"]["epochs"] else "ms a client call"
    return [
        "contender",
        unit,
        "from to",
        "ratio to fedmap",
        "GFLOP/s (of peak)",
        "start s",
        "memory MB",
        "differs",
    ]


def title(name: str, result: Results) -> str:
    workload = result["workload"]
    rounds = max((len(entry["seconds"]) for entry in result["contenders"].values()), default=0)
    work = (
        f"E = {workload['epochs']}, {workload['train']} samples a client"
        if workload["epochs"]
        else "clients that train nothing"
    )
    data = f"{workload['net']} on {workload.get('data', 'noise')} of {'x'.join(str(n) for n in workload['shape'])}"
    return f"{name}: {workload['method']}, {data}, {work}, {workload['clients_a_round']} clients a round; {rounds} rounds"


def show(name: str, result: Results) -> None:
    table = [heads(result), *rows(result)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    print(f"\n{title(name, result)}")
    for row in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(),
            flush=True,
        )


def markdown(results: Results, picture: str) -> str:
    """The part of the page between the markers."""
    about = results["machine"]
    peak = max(result["peak"] for result in results["workloads"].values()) / 1e9
    versions = ", ".join(f"{name} {number}" for name, number in sorted(results["versions"].items()))
    lines = [
        f"Measured on {about['cpu']}, {about['cores']} cores; Python {about['python']}, "
        f"{versions}.",
        f"A float32 matrix product reaches {peak:.0f} GFLOP/s on two threads. Medians of rounds "
        "taken in turns, as many as each title",
        f"says, made by `{results['command']}`. GFLOP/s are those of the",
        "dense formulas; fedmap's native code leaves out products with a zero, so its share can "
        "pass 100 %.",
        "",
        f"![Seconds a round of every contender]({picture})",
    ]
    for name, result in results["workloads"].items():
        head = heads(result)
        lines += [
            "",
            f"**{title(name, result)}**",
            "",
            f"| {' | '.join(head)} |",
            "| --- " * len(head) + "|",
        ]
        lines += [f"| {' | '.join(row)} |" for row in rows(result)]
        lines += (
            ["", *(f"- {peer} did not take part: {why}" for peer, why in result["failed"].items())]
            if result["failed"]
            else []
        )
    seen = {name for result in results["workloads"].values() for name in result["contenders"]}
    lines += ["", *(f"- {name}: {CONTENDERS[name].about}" for name in CONTENDERS if name in seen)]
    return "\n".join(lines)


def draw(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = results["workloads"]
    columns = min(len(shown), 3)
    height = math.ceil(len(shown) / columns)
    figure, axes = pyplot.subplots(
        height, columns, figsize=(4.2 * columns, 2.8 * height), squeeze=False
    )
    for axis in axes.flat[len(shown) :]:
        axis.remove()
    for axis, (name, result) in zip(axes.flat, shown.items(), strict=False):
        made = sorted(
            result["contenders"].items(), key=lambda item: -statistics.median(item[1]["seconds"])
        )
        middles = [statistics.median(entry["seconds"]) for _, entry in made]
        spread = [
            [
                middle - min(entry["seconds"])
                for (_, entry), middle in zip(made, middles, strict=True)
            ],
            [
                max(entry["seconds"]) - middle
                for (_, entry), middle in zip(made, middles, strict=True)
            ],
        ]
        colors = ["tab:orange" if contender == "fedmap" else "tab:blue" for contender, _ in made]
        axis.barh(
            [contender for contender, _ in made],
            middles,
            xerr=spread,
            color=colors,
            error_kw={"linewidth": 0.8},
        )
        axis.set_title(name)
        axis.set_xlabel("seconds a round")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write(results: Results, page: Path) -> None:
    """Table and plot into a page, between its markers."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(
            f"{page} needs one line {BEGIN} and one line {END}; what is between them is replaced"
        )
    results["workloads"] = {
        name: results["workloads"][name] for name in WORKLOADS if name in results["workloads"]
    }
    picture = Path("images") / "comparison.png"
    draw(results, page.parent / picture)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{markdown(results, picture.as_posix())}\n{END}{after}")


def check_out(given: list[str]) -> None:
    """Tell contenders that are no packages where their repositories lie."""
    for pair in given:
        name, _, path = pair.partition("=")
        if name not in CONTENDERS or not CONTENDERS[name].repository:
            able = ", ".join(
                f"{known} ({one.repository})" for known, one in CONTENDERS.items() if one.repository
            )
            raise SystemExit(
                f"--checkout {pair}: {name!r} is no contender that needs one; these do: {able}"
            )
        if not Path(path).is_dir():
            raise SystemExit(f"--checkout {pair}: there is no folder {path!r}")
        options = CONTENDERS[name].options | {"checkout": str(Path(path).resolve())}
        CONTENDERS[name] = CONTENDERS[name]._replace(options=options)


def ready(name: str) -> bool:
    return not CONTENDERS[name].repository or "checkout" in CONTENDERS[name].options


def chosen(given: str, known: dict[str, Any], what: str) -> list[str]:
    names = given.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no {what} {name!r}; there are: {', '.join(known)}")
    return names


def command(workloads: list[str], contenders: list[str], rounds: int) -> str:
    """What was asked for, without the folders of this machine."""
    words = [
        "python benchmarks/compare.py",
        *(f"--checkout {name}=PATH" for name in contenders if CONTENDERS[name].repository),
    ]
    words += [] if workloads == list(WORKLOADS) else [f"--workloads {','.join(workloads)}"]
    words += (
        []
        if contenders == [*filter(ready, CONTENDERS)]
        else [f"--contenders {','.join(contenders)}"]
    )
    return " ".join([*words, f"--rounds {rounds}"])


def compare(workloads: list[str], contenders: list[str], rounds: int, out: Path) -> Results:
    """Measure, print, and keep in results.json; workloads that an earlier call measured stay there."""
    file, logs = out / "results.json", out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    results: Results = (
        json.loads(file.read_text()) if file.exists() else {"workloads": {}, "versions": {}}
    )
    results |= {"machine": machine(), "command": command(workloads, contenders, rounds)}
    for name in workloads:
        able = [
            contender
            for contender in contenders
            if WORKLOADS[name].method in CONTENDERS[contender].methods
        ]
        result = measure(with_images(WORKLOADS[name], out), able, rounds, logs)
        for entry in result["contenders"].values():
            results["versions"] |= entry.pop("versions")
        results["workloads"][name] = result
        show(name, result)
        file.write_text(json.dumps(results, indent=1) + "\n")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="some of: %(default)s")
    parser.add_argument(
        "--contenders",
        help=f"some of: {','.join(CONTENDERS)}; without it all that need no checkout or have one",
    )
    parser.add_argument(
        "--checkout",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="where a peer that is no package lies",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="that count, after one that does not (%(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/comparison"),
        help="folder of results.json and logs (%(default)s)",
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="measure nothing; write the results into this page",
    )
    given = parser.parse_args()
    if given.write:
        write(json.loads((given.out / "results.json").read_text()), given.write)
    else:
        check_out(given.checkout)
        workloads = chosen(given.workloads, WORKLOADS, "workload")
        contenders = (
            chosen(given.contenders, CONTENDERS, "contender")
            if given.contenders
            else [*filter(ready, CONTENDERS)]
        )
        for name in contenders:
            if not ready(name):
                raise SystemExit(
                    f"{name} needs --checkout {name}=PATH, the folder of "
                    f"{CONTENDERS[name].repository}"
                )
        compare(workloads, contenders, given.rounds, given.out)


if __name__ == "__main__":
    main()
