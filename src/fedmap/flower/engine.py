"""The engine whose clients are sites: a task is a message, an answer is checked and written to disk
until the server uses it."""

import shutil
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from flwr.app import RecordDict

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.flower import records
from fedmap.flower.hall import Hall
from fedmap.flower.terms import Answer, Order
from fedmap.simulate.tasks import WITH_STATE, Reply, Setup, TaskName, do
from fedmap.simulate.uploads import Kinds, expected_kinds, misfit
from fedmap.values import Stored, Values, nbytes

TRIES = 3  # of a round that too few sites answer


class CountedRounds:
    """The server's side of the clients' states, which are at the sites: only the last round of each
    site that counts. It goes with every order."""

    def __init__(self) -> None:
        self._rounds: dict[int, list[int]] = {}

    def __getitem__(self, client: int) -> Values:
        raise FedmapError(f"the state of site {client} is not here")

    def of(self, client: int) -> int:
        """The last round that counts, 0 for none."""
        return self._rounds.get(client, [0])[-1]

    def put(self, client: int, round: int, state: Values) -> None:
        """The site has done this round."""
        self._rounds.setdefault(client, [0]).append(round)

    def drop(self, client: int, round: int) -> None:
        """The round does not count for this site."""
        self._rounds[client] = [r for r in self._rounds.get(client, [0]) if r < round]

    def forget_after(self, round: int) -> None:
        """Nothing later than this counts."""
        for client in self._rounds:
            self.drop(client, round + 1)

    def check(self, client: int, round: int, at: int) -> None:
        """What the records say is the site's last round; the site checks its files itself."""
        self.put(client, round, {})

    def sync(self) -> None:
        """There is nothing to write."""


class FlowerEngine:
    """Sends tasks to the sites. Uploads lie in `spool`, so that the server's memory does not grow
    with the number of sites."""

    def __init__(
        self,
        setup: Setup,
        counted: CountedRounds,
        hall: Hall,
        spool: Path,
        evaluate_every: int = 1,
    ) -> None:
        self.setup = setup
        self.counted = counted
        self.hall = hall
        self.spool = spool
        self.evaluate_every = evaluate_every
        self._expected: Kinds = expected_kinds(setup)
        self._settings = setup.settings.model_dump(
            exclude={"data_dir", "workers", "engine", "device"}
        )

    def ready(self) -> list[int]:
        """The sites that are online, with those that have just come."""
        return self.hall.ready()

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        """Run one task for each key, at the sites. The server's own test set is tested here."""
        if task == "own":  # what sites are asked anyway, where the server has no test samples
            if self.setup.federation.server_has_test:
                return [Reply(key, reason="no site is asked this") for key in keys]
            task = "evaluate"
        if task == "evaluate":
            if self.setup.federation.server_has_test:
                return [do(self.setup, task, round, key, down, {}) for key in keys]
            last = round >= self.setup.settings.rounds
            if round % self.evaluate_every and not last:
                return [Reply(key, reason="not asked in this round") for key in keys]
        if task == "train":
            shutil.rmtree(self.spool, ignore_errors=True)
            self.spool.mkdir(parents=True)
        replies = {key: Reply(key, reason="not online") for key in keys}
        for _ in range(TRIES if task == "train" else 1):
            missing = [key for key in keys if replies[key].reason]
            replies |= self._ask(task, round, missing, down)
            arrived = [reply for reply in replies.values() if not reply.reason]
            if len(arrived) >= min(self.setup.settings.min_clients, len(keys)):
                break
        return [replies[key] for key in keys]

    def _ask(
        self, task: TaskName, round: int, keys: Sequence[int], down: Values
    ) -> dict[int, Reply]:
        online = self.hall.online()
        at = {online[key]: key for key in keys if key in online}
        record = records.arrays(down)
        orders = {
            node: records.message(self._order(task, round, key), record) for node, key in at.items()
        }
        kind = "train" if task in WITH_STATE else "evaluate"
        replies = {}
        for node, content in self.hall.link.ask(orders, kind, nbytes(down)):
            key = at[node]
            replies[key] = self._reply(task, round, key, content)
            if replies[key].reason:
                self.hall.say(
                    f"round {round}: {self._name(key)} is left out: {replies[key].reason}"
                )
        return replies

    def _name(self, key: int) -> str:
        return self.setup.federation.client_names[key]

    def _order(self, task: TaskName, round: int, key: int) -> Order:
        members = self.hall.members
        assert members.terms is not None  # agreed on before the run began
        return Order(
            run=members.run,
            start=members.start,
            task=task,
            round=round,
            number=key,
            sites=len(members.names),
            counted=self.counted.of(key),
            server_has_test=self.setup.federation.server_has_test,
            terms=members.terms,
            settings=self._settings,
        )

    def _reply(self, task: TaskName, round: int, key: int, content: RecordDict | str) -> Reply:
        """A site's answer, checked; one that cannot be used has a reason."""
        if isinstance(content, str):
            return Reply(key, reason=content)
        try:
            answer = records.words(content, Answer)
            if answer.reason:
                return Reply(key, reason=answer.reason)
            if answer.note:
                self.hall.say(f"round {round}: {self._name(key)}: {answer.note}")
            self._check_numbers(task, answer.numbers)
            sent = records.values(content)
            if task == "evaluate":
                return Reply(key, answer.numbers, tally=self._tally(sent))
            if task in ("personal", "validate"):
                return Reply(key, answer.numbers)
            fault = misfit(sent, self._expected)
            if fault:
                raise FedmapError(fault)
        except FedmapError as wrong:
            return Reply(key, reason=str(wrong))
        path = self.spool / f"{key}.safetensors"
        path.write_bytes(values.save(sent))
        self.counted.put(key, round, {})
        return Reply(key, answer.numbers, up=Stored(path))

    def _check_numbers(self, task: TaskName, numbers: dict[str, float]) -> None:
        both = ("accuracy", "accuracy_observed")
        wanted = {
            "train": ("samples", "loss", *both),
            "personal": both,
            "validate": ("right", "total"),
        }
        for name in wanted.get(task, ()):
            if not isfinite(numbers.get(name, float("nan"))):
                raise FedmapError(f"the number {name!r} is missing or not finite")

    def _tally(self, sent: Values) -> Values:
        """Right and total of each class, as whole numbers that can be."""
        classes = len(self.setup.federation.dataset.classes)
        for name in ("right", "total"):
            counts = sent.get(name)
            if counts is None or counts.shape != (classes,) or counts.is_floating_point():
                raise FedmapError(f"entry {name!r} is not {classes} whole numbers")
        right, total = sent["right"].long(), sent["total"].long()
        if bool((right < 0).any() or (right > total).any()):
            raise FedmapError("more samples are right than there are")
        return {"right": right, "total": total}

    def close(self) -> None:
        """Nothing of the sites' uploads stays."""
        shutil.rmtree(self.spool, ignore_errors=True)
