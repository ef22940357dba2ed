from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedmap.data import load
from fedmap.errors import FedmapError
from fedmap.nets import build
from fedmap.paper import central
from fedmap.paper.central import CHECKPOINT, Central, shown_cuts
from fedmap.paper.study import Row
from fedmap.random import generator
from fedmap.vector import Model


@dataclass(frozen=True, kw_only=True)
class Watched(Central):
    """Measures a sum over the weights and the norm of the classifier's summed gradient."""

    def measure(self, epoch: int, model: Model, gradient: torch.Tensor) -> list[Row]:
        return [
            {
                "epoch": epoch,
                "weights": model.weights.double().sum().item(),
                "gradient": gradient.double().norm().item(),
            }
        ]


def watched(**changed: object) -> Watched:
    place: dict[str, Any] = {"data": "fashion-mini", "samples": 300, "net": "lenet", "seed": 3}
    given = place | {"lr": 0.05, "classes": 5, "epochs": 3}
    return Watched(**(given | changed))


def nothing(number: int, message: str) -> None:
    pass


def test_training_is_plain_sgd_on_the_chosen_classes() -> None:
    work = watched(epochs=2)
    values = work.begin()
    for epoch in (1, 2):
        values = work.step(epoch, values).values

    data = load("fashion-mini").smaller(300)
    chosen = data.train_y < 5
    x, y = data.normalize(data.train_x[chosen]), data.train_y[chosen]
    net = build("lenet", data.shape, 10, 3).train()
    speed = [torch.zeros_like(w) for w in net.parameters()]
    for epoch in (1, 2):
        for index in torch.split(
            torch.from_numpy(generator(3, "central", epoch).permutation(len(y))), 64
        ):
            grads = torch.autograd.grad(
                F.cross_entropy(net(x[index]), y[index]), list(net.parameters())
            )
            with torch.no_grad():
                for w, v, g in zip(net.parameters(), speed, grads, strict=True):
                    v.mul_(0.9).add_(g + 1e-5 * w)
                    w.sub_(0.05 * v)
    expected = Model(net).vector
    assert len(y) == 150
    torch.testing.assert_close(values["model"], expected, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_an_epoch_is_the_sum_over_its_batches() -> None:
    work = watched(momentum=0.0, weight_decay=0.0, epochs=1)
    before = work.begin()["model"].clone()
    step = work.step(1, work.begin())
    part = work.fresh().classifier_part
    # Without momentum and decay the weights move by lr times that sum.
    moved = (before - step.values["model"])[part] / work.lr
    assert step.rows[0]["epoch"] == 0
    assert step.rows[0]["gradient"] == 0
    assert step.rows[1]["gradient"] == pytest.approx(moved.norm().item(), rel=1e-3)


@pytest.mark.parametrize("net", ["lenet", "tiny-bn"])
def test_a_training_stopped_after_any_epoch_goes_on_to_the_same_bytes(
    net: str, tmp_path: Path
) -> None:
    def stop(number: int, message: str) -> None:
        raise KeyboardInterrupt

    work = watched(net=net)
    work.go(tmp_path / "whole", nothing)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work.go(tmp_path / "parts", stop)
        assert not work.done(tmp_path / "parts")
    steps: list[int] = []
    watched(net=net).go(tmp_path / "parts", lambda number, message: steps.append(number))
    whole, parts = (tmp_path / root / work.name / "measured.csv" for root in ("whole", "parts"))
    assert steps == [3]
    assert parts.read_bytes() == whole.read_bytes()
    assert [r["epoch"] for r in work.measured(tmp_path / "parts")] == [0, 1, 2, 3]
    assert not (parts.parent / "checkpoint").exists()


@pytest.mark.parametrize("damage", ["a bit", "the end"])
def test_a_damaged_checkpoint_of_a_training_is_told_not_used(damage: str, tmp_path: Path) -> None:
    def stop(number: int, message: str) -> None:
        raise KeyboardInterrupt

    work = watched(net="tiny-bn")
    with pytest.raises(KeyboardInterrupt):
        work.go(tmp_path, stop)
    path = tmp_path / work.name / CHECKPOINT
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content if damage == "a bit" else content[:-5])
    with pytest.raises(FedmapError, match=r"step\.safetensors is damaged: its checksum differs"):
        work.go(tmp_path, nothing)


