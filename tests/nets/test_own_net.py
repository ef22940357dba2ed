"""A net of the user's own: a module, a function, or code in a file, wherever a net's name can
stand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedmap
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.nets import build, net_name
from fedmap.simulate import Result
from fedmap.use.model import UsableModel

SMALL: dict[str, Any] = {"rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 20}
TEXT = """
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 5), nn.ReLU())
        self.head = nn.Linear(5, classes)

    def forward(self, x):
        return self.head(self.layers(x))

def small(shape, classes):
    return Net(shape, classes)

whole = Net((6,), 4)
number = 3

def wrong(shape):
    return None

def nothing(shape, classes):
    return None
"""


class Backbone(nn.Module):
    """A frozen feature part, as of a pre-trained net, and a new head: see docs/guide/own-net.md."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU()]
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.backbone.requires_grad_(False)
        self.head = nn.Linear(16, classes)

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.backbone(x))
        return logits


class Thawing(Backbone):
    """The same, but batch norm follows the batches."""

    def train(self, mode: bool = True) -> "Thawing":
        nn.Module.train(self, mode)
        return self


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(TEXT)
    return file


def module() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


def bits(result: Result) -> list[bytes]:
    files = sorted(result.folder.rglob("*.safetensors"))
    assert files
    return [safe.numpy().tobytes() for file in files for safe in _tensors(file)]


def _tensors(file: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file

    return [tensor for _, tensor in sorted(load_file(file).items())]


def test_a_module_starts_from_its_own_weights_and_is_left_alone() -> None:
    given = module()
    before = [weights.clone() for weights in given.parameters()]
    net = build(given, (6,), 4, seed=0)
    x = torch.randn(3, 6)
    assert torch.equal(net(x), given(x))
    with torch.no_grad():
        for weights in net.parameters():
            weights.zero_()
    assert all(map(torch.equal, given.parameters(), before))


@pytest.mark.parametrize("name", ["Net", "small", "whole"])
def test_a_class_a_function_and_a_module_of_a_file_are_nets(
    name: str, mine: Path, federation: Federation
) -> None:
    result = fedmap.run("fedavg", federation, net=f"{mine}:{name}", **SMALL)
    assert result.settings.net == f"{mine.resolve()}:{name}"
    assert result.global_model is not None
    assert result.global_model(federation.test_x).shape == (80, 4)
    assert result.personal_model(0)(federation.test_x).shape == (80, 4)


def test_what_makes_the_same_module_gives_the_same_bits(
    mine: Path, federation: Federation, tmp_path: Path
) -> None:
    nets: dict[str, Any] = {"a": f"{mine}:Net", "b": f"{mine}:small"}
    runs = [fedmap.run("map", federation, net=net, **SMALL) for net in nets.values()]
    assert bits(runs[0]) == bits(runs[1])


@pytest.mark.parametrize("kind", ["module", "function", "file"])
def test_two_workers_give_the_same_bits_as_one(
    kind: str, mine: Path, federation: Federation
) -> None:
    net: Any = {
        "module": module(),
        "function": lambda shape, classes: nn.Linear(shape[0], classes),
        "file": f"{mine}:Net",
    }[kind]
    one = fedmap.run("map", federation, net=net, **SMALL)
    two = fedmap.run("map", federation, net=net, workers=2, **SMALL)
    assert bits(one) == bits(two)


def test_a_module_is_resumed_in_python_and_refused_where_its_weights_are_others(
    federation: Federation, tmp_path: Path, fedmap: Callable[[str], Any]
) -> None:
    import fedmap as library

    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        library.run("fedavg", federation, net=module(), out=out, on_round=stop, **SMALL)
    toml = out / "run.toml"
    toml.write_text(toml.read_text().replace('data = "arrays"', 'data = "synthetic"'))
    done = fedmap("resume run")
    assert "net Sequential was given in Python" in " ".join(done.stderr.split())
    other = module()
    nn.init.zeros_(next(other.parameters()))
    with pytest.raises(FedmapError, match=r"holds another run: its net is 'python:\w+:Sequential'"):
        library.run("fedavg", federation, net=other, out=out, resume=True, **SMALL)
    resumed = library.run("fedavg", federation, net=module(), out=out, resume=True, **SMALL)
    assert bits(resumed) == bits(library.run("fedavg", federation, net=module(), **SMALL))
    with pytest.raises(FedmapError, match="net Sequential was given in Python"):
        _ = Result.read(out).global_model
    assert Result.read(out, net=module()).global_model is not None
    assert UsableModel.read(out / "global.safetensors", net=module()).notes.shape == (6,)


def test_a_comparison_of_two_modules_keeps_two_runs(tmp_path: Path) -> None:
    given: dict[str, Any] = {"data": "synthetic", "clients": 3, "out": tmp_path} | SMALL
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(1024, 10)) for _ in range(2)]
    assert len({net_name(net) for net in nets}) == 2
    folders = {
        fedmap.compare(["fedavg"], net=net, **given).results["fedavg"][0].folder for net in nets
    }
    assert len(folders) == 2


