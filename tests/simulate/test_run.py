import gc
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score
from torch import nn

import fedmap
from fedmap import kernels
from fedmap.client import Client
from fedmap.federation import Federation
from fedmap.methods import METHODS, Local
from fedmap.methods.fedavg import FedAvg
from fedmap.nets import NETS, Net, build
from fedmap.simulate import Result, Run, Settings
from fedmap.simulate.round import select
from fedmap.simulate.store import FileStore
from fedmap.simulate.tasks import Setup, do
from fedmap.values import Values

SMALL: dict[str, Any] = {
    "net": "tiny", "rounds": 3, "fraction": 0.5, "epochs": 1, "batch": 8, "lr": 0.1,
}  # fmt: skip


def numbers(result: Result) -> list[dict[str, Any]]:
    """All that a run measured, but for the time it took."""
    return [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in result.rounds
    ]


def files(folder: Path) -> dict[str, bytes]:
    """A finished run's models and summary, to the byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".safetensors", ".json")
    }


class StopError(Exception):
    pass


def stop_after(round: int) -> Any:
    def on_round(record: dict[str, Any]) -> None:
        if record["round"] == round:
            raise StopError

    return on_round


# tests/test_check.py asks this of every method.
@pytest.mark.parametrize("method", ["fedavg", "map"])
def test_one_and_two_workers_and_a_stopped_run_give_the_same_bytes(
    method: str, images: Federation, tmp_path: Path
) -> None:
    small = SMALL | {"net": "tiny-bn"}
    one = fedmap.run(method, images, out=tmp_path / "one", **small)
    two = fedmap.run(method, images, out=tmp_path / "two", workers=2, **small)
    with pytest.raises(StopError):
        fedmap.run(method, images, out=tmp_path / "stopped", on_round=stop_after(2), **small)
    stopped = fedmap.run(method, images, out=tmp_path / "stopped", resume=True, **small)
    assert numbers(one) == numbers(two) == numbers(stopped)
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "stopped")


def test_a_run_without_out_has_the_files_of_one_in_a_folder_and_its_own_goes_with_the_result(
    federation: Federation, tmp_path: Path
) -> None:
    passing = fedmap.run("map", federation, **SMALL)
    kept = fedmap.run("map", federation, out=tmp_path / "run", **SMALL)
    assert numbers(passing) == numbers(kept)
    assert files(passing.folder) == files(kept.folder)
    # the global model, the server's state, final.json, six clients
    assert len(files(kept.folder)) == 1 + 1 + 1 + 6
    folder = passing.folder
    del passing
    gc.collect()
    assert not folder.exists()
    assert kept.folder.exists()


def test_a_run_without_out_that_fails_leaves_no_folder(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StopError):
        fedmap.run("map", federation, on_round=stop_after(2), **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_one_client_with_all_data_is_plain_sgd(federation: Federation) -> None:
    dataset = federation.dataset
    alone = Federation.from_arrays(
        [(dataset.train_x, dataset.train_y)], (dataset.test_x, dataset.test_y)
    )
    result = fedmap.run(
        "fedavg", alone, net="tiny", rounds=2, fraction=1, epochs=1, batch=8, lr=0.1
    )

    net = build("tiny", (6,), 4, 0)
    for round in (1, 2):
        optimizer = torch.optim.SGD(
            net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5, fused=True
        )
        client = Setup(Settings(epochs=1, batch=8, net="tiny"), alone).client(0, round)
        for x, y in client.batches(client.steps):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    assert result.global_model is not None
    for ours, plain in zip(result.global_model.parameters(), net.parameters(), strict=True):
        assert torch.equal(ours, plain)


def test_the_record_of_a_round_says_what_happened(federation: Federation) -> None:
    record = fedmap.run("fedavg", federation, **SMALL).rounds[-1]
    size = 4 * sum(p.numel() for p in build("tiny", (6,), 4, 0).parameters())
    assert record["round"] == 3
    assert record["bytes_down"] == record["bytes_up"] == 3 * size
    own = [client["accuracy"] for client in record["clients"]]
    assert record["personal_accuracy"] == pytest.approx(sum(own) / 3)
    drawn = [client["client"] for client in record["clients"]]
    assert drawn == sorted(drawn)
    personal = {"", "_observed", "_download"}
    accuracies = {"global_accuracy", *(f"personal_accuracy{one}" for one in personal)}
    others = {"round", "train_loss", "seconds", "bytes_down", "bytes_up", "clients"}
    assert set(record) == accuracies | others


def test_accuracies_are_those_of_the_models_that_are_given_back(federation: Federation) -> None:
    result = fedmap.run("fedphp", federation, **SMALL)
    dataset = federation.dataset
    assert result.global_model is not None
    right = result.global_model(dataset.test_x).argmax(1) == dataset.test_y
    assert result.global_accuracy == pytest.approx(right.float().mean().item())
    for name, value in result.final["global_accuracy_per_class"].items():
        assert value == pytest.approx(
            right[dataset.test_y == dataset.classes.index(name)].float().mean().item()
        )
    for client, accuracy in enumerate(result.final["personal_accuracy_per_client"]):
        own = federation.test[client]
        mine = result.personal_model(client)(dataset.train_x[own]).argmax(1) == dataset.train_y[own]
        assert accuracy == pytest.approx(mine.float().mean().item())


def test_the_folder_has_what_it_promises(federation: Federation, tmp_path: Path) -> None:
    result = fedmap.run("map", federation, out=tmp_path / "run", seed=5, **SMALL)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    files_of_rounds = {"run.toml", "rounds.jsonl", "final.json", "done"}
    assert names == files_of_rounds | {"global.safetensors", "server.safetensors", "personal"}
    about = tomllib.loads((tmp_path / "run/run.toml").read_text())
    assert (about["seed"], about["partition_seed"]) == (5, 1)
    assert about["params"]["alpha"] == result.settings.params["alpha"]
    assert set(about["versions"]) == {"fedmap", "torch", "numpy", "python"}
    assert len((tmp_path / "run/rounds.jsonl").read_text().splitlines()) == 3
    tensors = load_file(tmp_path / "run/global.safetensors")
    assert set(tensors) == {"features.1.weight", "features.1.bias", "classifier.weight"}
    assert len(list((tmp_path / "run/personal").iterdir())) == 6


def test_a_finished_run_is_read_not_run_again(federation: Federation, tmp_path: Path) -> None:
    first = fedmap.run("fedavg", federation, out=tmp_path / "run", **SMALL)
    again = fedmap.run("fedavg", federation, out=tmp_path / "run", on_round=stop_after(1), **SMALL)
    assert again.rounds == first.rounds


def test_a_folder_with_another_run_is_refused(federation: Federation, tmp_path: Path) -> None:
    fedmap.run("fedavg", federation, out=tmp_path / "run", **SMALL)
    with pytest.raises(fedmap.FedmapError, match=r"holds another run: its lr is 0\.1, not 0\.2"):
        fedmap.run("fedavg", federation, out=tmp_path / "run", **SMALL | {"lr": 0.2})
    other = Federation.from_arrays([(torch.randn(9, 6), torch.arange(9) % 4) for _ in range(6)])
    other.origin = federation.origin
    with pytest.raises(fedmap.FedmapError, match="holds a run on another federation"):
        fedmap.run("fedavg", other, out=tmp_path / "run", **SMALL)


def test_what_differs_from_the_run_in_a_folder_is_named_alone(
    federation: Federation, tmp_path: Path
) -> None:
    given = SMALL | {"out": tmp_path / "run"}
    fedmap.run("map", federation, **given)
    with pytest.raises(fedmap.FedmapError, match=r"of its params, alpha is 0\.9, not 0\.5; choose"):
        fedmap.run("map", federation, params={"alpha": 0.5}, **given)
    fewer = given | {"rounds": SMALL["rounds"] - 1}
    with pytest.raises(fedmap.FedmapError, match="has 3 rounds, not 2, and can never have fewer"):
        fedmap.run("map", federation, resume=True, **fewer)


@pytest.mark.parametrize("wrong", ["fashion-mini", None])
def test_what_is_no_federation_is_refused(wrong: Any) -> None:
    with pytest.raises(fedmap.FedmapError, match=r"federation is .*; give fedmap\.partition"):
        fedmap.run("map", wrong)


def test_a_folder_of_a_run_with_other_test_labels_is_refused(tmp_path: Path) -> None:
    dataset = fedmap.data.synthetic(classes=3, train=60, shape=(6,))
    fedmap.run("fedavg", fedmap.partition(dataset, 3), out=tmp_path / "run", **SMALL)
    other = fedmap.partition(replace(dataset, test_y=dataset.test_y.flip(0)), 3)
    with pytest.raises(fedmap.FedmapError, match="a label of the test set changed"):
        fedmap.run("fedavg", other, out=tmp_path / "run", **SMALL)


def test_an_unfinished_run_is_not_resumed_unasked(federation: Federation, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        fedmap.run("fedavg", federation, out=tmp_path / "run", on_round=stop_after(1), **SMALL)
    with pytest.raises(fedmap.FedmapError, match="not finished; go on with: fedmap resume"):
        fedmap.run("fedavg", federation, out=tmp_path / "run", **SMALL)
    with pytest.raises(fedmap.FedmapError, match="not finished"):
        Result.read(tmp_path / "run")


def test_a_round_that_was_not_committed_is_forgotten(
    federation: Federation, tmp_path: Path
) -> None:
    """A crash between the writing of states and the commit: states and a half line of a later round
    lie about."""
    with pytest.raises(StopError):
        fedmap.run("map", federation, out=tmp_path / "run", on_round=stop_after(2), **SMALL)
    commit, rounds = tmp_path / "run/checkpoint/commit.json", tmp_path / "run/rounds.jsonl"
    before = commit.read_text()
    server = (tmp_path / "run/checkpoint/server-2.safetensors").read_bytes()
    with pytest.raises(StopError):
        fedmap.run(
            "map", federation, out=tmp_path / "run", on_round=stop_after(3), resume=True, **SMALL
        )
    commit.write_text(before)
    (tmp_path / "run/checkpoint/server-2.safetensors").write_bytes(server)
    rounds.write_text(rounds.read_text()[:-20])
    resumed = fedmap.run("map", federation, out=tmp_path / "run", resume=True, **SMALL)
    assert numbers(resumed) == numbers(fedmap.run("map", federation, **SMALL))
    assert len(rounds.read_text().splitlines()) == 3


def test_a_full_disk_is_told_and_nothing_is_lost(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedmap.simulate import folder

    whole = folder.write_atomically

    def full(path: Path, content: bytes, lasting: bool = True) -> None:
        if path.name == "server-2.safetensors":
            raise OSError(28, "No space left on device", str(path))
        whole(path, content, lasting)

    monkeypatch.setattr(folder, "write_atomically", full)
    sentence = r"cannot write .*server-2\.safetensors: No space left on device; "
    sentence += "whole rounds are kept"
    with pytest.raises(fedmap.FedmapError, match=sentence):
        fedmap.run("map", federation, out=tmp_path / "run", **SMALL)
    monkeypatch.undo()
    resumed = fedmap.run("map", federation, out=tmp_path / "run", resume=True, **SMALL)
    assert numbers(resumed) == numbers(fedmap.run("map", federation, **SMALL))


@pytest.mark.parametrize("resume", [True, False])
def test_two_processes_on_one_folder_the_second_is_refused(
    resume: bool, federation: Federation, tmp_path: Path
) -> None:
    def second(record: dict[str, Any]) -> None:
        child = os.fork()
        if child == 0:
            try:
                fedmap.run("fedavg", federation, out=tmp_path / "run", resume=resume, **SMALL)
            except fedmap.FedmapError as refused:
                os._exit(7 if "another process works in" in str(refused) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    fedmap.run("fedavg", federation, out=tmp_path / "run", on_round=second, **SMALL)


class Failing(FedAvg):
    """FedAvg whose client 2 fails in a way that the environment chooses."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        if client.number == 2:
            if os.environ["FAIL"] == "raise":
                raise ZeroDivisionError("deep inside")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().local_round(client, down, state)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_raises_ends_the_run_with_its_traceback(
    workers: int, federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._things, "failing", Failing)
    monkeypatch.setenv("FAIL", "raise")
    with pytest.raises(
        fedmap.FedmapError,
        match=r"(?s)client 2 failed in round 1:.*local_round.*ZeroDivisionError: deep inside",
    ):
        fedmap.run(
            "failing", federation, out=tmp_path / "run", workers=workers, **SMALL | {"fraction": 1}
        )
    assert (tmp_path / "run/run.toml").exists()


