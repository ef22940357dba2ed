"""Runs followed by tools made for it: TensorBoard, MLflow, Weights & Biases. Each is an extra. What
they get follows from a run's records alone, so that a resumed run has no round twice."""

from collections.abc import Callable, Sequence

from fedmap.registry import Registry
from fedmap.simulate.callbacks import Callback
from fedmap.track.mlflow import MLflow
from fedmap.track.tensorboard import TensorBoard
from fedmap.track.wandb import WandB

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "WandB", "trackers"]

TRACKERS: Registry[Callable[[], Callback]] = Registry("tracker")
TRACKERS.add("tensorboard")(TensorBoard)
TRACKERS.add("mlflow")(MLflow)
TRACKERS.add("wandb")(WandB)


def trackers(names: Sequence[str]) -> list[Callable[[], Callback]]:
    """What makes the trackers of these names. One that cannot be made is an error now, before
    anything is trained."""
    found = [TRACKERS[name] for name in dict.fromkeys(names)]
    for make in found:
        make()
    return found
