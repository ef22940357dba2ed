"""Write a part of a dataset as image files client/class/number.png, to try `--data folder:PATH`."""

import argparse
from pathlib import Path

from PIL import Image
from torch import Tensor

from fedmap.data import load
from fedmap.federation import partition


def save(x: Tensor, path: Path) -> None:
    """Write one image (channels, height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = x[0] if len(x) == 1 else x.permute(1, 2, 0)
    Image.fromarray(pixels.numpy()).save(path)


def named(clients: str) -> list[str]:
    """The clients' names, from a number or a list."""
    return [f"client{k}" for k in range(int(clients))] if clients.isdigit() else clients.split(",")


def main() -> None:
    """Divide the dataset among clients and write their images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("destination", type=Path, help="a folder that is not there yet")
    parser.add_argument("--data", default="fashion-mini", help="a dataset of images (fashion-mini)")
    parser.add_argument(
        "--clients",
        default="10",
        help="how many clients (10), or their names with commas; each has some of the classes",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=100,
        help="at most this many images for each client (100), and as many for the test set",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    destination: Path = arguments.destination
    destination.mkdir(parents=True)
    clients = named(arguments.clients)
    federation = partition(load(arguments.data), len(clients), seed=arguments.seed)
    data = federation.dataset
    names = [name.replace("/", "-") for name in data.classes]
    for client, train, test in zip(clients, federation.train, federation.test, strict=True):
        for i in [*train.tolist(), *test.tolist()][: arguments.samples]:
            folder = destination / client / names[int(data.train_y[i])]
            save(data.train_x[i], folder / f"{i}.png")
    for i in range(min(arguments.samples, len(data.test_y))):
        save(data.test_x[i], destination / "test" / names[int(data.test_y[i])] / f"{i}.png")
    print(f"{destination}: {len(clients)} clients; use it as folder:{destination}")


if __name__ == "__main__":
    main()