def test_a_worker_that_dies_ends_the_run_and_says_how(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._things, "failing", Failing)
    monkeypatch.setenv("FAIL", "die")
    with pytest.raises(
        fedmap.FedmapError,
        match=r"client 2 failed in round 1:\nits worker process was ended by signal 9 \(SIGKILL\)",
    ):
        fedmap.run("failing", federation, workers=2, **SMALL | {"fraction": 1})


def test_a_worker_that_dies_while_it_waits_ends_the_run_and_says_how(
    federation: Federation,
) -> None:
    def kill_one(record: dict[str, Any]) -> None:
        worker = multiprocessing.active_children()[0]
        worker.kill()
        worker.join()

    with pytest.raises(
        fedmap.FedmapError,
        match=r"^a worker process was ended by signal 9 \(SIGKILL\) between two tasks$",
    ):
        fedmap.run("fedavg", federation, workers=2, on_round=kill_one, **SMALL | {"rounds": 2})


def test_selection_is_distinct_uniform_and_of_the_right_size(federation: Federation) -> None:
    setup = Setup(Settings(net="tiny", fraction=0.34), federation)
    times = torch.zeros(6)
    for round in range(1, 1001):
        chosen = select(setup, round, range(6))
        assert len(chosen) == len(set(chosen)) == 2
        times[chosen] += 1
    assert times.min() > 270
    assert times.max() < 400


