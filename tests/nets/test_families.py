"""The paper's nets one by one: parameter counts, layers, and the samples that they take."""

import pytest
import torch
from torch import nn

from fedmap.cli import lists
from fedmap.errors import FedmapError
from fedmap.nets import NETS, Net, build, size
from fedmap.nets.blocks import ConvBlock, ConvBlocks
from fedmap.nets.resnet import Residual

GREY28, GREY32, COLOR = (1, 28, 28), (1, 32, 32), (3, 32, 32)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("mlp", GREY28, 10, 669_696),
        ("mlp", GREY32, 10, 792_576),
        ("lenet", GREY28, 10, 44_416),
        ("lenet", GREY32, 10, 61_696),
        ("lenet-2d", GREY32, 10, 50_954),
        ("lenet-2d-relu", GREY32, 10, 50_954),
        ("tfcnn", COLOR, 10, 66_560),
        ("vgg8", COLOR, 10, 3_915_904),
        ("vgg8-bn", COLOR, 100, 3_964_928),
        ("vgg11", COLOR, 100, 9_271_680),
        ("vgg11-bn", COLOR, 10, 9_231_104),
        ("vgg16-bn", COLOR, 100, 14_774_336),
        ("resnet20", COLOR, 10, 272_464),
        ("resnet56", COLOR, 10, 855_760),
        ("femnist", GREY28, 62, 115_584),
    ],
)
def test_a_net_has_as_many_parameters_as_the_papers(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    assert size(name, shape, classes) == parameters


def conv(inputs: int, outputs: int, kernel: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.ReLU()]


def normed(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


def pool() -> nn.Module:
    return nn.MaxPool2d(2)


def lenet(*last: nn.Module) -> list[nn.Module]:
    convolutions = [*conv(1, 6, 5, 0), pool(), *conv(6, 16, 5, 0), pool(), nn.Flatten()]
    return [*convolutions, nn.Linear(400, 120), nn.ReLU(), *last]


LAYERS: dict[str, list[nn.Module]] = {  # spelled out, for images of 1x32x32
    "mlp": [nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()],
    "lenet": lenet(nn.Linear(120, 84), nn.ReLU()),
    "lenet-2d": lenet(nn.Linear(120, 2)),
    "lenet-2d-relu": lenet(nn.Linear(120, 2), nn.ReLU()),
    "tfcnn": [
        *conv(1, 32, 3, 1), pool(), *conv(32, 64, 3, 1), pool(),
        *conv(64, 64, 3, 1), pool(), nn.Flatten(),
    ],
    "femnist": [
        *conv(1, 32, 5, 2), pool(), *conv(32, 64, 5, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    ],
    "vgg11": [
        *conv(1, 64, 3, 1), pool(), *conv(64, 128, 3, 1), pool(),
        *conv(128, 256, 3, 1), *conv(256, 256, 3, 1), pool(),
        *conv(256, 512, 3, 1), *conv(512, 512, 3, 1), pool(),
        *conv(512, 512, 3, 1), *conv(512, 512, 3, 1), pool(), nn.Flatten(),
    ],
    "vgg8-bn": [
        *normed(1, 64), pool(), *normed(64, 128), pool(), *normed(128, 256), pool(),
        *normed(256, 512), pool(), *normed(512, 512), pool(), nn.Flatten(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_net_computes_what_its_layers_spelled_out_compute(name: str) -> None:
    net = build(name, GREY32, 10, seed=3).train()
    spelled_out = nn.Sequential(*LAYERS[name]).train()
    with torch.no_grad():
        for copy, weight in zip(spelled_out.parameters(), net.features.parameters(), strict=True):
            copy.copy_(weight)
        x = noise(2, *GREY32)
        torch.testing.assert_close(net.features(x), spelled_out(x), rtol=1e-4, atol=1e-4)


def test_the_deep_vgg_has_thirteen_convolutions_in_five_stages() -> None:
    with torch.device("meta"):
        net = NETS["vgg16-bn"](COLOR, 10)
    kinds = [
        type(layer)
        for layer in net.modules()
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d | nn.MaxPool2d)
    ]
    stage = {
        2: [nn.Conv2d, nn.BatchNorm2d] * 2 + [nn.MaxPool2d],
        3: [nn.Conv2d, nn.BatchNorm2d] * 3 + [nn.MaxPool2d],
    }
    assert kinds == [*stage[2], *stage[2], *stage[3], *stage[3], *stage[3]]


@pytest.mark.parametrize(("name", "depth"), [("resnet20", 3), ("resnet56", 9)])
def test_a_resnet_has_three_stages_that_halve_the_image_as_the_channels_double(
    name: str, depth: int
) -> None:
    features = build(name, COLOR, 10, seed=0).features
    layers = dict(features.named_children())
    x = layers["relu"](layers["norm"](layers["conv"](noise(1, *COLOR))))
    for name, shape in (("stage1", (16, 32, 32)), ("stage2", (32, 16, 16)), ("stage3", (64, 8, 8))):
        stage = layers[name]
        assert isinstance(stage, nn.Sequential)
        assert len(stage) == depth
        x = stage(x)
        assert x.shape == (1, *shape)


def test_a_residual_block_without_its_convolutions_lets_the_input_through() -> None:
    block = Residual(4, 4, stride=1).eval()
    nn.init.zeros_(block.norm2.weight)
    x = noise(2, 4, 8, 8)
    assert torch.equal(block(x), x.relu())


def test_a_residual_block_that_changes_the_shape_projects_its_input() -> None:
    block = Residual(4, 8, stride=2).eval()
    nn.init.zeros_(block.norm2.weight)
    conv, norm = block.shortcut.children()
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    nn.init.ones_(conv.weight)
    x = noise(2, 4, 8, 8)
    sums = x[:, :, ::2, ::2].sum(1, keepdim=True).expand(-1, 8, -1, -1)
    expected = sums / (1 + norm.eps) ** 0.5
    torch.testing.assert_close(block(x), expected.relu())


def test_the_two_nets_with_a_feature_of_two_dimensions_differ_by_relu_alone() -> None:
    x = noise(50, *GREY32)
    with_relu, without = (
        build(name, GREY32, 10, seed=4).features(x) for name in ("lenet-2d-relu", "lenet-2d")
    )
    assert without.shape == (50, 2)
    assert bool((without < 0).any())
    assert torch.equal(with_relu, without.relu())


@pytest.mark.parametrize("shape", [GREY28, GREY32, (3, 40, 48)])
def test_the_femnist_net_has_the_same_feature_for_any_size_of_image(shape: tuple[int, ...]) -> None:
    assert build("femnist", shape, 62, seed=0).features(noise(2, *shape)).shape == (2, 1024)


@pytest.mark.parametrize("name", ["lenet", "tfcnn", "vgg8", "vgg8-bn", "resnet20"])
def test_larger_images_that_are_not_square_work_too(name: str) -> None:
    assert build(name, (2, 45, 70), 3, seed=0)(noise(1, 2, 45, 70)).shape == (1, 3)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        *((name, 8) for name in ("tfcnn", "femnist", "resnet20", "resnet56")),
        *((name, 16) for name in ("lenet", "lenet-2d")),
        *((name, 32) for name in ("vgg8", "vgg8-bn", "vgg11", "vgg11-bn", "vgg16-bn")),
    ],
)
def test_images_that_are_too_small_for_a_net_get_one_sentence(name: str, least: int) -> None:
    assert size(name, (1, least, least), 10)
    for shape in ((1, least, least - 1), (1024,)):
        assert size(name, shape, 10) is None
        with pytest.raises(FedmapError) as wrong:
            build(name, shape, 10, seed=0)
        assert str(wrong.value) == (
            f"net {name} cannot take samples of shape {shape}: "
            f"it needs images of at least {least}x{least}"
        )


def test_vectors_go_into_the_mlp() -> None:
    assert build("mlp", (7,), 3, seed=0)(noise(2, 7)).shape == (2, 3)


@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet20"])
def test_the_seed_decides_the_weights(name: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in build(name, GREY32, 10, seed).parameters()])

    first = weights(1)
    torch.rand(3)  # whatever is drawn in between
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


def test_convolutions_start_with_the_variance_that_keeps_gradients_alive() -> None:
    net = build("vgg8", COLOR, 10, seed=0)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            expected = (2 / (layer.out_channels * 9)) ** 0.5
            assert layer.weight.std().item() == pytest.approx(expected, rel=0.1)
            assert layer.bias is not None
            assert not layer.bias.any()


@pytest.mark.parametrize(
    "plan",
    [
        [ConvBlock(3, 3, 0, False)],
        [ConvBlock(3, 5, 2, True), ConvBlock(4, 3, 1, False), ConvBlock(2, 2, 0, True)],
    ],
)
def test_conv_blocks_know_how_much_comes_out(plan: list[ConvBlock]) -> None:
    blocks = ConvBlocks(2, plan)
    assert blocks(noise(1, 2, 13, 18)).numel() == blocks.dim(13, 18)


@pytest.mark.parametrize("name", ["lenet", "tfcnn", "femnist", "vgg8"])
def test_convolutions_have_readable_names_in_files(name: str) -> None:
    with torch.device("meta"):
        net = NETS[name](COLOR, 10)
    assert isinstance(net, Net)
    assert list(net.state_dict())[:2] == ["features.blocks.0.weight", "features.blocks.0.bias"]
    assert list(net.state_dict())[-1] == "classifier.weight"


def test_the_list_of_nets_shows_each_with_its_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        NETS._things,
        "for-large-images",
        lambda shape, classes: build("vgg8", (1, 8, 8), classes, 0),
    )
    lists.nets()
    rows = {
        row.split()[0]: row.split()[1]
        for row in capsys.readouterr().out.splitlines()
        if row[:1].isalnum()
    }
    assert set(NETS) <= set(rows)
    assert rows["vgg16-bn"] == "14,727,104"
    assert rows["for-large-images"] == "-"
