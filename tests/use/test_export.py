"""Exported models give the same logits in programs that do not know fedmap."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmap import kernels
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.simulate.result import Result
from fedmap.use import export as exporting
from fedmap.use.export import as_torch_export, export
from fedmap.use.find import model_file
from fedmap.use.model import UsableModel, features_in_words

Finished = Callable[..., Result]  # the fixture in conftest.py
Fedmap = Callable[[str], Any]

# method, net, data, preset, client
MODELS = {
    "LeNet": ("fedavg", "lenet", "pictures", None, None),
    "MLP of vectors": ("fedavg", "mlp", "vectors", None, None),
    "batch norm": ("fedavg", "tiny-bn", "pictures", None, "1"),
    "kNN-Per's neighbors": ("knnper", "lenet", "pictures", None, "1"),
    "FedROD's two heads": ("fedrod", "lenet", "pictures", None, "1"),
    "FLDA's gate": ("flda", "tiny", "pictures", None, "1"),
    "MAP's own classes": ("map", "lenet", "pictures", "own", "0"),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, finished: Finished) -> UsableModel:
    method, net, of, preset, client = MODELS[request.param]
    return UsableModel.read(model_file(finished(method, net, of, preset).folder, client))


@pytest.fixture
def samples(model: UsableModel, pictures: Federation, federation: Federation) -> Tensor:
    """Raw ones of the model's kind; another number than the exporter was shown."""
    return (pictures if model.notes.pixels else federation).dataset.test_x[:7].float()


def same(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found.isinf(), expected.isinf())
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_onnxruntime_gives_the_same_logits(
    model: UsableModel, samples: Tensor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    export(model, "onnx", tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")  # PyTorch's exporter says nothing
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    for batch in (samples, samples[:1]):
        (found,) = session.run(["logits"], {"samples": batch.numpy()})
        same(torch.from_numpy(found), model.logits(batch))
    notes = json.loads(session.get_modelmeta().custom_metadata_map["fedmap"])
    assert notes["classes"] == list(model.notes.classes)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_class_that_a_client_leaves_out_is_minus_infinity_in_the_exported_model(
    finished: Finished, pictures: Federation
) -> None:
    run = finished("map", "lenet", preset="own")
    content = as_torch_export(UsableModel.read(run.folder / "personal/00000.safetensors"))
    program = torch.export.load(io.BytesIO(content)).module()
    logits = program(pictures.dataset.test_x.float())
    missing = ~pictures.observed[0]
    assert missing.any()
    assert torch.equal(logits.isinf().all(0), missing)


def test_a_torch_program_gives_the_same_logits(model: UsableModel, samples: Tensor) -> None:
    notes = {"fedmap.json": ""}
    content = io.BytesIO(as_torch_export(model))
    program = torch.export.load(content, extra_files=notes).module()
    for batch in (samples, samples[:1]):
        same(program(batch), model.logits(batch))
    assert json.loads(notes["fedmap.json"])["shape"] == list(model.notes.shape)


def test_native_kernels_step_aside_for_an_export(finished: Finished, pictures: Federation) -> None:
    if not kernels.available():
        pytest.skip(kernels.why_not())
    model = UsableModel.read(finished("fedavg", "lenet").folder / "global.safetensors")
    with kernels.in_force("native"):
        content = as_torch_export(model)
    x = pictures.dataset.test_x.float()
    same(torch.export.load(io.BytesIO(content)).module()(x), model.logits(x))


def test_the_global_model_of_a_result_is_exported_as_it_is(
    finished: Finished, pictures: Federation
) -> None:
    net = finished("fedavg", "lenet").global_model
    assert net is not None
    x = pictures.dataset.normalize(pictures.dataset.test_x)
    program = torch.export.export(net, (x,)).module()
    same(program(x + 1), net(x + 1))


def test_a_safetensors_export_is_read_again(finished: Finished, tmp_path: Path) -> None:
    model = UsableModel.read(finished("fedrod", "lenet").folder / "personal/00002.safetensors")
    export(model, None, tmp_path / "mine.safetensors")
    again = UsableModel.read(tmp_path / "mine.safetensors")
    x = torch.arange(400.0).view(1, 1, 20, 20)
    assert again.notes == model.notes
    assert torch.equal(again.logits(x), model.logits(x))


def test_without_the_packages_one_sentence_says_how_to_get_them(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnx" else name)
    model = UsableModel.read(finished("fedavg", "lenet").folder / "global.safetensors")
    with pytest.raises(FedmapError, match=r"onnx needs onnx; install with `pip install 'fedmap\["):
        export(model, "onnx", tmp_path / "model.onnx")


def test_an_unknown_format_is_refused(finished: Finished, tmp_path: Path) -> None:
    model = UsableModel.read(finished("fedavg", "lenet").folder / "global.safetensors")
    with pytest.raises(FedmapError, match="no format 'onx'; did you mean 'onnx'"):
        export(model, "onx", tmp_path / "model.onnx")
    with pytest.raises(FedmapError, match=r"m\.foo: the ending says no format; \.onnx, \.pt2, \."):
        export(model, None, tmp_path / "m.foo")
    with pytest.raises(FedmapError, match="ending is that of onnx, but the format is torch-ex"):
        export(model, "torch-export", tmp_path / "model.ONNX")
    with pytest.raises(FedmapError, match=r"cannot write .*model\.pt2: No such file"):
        export(model, "torch-export", tmp_path / "nowhere/model.pt2")


def test_columns_are_told_in_their_order() -> None:
    assert features_in_words(("b", "a")) == "b, a"
    said = "a, color=blue, color=red (color=blue is 1 where the text is so, else 0)"
    assert features_in_words(("a", "color=blue", "color=red")) == said


def test_the_command_writes_the_program_and_says_what_it_takes(
    fedmap: Fedmap, finished: Finished, tmp_path: Path
) -> None:
    run = finished("fedavg", "lenet").folder
    done = fedmap(f"export {run} --client 1 --format torch-export -o model.pt2")
    assert done.returncode == 0, done.stderr
    assert "samples: float32 (any number, 1, 20, 20), pixels from 0 to 255" in done.stdout
    assert "logits: float32 (any number, 4): class 0, class 1, class 2, class 3" in done.stdout
    program = torch.export.load(tmp_path / "model.pt2").module()
    assert program(torch.zeros(3, 1, 20, 20)).shape == (3, 4)
    assert (tmp_path / "model.pt2.md").read_text().startswith("# ")