@pytest.mark.parametrize(("weights", "first"), [("uniform", 1 / 2), ("samples", 160 / 176)])
def test_the_server_weighs_uploads_as_it_is_told(
    weights: str, first: float, federation: Federation
) -> None:
    x, y = federation.dataset.train_x, federation.dataset.train_y
    # 160 and 16 training samples.
    two = Federation.from_arrays([(x[:200], y[:200]), (x[200:220], y[200:220])])
    once = SMALL | {"rounds": 1, "fraction": 1, "server_weights": weights}

    def weights_of(net: Any) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    # FedPHP's first HPM is the trained model itself, so the two uploads can be had from the result.
    result = fedmap.run("fedphp", two, **once)
    big, small = (weights_of(result.personal_model(client)) for client in (0, 1))
    torch.testing.assert_close(weights_of(result.global_model), first * big + (1 - first) * small)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    """Until the condition holds, as long as the process lives, and no longer than two minutes."""
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


def test_kill_nine_and_resume_on_the_command_line_give_the_same_bits(tmp_path: Path) -> None:
    """The real thing: a process that is killed without warning in the middle of its rounds."""
    base = shlex.split(
        "--method map --data synthetic --clients 6 --rounds 8 --quiet --workers 2 --net mlp"
    )
    command = [sys.executable, "-c", "from fedmap.cli.main import main; main()"]
    subprocess.run(
        [*command, "run", *base, "--out", str(tmp_path / "whole")], check=True, capture_output=True
    )
    killed = subprocess.Popen(
        [*command, "run", *base, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL
    )
    rounds = tmp_path / "killed/rounds.jsonl"
    wait_for(lambda: rounds.exists() and len(rounds.read_text().splitlines()) >= 2, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed/done").exists()
    subprocess.run(
        [*command, "resume", str(tmp_path / "killed"), "--quiet"], check=True, capture_output=True
    )
    assert files(tmp_path / "whole") == files(tmp_path / "killed")
    lines = [
        [json.loads(line) for line in (tmp_path / run / "rounds.jsonl").read_text().splitlines()]
        for run in ("whole", "killed")
    ]
    for record in lines[0] + lines[1]:
        del record["seconds"]
    assert lines[0] == lines[1]


SLOW = """
import sys, time, fedmap
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.base import register

@register
class Slow(FedAvg):
    def local_round(self, client, down, state):
        with open(sys.argv[1], "a") as log:
            log.write("x")
        time.sleep(0.2)
        return super().local_round(client, down, state)

federation = fedmap.partition(fedmap.load("synthetic"), clients=30)
fedmap.run("slow", federation, net="mlp", rounds=1, fraction=1, epochs=1, workers=2)
"""


def test_workers_take_no_more_clients_once_their_parent_is_dead(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.touch()
    here = os.environ | {"TMPDIR": str(tmp_path)}  # what a killed run leaves
    parent = subprocess.Popen([sys.executable, "-c", SLOW, str(begun)], env=here)
    wait_for(lambda: begun.stat().st_size >= 2, parent)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    at_its_death = begun.stat().st_size
    time.sleep(1.5)  # seven more clients a worker, if they went on
    assert begun.stat().st_size <= at_its_death + 2


def test_the_draw_of_clients_depends_on_seed_and_round(federation: Federation) -> None:
    def drawn(seed: int) -> list[list[int]]:
        setup = Setup(Settings(net="tiny", fraction=0.5, seed=seed), federation)
        return [select(setup, round, range(6)) for round in range(1, 9)]

    assert drawn(0) == drawn(0) != drawn(1)
    assert len({tuple(chosen) for chosen in drawn(0)}) > 3


def test_the_servers_random_choices_are_its_own_in_each_round(federation: Federation) -> None:
    def drawn(round: int, seed: int = 0) -> float:
        setup = Setup(Settings(net="tiny", seed=seed), federation)
        return float(setup.server(round).rng.random())

    assert drawn(1) == drawn(1)
    assert len({drawn(1), drawn(2), drawn(1, seed=1)}) == 3


class Forgetful(Net):
    """One hidden layer of which half is dropped."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        layers = (nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5))
        super().__init__(nn.Sequential(*layers), 8, classes)


def test_what_dropout_draws_follows_from_seed_round_and_client(federation: Federation) -> None:
    with NETS.lent("forgetful", Forgetful):
        given = SMALL | {"net": "forgetful"}
        runs = [
            fedmap.run("fedavg", federation, **given | more)
            for more in ({}, {"workers": 2}, {"seed": 1})
        ]
        assert numbers(runs[0]) == numbers(runs[1]) != numbers(runs[2])


def test_torchs_generator_is_seeded_for_each_client_and_round_and_put_back(
    federation: Federation,
) -> None:
    class Draws(FedAvg):
        """Notes what a layer would draw."""

        drawn: float

        def local_round(self, client: Client, down: Values, state: Values) -> Local:
            self.drawn = float(torch.rand(()))
            return super().local_round(client, down, state)

    method = Draws()

    def drawn(round: int = 1, client: int = 0, seed: int = 0) -> float:
        setup = Setup(Settings(net="tiny", epochs=1, seed=seed), federation, method)
        do(setup, "train", round, client, {"model": setup.initial.vector.clone()}, {})
        return method.drawn

    state = torch.get_rng_state()
    assert drawn() == drawn()
    assert len({drawn(), drawn(round=2), drawn(client=1), drawn(seed=1)}) == 4
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("method", ["scaffold", "scars", "scamap", "feddyn"])
def test_weights_by_samples_are_refused_where_the_server_keeps_a_plain_mean(
    method: str, federation: Federation
) -> None:
    with pytest.raises(
        fedmap.FedmapError,
        match=f"method {method}: server_weights is 'samples'.*only 'uniform' is allowed",
    ):
        fedmap.run(method, federation, **SMALL, server_weights="samples")


def test_public_samples_are_never_the_clients_own_test_samples(federation: Federation) -> None:
    x, y = federation.dataset.train_x, federation.dataset.train_y
    without = Federation.from_arrays([(x[:100], y[:100]), (x[100:], y[100:])])
    with pytest.raises(
        fedmap.FedmapError, match="feddf needs 500 public samples at the server, but dataset arrays"
    ):
        fedmap.run("feddf", without, **SMALL)


def test_an_unknown_engine_is_refused_with_those_there_are(federation: Federation) -> None:
    with pytest.raises(fedmap.FedmapError, match=r"no engine 'forks'.*did you mean 'fork'"):
        fedmap.run("fedavg", federation, **SMALL, engine="forks")


def test_every_engine_gives_the_same_bits_whatever_the_number_of_workers(
    federation: Federation,
) -> None:
    first, *others = [
        fedmap.run("map", federation, **SMALL, engine=engine, workers=workers)
        for engine, workers in (("local", 1), ("local", 2), ("fork", 1), ("fork", 3))
    ]
    for other in others:
        assert numbers(other) == numbers(first)
        assert files(other.folder) == files(first.folder)


def test_a_store_of_ones_own_keeps_the_clients_states(federation: Federation) -> None:
    class Diary(FileStore):
        """Notes who was kept when."""

        notes: ClassVar[list[tuple[int, int]]] = []

        def put(self, client: int, round: int, state: Values) -> None:
            self.notes.append((round, client))
            super().put(client, round, state)

    settings = Settings.of({"method": "map", "data": "synthetic"} | SMALL)
    setup = Setup(settings, federation)
    store = Diary(setup.method.client_state(setup.initial), len(federation))
    result = Run(settings, federation, store=store).go()
    assert numbers(result) == numbers(fedmap.run("map", federation, **SMALL))
    assert Diary.notes == [
        (record["round"], client["client"])
        for record in result.rounds
        for client in record["clients"]
    ]


def test_the_kernels_of_a_run_are_in_force_while_it_goes_on_and_not_afterwards(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    real = kernels.in_force

    def noted(name: Any) -> Any:
        chosen.append(name)
        return real(name)

    monkeypatch.setattr(kernels, "in_force", noted)
    fedmap.run("fedavg", federation, **SMALL, kernels="torch")
    assert chosen == ["torch"]


def named(*names: str) -> Federation:
    rng = np.random.default_rng(0)
    pairs = {name: (rng.standard_normal((20, 3)), np.arange(20) % 2) for name in names}
    return Federation.from_arrays(pairs)


def test_a_clients_model_is_found_by_its_name_and_by_its_number(tmp_path: Path) -> None:
    result = fedmap.run("fedavg", named("oslo", "tromsø"), out=tmp_path / "run", **SMALL)
    assert {path.name for path in (tmp_path / "run/personal").iterdir()} == {
        "oslo.safetensors",
        "tromsø.safetensors",
    }
    about = tomllib.loads((tmp_path / "run/run.toml").read_text())["federation"]
    assert about["clients"] == result.final["client_names"] == ["oslo", "tromsø"]
    x = torch.randn(5, 3)
    again = Result.read(tmp_path / "run")
    assert torch.equal(again.personal_model("tromsø")(x), result.personal_model(1)(x))
    assert not torch.equal(again.personal_model("oslo")(x), result.personal_model(1)(x))
    with pytest.raises(fedmap.FedmapError, match="there is no client 'olso'; did you mean 'oslo'"):
        result.personal_model("olso")


@pytest.mark.parametrize("other", ["../oslo", "a/b", "", ".hidden", "OSLO", "x" * 200, "a\nb"])
def test_names_that_cannot_be_files_stay_in_the_record_alone(other: str, tmp_path: Path) -> None:
    result = fedmap.run("fedavg", named("oslo", other), out=tmp_path / "run", **SMALL)
    assert {path.name for path in (tmp_path / "run/personal").iterdir()} == {
        "00000.safetensors",
        "00001.safetensors",
    }
    assert result.number_of(other) == 1
    assert result.personal_model(other)(torch.randn(5, 3)).shape == (5, 2)


def test_another_client_of_the_same_samples_is_another_federation(tmp_path: Path) -> None:
    fedmap.run("fedavg", named("oslo", "bergen"), out=tmp_path / "run", **SMALL)
    with pytest.raises(
        fedmap.FedmapError, match=r"the clients changed \(gone: bergen; new: bodo\)"
    ):
        fedmap.run("fedavg", named("oslo", "bodo"), out=tmp_path / "run", **SMALL)


def test_the_final_numbers_by_class_and_client_are_those_of_the_models(
    federation: Federation,
) -> None:
    result = fedmap.run("fedphp", federation, **SMALL)
    final, dataset = result.final, federation.dataset
    assert result.global_model is not None
    assert final["classes"] == list(dataset.classes)
    answers = result.global_model(dataset.test_x).argmax(1)
    assert final["global_confusion"] == confusion_matrix(dataset.test_y, answers).tolist()
    assert final["global_macro_f1"] == pytest.approx(
        f1_score(dataset.test_y, answers, average="macro")
    )
    pooled_y, pooled = [], []
    for k in range(len(federation)):
        x, y = (whole[federation.test[k]] for whole in (dataset.train_x, dataset.train_y))
        of_all = result.global_model(x).argmax(1) == y
        assert final["global_accuracy_per_client"][k] == int(of_all.sum()) / len(y)
        logits = result.personal_model(k)(x).detach()
        among_own = logits.masked_fill(~federation.observed[k], -torch.inf).argmax(1) == y
        assert final["personal_accuracy_observed_per_client"][k] == int(among_own.sum()) / len(y)
        pooled_y += y.tolist()
        pooled += logits.argmax(1).tolist()
    assert final["personal_confusion"] == confusion_matrix(pooled_y, pooled).tolist()
    assert final["personal_balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(pooled_y, pooled)
    )
    own = final["personal_accuracy_observed_per_client"]
    assert final["personal_accuracy_observed_all_clients"] == pytest.approx(sum(own) / len(own))


def test_a_rounds_observed_accuracy_is_the_mean_of_its_clients(federation: Federation) -> None:
    record = fedmap.run("fedavg", federation, **SMALL).rounds[-1]
    own = [client["accuracy_observed"] for client in record["clients"]]
    assert record["personal_accuracy_observed"] == pytest.approx(sum(own) / len(own))
    assert all(client["accuracy"] <= client["accuracy_observed"] for client in record["clients"])


def test_a_net_that_does_not_fit_leaves_no_folder_behind(tmp_path: Path) -> None:
    images = fedmap.partition(fedmap.data.synthetic(classes=2, train=20, shape=(1, 8, 8)), 2)
    with pytest.raises(fedmap.FedmapError, match="lenet"):
        fedmap.run("fedavg", images, net="lenet", rounds=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    fedmap.run("fedavg", images, net="mlp", rounds=1, out=tmp_path / "run")
