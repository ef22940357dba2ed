"""The model card says what was measured, and for which model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.simulate.result import Result
from fedmap.use.card import card

Finished = Callable[..., Result]  # the fixture in conftest.py
Fedmap = Callable[[str], Any]


def test_a_card_has_the_accuracy_of_every_class_and_client(finished: Finished) -> None:
    run = finished("fedavg", "lenet")
    text = card(run.folder)
    for name, accuracy in run.final["global_accuracy_per_class"].items():
        assert f"| {name} | {100 * accuracy:.1f} |" in text
    for number, accuracy in enumerate(run.final["personal_accuracy_per_client"]):
        assert f"| {number} | {100 * accuracy:.1f} |" in text
    assert run.global_accuracy is not None
    assert f"on the global test set: {100 * run.global_accuracy:.1f} %" in text
    assert text.startswith("# fedavg on synthetic\n")
    assert "pixels from 0 to 255, 1 x 20 x 20 (channels, height, width)" in text
    assert "net lenet, rounds 2, fraction 0.5" in text


def test_a_personal_models_card_names_its_client_and_the_clients_classes(
    finished: Finished, pictures: Federation
) -> None:
    run = finished("map", "lenet", preset="own")
    text = card(run.folder, run.folder / "personal/00001.safetensors")
    accuracy = 100 * run.final["personal_accuracy_per_client"][1]
    assert f"The personal model of client 1: {accuracy:.1f} % correct" in text
    held = [pictures.dataset.classes[c] for c in pictures.observed[1].nonzero()]
    assert f"training samples of: {', '.join(held)}." in text
    assert "mode removed" in text


def test_a_run_without_a_global_model_has_a_card_without_its_numbers(finished: Finished) -> None:
    text = card(finished("fedrep", "tiny-bn", of="vectors").folder)
    assert "lobal model, on" not in text
    assert "- Personal models, each on its client's own test samples: " in text
    assert "| class |" not in text
    assert "- A sample: values, 6\n" in text


def test_a_folder_that_is_no_run_has_no_card(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="is not a run folder: it has no run"):
        card(tmp_path)


def test_the_command_prints_the_card_or_writes_it(
    fedmap: Fedmap, finished: Finished, tmp_path: Path
) -> None:
    folder = finished("fedavg", "lenet").folder
    printed = fedmap(f"card {folder}")
    assert printed.stdout == card(folder)
    assert fedmap(f"card {folder} --global -o card.md").returncode == 0
    written = (tmp_path / "card.md").read_text()
    assert written == card(folder, folder / "global.safetensors")
    assert "made for every class" in written
