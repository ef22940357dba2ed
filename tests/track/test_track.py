"""Trackers: what they wrote is read back with their own tools and compared with the records."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.errors import FedmapError
from fedmap.simulate.callbacks import Callback
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result
from fedmap.track import MLflow, TensorBoard, WandB, trackers
from fedmap.track.base import numbers

SMALL: dict[str, Any] = {"net": "tiny", "epochs": 0.2}
History = dict[str, list[tuple[int, float]]]  # step and value, of each number

# other people's modules warn while they are imported
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def from_tensorboard(folder: Path) -> History:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "run/track/tensorboard"))
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in names}


def from_mlflow(folder: Path) -> History:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("fedmap")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert run.data.params["method"] == "fedavg"
    id = run.info.run_id
    return {
        name: [(m.step, m.value) for m in client.get_metric_history(id, name)]
        for name in run.data.metrics
    }


def from_wandb(folder: Path) -> History:
    (file,) = (folder / "run/track/wandb/wandb").glob("offline-run-*/*.wandb")
    records, end = wandb_records(file), time.monotonic() + 30
    # W&B's own process writes the file, and may still do so when the run has ended
    while not any(record.HasField("exit") for record in records):
        assert time.monotonic() < end, "the end of the run is never written"
        time.sleep(0.05)
        records = wandb_records(file)
    found = History()
    for record in records:
        row = {i.nested_key[0]: float(i.value_json) for i in record.history.item}
        for name in row:
            if not name.startswith("_"):
                found.setdefault(name, []).append((int(row["_step"]), row[name]))
        for one in record.summary.update:
            name = one.key or one.nested_key[0]
            if name.startswith("final/"):
                found[name] = [(0, float(json.loads(one.value_json)))]
    return found


def wandb_records(file: Path) -> list[Any]:
    """Those that are in the file now."""
    from wandb.proto import wandb_internal_pb2 as messages
    from wandb.sdk.internal.datastore import DataStore

    store, found = DataStore(), []
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = messages.Record()  # type: ignore[attr-defined]
        record.ParseFromString(data)
        found.append(record)
    store.close()
    return found


READ: dict[type[Callback], Callable[[Path], History]] = {
    TensorBoard: from_tensorboard,
    MLflow: from_mlflow,
    WandB: from_wandb,
}


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def stop(record: Record) -> None:
    if record["round"] == 2:
        raise KeyboardInterrupt


def expected(result: Result) -> History:
    """A few lines of our own, to compare with."""
    names = ("global_accuracy", "personal_accuracy", "train_loss", "seconds", "bytes_up")
    return {name: [(r["round"], r[name]) for r in result.rounds] for name in names}


@pytest.mark.parametrize("tracker", READ)
def test_a_run_that_was_stopped_and_resumed_is_tracked_once(
    tracker: type[Callback],
    federation: fedmap.Federation,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = SMALL | {"rounds": 3, "out": tmp_path / "run", "workers": 2}
    with pytest.raises(KeyboardInterrupt):
        fedmap.run("fedavg", federation, callbacks=[tracker()], on_round=stop, **given)
    result = fedmap.run("fedavg", federation, resume=True, callbacks=[tracker()], **given)
    assert capfd.readouterr() == ("", "")
    found = READ[tracker](tmp_path)
    for name, history in expected(result).items():
        assert [step for step, _ in found[name]] == [1, 2, 3]
        values = [value for _, value in history]
        assert [value for _, value in found[name]] == pytest.approx(values, rel=1e-6)
    ((_, final),) = found["final/personal_accuracy_all_clients"]
    assert final == pytest.approx(result.final["personal_accuracy_all_clients"], rel=1e-6)
    if tracker is TensorBoard:  # what was missed before is written, and nothing twice
        fedmap.run("fedavg", federation, callbacks=[tracker()], **given)
        assert READ[tracker](tmp_path) == found


def test_a_tracker_can_write_elsewhere(federation: fedmap.Federation, tmp_path: Path) -> None:
    fedmap.run("fedavg", federation, callbacks=[TensorBoard(tmp_path / "tb")], rounds=1, **SMALL)
    assert [path.name[:7] for path in (tmp_path / "tb").iterdir()] == ["events."]


def test_a_run_without_a_folder_is_refused_before_it_begins(federation: fedmap.Federation) -> None:
    with pytest.raises(FedmapError, match=r"tensorboard needs a folder.*TensorBoard\(FOLDER\)"):
        fedmap.run("fedavg", federation, callbacks=[TensorBoard()], rounds=1, **SMALL)


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(FedmapError, match="there is no tracker 'tensorbord'; did you mean"):
        trackers(["tensorbord"])


def test_a_missing_extra_is_said_with_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(FedmapError, match=r"needs the package wandb; .*'fedmap\[wandb\]'"):
        trackers(["wandb"])


def test_only_numbers_are_tracked_and_uploads_that_were_left_out_are_counted() -> None:
    record = {"round": 3, "global_accuracy": None, "seconds": 2, "clients": [1], "note": "a"}
    assert numbers(record) == {"seconds": 2.0}
    assert numbers({"left_out": [{}, {}], "train_loss": 0.5}) == {"left_out": 2, "train_loss": 0.5}
