"""A model is rebuilt from its file alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap
from fedmap import values
from fedmap.data.dataset import normalize
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.simulate.result import Result
from fedmap.use.model import UsableModel

Finished = Callable[..., Result]  # the fixture in conftest.py


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_personal_model_answers_as_in_its_run(
    method: str, finished: Finished, federation: Federation
) -> None:
    run = finished(method, "tiny-bn", of="vectors")
    samples = federation.dataset.test_x
    model = UsableModel.read(run.folder / "personal/00003.safetensors")
    with torch.no_grad():
        assert torch.equal(model.logits(samples), run.personal_model(3)(samples))
    assert model.notes.observed == tuple(federation.observed[3].nonzero().flatten().tolist())


def test_the_global_model_takes_pixels_as_they_are(
    finished: Finished, pictures: Federation
) -> None:
    run, dataset = finished("fedrod", "lenet"), pictures.dataset
    model = UsableModel.read(run.folder / "global.safetensors")
    with torch.no_grad():
        assert run.global_model is not None
        expected = run.global_model(dataset.normalize(dataset.test_x))
    assert torch.equal(model.logits(dataset.test_x), expected)
    assert torch.equal(model.probabilities(dataset.test_x), expected.softmax(1))


def test_values_are_scaled_by_the_mean_and_deviation_of_the_note(
    finished: Finished, federation: Federation, tmp_path: Path
) -> None:
    run, samples = finished("fedavg", "tiny", of="vectors"), federation.dataset.test_x
    mean, std = torch.arange(6.0), torch.arange(1.0, 7.0)
    changed = with_notes(run.folder, tmp_path, mean=mean.tolist(), std=std.tolist())
    plain = UsableModel.read(run.folder / "global.safetensors")
    scaled = UsableModel.read(changed)
    expected = normalize(samples, tuple(mean.tolist()), tuple(std.tolist()))
    assert torch.equal(scaled.logits(samples), plain.logits(expected))


def test_a_class_that_a_client_leaves_out_has_probability_zero(
    finished: Finished, pictures: Federation
) -> None:
    run = finished("map", "lenet", preset="own")
    found = UsableModel.read(run.folder / "personal/00000.safetensors").probabilities(
        pictures.dataset.test_x
    )
    assert not pictures.observed[0].all()
    assert (found[:, ~pictures.observed[0]] == 0).all()
    torch.testing.assert_close(found.sum(1), torch.ones(len(found)))


def with_notes(run: Path, out: Path, **changed: Any) -> Path:
    """The global model with another note."""
    file = run / "global.safetensors"
    notes = json.loads(values.load_notes(file)["fedmap"]) | changed
    path = out / "changed.safetensors"
    path.write_bytes(values.save(values.load(file), {"fedmap": json.dumps(notes)}))
    return path


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"net": "nobodys"}, "needs net 'nobodys', which is not installed here"),
        ({"method": "nobodys", "observed": [0]}, "personal model of method 'nobodys', which is"),
        ({"method": "mine.py:Mine", "observed": [0]}, "give it with --method FILE.py:NAME"),
        ({"method": "fedrod", "params": {}, "observed": [0]}, r"lacks the entry '\+head'"),
        ({"classes": ["a", "b"]}, r"has 'classifier.weight' of shape \(4, 8\); its net has"),
        ({"net": "tiny-bn"}, "lacks 'features.0.weight'; its net has one of"),
        ({"shape": "round"}, "its note 'fedmap' is damaged"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_a_sentence(
    changed: dict[str, Any], sentence: str, finished: Finished, tmp_path: Path
) -> None:
    path = with_notes(finished("fedavg", "tiny", of="vectors").folder, tmp_path, **changed)
    with pytest.raises(FedmapError, match=sentence):
        UsableModel.read(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(values.save({"weight": torch.ones(2)}))
    with pytest.raises(FedmapError, match="its header has no note 'fedmap'"):
        UsableModel.read(foreign)
    foreign.write_text("hello")
    with pytest.raises(FedmapError, match="not a safetensors file"):
        UsableModel.read(foreign)
    with pytest.raises(FedmapError, match="there is no file"):
        UsableModel.read(tmp_path / "nothing")


def test_samples_of_another_shape_are_refused(finished: Finished) -> None:
    model = UsableModel.read(finished("fedavg", "tiny", of="vectors").folder / "global.safetensors")
    with pytest.raises(FedmapError, match=r"samples have shape \(7,\); the model takes \(6,\)"):
        model.probabilities(torch.ones(2, 7))


def test_a_method_of_the_users_own_is_used_when_it_is_given(
    federation: Federation, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("from fedmap.methods.fedrod import FedROD\n\nclass Mine(FedROD): ...\n")
    settings: dict[str, Any] = {"net": "tiny", "rounds": 1, "epochs": 1, "fraction": 0.5}
    run = fedmap.run(f"{mine}:Mine", federation, out=tmp_path / "run", **settings)
    file, samples = run.folder / "personal/00001.safetensors", federation.dataset.test_x
    with pytest.raises(FedmapError, match="give it with --method"):
        UsableModel.read(file)
    model = UsableModel.read(file, method=f"{mine}:Mine")
    with torch.no_grad():
        assert torch.equal(model.logits(samples), run.personal_model(1)(samples))
