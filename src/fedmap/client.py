"""One client's side of a round: its data, its working models, and SGD on the flat vector. A method
is written against this class and knows nothing of the engine behind it."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from fedmap.data.augment import augment
from fedmap.errors import DivergenceError, FedmapError
from fedmap.federation import ClientData, Samples
from fedmap.kernels.linear import straight_gradients
from fedmap.losses import Loss
from fedmap.random import generator
from fedmap.scores import confusion
from fedmap.vector import SGD, Model, WorkingModels, shorten

MIN_STEPS = 5  # of local training, however small the client
EVALUATION_BATCH = 250
LARGE = 100  # no feature that is scaled reaches this without being an exception


class Training(BaseModel):
    """How every client trains, and the two numbers of the federation that methods need."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(150, ge=1, description="communication rounds T")
    fraction: float = Field(
        0.2, gt=0, le=1, description="share Q of the clients that take part in a round"
    )
    epochs: float = Field(
        5, gt=0, le=1e6, description="local epochs E; at least five steps are taken"
    )
    batch: int = Field(64, ge=1, description="batch size B")
    lr: float = Field(0.03, gt=0, description="learning rate of local SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of local SGD")
    weight_decay: float = Field(1e-5, ge=0, description="weight decay of local SGD")
    clip: float | None = Field(
        None,
        gt=0,
        description="longest gradient of a whole local step; the paper has no limit, its code 100",
    )
    warmup_rounds: int = Field(
        0,
        ge=0,
        description="rounds over which the learning rate rises to its value; the paper has none",
    )


