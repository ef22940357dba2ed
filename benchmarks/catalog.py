"""What is compared: the workloads by key, and the contenders with the methods that each one has."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "contenders"))

from workload import Workload  # noqa: E402

LENET = Workload(
    "lenet", (1, 32, 32), train=480, test=120, global_test=10_000, epochs=5, data="fashion-mnist"
)
CONV2 = Workload(
    "conv2", (3, 32, 32), train=400, test=100, global_test=10_000, epochs=2, data="cifar-10"
)
VGG8 = replace(CONV2, net="vgg8", global_test=2_000, epochs=1, clients_a_round=4)
EMPTY = Workload(
    "linear", (1, 4, 4), train=1, test=1, global_test=10, epochs=0, clients_a_round=100
)
WORKLOADS = {
    "lenet": LENET,
    "mlp": replace(LENET, net="mlp"),
    "conv2": CONV2,
    "vgg8": VGG8,
    "resnet20": replace(VGG8, net="resnet20"),
    "empty": EMPTY,
    # a client that comes again has a teacher, so all come in every round
    "lenet-map": replace(LENET, method="map", clients=20),
    "lenet-scaffold": replace(LENET, method="scaffold"),
    "lenet-ditto": replace(LENET, method="ditto"),
}
TITLES = {
    "lenet": "LeNet",
    "mlp": "MLPNet",
    "conv2": "Conv2",
    "vgg8": "VGG8",
    "resnet20": "ResNet20",
    "fashion-mnist": "Fashion-MNIST",
    "cifar-10": "CIFAR-10",
    "map": "MAP",
    "scaffold": "Scaffold",
    "ditto": "Ditto",
}


def title(workload: dict[str, Any]) -> str:
    """What a workload is, in a few words: its net and its data, and its method if not FedAvg."""
    if not workload["epochs"]:
        return "Clients that train nothing"
    words = [workload["net"], workload.get("data", "noise"), workload["method"]]
    return ", ".join(TITLES.get(word, word) for word in words if word != "fedavg")


class Contender(NamedTuple):
    """A script that does a workload's rounds, and what is to be known about it."""

    about: str
    script: str
    # the peer's list of requirements; None is the environment that the comparison runs in
    environment: str | None = None
    methods: tuple[str, ...] = ("fedavg",)
    options: dict[str, Any] = {}
    launcher: tuple[str, ...] = ()
    # of a peer that is no package: it takes part where the folder of a checkout is given
    repository: str = ""

    @property
    def ready(self) -> bool:
        """Whether nothing is missing, such as a checkout."""
        return not self.repository or "checkout" in self.options


OTHERS = ("map", "scaffold", "ditto")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
CONTENDERS = {
    "fedmap": Contender(
        "two workers, native kernels; also scores every client's download",
        "run_fedmap.py",
        methods=("fedavg", *OTHERS),
    ),
    "fedmap-torch": Contender(
        "two workers, PyTorch's kernels",
        "run_fedmap.py",
        methods=("fedavg", *OTHERS),
        options={"kernels": "torch"},
    ),
    "fedmap-fedavg": Contender(
        "FedAvg, to see what the method costs beside it",
        "run_fedmap.py",
        methods=OTHERS,
        options={"method": "fedavg"},
    ),
    "bare": Contender("plain PyTorch loop, two threads", "run_bare.py"),
    "pfl": Contender(
        "two processes with a thread each; no shuffling", "run_pfl.py", "pfl", launcher=TORCHRUN
    ),
    "pfl-one": Contender(
        "one process with two threads; no shuffling", "run_pfl.py", "pfl", ("fedavg", "scaffold")
    ),
    "flower": Contender(
        "simulation on Ray, two actors with a thread each", "run_flower.py", "flower"
    ),
    "fedlab": Contender(
        "standalone pipeline, two threads", "run_fedlab.py", "fedlab", ("fedavg", "scaffold")
    ),
    "fluke": Contender(
        "two threads; Ditto's personal steps without momentum",
        "run_fluke.py",
        "fluke",
        ("fedavg", "scaffold", "ditto"),
    ),
    "pfllib": Contender(
        "two threads; sends to all clients; Ditto's personal steps without momentum",
        "run_pfllib.py",
        "pfllib",
        ("fedavg", "scaffold", "ditto"),
        repository="TsingZ0/PFLlib",
    ),
    "fl-bench": Contender(
        "two threads, tensors in memory",
        "run_fl_bench.py",
        "fl-bench",
        ("fedavg", "scaffold", "ditto"),
        repository="KarhouTam/FL-bench",
    ),
    "authors": Contender(
        "two threads, tensors in memory; clips gradients; MAP's stages have 35 and 5 steps, "
        "fedmap's 20 and 20",
        "run_authors.py",
        "authors",
        ("fedavg", "map"),
        repository="lxcnju/MAP",
    ),
}


def able(contenders: list[str], workload: Workload) -> list[str]:
    """Those of the contenders that have the workload's method."""
    return [name for name in contenders if workload.method in CONTENDERS[name].methods]


def fitted(name: str, workload: Workload) -> Workload:
    """The workload with the contender's options; one of them may be another method."""
    options = dict(CONTENDERS[name].options)
    return replace(workload, method=options.pop("method", workload.method), options=options)


def check_out(given: list[str]) -> None:
    """Note where the repositories of contenders that are no packages lie: NAME=PATH each."""
    for pair in given:
        name, _, path = pair.partition("=")
        if name not in CONTENDERS or not CONTENDERS[name].repository:
            need_one = (f"{key} ({c.repository})" for key, c in CONTENDERS.items() if c.repository)
            raise SystemExit(
                f"--checkout {pair}: {name!r} is no contender that needs one; these do: "
                f"{', '.join(need_one)}"
            )
        if not Path(path).is_dir():
            raise SystemExit(f"--checkout {pair}: there is no folder {path!r}")
        options = CONTENDERS[name].options | {"checkout": str(Path(path).resolve())}
        CONTENDERS[name] = CONTENDERS[name]._replace(options=options)
