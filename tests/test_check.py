"""check_method passes every registered method and catches methods that are broken on purpose, each
with the right sentence."""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from pydantic import Field

import fedmap
from fedmap import Method, check_method
from fedmap.client import Client
from fedmap.errors import FedmapError
from fedmap.losses import Loss, cross_entropy
from fedmap.methods import METHODS, AnyMethod, Local, MethodParams, Server, Upload
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedphp import FedPHP
from fedmap.values import Values
from fedmap.vector import Model

SHORT = {"feddf": {"distill_steps": 10}}  # what would take long, and proves nothing more


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_registered_method_holds_the_battery(name: str) -> None:
    check_method(name, **SHORT.get(name, {}))


BROKEN: list[Any] = []
Kind = TypeVar("Kind", bound=type[AnyMethod])


def broken(sentence: str) -> Callable[[Kind], Kind]:
    """Collect the class below under the sentence that must tell what is wrong with it."""

    def collect(method: Kind) -> Kind:
        BROKEN.append(pytest.param(method, sentence, id=method.__name__))
        return method

    return collect


class Uploads(Method):
    """FedAvg that uploads one thing more."""

    more: Any

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"more": self.more(client)})


class Noisy(Method):
    noise: Any

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return lambda model, x, y: cross_entropy(model, x, y) * self.noise(client)


@broken("draws from numpy's global random generator")
class NumpyNoise(Noisy):
    def noise(self, client: Client) -> Any:
        return np.random.rand()


@broken("draws from Python's global random generator")
class PythonNoise(Noisy):
    def noise(self, client: Client) -> Any:
        return random.random()


@broken("training loss of client 0 is nan in round 1")
class NoLoss(Noisy):
    def noise(self, client: Client) -> Any:
        return torch.nan


@broken("other bits in its records with two workers instead of one")
class CountsItsClients(Noisy):
    calls = 0

    def noise(self, client: Client) -> Any:
        self.calls += 1
        return self.calls


@broken("other bits in its .* after a stop and resume")
class RemembersTheServersRounds(Method):
    rounds = 0

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        self.rounds += 1
        return {"model": super().aggregate(server, state, uploads)["model"] * self.rounds}


@broken("client 0 uploads its new state's 'hpm' in 'hpm'")
class UploadsItsState(FedPHP):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"hpm": local.state["hpm"]})


@broken("client 0 uploads its old state's 'hpm' in 'both'")
class HidesItsStateAmongOtherNumbers(FedPHP):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"both": torch.cat([torch.zeros(3), state["hpm"]])})


@broken("uploads in 'more' .*follows its labels or their counts")
class UploadsCounts(Uploads):
    def more(self, client: Client) -> Any:
        return client.counts.float()


@broken("uploads in 'more' .*follows its labels or their counts")
class UploadsShares(Uploads):
    def more(self, client: Client) -> Any:
        return client.counts / client.samples


@broken("uploads in 'more' .*follows its labels or their counts")
class UploadsObserved(Uploads):
    def more(self, client: Client) -> Any:
        return client.observed.float()


@broken("uploads in 'more' .*follows its samples, whatever")
class UploadsASample(Uploads):
    def more(self, client: Client) -> Any:
        return client.train_data[0][0].clone()


@broken("uploads in 'more' .*follows its samples, whatever")
class UploadsADoubledSample(Uploads):
    def more(self, client: Client) -> Any:
        return 2 * client.train_data[0][0]


@broken("uploads in 'more' .*follows its samples, whatever")
class UploadsAKeyedSample(Uploads):
    """Scaled by numbers that only it knows, and noise on it."""

    def more(self, client: Client) -> Any:
        sample = client.train_data[0][0]
        key, noise = (torch.from_numpy(client.rng.standard_normal(sample.shape)) for _ in "ab")
        return sample * key + noise


@broken("uploads in 'more' .*follows its samples, whatever")
class UploadsTheMeanOfItsSamples(Uploads):
    def more(self, client: Client) -> Any:
        return client.train_data[0].mean(0)


@broken("uploads in 'more' .*is a sum or mean of its samples of a class")
class UploadsTheMeanOfAClass(Uploads):
    def more(self, client: Client) -> Any:
        x, y = client.train_data
        return 3 * torch.stack([x[y == c].sum(0) for c in range(4)]) + 1


@broken("uploads in 'more' .*follows its labels or their counts")
class UploadsTheMeanOfItsLabels(Uploads):
    def more(self, client: Client) -> Any:
        return client.train_data[1].float().mean()


@broken("uploads in 'more' .*follows its labels or their counts")
class UploadsCountsAsOneNumber(Uploads):
    def more(self, client: Client) -> Any:
        return (client.counts * 100 ** torch.arange(4)).sum().double().log1p()


@broken("uploads in 'more' follows its test samples")
class UploadsATestSample(Uploads):
    def more(self, client: Client) -> Any:
        return client.test_data[0][0] * 0.5


@broken("uploads 'more', which is none of what it trains")
class UploadsAnUnexplainedEntry(Uploads):
    def more(self, client: Client) -> Any:
        return torch.zeros(3)


class ChangesItsModel(Method):
    change: Any

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(up={"model": self.change(local.up["model"].clone(), client)})


