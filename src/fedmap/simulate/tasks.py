"""The work of one task, wherever it runs: a client's round, a part of the global test set, a
client's final personal model, the global model on a client's own samples. A task is a pure function
of what it is given."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from math import sqrt
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedmap import devices, kernels
from fedmap.client import Answers, Client, outputs
from fedmap.errors import FedmapError
from fedmap.federation import PART, AnyFederation, ClientData, Samples
from fedmap.methods import AnyMethod, Local, Predictor, Server
from fedmap.methods.parts.average import Rule
from fedmap.nets import Net, build
from fedmap.random import generator, seeded_torch
from fedmap.scores import confusion
from fedmap.simulate.attacks import attackers, spoiled, with_flipped_labels
from fedmap.simulate.privacy import private
from fedmap.simulate.settings import Settings
from fedmap.values import Values, on
from fedmap.vector import Model, WorkingModels

# "own" and "validate" are of the global model: on a client's own test samples, and on those that
# it keeps for choosing.
TaskName = Literal["train", "evaluate", "personal", "own", "validate"]
WITH_STATE = ("train", "personal")  # the tasks that a client does with what it has kept


class Reply(NamedTuple):
    """What a task gives back. Tensors are valid until the engine's next call."""

    key: int  # the client, or the part of the test set
    numbers: dict[str, float] = {}
    up: Mapping[str, Tensor] = {}
    state: Values = {}  # what the client keeps
    result: Values = {}  # a personal model
    tally: Values = {}  # what was counted of a model's answers
    reason: str = ""  # why it does not count; then there is nothing else in it


