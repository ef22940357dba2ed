"""MLflow: `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` for the runs in FOLDER."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedmap.simulate.callbacks import Start
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result
from fedmap.track.base import Tracker, flat, numbers, title

EXPERIMENT = "fedmap"  # unless MLFLOW_EXPERIMENT_NAME says another
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported


class MLflow(Tracker):
    """Every number of a round as a metric, and the settings as parameters: in MLFLOW_TRACKING_URI
    where it is set, else in a file mlflow.db beside the run's folder (or in `where`), so that the
    runs of an experiment are in one. A run that goes on keeps its place there."""

    name = "mlflow"
    modules = ("mlflow.tracking", "sqlalchemy", "alembic")

    def on_start(self, start: Start) -> None:
        from mlflow.exceptions import MlflowException

        with quiet():
            self._client = self._store(start)
            try:
                self._run = self.kept_id(start) or self._new(start)
                self._client.update_run(self._run, status="RUNNING")
            except MlflowException:  # it is in this store no more
                self._run = self._new(start)
        self.keep_id(start, self._run)
        self._known = self._steps()
        for record in start.rounds:
            self.on_round(record)

    def on_round(self, record: Record) -> None:
        if record["round"] not in self._known:
            self._log(numbers(record), record["round"])

    def on_end(self, result: Result | None) -> None:
        if result is not None:
            before = self._client.get_run(self._run).data.metrics
            final = numbers(result.final, "final/")
            new = {name: value for name, value in final.items() if before.get(name) != value}
            self._log(new, len(result.rounds))
        status = "KILLED" if result is None else "FINISHED"
        self._client.set_terminated(self._run, status)

    def _store(self, start: Start) -> Any:
        from mlflow.tracking import MlflowClient

        if self.where is None and os.environ.get("MLFLOW_TRACKING_URI"):
            return MlflowClient()
        place = self.place(start.folder and start.folder.resolve().parent)
        return MlflowClient(f"sqlite:///{place.resolve() / 'mlflow.db'}")

    def _new(self, start: Start) -> str:
        """A new run in the store."""
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        run: str = self._client.create_run(experiment, run_name=title(start)).info.run_id
        settings = [Param(name, str(value)) for name, value in flat(start.settings).items()]
        self._client.log_batch(run, params=settings)
        return run

    def _steps(self) -> set[int]:
        """The rounds that the store has; every record has its seconds."""
        return {metric.step for metric in self._client.get_metric_history(self._run, "seconds")}

    def _log(self, found: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, step) for name, value in found.items()]
        self._client.log_batch(self._run, metrics=metrics)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, MLflow does not tell of the tables that it makes."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