@broken("uploads in 'model' .*follows its labels or their counts")
class HidesCountsAtTheEndOfTheModel(ChangesItsModel):
    def change(self, model: Any, client: Client) -> Any:
        model[-4:] = client.counts * 1e-3 + 0.5
        return model


@broken("uploads in 'model' .*follows its samples, whatever")
class HidesASampleInTheModel(ChangesItsModel):
    def change(self, model: Any, client: Client) -> Any:
        model[:36] = client.train_data[0][0].reshape(-1) * 0.01
        return model


@broken("uploads 'model' of .*what is trained keeps its shape")
class AppendsCountsToTheModel(ChangesItsModel):
    def change(self, model: Any, client: Client) -> Any:
        return torch.cat([model, client.counts])


@broken("client 0 uploads its old state's 'hpm' in 'more'")
class UploadsItsStateDoubled(FedPHP):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"more": 2 * state["hpm"] + 1})


@broken("'more' in the up of client 0 is a list")
class UploadsAList(Uploads):
    def more(self, client: Client) -> Any:
        return [1, 2]


@broken("'more' in the up of client 0 is not finite")
class UploadsInfinity(Uploads):
    def more(self, client: Client) -> Any:
        return torch.full((3,), torch.inf)


@broken("client 0 changes its state's entries or shapes")
class Growing(Method):
    def client_state(self, model: Model) -> Values:
        return {"losses": torch.zeros(1)}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(state={"losses": torch.cat([state["losses"], torch.ones(1)])})


@broken("client 0 changes its old state in place")
class ChangesItsOldState(Growing):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        state["losses"].add_(1)
        return Method.local_round(self, client, down, state)


@broken("'seen' is a bool; only tensors are allowed")
class KeepsATruth(Method):
    def client_state(self, model: Model) -> Values:
        seen: Any = False
        return {"seen": seen}


@broken("client 0 changes what came down in place")
class ChangesTheDownload(Method):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        down["model"].mul_(0.9)
        return super().local_round(client, down, state)


@broken("what client 0 uploads is overwritten before the server sees it")
class UploadsTheWorkingModel(Method):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(down["model"])
        client.train(model, cross_entropy, client.steps)
        return Local({"model": model.vector}, state, {"model": model.vector})


@broken("server changes its old state in place")
class ChangesTheServersState(Method):
    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        state["model"].copy_(super().aggregate(server, state, uploads)["model"])
        return state


@broken("server's state does not survive a save and load")
class KeepsOneTensorTwice(Method):
    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        new = super().aggregate(server, state, uploads)
        return new | {"again": new["model"]}


@broken("it fails on net plain with 1 worker.*ZeroDivisionError")
class Divides(Method):
    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        raise ZeroDivisionError


@broken("it fails on net batch-norm with 1 worker")
class ForgetsBuffers(Method):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        weights = client.model(down["model"]).weight_count
        return local._replace(up={"model": local.up["model"][:weights]})


@broken("it takes share = -1")
class TakesAnything(Method):
    class Params(MethodParams):
        share: float = Field(0.5, ge=0, le=1)

    def __init__(self, **given: Any) -> None:
        super().__init__(**{name: value for name, value in given.items() if name != "share"})


@broken("it refuses {'preset': 'wrong'}")
class HasAWrongPreset(Method):
    presets = {"wrong": {"share": 2}}

    class Params(MethodParams):
        share: float = Field(0.5, ge=0, le=1)


@pytest.mark.parametrize(("method", "sentence"), BROKEN)
def test_a_broken_method_is_caught_with_the_right_sentence(
    method: type[AnyMethod], sentence: str
) -> None:
    with pytest.raises(AssertionError, match=f"(?s)method {method.name()}: .*({sentence})"):
        check_method(method)


def test_what_is_drawn_from_torchs_generator_follows_from_the_seed() -> None:
    """A net's layers draw from it, so it is seeded for every client and round."""

    class TorchNoise(Noisy):
        def noise(self, client: Client) -> Any:
            return torch.rand(())

    check_method(TorchNoise)


def test_what_a_method_explains_in_sends_it_may_upload() -> None:
    class Explains(UploadsCounts):
        sends = {"more": "how many samples it has of each class: the server weighs classes by them"}

    check_method(Explains)


def test_bytes_in_the_record_that_are_not_those_of_the_dictionaries_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmap.simulate.round.nbytes", lambda values: 100)
    with pytest.raises(
        AssertionError,
        match="round 1 records 400 bytes down, but the dictionaries that went down weigh",
    ):
        check_method(FedAvg)


def test_other_parameters_than_the_defaults_can_be_checked() -> None:
    with pytest.raises(AssertionError, match=r"it refuses \{'mu': -1\}"):
        check_method("fedprox", mu=-1)


def test_a_checked_class_need_not_be_registered_and_is_not_afterwards() -> None:
    class Mine(Method):
        """A method of one's own."""

    check_method(Mine)
    assert "mine" not in METHODS
    assert "plain" not in fedmap.nets.NETS


def test_an_unknown_name_is_no_broken_method_but_a_mistake_of_the_user() -> None:
    with pytest.raises(FedmapError, match="did you mean 'fedavg'"):
        check_method("fedavgg")
