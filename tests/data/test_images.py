from pathlib import Path

import numpy as np
import pytest
from peak_memory import peak_memory
from PIL import Image

from fedmap.data.files import images
from fedmap.errors import FedmapError

GRAY = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)


MODES = {"L": 1, "1": 1, "LA": 1, "RGB": 3, "RGBA": 3, "P": 3, "CMYK": 3}


@pytest.mark.parametrize(("mode", "channels"), MODES.items())
def test_gray_has_one_channel_and_everything_else_three(mode: str, channels: int) -> None:
    image = Image.fromarray(GRAY).convert(mode)
    assert images.pixels(image).shape == (channels, 4, 6)


def test_sixteen_bits_are_scaled_to_eight_and_not_cut() -> None:
    assert np.array_equal(images.pixels(Image.fromarray(GRAY.astype(np.uint16) * 257)), GRAY[None])


def test_other_number_formats_are_refused() -> None:
    with pytest.raises(FedmapError, match="scan: pixels of mode F"):
        images.pixels(Image.fromarray(GRAY.astype(np.float32)), name="scan")
    with pytest.raises(FedmapError, match="8 or 16 bits"):
        images.pixels(Image.fromarray(np.array([[-1]], np.int32)))


def test_a_size_is_height_then_width() -> None:
    assert images.pixels(Image.fromarray(GRAY), (5, 7)).shape == (1, 5, 7)


def test_a_picture_that_a_camera_only_marked_as_turned_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(GRAY).save(tmp_path / "photo.jpg", exif=exif)
    assert images.pixels(images.read(tmp_path / "photo.jpg")).shape == (1, 6, 4)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not an image"),
        (b"GIF89a", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    ],
    ids=["empty", "cut off", "PostScript, which is a program"],
)
def test_what_is_not_an_image_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "scan.png").write_bytes(content)
    with pytest.raises(FedmapError, match=rf"scan\.png: {says}"):
        images.read(tmp_path / "scan.png")


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path: Path, side: int) -> None:
    header = Image.new("1", (1, 1))
    header.save(tmp_path / "bomb.gif")
    raw = bytearray((tmp_path / "bomb.gif").read_bytes())
    raw[6:10] = side.to_bytes(2, "little") * 2
    (tmp_path / "bomb.gif").write_bytes(raw)

    def read() -> None:
        with pytest.raises(FedmapError, match="bomb"):
            images.read(tmp_path / "bomb.gif")

    assert peak_memory(read) < 2_000_000
