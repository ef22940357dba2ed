from typing import Any

import pytest
import torch

import fedmap
from fedmap.federation import Federation
from fedmap.methods.fedrs import FedRS
from fedmap.nets import build

SETTINGS: dict[str, Any] = {
    "net": "tiny",
    "rounds": 2,
    "fraction": 1.0,
    "epochs": 1,
    "batch": 8,
    "lr": 0.1,
}


def proxies(result: fedmap.Result) -> torch.Tensor:
    return result.global_model.classifier.weight.detach()  # type: ignore[union-attr,return-value]


def test_with_alpha_one_it_is_fedavg_to_the_bit(federation: Federation) -> None:
    ours, fedavg = (
        fedmap.run(name, federation, params=p, **SETTINGS)
        for name, p in (("fedrs", {"alpha": 1.0}), ("fedavg", {}))
    )
    for a, b in zip(ours.global_model.parameters(), fedavg.global_model.parameters(), strict=True):  # type: ignore[union-attr]
        assert torch.equal(a, b)


def test_with_alpha_zero_a_class_that_nobody_has_keeps_its_proxy(federation: Federation) -> None:
    x, y = federation.dataset.train_x, federation.dataset.train_y
    without = Federation.from_arrays(
        [(x[y < 3][i::2], y[y < 3][i::2]) for i in (0, 1)], classes=["a", "b", "c", "d"]
    )
    settings = SETTINGS | {"weight_decay": 0.0}
    start = build("tiny", (6,), 4, 0).classifier.weight
    restricted, plain = (
        fedmap.run("fedrs", without, params={"alpha": alpha}, **settings) for alpha in (0.0, 1.0)
    )
    torch.testing.assert_close(
        proxies(restricted)[3], start[3].detach(), rtol=0, atol=1e-7
    )  # the server's mean may round
    assert (proxies(plain)[3] - start[3]).norm() > 0.1


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_alpha_is_a_share(alpha: float) -> None:
    with pytest.raises(
        fedmap.FedmapError, match=r"method fedrs: alpha is .* allowed: number from 0 up to 1"
    ):
        FedRS(alpha=alpha)
