"""A method of your own in a few lines: the server takes the median of the clients' models.

A median does not follow a few clients that are far from all others. It has its price where clients
miss classes, because then only a few know a class. Everything else is FedAvg's, which is what
`fedmap.Method` does where nothing is overridden. Checks the method, then runs it."""

from collections.abc import Sequence

import torch

import fedmap
from fedmap.methods import MethodParams, Server, Upload
from fedmap.values import Values


@fedmap.register
class Median(fedmap.Method[MethodParams]):
    """FedAvg whose server takes the median of each weight instead of the mean."""

    not_averaged = "its server takes the median of single uploads"

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        models = torch.stack([upload.up["model"] for upload in uploads])
        return {"model": models.median(0).values}


def main() -> None:
    fedmap.check_method(Median)
    print("Median holds what every method must hold")

    federation = fedmap.partition(fedmap.load("synthetic"), clients=10, seed=0)
    for method in ("fedavg", "median"):
        result = fedmap.run(method, federation, net="mlp", rounds=3, fraction=0.5, epochs=1)
        print(f"{method}: global accuracy {result.global_accuracy:.1%}")


if __name__ == "__main__":
    main()