# Frozen parts.


@pytest.mark.parametrize("method", ["fedavg", "map", "scaffold", "feddyn", "ditto", "fedopt"])
def test_frozen_parameters_stay_what_they_were_to_the_bit(method: str, images: Federation) -> None:
    given = Backbone((1, 8, 8), 4)
    before = {name: weights.clone() for name, weights in given.backbone.named_parameters()}
    result = fedmap.run(method, images, net=given, **SMALL | {"fraction": 0.75})
    model = result.global_model
    assert model is not None
    after = dict(model.named_parameters())
    assert len(before) == 4
    for name, weights in before.items():
        assert torch.equal(after[f"features.backbone.{name}"], weights)
        assert not after[f"features.backbone.{name}"].requires_grad
    assert not torch.equal(after["classifier.weight"], given.head.weight)


def test_batch_norm_follows_the_batches_unless_the_module_keeps_it_in_evaluation(
    images: Federation,
) -> None:
    def statistics(net: nn.Module) -> torch.Tensor:
        model = fedmap.run("fedavg", images, net=net, **SMALL).global_model
        assert model is not None
        return dict(model.named_buffers())["features.backbone.1.running_mean"]

    assert torch.allclose(statistics(Backbone((1, 8, 8), 4)), torch.zeros(4), atol=1e-6)
    assert statistics(Thawing((1, 8, 8), 4)).abs().max() > 1e-3


# In use.


def test_a_model_of_a_net_in_a_file_is_asked_exported_described_and_adapted(
    mine: Path, tmp_path: Path, fedmap: Callable[[str], Any]
) -> None:
    rng = np.random.default_rng(0)
    y = np.array([f"class {k % 4}" for k in range(20)])
    for name in ("sites/a", "sites/b", "newcomer/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / f"{name}.npz", x=rng.random((20, 6), np.float32), y=y)
    few = "--rounds 1 --workers 1 --epochs 0.1"
    assert fedmap(f"run --net mine.py:Net --data npz:sites --out run {few}").returncode == 0
    asked = fedmap("predict run newcomer --net mine.py:Net")
    assert asked.stdout.count("class") == 21 + 20, asked.stderr  # the head, and best and second
    assert fedmap("export run --net mine.py:Net --format safetensors -o a.st").returncode == 0
    assert "- Settings: net Net, rounds" in fedmap("card run").stdout
    adapted = fedmap("adapt run --data npz:newcomer -o new --net mine.py:Net")
    assert adapted.returncode == 0, adapted.stderr


# Sentences.

WRONG = {
    "mine.py:smal": "mine.py has no 'smal'; did you mean 'small'",
    "mine.py:number": "number is no module, nor a class or function that is called with",
    "mine.py:wrong": r"net wrong fails when it is called with the shape \(6,\) and 4 classes: "
    "TypeError: wrong",
    "mine.py:nothing": "net nothing gives a NoneType; an nn.Module is needed",
    "mine.py": "net mine.py names a file but nothing in it; give mine.py:NAME",
    "none.py:Net": "there is no file .*none.py",
    "lenett": "there is no net 'lenett'; did you mean 'lenet'",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_net_that_cannot_be_used_is_refused_with_one_sentence(
    name: str, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine.parent)
    with pytest.raises(FedmapError, match=WRONG[name]):
        build(name, (6,), 4, 0)


@pytest.mark.parametrize("net", [3, ["lenet"]])
def test_what_is_no_net_at_all_is_refused(net: Any, federation: Federation) -> None:
    with pytest.raises(FedmapError, match=r"it is no name, no FILE\.py:CLASS, no module"):
        fedmap.run("fedavg", federation, net=net, **SMALL)


def test_a_module_that_does_not_fit_the_data_is_refused(federation: Federation) -> None:
    with pytest.raises(FedmapError, match="has 3 outputs, but there are 4 classes"):
        fedmap.run("fedavg", federation, net=nn.Linear(6, 3), **SMALL)
    with pytest.raises(FedmapError, match=r"net Linear cannot take samples of shape \(6,\)"):
        fedmap.run("fedavg", federation, net=nn.Linear(5, 4), **SMALL)