def local_steps(samples: int, training: Training) -> int:
    """The steps of a client with this many samples in a round."""
    batches = -(-samples // training.batch)
    # 2.3 * 100 is a little less than 230 in binary numbers.
    return max(int(training.epochs * batches + 1e-9), MIN_STEPS)


def in_round(round: int, training: Training) -> str:
    """When something happened: the personal models are made after the last round."""
    return f"in round {round}" if round <= training.rounds else "after the last round"


class Client:
    """What a method sees of one client in one round."""

    def __init__(
        self,
        data: ClientData,
        round: int,
        training: Training,
        seed: int,
        models: WorkingModels,
        expected_participations: float,
    ) -> None:
        self.number = data.number
        self.who = f"client {data.number}"  # in sentences
        self.round = round
        self.training = training
        self.counts = data.counts.to(models.device)  # training samples of each class
        self.observed = data.observed.to(models.device)
        self.samples = len(data.train[1])
        self.expected_participations = expected_participations  # of a client in the whole run
        self.model = models.model  # client.model(vector): a working model with this state
        self._loss_sum: Tensor | float = 0.0
        self._losses = 0
        self._data = data
        self._device = models.device
        self._seed = seed
        self._stream = self._endless_batches()
        # The last batch and its places in the training data, unless it was augmented.
        self._batch: tuple[Tensor, Tensor] | None = None

    @property
    def steps(self) -> int:
        """The local budget: E epochs of batches, at least five steps."""
        return local_steps(self.samples, self.training)

    @property
    def lr(self) -> float:
        """The learning rate of this round."""
        warm = self.training.warmup_rounds
        return self.training.lr * (min(self.round / warm, 1.0) if warm else 1.0)

    @cached_property
    def rng(self) -> np.random.Generator:
        """For a method's own random choices in this round."""
        return generator(self._seed, "method", self.round, self.number)

    @cached_property
    def train_data(self) -> tuple[Tensor, Tensor]:
        """Training samples as the nets take them, and their labels."""
        return self._ready(self._data.train)

    @cached_property
    def test_data(self) -> tuple[Tensor, Tensor]:
        """Test samples as the nets take them, and their labels."""
        return self._ready(self._data.test)

    def _ready(self, samples: Samples) -> Samples:
        """Scaled, and where the models are."""
        x, y = samples
        return self._data.normalize(x).to(self._device), y.to(self._device)

    def _endless_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        rng = generator(self._seed, "batches", self.round, self.number)
        x, y = self.train_data
        while True:  # a new order each epoch; the last, short batch is kept
            order = torch.from_numpy(rng.permutation(len(y))).to(y.device)
            # A batch at a time: it is still in the cache when the net reads it.
            for index in torch.split(order, min(self.training.batch, len(y))):
                samples = x.index_select(0, index)  # many times faster than x[index]
                if self._data.augment:
                    samples = augment(samples, rng, self._data.black)
                else:
                    self._batch = samples, index
                yield samples, y.index_select(0, index)

    def batches(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The next batches of this round's one stream: a second stage goes on where the first one
        stopped."""
        return islice(self._stream, steps)

    def frozen(self, outputs: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """`outputs`, without gradient, of a model that stays as it is for the rest of the round:
        each sample is computed once, however often its batches come back. Samples that are
        augmented each time are computed each time."""
        known = self.train_data[1].new_zeros(self.samples, dtype=torch.bool)
        kept: Tensor | None = None

        @torch.no_grad()
        def lookup(x: Tensor) -> Tensor:
            nonlocal kept
            if self._batch is None or x is not self._batch[0]:
                return outputs(x)
            index = self._batch[1]
            new = (~known[index]).nonzero().squeeze(1)
            if len(new):
                computed = outputs(x if len(new) == len(x) else x.index_select(0, new))
                if kept is None:
                    kept = computed.new_empty(self.samples, *computed.shape[1:])
                kept[index[new]] = computed
                known[index] = True
            assert kept is not None  # a batch has at least one sample
            return kept.index_select(0, index)

        return lookup

    def gradient(self, model: Model, loss: Loss, x: Tensor, y: Tensor) -> None:
        """The gradient of the loss into `model.grads`; its value counts in the round's mean
        training loss."""
        model.grads.zero_()
        with straight_gradients():
            try:
                value = loss(model, x, y)
            except ValueError as wrong:
                if len(y) > 1:
                    raise
                raise FedmapError(
                    f"{self.who} has a batch of one sample, which the net cannot be "
                    f"trained on ({wrong}); choose another batch size than {self.training.batch}"
                ) from wrong
            value.backward()  # type: ignore[no-untyped-call]
        self._loss_sum += value.detach()
        self._losses += 1

    def clip(self, *grads: Tensor) -> None:
        """Bound the length of a whole step's gradient, where the run has a bound."""
        if self.training.clip is not None:
            shorten(grads, self.training.clip)

    def train(
        self,
        model: Model,
        loss: Loss,
        steps: int,
        *,
        lr_factor: float = 1.0,
        momentum: float | None = None,
        weight_decay: float | None = None,
        correct: Callable[[Model], None] | None = None,
        also: Sequence[nn.Parameter] = (),
        part: slice = slice(None),
    ) -> None:
        """SGD with a fresh momentum for this many steps. `correct` may change `model.grads` before
        each step; `also` names parameters beside the model's that the loss depends on and that are
        trained with it; `part` is the only part of the model's weights that moves, e.g.
        `model.classifier_part`."""
        settings = self.training
        moving = nn.Parameter(model.weights.detach()[part])
        moving.grad = model.grads[part]
        stepped = [moving, *also]
        optimizer = SGD(
            stepped,
            lr=self.lr * lr_factor,
            momentum=settings.momentum if momentum is None else momentum,
            weight_decay=settings.weight_decay if weight_decay is None else weight_decay,
        )
        model.net.train()
        for x, y in self.batches(steps):
            for parameter in also:
                if parameter.grad is not None:
                    parameter.grad.zero_()
            self.gradient(model, loss, x, y)
            if correct is not None:
                correct(model)
            self.clip(*(parameter.grad for parameter in stepped if parameter.grad is not None))
            optimizer.step()
        model.net.eval()

    @property
    def mean_loss(self) -> float:
        """Mean training loss over all steps of this round so far. One that is not finite ends the
        run here."""
        value = float(self._loss_sum) / max(self._losses, 1)
        if not math.isfinite(value):
            largest = float(self.train_data[0].abs().max())
            scaling = (
                f"; its features reach {largest:.3g}, so scale them (scale standard) first"
                if largest > LARGE
                else ""
            )
            when = in_round(self.round, self.training)
            raise DivergenceError(
                f"the training loss of {self.who} is {value} {when} "
                f"(lr {self.lr:g}); a smaller lr or a limit on gradients (clip) usually helps"
                f"{scaling}"
            )
        return value

    def with_fresh_statistics(self, vector: Tensor) -> Tensor:
        """The same weights with batch norm's means and variances taken again over the training
        samples.

        An average of two models' statistics fits neither; one pass without labels gives the ones
        that belong to the weights. Each part of the samples counts by its size."""
        model = self.model(vector)
        layers = [m for m in model.net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
        model.net.train()
        seen = 0
        with torch.no_grad():
            for x in torch.split(self.train_data[0], parts_of_two_or_more(self.samples)):
                seen += len(x)
                for layer in layers:
                    layer.momentum = len(x) / seen  # the mean over all samples so far
                model(x)
        model.net.eval()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        return model.vector.clone()

    def accuracy(self, predict: Callable[[Tensor], Tensor]) -> float:
        """Share of the client's own test samples that are classified correctly, over all classes'
        logits."""
        return self.answers(predict).accuracy

    def answers(self, predict: Callable[[Tensor], Tensor]) -> "Answers":
        """What a model answers to the client's own test samples."""
        x, y = self.test_data
        return Answers(outputs(predict, x), y, self.counts > 0)

    def validation_accuracy(self, predict: Callable[[Tensor], Tensor]) -> float | None:
        """The same share of the samples that the client keeps for choosing, if any."""
        if self._data.validation is None:
            return None
        x, y = self._ready(self._data.validation)
        return int(correct_answers(predict, x, y).sum()) / len(y)


def parts_of_two_or_more(samples: int) -> list[int]:
    """Sizes of parts to evaluate: batch norm cannot take the statistics of a single sample, so a
    last one that would be left over joins the part before it."""
    whole, rest = divmod(samples, EVALUATION_BATCH)
    parts = [EVALUATION_BATCH] * whole + [rest] * (rest > 0)
    return [*parts[:-2], EVALUATION_BATCH + 1] if rest == 1 and whole else parts


class Answers(NamedTuple):
    """A model's logits of a client's own samples, and what can be counted of them."""

    logits: Tensor
    labels: Tensor
    own: Tensor  # for each class: has the client a training sample of it?

    @property
    def among_all(self) -> Tensor:
        """Each sample's answer, among all classes."""
        return self.logits.argmax(1)

    @property
    def confusion(self) -> Tensor:
        """How many samples of which class were given which answer."""
        return confusion(self.labels, self.among_all, len(self.own))

    @property
    def accuracy(self) -> float:
        """Share of the answers among all classes that are right: the paper's number."""
        return int((self.among_all == self.labels).sum()) / len(self.labels)

    @property
    def accuracy_observed(self) -> float:
        """The same where the model chooses among the client's own classes only."""
        own = self.logits.masked_fill(~self.own, -torch.inf).argmax(1)
        return int((own == self.labels).sum()) / len(self.labels)


def outputs(predict: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The logits of all samples, a batch at a time."""
    with torch.inference_mode():
        return torch.cat([predict(samples) for samples in torch.split(x, EVALUATION_BATCH)])


def correct_answers(predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """For each sample, is the largest logit the label's?"""
    return outputs(predict, x).argmax(1) == y
