"""cifar-100: color images of a hundred kinds of things, with their fine labels."""

from fedmap.data.dataset import Defaults
from fedmap.data.official.base import RemoteFile, register_official
from fedmap.data.official.families.cifar import URL, Cifar

CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""


@register_official
class Cifar100(Cifar):
    """A hundred classes, one training file."""

    name = "cifar-100"
    line = "50,000 + 10,000 color images of 100 kinds of things"
    defaults = Defaults(net="vgg8-bn", epochs=20)
    classes = tuple(CLASSES.split())
    folders = ("cifar-100-binary", "cifar-100-python", "cifar-100", "cifar100")
    marks = ("train.bin", "train")
    train_files = ("train",)
    test_file = "test"
    label_bytes = 2  # the coarse label, then the fine one
    md5 = {
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    }
    remote_files = (
        RemoteFile(
            f"{URL}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733
        ),
    )
