"""The server's line to the nodes: messages out, answers in as they come."""

import time
from collections.abc import Iterator

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

PAUSE = 0.1  # seconds between two looks for answers
AT_ONCE = 64 << 20  # bytes of answers that may be in memory at a time


class Link:
    """Flower's grid with a time limit."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.grid = grid
        self.timeout = timeout

    def nodes(self) -> set[int]:
        """The nodes that are online."""
        return set(self.grid.get_node_ids())

    def ask(
        self, orders: dict[int, RecordDict], kind: str, nbytes: int = 0
    ) -> Iterator[tuple[int, RecordDict | str]]:
        """Each node's answer, or the reason why there is none, in the order of arrival. `nbytes` is
        how large an answer may be: as many are fetched at a time as fit into memory."""
        messages = [
            Message(content, dst_node_id=node, message_type=kind, ttl=self.timeout)
            for node, content in orders.items()
        ]
        sent = self.grid.push_messages(messages)
        waiting = dict(zip(sent, orders, strict=False))
        for node in set(orders) - set(waiting.values()):
            yield node, "the SuperLink does not take a message for it"
        waiting.pop(None, None)  # type: ignore[call-overload]  # what was not taken
        deadline = time.monotonic() + self.timeout
        some = max(AT_ONCE // max(nbytes, 1), 1)
        while waiting and time.monotonic() < deadline:
            ids = list(waiting)
            for first in range(0, len(ids), some):
                for message in self.grid.pull_messages(ids[first : first + some]):
                    node = waiting.pop(message.metadata.reply_to_message_id)
                    yield node, reason(message) if message.has_error() else message.content
            if waiting:
                time.sleep(PAUSE)
        for node in waiting.values():
            yield node, f"no answer within {self.timeout:g} s"


def reason(message: Message) -> str:
    """Why a node failed, in one line."""
    lines = (message.error.reason or f"error {message.error.code}").strip().splitlines()
    return lines[-1][:300] if lines else f"error {message.error.code}"
