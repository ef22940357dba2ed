"""Facts about the six official sets: usual folder names, sample counts, published checksums and
where the archives are."""

from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Remote:
    """One file to download, with its published size and MD5 sum."""

    url: str
    md5: str
    size: int
    file: str = ""  # its name, where the address does not end with it

    @property
    def name(self) -> str:
        return self.file or self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Official:
    """What is known about one set. A folder is taken for the set when it has a usual name and a
    file that matches a mark."""

    name: str
    folders: tuple[str, ...]
    marks: tuple[str, ...]
    train: int
    test: int
    # by file name: of the uncompressed idx data, of the .bin files, of the pickles
    md5: dict[str, str]
    remotes: tuple[Remote, ...] = ()
    unpacked: int = 0  # how many bytes the archive may unpack to; 0: the files are used as they are
    advice: str = ""  # another way to get the set, for the message when it is missing


CIFAR = "https://www.cs.toronto.edu/~kriz"
IDX_MARKS = tuple(f"train-images{mark}idx3-ubyte{end}" for mark, end in product("-.", ("", ".gz")))
CINIC_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

_SETS = (
    Official(
        name="fashion-mnist",
        folders=("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST"),
        marks=IDX_MARKS,
        train=60_000,
        test=10_000,
        md5={
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
        remotes=tuple(
            Remote(
                f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}-ubyte.gz",
                md5,
                size,
            )
            for name, md5, size in (
                ("train-images-idx3", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
                ("train-labels-idx1", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
                ("t10k-images-idx3", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
                ("t10k-labels-idx1", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
            )
        ),
        advice="on Debian and Ubuntu `apt-get install dataset-fashion-mnist` brings it; fashion-mini, a part of it, needs no download",
    ),
    Official(
        name="mnist",
        folders=("mnist", "MNIST/raw", "MNIST"),
        marks=IDX_MARKS,
        train=60_000,
        test=10_000,
        md5={
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        remotes=tuple(
            Remote(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}-ubyte.gz", md5, size)
            for name, md5, size in (
                ("train-images-idx3", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("train-labels-idx1", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("t10k-images-idx3", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("t10k-labels-idx1", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            )
        ),
    ),
    Official(
        name="cifar-10",
        folders=("cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10", "cifar10"),
        marks=("data_batch_1.bin", "data_batch_1"),
        train=50_000,
        test=10_000,
        md5={
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        remotes=(
            Remote(
                f"{CIFAR}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171
            ),
        ),
        unpacked=200_000_000,
    ),
    Official(
        name="cifar-100",
        folders=("cifar-100-binary", "cifar-100-python", "cifar-100", "cifar100"),
        marks=("train.bin", "train"),
        train=50_000,
        test=10_000,
        md5={
            "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "test.bin": "4499cfba6c016c1be1438163640a0898",
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        remotes=(
            Remote(
                f"{CIFAR}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733
            ),
        ),
        unpacked=200_000_000,
    ),
    Official(
        name="cinic-10",
        folders=("cinic-10", "CINIC-10", "cinic10", "CINIC10"),
        marks=("train/airplane",),
        train=90_000,
        test=90_000,
        md5={},
        remotes=(
            Remote(
                "https://datashare.ed.ac.uk/server/api/core/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
                "6ee4d0c996905fe93221de577967a372",
                687_544_992,
                "CINIC-10.tar.gz",
            ),
        ),
        unpacked=2_000_000_000,
    ),
    Official(
        name="femnist",
        folders=("femnist", "femnist/data", "FEMNIST", "FEMNIST/data", "leaf/data/femnist/data"),
        marks=("train/*.json",),
        train=805_263,
        test=0,
        md5={},
        advice="LEAF makes it (https://github.com/TalwalkarLab/leaf): in its data/femnist run "
        "`./preprocess.sh -s niid --sf 1.0 -k 0 -t sample`, then copy data/train and data/test "
        "into a folder named femnist",
    ),
)

OFFICIAL = {official.name: official for official in _SETS}
FEMNIST_WRITERS = 3_550
