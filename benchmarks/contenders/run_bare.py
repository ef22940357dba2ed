"""FedAvg in plain PyTorch, as one would write it by hand: one process, two threads, tensors in
memory, no data loader."""

import copy

import torch
from torch import Tensor
from workload import Batches, Data, Turns, accuracy, given, train


def main() -> None:
    turns, workload = Turns(), given()
    torch.set_num_threads(2)
    data, net = Data(workload), workload.build()
    model = copy.deepcopy(net.state_dict())
    turns.begin(net)
    while True:
        total: dict[str, Tensor] = {}
        for client in torch.randperm(workload.clients)[: workload.clients_a_round].tolist():
            net.load_state_dict(model)
            batches = Batches(*data.train(client), workload.batch)
            train(net, workload.optimizer(net), batches, workload.epochs)
            accuracy(net, *data.test(client))
            for name, value in net.state_dict().items():
                total[name] = total[name] + value if name in total else value.clone()
        model = {name: value / workload.clients_a_round for name, value in total.items()}
        net.load_state_dict(model)
        accuracy(net, *data.global_test)
        turns.end()


if __name__ == "__main__":
    main()
