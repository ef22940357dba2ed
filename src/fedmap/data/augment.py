"""Augmentation of whole batches: random crop with padding 4 and random horizontal flip, as the
paper trains on CIFAR and CINIC."""

import numpy as np
import torch
from torch import Tensor

PADDING = 4


def augment(x: Tensor, rng: np.random.Generator, black: Tensor | float = 0) -> Tensor:
    """A new batch of images (n, channels, height, width), each shifted by up to 4 pixels and
    flipped half of the time.

    The border is black, as if padded before normalization: on uint8 pixels, the usual input,
    `black` is 0; for a batch that is normalized already give the normalized value of 0, one number
    for each channel. The draws from `rng` depend on n only.
    """
    n, channels, height, width = x.shape
    top, left = torch.from_numpy(rng.integers(2 * PADDING + 1, size=(2, n, 1)))
    flip = torch.from_numpy(rng.random((n, 1)) < 0.5)
    padded = x.new_empty((n, channels, height + 2 * PADDING, width + 2 * PADDING))
    padded[:] = torch.as_tensor(black).view(-1, 1, 1)
    padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = x
    column = torch.arange(width)
    rows, columns = top + torch.arange(height), left + torch.where(flip, column.flip(0), column)
    pixel = rows.unsqueeze(2) * padded.shape[3] + columns.unsqueeze(
        1
    )  # (n, height, width): where each new pixel comes from
    source = pixel.view(n, 1, height * width).expand(-1, channels, -1).to(x.device)
    return padded.flatten(2).gather(2, source).view(x.shape)
