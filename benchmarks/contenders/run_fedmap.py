"""fedmap through its public functions: two workers, native kernels unless the options say
otherwise."""

from collections import OrderedDict
from pathlib import Path

from torch import nn
from workload import Data, Turns, Workload, counted, given

import fedmap
from fedmap.data import Dataset
from fedmap.nets import NETS, Net, build
from fedmap.nets.blocks import ConvBlock, ConvBlocks
from nets import CLASSES, linear

# MAP as its Algorithm 1 has it: as many local steps as FedAvg's. Scaffold without a limit on
# gradients, which no peer has.
PARAMS = {"map": {"preset": "printed"}, "scaffold": {"clip": 0}}
NOTHING = f"{Path(__file__).with_name('nothing.py')}:Nothing"


@NETS.add("conv2")
def conv2(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions of 32 and 64 channels with max pools, and a hidden layer of 512."""
    blocks = ConvBlocks(shape[0], [ConvBlock(32, 5, 2, True), ConvBlock(64, 5, 2, True)])
    hidden = nn.Linear(blocks.dim(*shape[1:]), 512)
    layers = OrderedDict(blocks=blocks, flat=nn.Flatten(), hidden=hidden, relu=nn.ReLU())
    return Net(nn.Sequential(layers), 512, classes)


@NETS.add("linear")
def linear_net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The classifier alone."""
    return linear(shape)


def federation(workload: Workload) -> fedmap.Federation:
    """A fifth of each client's samples is its test set, as fedmap always has it."""
    data = Data(workload)
    classes = tuple(str(label) for label in range(CLASSES))
    dataset = Dataset(workload.data, data.x, data.y, *data.global_test, classes, owner=data.owner)
    clients = fedmap.Federation(dataset, data.owner.numpy())
    assert {len(part) for part in clients.train} == {workload.train}
    assert {len(part) for part in clients.test} == {workload.test}
    return clients


def main() -> None:
    turns, workload = Turns(), given()
    clients = federation(workload)
    net = workload.net
    if workload.count:
        NETS.add("counted")(lambda shape, classes: counted(build(workload.net, shape, classes, 0)))
        net = "counted"
    turns.begin(build(workload.net, workload.shape, CLASSES, 0), "fedmap")
    fedmap.run(
        workload.method if workload.epochs else NOTHING,
        clients,
        net=net,
        params=PARAMS.get(workload.method, {}),
        rounds=workload.rounds,
        fraction=workload.fraction,
        epochs=workload.epochs or 1,
        batch=workload.batch,
        lr=workload.lr,
        momentum=workload.momentum,
        weight_decay=workload.weight_decay,
        workers=2,
        kernels=workload.options.get("kernels", "native"),
        on_round=lambda record: turns.end(),
    )


if __name__ == "__main__":
    main()