class Setup:
    """One method on one federation with one seed: what any process needs for any task of a run,
    and for the server half of a round."""

    def __init__(
        self, settings: Settings, federation: AnyFederation, method: AnyMethod | None = None
    ) -> None:
        self.settings = settings.resolved(federation)
        self.federation = federation
        self.method = method or settings.method_class(**settings.params)
        self.device = torch.device(devices.place(self.settings.device) or "cpu")
        self.models = WorkingModels(self.build, self.device)
        # Noise must be repeated in a simulation; a site has a secret of its own in its place.
        self.noise_seed = self.settings.seed
        self._check()

    def _check(self) -> None:
        """Refuse what the method cannot do with this federation."""
        method, name = self.method, self.method.name()
        self._check_average()
        self._check_attack()
        self._check_privacy()
        if method.pooled and self.settings.attack != "none":
            raise FedmapError(
                f"method {name}: attack is {self.settings.attack!r}, but {method.not_averaged}; "
                "only 'none' is allowed"
            )
        if method.uniform_weights_only and self.settings.server_weights != "uniform":
            raise FedmapError(
                f"method {name}: server_weights is {self.settings.server_weights!r}; what its "
                "server keeps of all clients is a plain mean, so only 'uniform' is allowed"
            )
        if method.public_samples and not self.federation.server_has_test:
            raise FedmapError(
                f"method {name} needs {method.public_samples} public samples at the server, but "
                f"dataset {self.federation.dataset.name} has no test set of its own: the global "
                "test set is the clients' own test samples, which never leave them"
            )

    def _check_average(self) -> None:
        """Refuse an average other than the mean where it would protect from nothing."""
        kind = self.settings.aggregate
        if kind == "mean":
            return
        if self.method.not_averaged:
            raise FedmapError(
                f"method {self.method.name()}: aggregate is {kind!r}, but "
                f"{self.method.not_averaged}; only 'mean' is allowed"
            )
        if self.settings.server_weights != "uniform":
            raise FedmapError(
                f"aggregate is {kind!r} and server_weights {self.settings.server_weights!r}: a "
                "client says itself how many samples it has, so an attacker would weigh as much "
                "as it likes; only 'uniform' is allowed"
            )
        self.rule.check(self.clients_per_round)

    def _check_attack(self) -> None:
        """Refuse an attack of nobody, and attackers who do nothing: the run would look robust."""
        attack, share, clients = self.settings.attack, self.settings.attackers, len(self.federation)
        if (attack == "none") != (share == 0):
            raise FedmapError(
                f"attack is {attack!r}, but attackers is {share:g}; give both, as in "
                "attack='signs' and attackers=0.2, or neither"
            )
        if share and not attackers(self.settings.seed, share, clients):
            raise FedmapError(
                f"attackers is {share:g}, which of {clients} clients is nobody; give a larger share"
            )

    def _check_privacy(self) -> None:
        """Refuse differential privacy where its epsilon would not be true."""
        settings, who = self.settings, f"method {self.method.name()}"
        if settings.dp_noise is not None and settings.dp_clip is None:
            raise FedmapError("dp_noise is in units of dp_clip, which is not given")
        if settings.dp_clip is None:
            return
        if self.method.not_averaged:
            raise FedmapError(
                f"{who}: dp_clip is given, but {self.method.not_averaged}; noise on "
                "the sum of uploads does not fit that"
            )
        for name, wanted in (("server_weights", "uniform"), ("aggregate", "mean")):
            if getattr(settings, name) != wanted:
                raise FedmapError(
                    f"dp_clip is given and {name} is {getattr(settings, name)!r}: the noise is for "
                    f"the plain mean, so only {wanted!r} is allowed"
                )
        if len(self.initial.buffers):
            raise FedmapError(
                f"dp_clip is given and net {settings.net} has statistics of batch norm, which "
                "noise would make useless; choose a net without"
            )

    @property
    def noise_deviation(self) -> float:
        """Of the noise that each client adds, so that a round's sum has dp_noise dp_clip."""
        settings = self.settings
        whole = (settings.dp_noise or 0.0) * (settings.dp_clip or 0.0)
        return whole / sqrt(self.clients_per_round)

    @property
    def rule(self) -> Rule:
        """How the server averages."""
        return Rule(self.settings.aggregate, self.settings.assumed_attackers)

    @cached_property
    def attackers(self) -> frozenset[int]:
        """The clients that do harm."""
        if self.settings.attack == "none":
            return frozenset()
        return attackers(self.settings.seed, self.settings.attackers, len(self.federation))

    @cached_property
    def build(self) -> Callable[[], Net]:
        """Makes the net with its initial weights."""
        dataset = self.federation.dataset
        shape, classes = dataset.shape, len(dataset.classes)
        return partial(build, self.settings.any_net, shape, classes, self.settings.seed)

    @cached_property
    def initial(self) -> Model:
        """The model that everybody starts from, on the CPU: the same for every device."""
        return Model(self.build())

    @cached_property
    def public(self) -> Tensor:
        """The numbers of the global test samples that the server half may see."""
        samples = len(self.federation.dataset.test_y)
        drawn = generator(self.settings.seed, "public").permutation(samples)
        return torch.from_numpy(drawn[: self.method.public_samples]).sort().values

    @property
    def clients_per_round(self) -> int:
        """How many clients are asked in a round."""
        return clients_per_round(self.settings.fraction, len(self.federation))

    @property
    def share_per_round(self) -> float:
        """Which share of all clients that is."""
        return self.clients_per_round / len(self.federation)

    def data(self, number: int) -> ClientData:
        """A client's own data, with what it keeps for choosing set apart."""
        data, share = self.federation.client(number), self.settings.validation
        return data.with_validation(share, self.settings.partition_seed or 0) if share else data

    @cached_property
    def everybody(self) -> ClientData:
        """All clients' samples as if they were one's, for a method that pools them."""
        clients = [self.data(number) for number in range(len(self.federation))]
        counts = torch.stack([data.counts for data in clients]).sum(0)
        return replace(
            clients[0],
            train=joined([data.train for data in clients]),
            test=joined([data.test for data in clients]),
            counts=counts,
            observed=counts >= clients[0].observed_from,
            validation=None,
        )

    def client(self, number: int, round: int) -> Client:
        """A client with its own data, in one round."""
        participations, data = self.share_per_round * self.settings.rounds, self.data(number)
        if self.settings.attack == "labels" and number in self.attackers:
            data = with_flipped_labels(data, len(self.federation.dataset.classes))
        return self._client(data, round, self.settings, participations)

    def trainer(self, number: int, round: int) -> Client:
        """Who trains in a round: the client, or everybody together for as many epochs as see as
        many samples as the clients of a round would."""
        if not self.method.pooled:
            return self.client(number, round)
        epochs = self.settings.epochs * self.share_per_round
        settings = self.settings.model_copy(update={"epochs": epochs})
        everybody = self._client(self.everybody, round, settings, self.settings.rounds)
        everybody.who = "all clients together"
        return everybody

    def _client(
        self, data: ClientData, round: int, settings: Settings, participations: float
    ) -> Client:
        return Client(data, round, settings, self.settings.seed, self.models, participations)

    def server(self, round: int) -> Server:
        """What the server half sees in one round."""
        self.models.release()
        dataset = self.federation.dataset
        public = dataset.normalize(dataset.test_x[self.public]).to(self.device)
        rng = generator(self.settings.seed, "server", round)
        clients = len(self.federation)
        model = self.models.model
        return Server(round, clients, self.settings, model, public, rng, self.rule, set())

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """What a process must be like to do tasks. One thread, because sums must not depend on how
        many share them (and small nets are faster with one); and the run's kernels."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with kernels.in_force(self.settings.kernels), devices.in_force(self.device):
                yield
        finally:
            torch.set_num_threads(threads)


def joined(parts: Sequence[Samples]) -> Samples:
    """The samples of several, one after the other."""
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def clients_per_round(fraction: float, clients: int) -> int:
    """max(int(Q K), 1)."""
    return max(int(fraction * clients + 1e-9), 1)


def do(setup: Setup, task: TaskName, round: int, key: int, down: Values, state: Values) -> Reply:
    """A task by name. `state` is what the client has kept so far. What comes in and what goes out
    is on the CPU; in between all is on the run's device."""
    setup.models.release()
    down, state = on(down, setup.device), on(state, setup.device)
    # Whatever the caller's mode: a model may be asked for under no_grad.
    with torch.enable_grad():
        reply = _do(setup, task, round, key, down, state)
    up, state, result, tally = (
        on(part, "cpu") for part in (reply.up, reply.state, reply.result, reply.tally)
    )
    return reply._replace(up=up, state=state, result=result, tally=tally)