def test_numbers_of_finished_work_that_were_changed_are_told(tmp_path: Path) -> None:
    work = watched(epochs=1, net="tiny-bn")
    work.go(tmp_path, nothing)
    path = tmp_path / work.name / "measured.csv"
    path.write_text(path.read_text().replace("1", "2"))
    with pytest.raises(FedmapError, match=r"measured\.csv is damaged or was changed"):
        work.measured(tmp_path)


def test_finished_work_is_not_done_again(tmp_path: Path) -> None:
    work = watched(epochs=1)
    work.go(tmp_path, nothing)
    work.go(tmp_path, lambda number, message: pytest.fail("a step was done again"))


def test_other_settings_have_another_folder_and_another_place_of_the_data_has_not() -> None:
    names = {
        watched(**change).name
        for change in (
            {},
            {"lr": 0.1},
            {"classes": 4},
            {"samples": None},
            {"threads": 2},
            {"seed": 4},
        )
    }
    assert len(names) == 6
    assert watched(data_dir="elsewhere").name == watched().name


def test_a_loss_that_is_not_finite_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="a smaller lr usually helps"):
        watched(lr=1e30).go(tmp_path, nothing)


def test_a_step_tells_the_mean_loss_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 1.0, 0.5])
    monkeypatch.setattr(central, "gradient_step", lambda *given: next(losses))
    assert watched().step(1, watched().begin()).message == "loss 1.500"


def test_a_model_is_measured_in_its_evaluation_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []

    def measure(work: Watched, epoch: int, model: Model, gradient: torch.Tensor) -> list[Row]:
        modes.append(model.net.training)
        return []

    monkeypatch.setattr(Watched, "measure", measure)
    work = watched(net="tiny-bn")
    work.step(2, work.begin())
    assert modes == [False]


def test_threads_are_as_before_afterwards(tmp_path: Path) -> None:
    watched(epochs=1, threads=2).go(tmp_path, nothing)
    assert torch.get_num_threads() == 1


def test_a_folder_keeps_its_name_so_that_finished_work_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmap.kernels.resolve", lambda kind: "plain")
    assert watched().name == "watched-fashion-mini-lenet-seed3-20b36119"


def test_an_epoch_takes_as_long_as_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "seconds_a_batch", lambda work: 2.0)
    assert watched().seconds_a_step() == 6.0  # 150 samples in batches of 64, the last one short


def test_the_first_batch_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    durations, clock = iter([100.0, 1.0, 2.0, 6.0]), [0.0]

    def gradient_step(*given: object) -> None:
        clock[0] += next(durations)

    monkeypatch.setattr(central, "gradient_step", gradient_step)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert watched(batch=7).seconds_a_batch() == 3.0


@pytest.mark.parametrize(
    ("size", "cuts"),
    [
        ({"data": "mnist", "net": "vgg11", "epochs": 50}, []),
        ({"data": "mnist", "net": "vgg11", "epochs": 9}, ["9 epochs instead of 50"]),
        ({"data": "mnist", "net": "lenet", "epochs": 50}, ["lenet instead of vgg11"]),
        (
            {"data": "fashion-mini", "net": "vgg11", "epochs": 50, "samples": 1200},
            [
                "fashion-mini instead of the paper's data",
                "1,200 training images of all classes together",
            ],
        ),
    ],
)
def test_what_a_scale_cuts_is_told_in_words(size: dict[str, Any], cuts: list[str]) -> None:
    assert shown_cuts(size, 50, "vgg11") == cuts


def test_a_study_of_several_nets_tells_of_no_other_net() -> None:
    assert shown_cuts({"data": "mnist", "epochs": 50}, 50) == []
