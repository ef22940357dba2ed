from typing import Any

import torch

import fedmap
from fedmap.federation import Federation

SETTINGS: dict[str, Any] = {
    "net": "tiny",
    "rounds": 3,
    "fraction": 0.5,
    "epochs": 1,
    "batch": 8,
    "lr": 0.1,
}


def weights(net: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_with_weight_zero_its_global_model_is_fedavgs_to_the_bit(federation: Federation) -> None:
    ours, fedavg = (
        fedmap.run(name, federation, params=p, **SETTINGS)
        for name, p in (("fedphp", {"weight": 0.0}), ("fedavg", {}))
    )
    assert torch.equal(weights(ours.global_model), weights(fedavg.global_model))


def test_the_first_hpm_is_the_trained_model_itself(federation: Federation) -> None:
    once = SETTINGS | {"rounds": 1, "fraction": 1.0}
    ours = fedmap.run("fedphp", federation, **once)
    mean = sum(weights(ours.personal_model(k)) for k in range(6)) / 6
    torch.testing.assert_close(weights(ours.global_model), mean)


def test_with_full_momentum_a_later_hpm_stays_nearer_to_the_earlier_one(
    federation: Federation,
) -> None:
    """mu = 0 keeps only the newest model; mu = 0.9 mixes the older ones in."""
    often = SETTINGS | {"fraction": 1.0}
    none, much = (
        fedmap.run("fedphp", federation, params={"hpm_momentum": mu, "weight": 0.0}, **often)
        for mu in (0.0, 0.9)
    )
    assert torch.equal(weights(none.global_model), weights(much.global_model))
    assert not torch.equal(weights(none.personal_model(0)), weights(much.personal_model(0)))


def test_the_teacher_matters_only_from_the_second_participation_on(federation: Federation) -> None:
    for rounds, same in ((1, True), (2, False)):
        runs = [
            fedmap.run(
                "fedphp",
                federation,
                params={"weight": w},
                **SETTINGS | {"rounds": rounds, "fraction": 1.0},
            )
            for w in (0.0, 0.5)
        ]
        assert torch.equal(*(weights(run.global_model) for run in runs)) is same
