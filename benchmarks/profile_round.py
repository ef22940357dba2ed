"""Where the time of a round goes: seconds of each part, by name, of one method on one network.

    python benchmarks/profile_round.py [--method map] [--net lenet] [--rounds 3] [--plot FILE]

The federation has 20 clients of 480 training samples, with noise for images, and all of them in
each round, so that every client has met the method before: MAP's have a teacher. All parts run in
one process here, so that they can be told apart; with N workers those of the clients and the
evaluation are shared by N."""

import argparse
import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from growth import federation
from matplotlib.figure import Figure

import fedmap
from fedmap.client import Client
from fedmap.methods import find_method
from fedmap.nets import Net
from fedmap.report.plots import COLORS, save
from fedmap.simulate import tasks
from fedmap.simulate.folder import RunFolder
from fedmap.simulate.store import FileStore
from fedmap.vector import SGD, Model


class Stopwatch:
    """Time by part; a part inside another one counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._tick()
        self._open.append(name)
        try:
            yield
        finally:
            self._tick()
            self._open.pop()

    def _tick(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def on(self, owner: Any, function: str, name: str | Callable[[], str]) -> None:
        """From now on every call of the function is a part."""
        plain = getattr(owner, function)

        def timed(*given: Any, **named: Any) -> Any:
            with self.part(name if isinstance(name, str) else name()):
                return plain(*given, **named)

        setattr(owner, function, timed)

    def on_batches(self) -> None:
        """A generator's time is that of its steps."""
        plain = Client.batches

        def timed(client: Client, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            stream = plain(client, steps)
            while True:
                with self.part("batches: gather, normalize"):
                    batch = next(stream, None)
                if batch is None:
                    return
                yield batch

        setattr(Client, "batches", timed)  # noqa: B010


def measure(method: str, net: str, rounds: int) -> dict[str, float]:
    """Seconds a round of each part, the first round left out."""
    watch = Stopwatch()

    def forward() -> str:
        training = torch.is_grad_enabled()
        return "forward" if training else "forward without gradient: teacher, evaluation"

    watch.on(Net, "forward", forward)
    for function in ("features", "classify"):  # of a model in parts
        watch.on(Model, function, forward)
    watch.on_batches()
    watch.on(torch.Tensor, "backward", "backward")
    watch.on(SGD, "step", "SGD")
    watch.on(Client, "gradient", "loss, zeroed gradients, autograd's bookkeeping")
    watch.on(Client, "accuracy", "rest of the local evaluation, before and after")
    watch.on(tasks, "evaluate", "rest of the global evaluation")
    watch.on(tasks, "train", "rest of the client: copies, HPM, optimizer's start")
    watch.on(FileStore, "put", "state to the store")
    watch.on(FileStore, "__getitem__", "state from the store")
    watch.on(find_method(method), "aggregate", "server")
    watch.on(RunFolder, "commit", "checkpoint")

    parts: dict[str, float] = {}

    def on_round(record: dict[str, Any]) -> None:
        if record["round"] == 1:
            watch.seconds.clear()
        # up to the last round; what a run does after it is not part of a round
        parts.update(watch.seconds)

    with tempfile.TemporaryDirectory() as folder, watch.part("rest of the round"):
        how: dict[str, Any] = {"net": net, "fraction": 1, "workers": 1, "out": f"{folder}/run"}
        fedmap.run(method, federation(20, 600), rounds=rounds + 1, on_round=on_round, **how)
    longest_first = sorted(parts.items(), key=lambda item: -item[1])
    return {name: seconds / rounds for name, seconds in longest_first}


def plot(parts: dict[str, float], title: str, path: Path) -> None:
    figure = Figure(figsize=(9, 0.34 * len(parts) + 0.9), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(list(parts), [1000 * seconds for seconds in parts.values()], color=COLORS[2])
    total = sum(parts.values())
    labels = [f" {1000 * part:.0f} ms, {100 * part / total:.1f} %" for part in parts.values()]
    axes.bar_label(bars, labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("milliseconds a round, one process")
    axes.set_title(title, loc="left", fontsize=10)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="map")
    parser.add_argument("--net", default="lenet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    parts = measure(arguments.method, arguments.net, arguments.rounds)
    for name, seconds in parts.items():
        print(f"{1000 * seconds:9.1f} ms {100 * seconds / sum(parts.values()):5.1f} %  {name}")
    print(f"{1000 * sum(parts.values()):9.1f} ms          a round")
    if arguments.plot:
        what = f"One round of {arguments.method} with {arguments.net}"
        plot(parts, f"{what}: 20 clients of 480 samples, 5 epochs", arguments.plot)


if __name__ == "__main__":
    main()
