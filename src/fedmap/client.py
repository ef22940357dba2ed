"""One client's side of a round: its data, its working models, and SGD on the flat vector. A method
is written against this class and knows nothing of the engine behind it."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from fedmap.data.augment import augment
from fedmap.errors import DivergenceError, FedmapError
from fedmap.federation import Federation
from fedmap.kernels.linear import straight_gradients
from fedmap.losses import Loss
from fedmap.random import generator
from fedmap.vector import SGD, Bench, Model, shorten

MIN_STEPS = 5  # of local training, however small the client
EVALUATION_BATCH = 250


class Training(BaseModel):
    """How every client trains, and the two numbers of the federation that methods need."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(150, ge=1, description="communication rounds T")
    fraction: float = Field(
        0.2, gt=0, le=1, description="share Q of the clients that take part in a round"
    )
    epochs: float = Field(5, gt=0, description="local epochs E")
    batch: int = Field(64, ge=1, description="batch size B")
    lr: float = Field(0.03, gt=0, description="learning rate of local SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of local SGD")
    weight_decay: float = Field(1e-5, ge=0, description="weight decay of local SGD")
    clip: float | None = Field(
        None,
        gt=0,
        description="longest gradient of a local step; the paper has no limit, its code 100",
    )
    warmup_rounds: int = Field(
        0,
        ge=0,
        description="rounds over which the learning rate rises linearly to its value; the paper has none",
    )


class Client:
    """What a method sees of one client in one round."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        round: int,
        training: Training,
        seed: int,
        bench: Bench,
    ) -> None:
        self.number = number
        self.round = round
        self.training = training
        self.counts = federation.counts[number]  # training samples of each class
        self.observed = federation.observed[number]
        self.samples = int(self.counts.sum())
        self.model = bench.model  # client.model(vector): a working model with this state
        self._losses = torch.zeros(())
        self._losses_counted = 0
        self._federation = federation
        self._seed = seed
        self._stream = self._endless_batches()
        self._batch: tuple[Tensor, Tensor] | None = (
            None  # the last batch and its places in the training data, unless it was augmented
        )

    @property
    def steps(self) -> int:
        """The local budget: E epochs of batches, at least five steps."""
        batches = -(-self.samples // self.training.batch)
        return max(int(self.training.epochs * batches), MIN_STEPS)

    @property
    def lr(self) -> float:
        warm = self.training.warmup_rounds
        return self.training.lr * (min(self.round / warm, 1.0) if warm else 1.0)

    @property
    def expected_participations(self) -> float:
        """Q T, how often a client is selected on average in the whole run."""
        return self.training.fraction * self.training.rounds

    @cached_property
    def rng(self) -> np.random.Generator:
        """For a method's own random choices in this round."""
        return generator(self._seed, "method", self.round, self.number)

    @cached_property
    def train_data(self) -> tuple[Tensor, Tensor]:
        return self._samples(self._federation.train[self.number])

    @cached_property
    def test_data(self) -> tuple[Tensor, Tensor]:
        return self._samples(self._federation.test[self.number])

    def _samples(self, index: Tensor) -> tuple[Tensor, Tensor]:
        dataset = self._federation.dataset
        return dataset.normalize(
            dataset.train_x.index_select(0, index)
        ), dataset.train_y.index_select(0, index)

    def _endless_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        rng = generator(self._seed, "batches", self.round, self.number)
        dataset, size = self._federation.dataset, self.training.batch
        x, y = self.train_data
        while True:  # a new order each epoch; the last, short batch is kept
            order = torch.from_numpy(rng.permutation(len(y)))
            # a batch at a time: it is still in the cache when the net reads it
            for index in torch.split(order, size):
                samples = x.index_select(0, index)  # many times faster than x[index]
                if dataset.augment:
                    samples = augment(samples, rng, dataset.black)
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
        augmented anew each time are computed each time."""
        known = torch.zeros(self.samples, dtype=torch.bool)
        kept = torch.empty(0)

        @torch.no_grad()
        def lookup(x: Tensor) -> Tensor:
            nonlocal kept
            if self._batch is None or x is not self._batch[0]:
                return outputs(x)
            index = self._batch[1]
            new = (~known[index]).nonzero().squeeze(1)
            if len(new):
                made = outputs(x if len(new) == len(x) else x.index_select(0, new))
                if not len(kept):
                    kept = made.new_empty(self.samples, *made.shape[1:])
                kept[index[new]] = made
                known[index] = True
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
                    f"client {self.number} has a batch of one sample, which the net cannot be "
                    f"trained on ({wrong}); "
                    f"choose another batch size than {self.training.batch}"
                ) from wrong
            value.backward()  # type: ignore[no-untyped-call]
        self._losses += value.detach()
        self._losses_counted += 1

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
        optimizer = SGD(
            [moving, *also],
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
            if settings.clip is not None:
                shorten(model.grads, settings.clip)
            if correct is not None:
                correct(model)
            optimizer.step()
        model.net.eval()

    @property
    def mean_loss(self) -> float:
        """Mean training loss over all steps of this round so far. One that is not finite ends the
        run here."""
        value = float(self._losses) / max(self._losses_counted, 1)
        if not math.isfinite(value):
            raise DivergenceError(
                f"the training loss of client {self.number} is {value} in round {self.round} (lr "
                f"{self.lr:g}); "
                "a smaller lr or a limit on gradients (clip) usually helps"
            )
        return value

    def with_fresh_statistics(self, vector: Tensor) -> Tensor:
        """The same weights with batch norm's means and variances taken anew over the training
        samples.

        An average of two models' statistics fits neither; one pass without labels gives the ones
        that belong to the weights."""
        model = self.model(vector)
        layers = [
            layer
            for layer in model.net.modules()
            if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        ]
        usual = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain average over all batches
        model.net.train()
        with torch.no_grad():
            for x in torch.split(self.train_data[0], EVALUATION_BATCH):
                model(x)
        model.net.eval()
        for layer, momentum in zip(layers, usual, strict=True):
            layer.momentum = momentum
        return model.vector.clone()

    def accuracy(self, predict: Callable[[Tensor], Tensor]) -> float:
        """Share of the client's own test samples that are classified rightly, over all classes'
        logits."""
        x, y = self.test_data
        return int(correct_answers(predict, x, y).sum()) / len(y)


def correct_answers(predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """For each sample, is the largest logit the label's?"""
    parts = zip(torch.split(x, EVALUATION_BATCH), torch.split(y, EVALUATION_BATCH), strict=True)
    with torch.inference_mode():
        return torch.cat([predict(samples).argmax(1) == labels for samples, labels in parts])
