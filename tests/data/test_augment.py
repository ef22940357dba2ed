from dataclasses import replace

import numpy as np
import pytest
import torch

from fedmap.data import synthetic
from fedmap.data.augment import PADDING, augment


def reference(x: torch.Tensor, rng: np.random.Generator, black: torch.Tensor) -> torch.Tensor:
    """The same, one image after the other."""
    top, left = rng.integers(2 * PADDING + 1, size=(2, len(x), 1))
    flip = rng.random((len(x), 1)) < 0.5
    out = []
    for i, image in enumerate(x):
        padded = black.view(-1, 1, 1).expand(-1, x.shape[2] + 8, x.shape[3] + 8).clone()
        padded[:, 4:-4, 4:-4] = image
        crop = padded[:, top[i, 0] : top[i, 0] + x.shape[2], left[i, 0] : left[i, 0] + x.shape[3]]
        out.append(crop.flip(2) if flip[i, 0] else crop)
    return torch.stack(out)


@pytest.mark.parametrize("shape", [(50, 3, 32, 32), (7, 1, 5, 9), (0, 3, 8, 8)])
def test_each_image_is_cropped_and_flipped_as_one_by_one(shape: tuple[int, ...]) -> None:
    x = torch.from_numpy(np.random.default_rng(1).integers(256, size=shape, dtype=np.uint8))
    got = augment(x, np.random.default_rng(2))
    if len(x):
        assert torch.equal(
            got, reference(x, np.random.default_rng(2), torch.zeros(shape[1], dtype=torch.uint8))
        )
    assert got.dtype == torch.uint8
    assert got.shape == shape


def test_augmenting_pixels_or_normalized_values_is_the_same() -> None:
    data = replace(
        synthetic(train=20, test=0, shape=(3, 8, 8)), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25)
    )
    early = data.normalize(augment(data.train_x, np.random.default_rng(3)))
    late = augment(data.normalize(data.train_x), np.random.default_rng(3), data.black)
    assert torch.equal(early, late)


def test_the_same_generator_gives_the_same_batch_and_the_input_stays() -> None:
    x = torch.randint(256, (9, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
    before = x.clone()
    assert torch.equal(augment(x, np.random.default_rng(5)), augment(x, np.random.default_rng(5)))
    assert not torch.equal(
        augment(x, np.random.default_rng(5)), augment(x, np.random.default_rng(6))
    )
    assert torch.equal(x, before)


def test_a_batch_is_augmented_on_its_own_device_whatever_the_default_is() -> None:
    x = torch.arange(5 * 3 * 8 * 8).view(5, 3, 8, 8)
    expected = augment(x, np.random.default_rng(0), 7)
    with torch.device("meta"):
        got = augment(x, np.random.default_rng(0), 7)
    assert torch.equal(got, expected)


def test_a_batch_on_another_device_stays_there() -> None:
    x = torch.zeros(5, 3, 8, 8, device="meta")
    assert augment(x, np.random.default_rng(0), torch.zeros(3)).device == x.device


def test_all_shifts_and_both_sides_occur() -> None:
    x = torch.zeros(3000, 1, 9, 9, dtype=torch.uint8)
    x[:, :, 4, 4] = 1  # the middle stays inside under every shift
    spots = augment(x, np.random.default_rng(0)).flatten(1).float().mean(0)
    assert (spots > 0.005).all()
    assert spots.sum() == pytest.approx(1)
