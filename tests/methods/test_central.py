"""Central: everybody's samples in one place."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.conftest import World

import fedmap
from fedmap.client import local_steps
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.methods.central import Central
from fedmap.random import generator
from fedmap.simulate import Settings
from fedmap.simulate.engines.local import LocalEngine
from fedmap.simulate.round import play_round
from fedmap.simulate.store import FileStore
from fedmap.simulate.tasks import Setup

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "epochs": 2, "batch": 8, "lr": 0.1}


def everybody(setup: Setup) -> tuple[torch.Tensor, torch.Tensor]:
    data = [setup.federation.client(k) for k in range(len(setup.federation))]
    x, y = (torch.cat([one.train[part] for one in data]) for part in (0, 1))
    return data[0].normalize(x), y


def test_a_round_is_sgd_on_everybodys_training_samples(world: World) -> None:
    (only,) = world.play(Central(), 1)
    x, y = everybody(world.setup(Central()))
    rng, batches = generator(world.training.seed, "batches", 1, 0), []
    for _ in range(2):  # epochs
        for index in torch.split(torch.from_numpy(rng.permutation(len(y))), 8):
            batches.append((x[index], y[index]))
    expected = world.sgd(world.initial().vector, batches, world.cross_entropy)
    assert torch.allclose(only.server["model"], expected, atol=1e-6)


@pytest.mark.parametrize("fraction", [1, 0.67, 0.34])
def test_a_round_sees_as_many_samples_as_the_clients_of_a_round_would(
    world: World, fraction: float
) -> None:
    setup = world.setup(Central(), fraction=fraction)
    samples = len(everybody(setup)[1])
    assert setup.trainer(0, 1).samples == samples
    share = setup.clients_per_round / 3
    shorter = world.training.model_copy(update={"epochs": 2 * share})
    assert setup.trainer(0, 1).steps == local_steps(samples, shorter)


def test_each_client_is_tested_with_the_one_model(federation: Federation) -> None:
    result = fedmap.run("central", federation, fraction=1, **SMALL)
    assert (
        result.final["personal_accuracy_per_client"] == (result.final["global_accuracy_per_client"])
    )
    last = result.rounds[-1]["clients"]
    assert [one["accuracy"] for one in last] == result.final["personal_accuracy_per_client"]
    assert result.global_model is not None
    x = federation.dataset.test_x
    assert torch.equal(result.personal_model(3)(x), result.global_model(x))


def test_the_clients_of_a_round_are_those_of_any_method(federation: Federation) -> None:
    central, fedavg = (
        fedmap.run(name, federation, fraction=0.5, **SMALL) for name in ("central", "fedavg")
    )
    for ours, other in zip(central.rounds, fedavg.rounds, strict=True):
        assert [c["client"] for c in ours["clients"]] == [c["client"] for c in other["clients"]]


def test_samples_that_are_kept_for_choosing_are_not_trained_on(federation: Federation) -> None:
    given = SMALL | {"method": "central", "validation": 0.5}
    setup = Setup(Settings.of(given), federation)
    kept = sum(len(setup.data(k).train[1]) for k in range(len(federation)))
    assert setup.trainer(0, 1).samples == kept < sum(federation.sizes)


def test_one_round_asks_for_one_training_alone(world: World) -> None:
    tasks: list[tuple[str, list[int]]] = []
    setup = world.setup(Central())

    class Noted(LocalEngine):
        def map(self, task: Any, round: int, keys: Any, down: Any) -> Any:
            tasks.append((task, list(keys)))
            return super().map(task, round, keys, down)

    store = FileStore({}, 3)
    play_round(setup, Noted(setup, store), 1, setup.method.start(setup.initial))
    assert tasks == [("train", [0]), ("personal", [0, 1, 2]), ("evaluate", [0])]


def test_a_pooled_method_whose_clients_keep_something_is_refused(
    federation: Federation, tmp_path: Path
) -> None:
    class Keeping(Central):
        def client_state(self, model: Any) -> Any:
            return {"own": model.vector.clone()}

    with (
        METHODS.lent("keeping", Keeping),
        pytest.raises(FedmapError, match="can keep no state"),
    ):
        fedmap.run("keeping", federation, out=tmp_path, **SMALL)


def test_its_line_says_that_it_breaks_the_rule() -> None:
    assert "breaks the federation's rule" in Central.line()


def test_a_training_that_diverges_is_everybodys_and_not_the_first_clients(
    federation: Federation,
) -> None:
    with pytest.raises(FedmapError, match="the training loss of all clients together is"):
        fedmap.run("central", federation, **SMALL | {"lr": 1e8, "rounds": 5})


def test_a_failure_does_not_name_a_client(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> Any:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(Central, "local_round", fail)
    with pytest.raises(FedmapError, match=r"^the pooled samples failed in round 1:"):
        fedmap.run("central", federation, **SMALL)
