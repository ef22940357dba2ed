"""What to try first, and why: a small table. Each rule has a condition on the numbers of a
diagnosis, an advice, and the study of this project that backs it, with the page where it stands.
The guide docs/guide/inspect.md shows this table."""

from collections.abc import Callable
from math import log
from typing import NamedTuple

from fedmap.diagnosis.numbers import Numbers
from fedmap.report.table import Table

DROP = 0.1  # of accuracy after a download
PUSHED = 0.5  # how far missing proxies move, beside observed ones
WEAK = 0.2  # accuracy of the global model below that of the personal ones
SKEWED = 2.0  # largest by smallest class of a client
FEW_CLASSES = 3
FEW_EACH = 2.5  # classes, of a client on average
FEW_SAMPLES = 150  # to train on, of the median client
FEW_TESTS = 100  # own test samples: one of fewer is more than a point

KINDS = "seven kinds of federations of Fashion-MNIST's embedded part, LeNet, 20 rounds, three seeds"
BOARD = "all methods on Fashion-MNIST's embedded part, LeNet, 40 rounds, five seeds"
CIFAR = "all methods on 12,000 images of CIFAR-10, TFCNN, 30 rounds, three seeds"


class Rule(NamedTuple):
    """When to try what, and the study behind it."""

    when: str
    applies: Callable[[Numbers], bool]
    advice: str
    command: str  # to which the options of the data are added
    study: str
    page: str  # from the root of the project
    section: str
    shown: str  # what the study showed; its numbers stand on that page


def misses(n: Numbers) -> bool:
    """Does any client lack a class?"""
    return n.clients_that_miss > 0


def weak(n: Numbers) -> bool:
    """Is the run's global model far below its personal models?"""
    if n.run is None or n.run["global"] is None:
        return False
    return bool(n.run["personal"] - n.run["global"] >= WEAK)


