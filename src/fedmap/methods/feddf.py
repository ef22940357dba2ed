"""FedDF. Lin et al., Ensemble distillation for robust model fusion in federated learning, NeurIPS
2020 (Algorithm 1)."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import EVALUATION_BATCH
from fedmap.methods.base import Method, MethodParams, Server, Upload, register
from fedmap.values import Values
from fedmap.vector import fused


class FedDFParams(MethodParams):
    """Parameters of FedDF."""

    distill_lr: float = Field(
        1e-3, gt=0, description="Adam's first learning rate; it falls to 0 along a cosine"
    )
    distill_steps: int = Field(300, ge=0, description="the server's steps a round; 0 is FedAvg")
    distill_batch: int = Field(64, ge=1, description="public samples in a step")


@register
class FedDF(Method[FedDFParams]):
    """FedAvg whose server then teaches the averaged model what the clients' models say together
    about unlabeled samples.

    Student: the mean of the uploads. Target of a public sample: softmax of the mean of the uploads'
    logits. Loss: the cross-entropy to it, minimized with Adam and a cosine learning rate."""

    public_samples = 500
    not_averaged = "every uploaded model is a teacher of the average"

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        student, steps = server.model(server.mean(uploads, "model")), self.params.distill_steps
        targets = ensemble(server, uploads) if steps else server.public
        one_pass = fused([student.weights])
        optimizer = torch.optim.Adam([student.weights], lr=self.params.distill_lr, fused=one_pass)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
        student.net.train()  # batch norm's statistics follow the public samples
        batches = endless_batches(server.rng, len(targets), self.params.distill_batch)
        for batch in islice(batches, steps):
            student.grads.zero_()
            loss = F.cross_entropy(student(server.public[batch]), targets[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        student.net.eval()
        return {"model": student.vector.clone()}


def ensemble(server: Server, uploads: Sequence[Upload]) -> Tensor:
    """What all uploaded models together say about each public sample: softmax of the mean
    logits."""
    teacher, public = server.model(uploads[0].up["model"]), server.public
    logits = []
    with torch.no_grad():
        for upload in uploads:
            teacher.load(upload.up["model"])
            logits.append(torch.cat([teacher(x) for x in torch.split(public, EVALUATION_BATCH)]))
    return F.softmax(torch.as_tensor(sum(logits)) / len(uploads), dim=1)


def endless_batches(rng: np.random.Generator, samples: int, size: int) -> Iterator[Tensor]:
    """Numbers of samples, in a new order each time all have been seen."""
    while True:
        yield from torch.split(torch.from_numpy(rng.permutation(samples)), size)
