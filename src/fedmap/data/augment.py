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
    top, left = torch.from_numpy(rng.integers(2 * PADDING + 1, size=(2, n, 1))).to(x.device)
    flip = torch.from_numpy(rng.random((n, 1)) < 0.5).to(x.device)
    padded = x.new_empty((n, channels, height + 2 * PADDING, width + 2 * PADDING))
    padded[:] = torch.as_tensor(black, device=x.device).view(-1, 1, 1)
    padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = x
    row, column = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    rows, columns = top + row, left + torch.where(flip, column.flip(0), column)
    # (n, height, width): the place in the padded image that each new pixel comes from
    place = rows.unsqueeze(2) * padded.shape[3] + columns.unsqueeze(1)
    place = place.view(n, 1, height * width).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, place).view(x.shape)
