"""What a Flower federation costs: the server's memory while many sites answer with a large model.

    python benchmarks/flower.py memory [--answers 200] [--net vgg16-bn]

`memory` plays one round of the server with made-up answers, and shows the most memory that its
process took, beside what all answers would take together."""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity

from fedmap.flower import records
from fedmap.flower.server_app import serve
from fedmap.flower.terms import Answer, Hello, Offer, Order

CLASSES = tuple(f"class {number}" for number in range(10))
MEGABYTE = 1 << 20


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


def peak() -> float:
    """The most megabytes that this process has had in memory."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (MEGABYTE if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["memory"])
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--net", default="vgg16-bn")
    given = parser.parse_args()
    memory(given.answers, given.net)


if __name__ == "__main__":
    main()
