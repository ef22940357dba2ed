"""Weights & Biases, offline unless WANDB_MODE says otherwise: `wandb sync RUN/track/wandb/wandb/*`
sends what was written."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

from fedmap.simulate.callbacks import Start
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result
from fedmap.track.base import Tracker, flat, numbers, title

PROJECT = "fedmap"  # unless WANDB_PROJECT says another
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")


class WandB(Tracker):
    """Every number of a round in the history, the settings as config, the end as summary. A run
    that goes on has the same id. Offline it is written anew from its first round, because nothing
    can be added to what is there; online it goes on behind the last round that W&B has."""

    name = "wandb"
    modules = ("wandb",)

    def on_start(self, start: Start) -> None:
        import wandb

        place = self.place(self.own_folder(start))
        id = self.kept_id(start) or uuid4().hex[:8]
        self.keep_id(start, id)
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=id,
            name=title(start),
            dir=str(place),
            config=flat(start.settings),
            mode=mode,  # type: ignore[arg-type]  # it says itself what is allowed
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )
        forget_others(place, id, Path(self._run.dir).parent)
        self._first = self._run.step
        for record in start.rounds:
            self.on_round(record)

    def on_round(self, record: Record) -> None:
        if record["round"] >= self._first:
            self._run.log(numbers(record), step=record["round"])

    def on_end(self, result: Result | None) -> None:
        if result is not None:
            self._run.summary.update(numbers(result.final, "final/"))
        self._run.finish(exit_code=1 if result is None else 0)


def forget_others(place: Path, id: str, own: Path) -> None:
    """Remove what was written offline of the same run before: all of it is written anew."""
    if own.name.startswith("offline-"):
        for old in place.glob(f"wandb/offline-run-*-{id}*"):  # a number follows within a second
            if old != own:
                shutil.rmtree(old)
