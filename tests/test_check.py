"""check_method passes every registered method and catches methods that are broken on purpose, each
with the right sentence."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import Field

import fedmap
from fedmap import Method, check_method
from fedmap.errors import FedmapError
from fedmap.losses import cross_entropy
from fedmap.methods import METHODS, Local, MethodParams
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedphp import FedPHP

SHORT = {"feddf": {"distill_steps": 10}}  # what would take long, and proves nothing more


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_registered_method_holds_the_battery(name):
    check_method(name, **SHORT.get(name, {}))


def broken(sentence):
    """Collect the class below under the sentence that must tell what is wrong with it."""

    def collect(method):
        BROKEN.append(pytest.param(method, sentence, id=method.__name__))
        return method

    return collect


BROKEN: list[Any] = []


class Uploads(Method):
    """FedAvg that uploads one thing more."""

    more: Any

    def local_round(self, client, down, state):
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"more": self.more(client)})


class Noisy(Method):
    noise: Any

    def local_loss(self, client, down, state):
        return lambda model, x, y: cross_entropy(model, x, y) * self.noise(client)


@broken("draws from numpy's global random generator")
class NumpyNoise(Noisy):
    def noise(self, client):
        return np.random.rand()


@broken("draws from Python's global random generator")
class PythonNoise(Noisy):
    def noise(self, client):
        return random.random()


@broken("training loss of client 0 is nan in round 1")
class NoLoss(Noisy):
    def noise(self, client):
        return torch.nan


@broken("other bits in its records with two workers instead of one")
class CountsItsClients(Noisy):
    calls = 0

    def noise(self, client):
        self.calls += 1
        return self.calls


@broken("other bits in its .* after a stop and resume")
class RemembersTheServersRounds(Method):
    rounds = 0

    def aggregate(self, server, state, uploads):
        self.rounds += 1
        return {"model": super().aggregate(server, state, uploads)["model"] * self.rounds}


@broken("client 0 uploads its new state's 'hpm' in 'hpm'")
class UploadsItsState(FedPHP):
    def local_round(self, client, down, state):
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"hpm": local.state["hpm"]})


@broken("client 0 uploads its old state's 'hpm' in 'both'")
class HidesItsStateAmongOtherNumbers(FedPHP):
    def local_round(self, client, down, state):
        local = super().local_round(client, down, state)
        return local._replace(up=local.up | {"both": torch.cat([torch.zeros(3), state["hpm"]])})


@broken("client 0 uploads the counts of its classes in 'more'")
class UploadsCounts(Uploads):
    def more(self, client):
        return client.counts.float()


@broken("client 0 uploads the shares of its classes in 'more'")
class UploadsShares(Uploads):
    def more(self, client):
        return client.counts / client.samples


@broken("client 0 uploads which classes it has in 'more'")
class UploadsObserved(Uploads):
    def more(self, client):
        return client.observed.float()


@broken("client 0 uploads its sample 0 in 'more'")
class UploadsASample(Uploads):
    def more(self, client):
        return client.train_data[0][0].clone()


@broken("'more' in the up of client 0 is a list")
class UploadsAList(Uploads):
    def more(self, client):
        return [1, 2]


@broken("'more' in the up of client 0 is not finite")
class UploadsInfinity(Uploads):
    def more(self, client):
        return torch.full((3,), torch.inf)


@broken("client 0 changes its state's entries or shapes")
class Growing(Method):
    def client_state(self, model):
        return {"losses": torch.zeros(1)}

    def local_round(self, client, down, state):
        local = super().local_round(client, down, state)
        return local._replace(state={"losses": torch.cat([state["losses"], torch.ones(1)])})


@broken("client 0 changes its old state in place")
class ChangesItsOldState(Growing):
    def local_round(self, client, down, state):
        state["losses"].add_(1)
        return Method.local_round(self, client, down, state)


@broken("'seen' is a bool; only tensors are allowed")
class KeepsATruth(Method):
    def client_state(self, model):
        return {"seen": False}


@broken("client 0 changes what came down in place")
class ChangesTheDownload(Method):
    def local_round(self, client, down, state):
        down["model"].mul_(0.9)
        return super().local_round(client, down, state)


@broken("what client 0 uploads is overwritten before the server sees it")
class UploadsTheWorkingModel(Method):
    def local_round(self, client, down, state):
        model = client.model(down["model"])
        client.train(model, cross_entropy, client.steps)
        return Local({"model": model.vector}, state, {"model": model.vector})


@broken("server changes its old state in place")
class ChangesTheServersState(Method):
    def aggregate(self, server, state, uploads):
        state["model"].copy_(super().aggregate(server, state, uploads)["model"])
        return state


@broken("server's state does not survive a save and load")
class KeepsOneTensorTwice(Method):
    def aggregate(self, server, state, uploads):
        new = super().aggregate(server, state, uploads)
        return new | {"again": new["model"]}


@broken("it fails on net plain with 1 worker.*ZeroDivisionError")
class Divides(Method):
    def aggregate(self, server, state, uploads):
        return {"model": 1 / 0}


@broken("it fails on net batch-norm with 1 worker")
class ForgetsBuffers(Method):
    def local_round(self, client, down, state):
        local = super().local_round(client, down, state)
        weights = client.model(down["model"]).weight_count
        return local._replace(up={"model": local.up["model"][:weights]})


@broken("it takes share = -1")
class TakesAnything(Method):
    class Params(MethodParams):
        share: float = Field(0.5, ge=0, le=1)

    def __init__(self, **given):
        super().__init__(**{name: value for name, value in given.items() if name != "share"})


@broken("it refuses {'preset': 'wrong'}")
class HasAWrongPreset(Method):
    presets = {"wrong": {"share": 2}}

    class Params(MethodParams):
        share: float = Field(0.5, ge=0, le=1)


@pytest.mark.parametrize(("method", "sentence"), BROKEN)
def test_a_broken_method_is_caught_with_the_right_sentence(method, sentence):
    with pytest.raises(AssertionError, match=f"(?s)method {method.name()}: .*({sentence})"):
        check_method(method)


def test_what_is_drawn_from_torchs_generator_follows_from_the_seed():
    """A net's layers draw from it, so it is seeded for every client and round."""

    class TorchNoise(Noisy):
        def noise(self, client):
            return torch.rand(())

    check_method(TorchNoise)


def test_what_a_method_explains_in_sends_it_may_upload():
    class Explains(UploadsCounts):
        sends = {"more": "how many samples it has of each class: the server weighs classes by them"}

    check_method(Explains)


def test_bytes_in_the_record_that_are_not_those_of_the_dictionaries_are_caught(monkeypatch):
    monkeypatch.setattr("fedmap.simulate.round.nbytes", lambda values: 100)
    with pytest.raises(
        AssertionError,
        match="round 1 records 400 bytes down, but the dictionaries that went down weigh",
    ):
        check_method(FedAvg)


def test_other_parameters_than_the_defaults_can_be_checked():
    with pytest.raises(AssertionError, match=r"it refuses \{'mu': -1\}"):
        check_method("fedprox", mu=-1)


def test_a_checked_class_need_not_be_registered_and_is_not_afterwards():
    class Mine(Method):
        """A method of one's own."""

    check_method(Mine)
    assert "mine" not in METHODS
    assert "plain" not in fedmap.nets.NETS


def test_an_unknown_name_is_no_broken_method_but_a_mistake_of_the_user():
    with pytest.raises(FedmapError, match="did you mean 'fedavg'"):
        check_method("fedavgg")
