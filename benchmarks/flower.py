"""What a Flower federation costs: seconds of a round beside Flower's own settings, and the server's
memory while many sites answer with a large model.

    python benchmarks/flower.py rounds [--rounds 3] [--nets lenet vgg16-bn]
    python benchmarks/flower.py memory [--answers 200] [--net vgg16-bn]

`rounds` starts a federation of three sites on this machine twice, with Flower's own settings and
with fedmap's, and trains FedAvg: as one would write it with Flower alone, and with fedmap. The
sites share this machine's cores, so the seconds are upper bounds. `memory` plays one round of the
server with made-up answers, and shows the most memory that its process took, beside what all
answers would take together."""

import argparse
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity

from fedmap.flower import records
from fedmap.flower.app_folder import write_app
from fedmap.flower.demo import images, incomplete, lay_out, write_images
from fedmap.flower.lab import POLL, Lab
from fedmap.flower.server_app import serve
from fedmap.flower.terms import Answer, Hello, Offer, Order
from fedmap.simulate.result import Result

CLASSES = tuple(f"class {number}" for number in range(10))
MEGABYTE = 1 << 20
SITES = 3


class MadeUpSites(Grid):
    """Sites that answer every order at once with the model that came down, a little moved."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._orders: dict[str, tuple[int, RecordDict]] = {}

    def set_run(self, run: FlowerRun) -> None: ...

    @property
    def run(self) -> FlowerRun:
        return FlowerRun.create_empty(1)

    def create_message(self, *args: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> range:
        return range(1, self.count + 1)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            names.append(f"{message.metadata.message_type}-{message.metadata.dst_node_id}")
            self._orders[names[-1]] = (message.metadata.dst_node_id, message.content)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._answer(name) for name in message_ids]

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> list[Message]:
        raise NotImplementedError

    def _answer(self, name: str) -> Message:
        node, asked = self._orders.pop(name)
        message = Message(self._content(node, asked), dst_node_id=node, message_type="train")
        message.metadata.__dict__["_reply_to_message_id"] = name
        return message

    def _content(self, node: int, asked: RecordDict) -> RecordDict:
        if not asked.array_records[records.ARRAYS]:
            records.words(asked, Hello)
            half = (0.5,)
            offer = Offer(
                site=f"site-{node:04d}", classes=CLASSES, shape=(1, 32, 32), kind="uint8",
                mean=half, std=half, native=True,
            )  # fmt: skip
            return records.message(offer)
        task = records.words(asked, Order).task
        if task == "evaluate":
            total = torch.full((len(CLASSES),), 10)
            counts = records.arrays({"right": total // 2, "total": total})
            return records.message(Answer(), counts)
        if task == "personal":
            return records.message(Answer(numbers={"accuracy": 0.5}))
        model = records.values(asked)["model"]
        moved = model + 1e-3 * torch.randn(model.shape, generator=torch.manual_seed(node))
        numbers = {"samples": 100.0, "loss": 1.0, "accuracy": 0.5, "accuracy_download": 0.5}
        return records.message(Answer(numbers=numbers), records.arrays({"model": moved}))


def memory(answers: int, net: str) -> None:
    """One round with this many answers, in this process."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    before, began = peak(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "method": "fedavg", "net": net, "rounds": 1, "out": str(Path(folder) / "run"),
            "min-sites": answers, "round-timeout": 3600.0,
        }  # fmt: skip
        result = serve(MadeUpSites(answers), config)
        size = (result.folder / "global.safetensors").stat().st_size / MEGABYTE
    print("| answers | model | all answers | most memory | of which before the round | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(
        f"| {answers} | {size:.0f} MB | {answers * size:,.0f} MB | {peak():,.0f} MB | "
        f"{before:,.0f} MB | {time.perf_counter() - began:.0f} |"
    )


def rounds(count: int, nets: list[str]) -> None:
    """Seconds of a round, the first one left out, for each way and each net."""
    print("| net | way | seconds of a round | of each |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        dataset = images().smaller(600)
        places = lay_out(incomplete(dataset, SITES), Path(folder) / "sites")
        test = Path(folder) / "test"
        write_images(test, dataset.test_x, dataset.test_y, dataset.classes)
        configs = {
            site.name: {"data": f"folder:{site.data}", "states": str(site.states)}
            for site in places
        }
        for tuned in (False, True):
            way = "fedmap's settings" if tuned else "Flower's settings"
            polls = POLL if tuned else {}
            with Lab(Path(folder) / way, configs, insecure=True, polls=polls) as lab:
                for net in nets:
                    show(net, f"Flower's FedAvg, {way}", stock_round(lab, net, count))
                    show(net, f"fedmap, {way}", own_round(lab, net, count, test))


def stock_round(lab: Lab, net: str, count: int) -> list[float]:
    """Flower's own FedAvg: seconds of each round."""
    app = lab.folder / f"stock-{net}"
    shutil.copytree(Path(__file__).parent / "flower_stock", app)
    file = app / "pyproject.toml"
    text = file.read_text().replace("rounds = 3", f"rounds = {count}").replace("lenet", net)
    file.write_text(text)
    run = lab.run_app(app)
    log = (lab.folder / "logs" / f"run-{run}.log").read_text()
    found = re.findall(r"SECONDS (\d+) ([\d.]+)", log)
    return [float(seconds) for round, seconds in found if round != "0"]


def own_round(lab: Lab, net: str, count: int, test: Path) -> list[float]:
    """fedmap's FedAvg: seconds of each round. The server tests the global model itself."""
    app = lab.folder / f"own-{net}"
    given = {"method": "fedavg", "net": net, "rounds": count, "epochs": 1.0, "batch": 32}
    server = {"min_sites": SITES, "test_data": f"folder:{test}", "pin_nodes": False}
    write_app(app, given | server)
    lab.run_app(app)
    return [record["seconds"] for record in Result.read(app / "run").rounds]


def show(net: str, way: str, seconds: list[float]) -> None:
    """A line of the table."""
    each = " ".join(f"{one:.1f}" for one in seconds)
    print(f"| {net} | {way} | {median(seconds[1:] or seconds):.1f} | {each} |", flush=True)


def peak() -> float:
    """The most megabytes that this process has had in memory."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (MEGABYTE if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parts = parser.add_subparsers(dest="part", required=True)
    timed = parts.add_parser("rounds")
    timed.add_argument("--rounds", type=int, default=3)
    timed.add_argument("--nets", nargs="+", default=["lenet", "vgg16-bn"])
    large = parts.add_parser("memory")
    large.add_argument("--answers", type=int, default=200)
    large.add_argument("--net", default="vgg16-bn")
    given = parser.parse_args()
    if given.part == "rounds":
        rounds(given.rounds, given.nets)
    else:
        memory(given.answers, given.net)


if __name__ == "__main__":
    main()
