"""Makes torchvision importable beside a CPU build of torch, for peers that import it whatever they
are used for.

The package index has torchvision for CUDA; without CUDA its operators do not load, and it stops at
the first one that it misses. No contender calls any."""

import torch

try:
    import torchvision  # type: ignore[import-not-found]  # noqa: F401
except RuntimeError:
    for missing in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{missing}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
        )
