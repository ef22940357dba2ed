"""One image file to pixels: only in formats that are data and no programs, and only if it is not
too large."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from fedmap.data.files.regular import require_regular
from fedmap.errors import FedmapError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
MAX_PIXELS = 50_000_000  # checked before anything is decoded
Size = tuple[int, int]  # height, width
SIZE = (32, 32)  # of images, where their own sizes differ


def read(path: Path, exactly: Size | None = None) -> Image.Image:
    """The decoded image, upright; with `exactly`, one of another size is refused."""
    require_regular(path)
    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if exactly is not None and (height, width) != exactly:
                raise FedmapError(
                    f"{path}: an image of {width} x {height} pixels; "
                    f"it must have {exactly[1]} x {exactly[0]}"
                )
            if width * height > MAX_PIXELS:
                raise FedmapError(
                    f"{path}: an image of {width} x {height} pixels; "
                    f"at most {MAX_PIXELS:,} pixels are allowed"
                )
            image.load()
            return ImageOps.exif_transpose(image)  # cameras only note how a picture is to be turned
    except FedmapError:
        raise
    except Exception as error:  # a damaged image can raise anything
        raise FedmapError(
            f"{path}: not an image that can be read ({type(error).__name__}: {error})"
        ) from error


def pixels(
    image: Image.Image, size: Size | None = None, name: object = "image"
) -> npt.NDArray[np.uint8]:
    """An array (channels, height, width), with one channel for a gray image and three for any
    other; transparency is dropped. `name` is for the error message."""
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image, name)
    image = image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB")
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.asarray(image, np.uint8)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def stack(values: list[Image.Image], size: Size | None, name: str) -> npt.NDArray[np.uint8]:
    """Pixels (n, channels, h, w): in `size`, or in their own size if all agree; in color if any
    is."""
    if size is None and len({image.size for image in values}) > 1:
        size = SIZE
    try:
        decoded = [pixels(image, size, f"{name}, image {i}") for i, image in enumerate(values)]
    except OSError as error:  # images are decoded only now
        raise FedmapError(f"{name}: there is an image that cannot be read ({error})") from error
    channels = max(len(image) for image in decoded)
    return np.stack([np.broadcast_to(image, (channels, *image.shape[1:])) for image in decoded])


def _eight_bits(image: Image.Image, name: object) -> Image.Image:
    """The same image for a gray one of 16 bits, as scanners write it; Pillow itself would cut
    everything above 255."""
    values: npt.NDArray[Any] = np.asarray(image)
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 65535:
        raise FedmapError(
            f"{name}: pixels of mode {image.mode} outside 0..65535; "
            "save it with 8 or 16 bits per channel"
        )
    return Image.fromarray(((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8))
