"""Users' own modules as nets."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmap.errors import FedmapError
from fedmap.nets import NETS, adapt, build
from fedmap.vector import Model


class Mine(nn.Module):
    """A net as people write it: no split, a bias in the last layer, dropout and batch norm on the
    way."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.drop = nn.Dropout(0.5)
        self.head = nn.ModuleDict({"hidden": nn.Linear(16, 5), "last": nn.Linear(5, classes)})

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.norm(self.conv(x)).relu()).flatten(1)
        logits: Tensor = self.head["last"](self.drop(self.head["hidden"](x).tanh()))
        return logits


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register a net for one test."""
    return lambda maker: monkeypatch.setitem(NETS._things, "mine", maker)


def test_a_registered_module_gives_the_same_logits_split_as_whole(
    register: Callable[..., None],
) -> None:
    whole: list[nn.Module] = []

    def maker(shape: tuple[int, ...], classes: int) -> nn.Module:
        whole.append(Mine(shape, classes).eval())
        whole.append(Mine(shape, classes).eval())
        whole[1].load_state_dict(whole[0].state_dict())
        return whole[1]

    register(maker)
    net = build("mine", (3, 8, 8), 4, seed=0)
    x = torch.randn(5, 3, 8, 8)
    assert torch.equal(net(x), whole[0](x))
    assert torch.equal(net.classifier(net.features(x)), whole[0](x))
    assert net.features(x).shape == (5, 5)


def test_the_bias_of_the_last_layer_stays_and_is_part_of_the_classifier(
    register: Callable[..., None],
) -> None:
    register(Mine)
    model = Model(build("mine", (1, 8, 8), 4, seed=0))
    assert model.classifier_part.stop - model.classifier_part.start == 4 * 5 + 4
    assert model.names[-5:] == [
        "classifier.weight",
        "classifier.bias",
        "features.norm.running_mean",
        "features.norm.running_var",
        "features.norm.num_batches_tracked",
    ]
    before = model(torch.zeros(1, 1, 8, 8))
    with torch.no_grad():
        model.vector[model.classifier_part][-4:] += 1
    torch.testing.assert_close(model(torch.zeros(1, 1, 8, 8)), before + 1)


def test_an_adapted_module_trains_as_a_flat_vector(register: Callable[..., None]) -> None:
    register(Mine)
    model = Model(build("mine", (1, 8, 8), 4, seed=0))
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 1, 8, 8, generator=generator), torch.arange(16) % 4
    first = cross_entropy(model(x), y).item()
    optimizer = torch.optim.SGD([model.weights], lr=0.1, momentum=0.9)
    for _ in range(60):
        model.grads.zero_()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    assert cross_entropy(model(x), y).item() < first / 2


def test_the_seed_decides_the_weights_of_an_adapted_module(register: Callable[..., None]) -> None:
    register(Mine)
    first, same, other = (Model(build("mine", (1, 8, 8), 4, seed)).vector for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("training", [True, False])
def test_adapting_changes_neither_the_mode_nor_the_statistics_nor_the_random_state(
    training: bool,
) -> None:
    module = Mine((1, 8, 8), 4).train(training)
    statistics, state = module.norm.running_mean, torch.get_rng_state()
    assert statistics is not None
    before = statistics.clone()
    net = adapt(module, (1, 8, 8), 4)
    assert net.training is net.classifier.training is module.conv.training is training
    assert torch.equal(statistics, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_single_linear_layer_is_a_net_whose_features_are_the_samples() -> None:
    net, x = adapt(nn.Linear(6, 3), (6,), 3), torch.randn(2, 6)
    assert torch.equal(net.features(x), x)
    assert net(x).shape == (2, 3)


def test_a_layer_whose_size_the_first_sample_decides_works() -> None:
    net = adapt(
        nn.Sequential(nn.Flatten(), nn.LazyLinear(7), nn.ReLU(), nn.LazyLinear(3)), (1, 4, 4), 3
    )
    assert net.classifier.weight.shape == (3, 7)


def test_a_module_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(
        FedmapError,
        match=r"net Sequential has no linear layer; its last layer must be an nn\.Linear",
    ):
        adapt(nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten()), (1, 8, 8), 3)


def test_a_last_layer_of_another_width_than_the_classes_is_refused() -> None:
    with pytest.raises(
        FedmapError,
        match=r"net Mine: its last linear layer 'head\.last' has 7 outputs, but .* 4 classes",
    ):
        adapt(Mine((1, 8, 8), 7), (1, 8, 8), 4)


class HeadFirst(nn.Module):
    """The layer that is called last is registered first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)
        self.body = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


class Pair(nn.Sequential):
    """Gives its samples beside its logits."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, super().forward(x)


class Unused(HeadFirst):
    """Never calls the layer that it registers last."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x[:, :3])
        return logits


class Cut(nn.Sequential):
    """Cuts its logits to as many as there are, which would cut the features as well."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :3]


class Twice(nn.Module):
    """Calls its last layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.last(x[:, :3]))
        return logits


@pytest.mark.parametrize(
    "module",
    [
        HeadFirst(),
        Unused(),
        nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)),
        nn.Sequential(nn.Linear(6, 3), nn.ReLU()),
        Pair(nn.Linear(6, 3)),
        Cut(nn.Linear(6, 3)),
        Twice(),
    ],
    ids=["registered first", "unused", "softmax", "relu", "two outputs", "cut", "called twice"],
)
def test_an_output_that_is_not_the_last_linear_layers_is_refused(module: nn.Module) -> None:
    with pytest.raises(
        FedmapError,
        match=r"its output is not what its last linear layer .* gives; register the classifier",
    ):
        adapt(module, (6,), 3)


def test_a_linear_layer_over_a_sequence_is_refused() -> None:
    with pytest.raises(FedmapError, match="its output is not what"):
        adapt(nn.Linear(8, 3), (1, 8, 8), 3)


def test_a_module_that_asks_for_a_device_that_is_not_there_gets_one_sentence(
    register: Callable[..., None],
) -> None:
    class Elsewhere(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("Torch not compiled with CUDA enabled")

    register(lambda shape, classes: Elsewhere(6, classes))
    with pytest.raises(FedmapError, match=r"net mine fails on samples of shape \(6,\): Assertion"):
        build("mine", (6,), 3, seed=0)


def test_samples_that_a_module_does_not_take_get_one_sentence(
    register: Callable[..., None],
) -> None:
    register(lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(5, classes)))
    with pytest.raises(
        FedmapError,
        match=r"net mine cannot take samples of shape \(6,\): mat1 and mat2 shapes cannot be",
    ):
        build("mine", (6,), 3, seed=0)