RULES = [
    Rule(
        "classes count as missing though clients have a sample of them, as on FEMNIST",
        lambda n: n.observed_from > 1,
        "begin with FedAvg, and compare everything else with it: on FEMNIST MAP was below it in "
        "both accuracies",
        "fedmap compare --methods local,fedavg,map",
        "FEMNIST at the paper's schedule, 249 writers, three seeds",
        "docs/reproduction/femnist.md",
        "Runs at the scale `paper`",
        "with Q=0.1 and E=5 MAP is 1.72 points below FedAvg globally and 5.35 personally",
    ),
    Rule(
        "clients miss classes",
        misses,
        "for both goals try MAP with its preset own first, beside FedAvg and every client alone",
        'fedmap compare --methods "local,fedavg,map[preset=own]" --seeds 0-2',
        BOARD,
        "docs/leaderboard.md",
        "fashion-mini",
        "first in the joint rank; global 83.9 instead of FedAvg's 75.0, personal 90.5 instead of "
        "89.1, and 5 of 100 clients lose against training alone instead of 15",
    ),
    Rule(
        "clients miss classes",
        misses,
        "let each client's model answer among that client's own classes, as MAP's preset own does; "
        "for every other method the column `own classes` says what that is worth",
        'fedmap compare --methods "local,fedavg,map[preset=own,opinion=1]"',
        "CIFAR-100, TFCNN in one place, three seeds",
        "docs/reproduction/partial-classes.md",
        "Runs at the scale `small`",
        "on 10 of 100 classes: trained on all and asked among all 35.3, asked among the 10 70.4; "
        "trained on the 10 alone 67.2",
    ),
    Rule(
        f"after a download accuracy drops by {100 * DROP:.0f} points or more",
        lambda n: n.drop >= DROP,
        "do not use a download as it is: let clients keep a model of their own, or ask the "
        "download among the client's own classes, as MAP's preset own does",
        'fedmap compare --methods "local,fedavg,map,map[preset=own]"',
        "two clients with five digits each, three seeds",
        "docs/reproduction/two-client-demo.md",
        "Runs at the scale `small`",
        "a download costs 50.0 points with FedAvg and 48.9 with MAP, alpha 0.9; the model that "
        "MAP's clients keep loses nothing",
    ),
    Rule(
        f"missing proxies move {PUSHED:g} times as far as observed ones or more",
        lambda n: n.moved is not None and n.moved >= PUSHED,
        "keep missing classes out of the local softmax (FedROD, MAP with preset own), or scale "
        "them down (alpha of FedRS and MAP)",
        'fedmap compare --methods "fedavg,fedrs[alpha=0.5],fedrod,map[preset=own]"',
        "two clients with five digits each, three seeds",
        "docs/reproduction/two-client-demo.md",
        "Runs at the scale `small`",
        "missing proxies have 0.58 times the norm of observed ones with FedAvg, 0.99 with alpha "
        "0.1; that alone did not make a better global model there (47.0 instead of 49.5)",
    ),
    Rule(
        f"a run's global model is {100 * WEAK:.0f} points or more below its personal models",
        weak,
        "take missing classes out of the local softmax: MAP with its preset own for both goals, "
        "FedVLS or FedLC for the global model",
        'fedmap compare --methods "fedavg,fedvls,fedlc,map[preset=own]"',
        CIFAR,
        "docs/leaderboard.md",
        "cifar-10",
        "FedAvg's global model has 38.4, its personal ones 63.9; MAP's preset own 56.7 and 72.9, "
        "FedVLS 58.2 and 66.9, FedLC 58.0 and 67.0, the paper's MAP 39.8 and 62.6",
    ),
    Rule(
        "clients miss classes",
        misses,
        "of MAP as the paper has it, choose alpha on samples that are held out: the best one is "
        "not the same for both goals",
        "fedmap sweep --method map -g alpha=0.1,0.5,0.9 --validation 0.1",
        "Fashion-MNIST's embedded part, held-out images, LeNet and MLP, three seeds",
        "docs/map-default.md",
        "Which reading of MAP is the default",
        "with LeNet 0.5 gains 3.9 on FedAvg globally and loses 1.1 personally, 0.9 gains 0.8 and "
        "0.3",
    ),
    Rule(
        "clients miss classes",
        misses,
        "if the global model alone counts: FedVLS or FedROD, and on simple images FedETF's loss, "
        "which is behind them on CIFAR-10",
        'fedmap compare --methods "fedavg,fedvls,fedrod,fedgela[loss=etf]"',
        BOARD,
        "docs/leaderboard.md",
        "fashion-mini",
        "global, last ten rounds: 84.2, 83.9 and 84.7, FedAvg 75.0",
    ),
    Rule(
        "clients miss classes",
        misses,
        "if personal models alone count: MAP with its preset own, then FedNTD, and on simple "
        "images FedMMD, whose leads are within the spread of seeds",
        'fedmap compare --methods "local,fedavg,fedntd,fedmmd,map[preset=own]"',
        BOARD,
        "docs/leaderboard.md",
        "fashion-mini",
        "personal: 90.5 ± 1.0, 89.7 ± 1.2 and 89.8 ± 1.2, FedAvg 89.1 ± 1.6",
    ),
    Rule(
        "clients miss classes",
        misses,
        "leave --aggregate at the mean unless you expect attackers; then clipped or multi-krum",
        "",
        "FedAvg with 10 clients, one seed",
        "docs/reproduction/robust.md",
        "Runs at the scale `small`",
        "global, without attackers: mean 77.1, clipped 75.2, multi-krum 73.2, krum 51.4; with 30 % "
        "that flip the sign: mean 16.4, clipped 62.9, multi-krum 62.4",
    ),
    Rule(
        f"a client has {FEW_EACH:g} classes or fewer on average",
        lambda n: misses(n) and n.classes - n.missing_mean <= FEW_EACH,
        "FedVLS or FedETF's loss for personal models, the latter for the global one; the paper's "
        "MAP is below every client alone here",
        'fedmap compare --methods "local,fedavg,fedvls,fedgela[loss=etf],map[preset=own]"',
        KINDS,
        "docs/reproduction/federations.md",
        "Runs at the scale `small`",
        "with 2 classes each, personal: FedVLS 97.3, FedETF's loss 97.2, MAP's preset own 96.5, "
        "FedAvg 94.9, alone 93.6, MAP 88.0; global: FedETF's loss 61.7, FedVLS 49.2, FedAvg 35.9",
    ),
    Rule(
        f"the median client has fewer than {FEW_SAMPLES} samples to train on, and classes miss",
        lambda n: misses(n) and n.samples_median < FEW_SAMPLES,
        "FedETF's loss first, MAP's preset own beside it",
        'fedmap compare --methods "local,fedavg,fedgela[loss=etf],map[preset=own]"',
        KINDS,
        "docs/reproduction/federations.md",
        "Runs at the scale `small`",
        "100 clients, global and personal: FedETF's loss 78.0 and 83.2, MAP's preset own 70.3 and "
        "81.8, FedAvg 62.7 and 77.9, alone 53.1",
    ),
    Rule(
        f"a client has {FEW_CLASSES} classes or fewer, and others have more",
        lambda n: misses(n) and n.fewest_classes <= FEW_CLASSES,
        "look at each client by name beside itself alone: who has two or three classes is good "
        "alone already and may lose",
        'fedmap compare --methods "local,fedavg,map[preset=own]"',
        "five branches with images of their own, three seeds",
        "docs/guide/first-models.md",
        "2. Does a federation help?",
        "2 of 5 lose with FedAvg, 0 of 5 with MAP's preset own",
    ),
    Rule(
        f"no class is missing, but a client's classes differ in size by {SKEWED:g} times or more",
        lambda n: not misses(n) and n.within >= SKEWED,
        "FedROD or FedDyn for the global model, and FedETF's loss on simple images; FedAvg for "
        "personal ones, or MAP with the factors of its released code (mode=soft), which is level "
        "with it: with the printed ones it loses",
        'fedmap compare --methods "local,fedavg,fedrod,feddyn,fedgela[loss=etf],map[mode=soft]"',
        "classes in other shares by a Dirichlet distribution, where half of the clients still miss "
        "one or two, Fashion-MNIST, 20 clients, three seeds",
        "docs/reproduction/table-3.md",
        "Runs at the scale `small`",
        "global: FedDyn 81.7, FedROD 81.6, MAP 79.4, FedAvg 78.5; personal: MAP 87.5, FedAvg 86.9, "
        "FedROD 86.1; MAP as printed 75.9 and 81.8",
    ),
    Rule(
        f"the median client has fewer than {FEW_TESTS} test samples",
        lambda n: n.tests_median < FEW_TESTS,
        "read gains of single clients over several seeds only: --seeds 0-2",
        "",
        "each client's change from FedAvg to MAP, Fashion-MNIST, LeNet, 100 clients, three seeds",
        "docs/reproduction/fairness.md",
        "Few clients lose from FedAvg to MAP",
        "of 300 clients 87 are worse off with MAP and 143 better; one of 120 test images is almost "
        "a point",
    ),
    Rule(
        "a client's training loss is above ln(number of classes), as if it guessed",
        lambda n: n.loss_most > log(n.classes),
        "bound the gradient's length",
        "fedmap run --clip 100",
        "runs that exploded in their first rounds, Fashion-MNIST, LeNet",
        "docs/map-default.md",
        "Which reading of MAP is the default",
        "after 8 rounds 78.2 % instead of 69.2 %",
    ),
]


def advised(numbers: Numbers) -> list[Rule]:
    """The rules that apply, the most important first."""
    return [rule for rule in RULES if rule.applies(numbers)]


def table() -> Table:
    """All rules, as the guide shows them."""
    lines = [
        [
            rule.when,
            rule.advice,
            f"`{rule.command}`" if rule.command else "",
            f"{rule.study}: {rule.shown} ([{rule.section.replace('`', '')}]({linked(rule)}))",
        ]
        for rule in RULES
    ]
    return Table("What to try first", ["where", "try", "command", "backed by"], lines)


def linked(rule: Rule) -> str:
    """Its page, from docs/guide."""
    inside = rule.page.removeprefix("docs/")
    return f"../{inside}" if inside != rule.page else f"../../{rule.page}"