def _do(setup: Setup, task: TaskName, round: int, key: int, down: Values, state: Values) -> Reply:
    if task not in WITH_STATE:
        of_global = {"evaluate": evaluate, "own": own, "validate": validate}[task]
        return of_global(setup, key, down)
    # Layers such as dropout draw from torch's global generator.
    with seeded_torch(setup.settings.seed, "layers", round, key, kind=setup.device.type):
        return (train if task == "train" else personal)(setup, round, key, down, state)


def train(setup: Setup, round: int, number: int, down: Values, state: Values) -> Reply:
    """One client's round, with its accuracy before and after."""
    method, client = setup.method, setup.trainer(number, round)
    numbers: dict[str, float] = {"samples": client.samples}
    before = method.downloaded(down, state)
    if before is not None and not method.pooled:
        numbers["accuracy_download"] = client.accuracy(method.predictor(setup.models, before))
    local = method.local_round(client, down, state)
    only_tensors(local.up | local.state, method.name())
    numbers["loss"] = client.mean_loss
    if not method.pooled:  # else each client is asked with the new model
        numbers |= tested(client, method.predictor(setup.models, local.personal))[0]
    return Reply(number, numbers, up=sent(setup, round, number, down, local), state=local.state)


def sent(setup: Setup, round: int, number: int, down: Values, local: Local) -> Values:
    """What leaves the client of its upload."""
    attack, clip = setup.settings.attack, setup.settings.dp_clip
    if attack in ("signs", "noise") and number in setup.attackers:
        rng = generator(setup.settings.seed, "attack", round, number)
        trained = {name: down[name] for name in setup.method.trained}
        return spoiled(attack, local.up, trained, rng)
    if clip is None:
        return local.up
    for entry in local.up.keys() - set(setup.method.trained):
        raise FedmapError(
            f"method {setup.method.name()}: dp_clip is given, but its clients also upload "
            f"{entry!r}, which that does not cover"
        )
    rng = generator(setup.noise_seed, "privacy", round, number)
    return private(local.up, down, clip, setup.noise_deviation, rng)


def tested(client: Client, predict: Predictor) -> tuple[dict[str, float], Answers]:
    """A personal model's accuracies, and its answers to the client's own test samples."""
    answers = client.answers(predict)
    numbers = {"accuracy": answers.accuracy, "accuracy_observed": answers.accuracy_observed}
    validation = client.validation_accuracy(predict)
    return numbers | ({} if validation is None else {"accuracy_validation": validation}), answers


def only_tensors(values: Values, name: str) -> None:
    """Refuse anything else that a method gives out; plain numbers are tensors too."""
    for entry, value in values.items():
        if not isinstance(value, Tensor):
            raise FedmapError(
                f"method {name}: {entry!r} is a {type(value).__name__}; only tensors are allowed "
                "(fedmap.values.number makes one of a number)"
            )


def evaluate(setup: Setup, part: int, down: Values) -> Reply:
    """What the model answers to the samples of each class in one part of the global test set. Where
    the server half sees some of them, also without these."""
    x, y = setup.federation.test_part(part)
    classes = len(setup.federation.dataset.classes)
    answers = answers_of(setup, down, x)
    tally = {"confusion": confusion(y, answers, classes)}
    if len(setup.public):
        numbers = torch.arange(part * PART, part * PART + len(y))
        unseen = ~torch.isin(numbers, setup.public)
        tally["confusion_unseen"] = confusion(y[unseen], answers[unseen], classes)
    return Reply(part, tally=tally)


def answers_of(setup: Setup, down: Values, x: Tensor) -> Tensor:
    """The class that the model which came down gives each sample."""
    samples = setup.federation.dataset.normalize(x).to(setup.device)
    return outputs(setup.models.model(down["model"]), samples).argmax(1).cpu()


def own(setup: Setup, number: int, down: Values) -> Reply:
    """What the global model answers to a client's own test samples."""
    x, y = setup.data(number).test
    classes = len(setup.federation.dataset.classes)
    return Reply(number, tally={"confusion": confusion(y, answers_of(setup, down, x), classes)})


def validate(setup: Setup, number: int, down: Values) -> Reply:
    """How many of the samples that a client keeps for choosing the global model gets right."""
    kept = setup.data(number).validation
    if kept is None:
        return Reply(number, {"right": 0, "total": 0})
    right = int((answers_of(setup, down, kept[0]) == kept[1]).sum())
    return Reply(number, {"right": right, "total": len(kept[1])})


def personal(setup: Setup, round: int, number: int, down: Values, state: Values) -> Reply:
    """The personal model that a client ends with: the one it keeps, or what a round from the final
    download gives."""
    method, client = setup.method, setup.client(number, round)
    kept = method.kept_personal(client, down, state)
    model = kept or method.local_round(client, down, state).personal
    numbers, answers = tested(client, method.predictor(setup.models, model))
    return Reply(number, numbers, result=model, tally={"confusion": answers.confusion})
