"""cifar-10: color images of animals and vehicles."""

from fedmap.data.dataset import Defaults
from fedmap.data.official.base import RemoteFile, register_official
from fedmap.data.official.families.cifar import TEN_CLASSES, URL, Cifar


@register_official
class Cifar10(Cifar):
    """Ten classes, five training files."""

    name = "cifar-10"
    line = "50,000 + 10,000 color images of 10 kinds of animals and vehicles"
    defaults = Defaults(net="tfcnn", epochs=10)
    classes = TEN_CLASSES
    folders = ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10", "cifar10")
    marks = ("data_batch_1.bin", "data_batch_1")
    train_files = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_file = "test_batch"
    label_bytes = 1
    md5 = {
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
    }
    remote_files = (
        RemoteFile(
            f"{URL}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171
        ),
    )
