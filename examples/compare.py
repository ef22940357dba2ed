"""Three methods on the same clients: does MAP help where clients miss classes?

Trains FedAvg, FedRS and MAP on the part of Fashion-MNIST that comes with fedmap, divided among 20
clients of whom each sees some of the classes, and prints a table. Started again, it skips what is
done. About ten seconds."""

import fedmap


def main() -> None:
    federation = fedmap.partition(fedmap.load("fashion-mini"), clients=20, seed=0)
    for number in range(3):
        classes = federation.observed[number].nonzero().squeeze(1).tolist()
        print(f"client {number} has {federation.counts[number].sum()} samples of {classes}")

    comparison = fedmap.compare(
        ["fedavg", "fedrs", "map"], net="mlp", rounds=8, epochs=2, out="runs/example"
    )
    print()
    for method, (result,) in comparison.results.items():
        accuracies = result.global_accuracy, result.personal_accuracy
        print("{:8} global {:.1%}, personal {:.1%}".format(method, *accuracies))


if __name__ == "__main__":
    main()
