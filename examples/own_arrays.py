"""Your own numpy arrays as clients: four sites measure 8 values, and each knows two of four states.

Trains MAP across the sites, then asks the personal model of one site about new measurements."""

import numpy as np
import torch

import fedmap

STATES = ["idle", "warm", "busy", "broken"]
rng = np.random.default_rng(0)
centers = rng.normal(size=(4, 8))


def measured(states: list[int], number: int) -> tuple[np.ndarray, np.ndarray]:
    """This many noisy measurements of each of the states, and which state it was."""
    y = np.repeat(states, number)
    return (centers[y] + 0.7 * rng.normal(size=(len(y), 8))).astype(np.float32), y


def main() -> None:
    sites = {f"site {k}": measured([k, (k + 1) % 4], 60) for k in range(4)}
    test = measured([0, 1, 2, 3], 50)
    federation = fedmap.Federation.from_arrays(sites, test, classes=STATES)
    result = fedmap.run("map", federation, net="mlp", rounds=10, fraction=1, epochs=2)
    print(f"one model for all four states: {result.global_accuracy:.1%} of the test set")

    x, y = measured([2, 3], 100)  # new ones at site 2, which knows "busy" and "broken"
    samples, truth = federation.dataset.normalize(torch.from_numpy(x)), torch.from_numpy(y)
    answers = result.personal_model(2)(samples).argmax(1)
    print(f"the personal model of site 2: {(answers == truth).float().mean():.1%} of its new ones")
    print(f"it takes the last one, {STATES[y[-1]]}, for {STATES[answers[-1]]}")


if __name__ == "__main__":
    main()
