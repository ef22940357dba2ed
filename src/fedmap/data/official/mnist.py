"""mnist: handwritten digits."""

from fedmap.data.dataset import Defaults
from fedmap.data.official.base import register_official
from fedmap.data.official.families.mnist import MnistLike, remote_idx_files

URL = "https://ossci-datasets.s3.amazonaws.com/mnist"


@register_official
class Mnist(MnistLike):
    """The digits of MNIST."""

    name = "mnist"
    line = "60,000 + 10,000 gray images of handwritten digits"
    defaults = Defaults()
    classes = tuple("0123456789")
    folders = ("mnist", "MNIST/raw", "MNIST")
    md5 = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    remote_files = remote_idx_files(
        URL,
        ("train-images-idx3", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        ("train-labels-idx1", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        ("t10k-images-idx3", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        ("t10k-labels-idx1", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    )
