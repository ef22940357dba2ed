"""What leaves a site, on the bytes: only what the method's page lists, nothing private in it, and
the noise of differential privacy, which the site adds itself."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from tests.flower.conftest import DirectGrid, write_site

from fedmap import values
from fedmap.data import load
from fedmap.errors import FedmapError
from fedmap.flower import records
from fedmap.flower.server_app import read, serve
from fedmap.flower.terms import Answer
from fedmap.methods import METHODS
from fedmap.values import Values

PAGES = Path(__file__).parents[2] / "docs/methods"
CONFIG: dict[str, Any] = {
    "net": "tiny", "rounds": 2, "epochs": 1.0, "batch": 8, "lr": 0.1, "min-sites": 3,
    "round-timeout": 30.0, "fraction": 1.0,
}  # fmt: skip


def listed(method: str, way: str) -> set[str]:
    """The entries that a method's page lists as going this way: each name in back quotes before a
    colon."""
    page = (PAGES / f"{method}.md").read_text().split("## What moves and what stays")[1]
    (row,) = re.findall(rf"^\| {way} \|([^|]*)\|", page, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row))


class Post:
    """All messages that travel, with who sent them."""

    def __init__(self, grid: DirectGrid) -> None:
        self.up: list[tuple[int, Answer, Values, list[bytes]]] = []
        self.down: list[Values] = []
        travelled, ask = grid.travelled, grid.ask

        def asked(node: int, message: Message) -> Message | None:
            answer = ask(node, message)
            if message.content.array_records.get(records.ARRAYS):
                self.down.append(records.values(message.content))
                assert answer is not None
                before = len(grid.bytes)
                sent = travelled(answer).content
                own = grid.bytes[before:]
                self.up.append((node, records.words(sent, Answer), records.values(sent), own))
            return answer

        grid.ask = asked  # type: ignore[method-assign]


NUMBERS = {"samples", "loss", "accuracy", "accuracy_download", "accuracy_observed"}


def run(method: str, grid: DirectGrid, folder: Path, **more: Any) -> Post:
    write_site(folder / "test", 50, range(4), each=25)
    test = f"npz:{folder / 'test'}" if METHODS[method].public_samples else ""
    post = Post(grid)
    config = CONFIG | {"method": method, "out": str(folder / "run"), "test-data": test} | more
    serve(grid, config)
    return post


# `local` sends nothing (below); `central` is refused.
SENDING = [name for name in sorted(METHODS) if name not in ("local", "central")]


@pytest.mark.parametrize("method", SENDING)
def test_what_the_page_lists_is_all_that_leaves(
    method: str, grid: DirectGrid, tmp_path: Path
) -> None:
    post = run(method, grid, tmp_path)
    # `right` and `total` answer the test of the global model, which goes to sites as `model`.
    trained = [up for _, _, up, _ in post.up if up and "right" not in up]
    assert len(trained) == 6
    assert all(up.keys() == listed(method, "up") for up in trained)
    orders = [down for down in post.down if down.keys() != {"model"}] or post.down
    assert all(down.keys() == listed(method, "down") for down in orders)
    numbers = {name for _, answer, _, _ in post.up for name in answer.numbers}
    assert numbers <= NUMBERS
    for node, _, up, contents in post.up:
        assert not any(secret in content for content in contents for secret in samples(grid, node))
        for name in METHODS[method].trained if up and "right" not in up else ():
            assert up[name].shape == orders[0][name].shape
    # What a first round leaves may be what it sends; after a second one that is over.
    second = [entry for entry in post.up if entry[2] and "right" not in entry[2]][3:]
    for node, _, _, contents in second:
        assert not any(secret in content for content in contents for secret in kept(grid, node))


def test_of_training_alone_only_numbers_leave(grid: DirectGrid, tmp_path: Path) -> None:
    post = run("local", grid, tmp_path)
    assert listed("local", "up") == listed("local", "down") == set()
    assert not post.up
    secrets = [
        secret for node in grid.configs for secret in [*samples(grid, node), *kept(grid, node)]
    ]
    assert not any(secret in content for content in grid.bytes for secret in secrets)


def samples(grid: DirectGrid, node: int) -> list[bytes]:
    """The bytes of each sample of a site, as it is stored."""
    return [x.numpy().tobytes() for x in load(str(grid.configs[node]["data"])).train_x]


def kept(grid: DirectGrid, node: int) -> list[bytes]:
    """The bytes of the vectors in a site's state."""
    return [
        value.numpy().tobytes()
        for path in Path(str(grid.configs[node]["states"])).glob("*/state-*.safetensors")
        for name, value in values.load(path).items()
        if value.numel() > 4 and name != "previous"  # MOON's page: a copy of what goes up
    ]


def test_a_sample_on_the_wire_would_be_seen(grid: DirectGrid, tmp_path: Path) -> None:
    """The search of the test above finds what is there."""
    post = run("fedavg", grid, tmp_path)
    node, _, up, contents = next(entry for entry in post.up if entry[2])
    assert any(up["model"].numpy().tobytes() in content for content in contents)
    assert len(samples(grid, node)) > 20


PRIVATE = {"dp-clip": 0.01, "dp-noise": 1e-9}


def test_a_site_shortens_what_it_sends(grid: DirectGrid, tmp_path: Path) -> None:
    post = run("map", grid, tmp_path, **PRIVATE)
    start = post.down[0]["model"]
    ways = [float((up["model"] - start).norm()) for _, _, up, _ in post.up[:3]]
    assert ways == pytest.approx([0.01] * 3, rel=1e-3)


def test_a_sites_noise_follows_from_its_secret_and_not_from_the_seed(
    grid: DirectGrid, tmp_path: Path
) -> None:
    noisy = {"dp-clip": 1e-6, "dp-noise": 1e6, "rounds": 1}
    post = run("fedavg", grid, tmp_path, **noisy)
    first = [up["model"] for _, _, up, _ in post.up[:3]]
    for config in grid.configs.values():  # another secret, all else the same
        for secret in Path(str(config["states"])).glob("*/secret"):
            assert secret.stat().st_mode & 0o777 == 0o600
    other = run("fedavg", DirectGrid(grid.configs), tmp_path / "other", **noisy)
    second = [up["model"] for _, _, up, _ in other.up[:3]]
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(float((a - b).abs().mean()) > 0.1 for a, b in zip(first, second, strict=True))


def test_epsilon_of_sites_counts_no_secret_draw(grid: DirectGrid, tmp_path: Path) -> None:
    from fedmap.simulate.privacy import epsilon

    config = CONFIG | {"method": "fedavg", "out": str(tmp_path / "run"), "rounds": 1}
    result = serve(grid, config | {"dp-clip": 1.0, "dp-noise": 5.0})
    assert result.rounds[0]["epsilon"] == epsilon(5.0, 1e-5, 3, 3, [3], drawn=False)


def test_a_robust_average_works_on_uploads_that_lie_in_files(
    grid: DirectGrid, tmp_path: Path
) -> None:
    config = CONFIG | {"method": "fedavg", "out": str(tmp_path / "run"), "rounds": 1}
    post = Post(grid)
    result = serve(grid, config | {"aggregate": "median"})
    sent = torch.stack([up["model"] for _, _, up, _ in post.up if "model" in up])
    state = values.load(result.folder / "server.safetensors")["model"]
    assert torch.equal(state, sent.median(0).values)


def test_attackers_are_for_simulations() -> None:
    with pytest.raises(FedmapError, match="attack is for simulations"):
        read({"out": "x", "attack": "signs"})
