"""fashion-mnist, and fashion-mini: the part of it that comes with fedmap."""

from dataclasses import replace
from pathlib import Path

from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.official.base import register_official
from fedmap.data.official.families.mnist import MnistLike, remote_idx_files
from fedmap.data.registry import register_dataset

URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
MINI_FOLDER = Path(__file__).with_name("fashion_mini")
MINI_DEFAULTS = Defaults(clients=20)


@register_official
class FashionMnist(MnistLike):
    """Zalando's clothes."""

    name = "fashion-mnist"
    line = "60,000 + 10,000 gray images of 10 kinds of clothes"
    defaults = Defaults()
    classes = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    folders = ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST")
    md5 = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }
    remote_files = remote_idx_files(
        URL,
        ("train-images-idx3", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        ("train-labels-idx1", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
        ("t10k-images-idx3", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        ("t10k-labels-idx1", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    )
    advice = (
        "on Debian and Ubuntu `apt-get install dataset-fashion-mnist` brings it; "
        "fashion-mini, a part of it, needs no download"
    )


@register_dataset(
    "fashion-mini",
    "10,000 + 2,000 images of Fashion-MNIST, inside fedmap: nothing to download",
    MINI_DEFAULTS,
)
def fashion_mini(_: Path | None = None) -> Dataset:
    """The first images of each class of Fashion-MNIST, as `scripts/make_fashion_mini.py` chose
    them."""
    official = FashionMnist()
    data = official.dataset(official.decode(MINI_FOLDER))
    return replace(data, name="fashion-mini", defaults=MINI_DEFAULTS)
