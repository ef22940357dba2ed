"""Sites on disk, and a grid that hands each message to the real ClientApp, through Flower's own
bytes but without a network."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedmap.flower.client_app import app

Change = Callable[[Message, int], Message | None]


class DirectGrid(Grid):
    """Nodes are the ClientApp with their own configuration. `on_answer` may change an answer, or
    lose it (None)."""

    def __init__(self, nodes: dict[int, dict[str, Any]]) -> None:
        self.configs = nodes
        self.offline: set[int] = set()
        self.on_answer: Change = lambda message, node: message
        self.before_send: Callable[[], None] = lambda: None
        self.bytes: list[bytes] = []  # all that went over the wire
        self._answers: dict[str, Message] = {}

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        return Run.create_empty(1)

    def create_message(self, *args: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [node for node in self.configs if node not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.before_send()
        return [self._deliver(message) for message in messages]

    def _deliver(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = name = message.object_id
        answer = self.ask(node, message)
        if answer is not None:
            self._answers[name] = answer
        return name

    def ask(self, node: int, message: Message) -> Message | None:
        """A node's answer to a message, both through their bytes."""
        TaskIdentity.node_id = node
        context = Context(1, node, self.configs[node], RecordDict(), {})
        answer = app(self.travelled(message), context)
        answer.metadata.__dict__["_reply_to_message_id"] = message.metadata.message_id
        changed = self.on_answer(answer, node)
        return None if changed is None else self.travelled(changed)

    def travelled(self, message: Message) -> Message:
        objects = get_all_nested_objects(message)
        contents = {name: thing.deflate() for name, thing in objects.items()}
        self.bytes += contents.values()
        arrived = inflate_object_from_contents(message.object_id, contents)
        assert isinstance(arrived, Message)
        arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
        return arrived

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._answers.pop(name) for name in message_ids if name in self._answers]

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> list[Message]:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _a_task_of_flower() -> None:
    """Messages can only be made inside a task."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


HOLDS = {"oslo": (0, 1, 2), "bergen": (1, 2, 3), "tromso": (0, 3)}


def write_site(folder: Path, seed: int, classes: Iterable[int], each: int = 12) -> None:
    """Vectors of six values around a point for each class, as one npz file."""
    rng = np.random.default_rng(seed)
    y = np.repeat(list(classes), each)
    centers = np.random.default_rng(99).normal(size=(4, 6))
    x = centers[y] + rng.normal(scale=0.6, size=(len(y), 6))
    folder.mkdir(parents=True)
    np.savez(folder / "all.npz", x=x.astype(np.float32), y=np.array([f"class {k}" for k in y]))


@pytest.fixture
def sites(tmp_path: Path) -> dict[int, dict[str, Any]]:
    """Three sites that miss different classes: the nodes' configurations."""
    nodes = {}
    for number, (name, classes) in enumerate(HOLDS.items()):
        write_site(tmp_path / name / "data", number, classes)
        nodes[100 + number] = {
            "site": name,
            "data": f"npz:{tmp_path / name / 'data'}",
            "states": str(tmp_path / name / "states"),
        }
    return nodes


@pytest.fixture
def grid(sites: dict[int, dict[str, Any]]) -> DirectGrid:
    return DirectGrid(sites)
