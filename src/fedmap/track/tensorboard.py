"""TensorBoard: `tensorboard --logdir RUN`, or a folder with several runs."""

import time
from itertools import accumulate
from typing import Any

from fedmap.simulate.callbacks import Start
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result
from fedmap.track.base import Tracker, flat, numbers


class TensorBoard(Tracker):
    """Every number of a round as a curve. A run that goes on is written anew from its first round:
    the records are known, and so none is there twice."""

    name = "tensorboard"
    modules = ("torch.utils.tensorboard",)

    def on_start(self, start: Start) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = self.place(self.own_folder(start))
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer: Any = SummaryWriter(str(place))
        lines = [f"| {name} | {value} |" for name, value in flat(start.settings).items()]
        head = ["| setting | value |", "| --- | --- |"]
        self._writer.add_text("settings", "\n".join([*head, *lines]))
        # as if nothing had come between: the last of them just now
        ago = [*accumulate(record["seconds"] for record in reversed(start.rounds))]
        for record, seconds in zip(start.rounds, [*reversed(ago[:-1]), 0.0], strict=False):
            self._write(numbers(record), record["round"], time.time() - seconds)
        self._writer.flush()

    def on_round(self, record: Record) -> None:
        self._write(numbers(record), record["round"])
        self._writer.flush()

    def on_end(self, result: Result | None) -> None:
        if result is not None:
            self._write(numbers(result.final, "final/"), len(result.rounds))
        self._writer.close()

    def _write(self, found: dict[str, float], step: int, at: float | None = None) -> None:
        for name, value in found.items():
            self._writer.add_scalar(name, value, step, walltime=at)
