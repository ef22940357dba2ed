"""A search: what it tries, by what it chooses, and that a stop changes nothing."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.errors import FedmapError
from fedmap.experiment.progress import Progress
from fedmap.experiment.space import Range, rounded, space_of
from fedmap.experiment.sweep import Sweep

SMALL: dict[str, Any] = {
    "data": "synthetic",
    "net": "tiny",
    "clients": 4,
    "rounds": 2,
    "epochs": 0.2,
}
SPACE = {"lr": "1e-3..1:log", "momentum": [0.0, 0.9]}


def searched(out: Path, trials: int = 4, **more: Any) -> Sweep:
    return fedmap.sweep("fedavg", SPACE, trials=trials, out=out, **(SMALL | more))


ORDER: list[str] = []  # in which the runs of `whole` were done


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A search that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    found = searched(folder, on_progress=lambda progress: ORDER.append(progress.label))
    ORDER[:] = dict.fromkeys(ORDER)
    return found


def test_values_are_within_their_ranges_and_lists(whole: Sweep) -> None:
    assert len(whole.runs) == 4
    for values in whole.chosen.values():
        assert 1e-3 <= values["lr"] <= 1
        assert values["momentum"] in (0.0, 0.9)


def test_the_label_has_the_values_that_the_run_was_trained_with(whole: Sweep) -> None:
    for label, runs in whole.runs.items():
        settings = runs[0].settings
        assert label == f"fedavg[lr={settings.lr},momentum={settings.momentum}]"


def test_it_chooses_by_held_out_samples_although_none_were_asked_for(whole: Sweep) -> None:
    scores = {}
    for label, (run,) in ((label, runs) for label, runs in whole.results.items() if runs):
        assert run.settings.validation == 0.1
        final = run.final
        both = final["global_accuracy_validation"], final["personal_accuracy_validation"]
        scores[label] = sum(both) / 2
    assert whole.scores == pytest.approx(scores)
    assert next(iter(whole.runs)) == whole.best == max(scores, key=lambda label: scores[label])


def test_stopped_in_the_middle_of_a_run_it_tries_the_same_in_the_same_order(
    whole: Sweep, tmp_path: Path
) -> None:
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 5:  # the third run's first round
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path, on_progress=stop)
    again: list[Progress] = []
    found = searched(tmp_path, on_progress=again.append)
    steps = [(p.label, p.step, p.now == "finished before") for p in again]
    first, second, third, fourth = ORDER
    assert steps == [
        (first, 2, True),
        (second, 2, True),
        (third, 2, False),  # its first round is not done again
        (fourth, 1, False),
        (fourth, 2, False),
    ]
    assert found.scores == whole.scores
    names = {path.parent.name for path in whole.folder.glob("*/run.toml")}
    assert {path.parent.name for path in tmp_path.glob("*/run.toml")} == names


def test_more_trials_begin_with_the_same_ones(whole: Sweep, tmp_path: Path) -> None:
    shutil.copytree(whole.folder, tmp_path / "more")
    more = searched(tmp_path / "more", trials=5)
    assert set(whole.chosen) <= set(more.chosen)
    assert len(more.chosen) == 5


@pytest.mark.parametrize("prune", ["median", "hyperband"])
def test_what_falls_behind_is_stopped_early_and_said_so(prune: str, tmp_path: Path) -> None:
    grid = {"lr": "1e-6..0.3:log"}
    given = SMALL | {"rounds": 4}
    found = fedmap.sweep("fedavg", grid, trials=6, prune=prune, out=tmp_path, **given)
    assert 0 < len(found.pruned) < 6
    assert found.best not in found.pruned
    for label, (round, reached) in found.pruned.items():
        assert found.results[label] == []
        assert 1 <= round < 4
        assert 0 <= reached <= 1
        assert f"{label} (pruned in round {round})" in [row.method for row in found.rows()]
        folder = tmp_path / found.runs[label][0].name
        assert (folder / "pruned").exists()
        assert len((folder / "rounds.jsonl").read_text().splitlines()) == round
    again = fedmap.sweep("fedavg", grid, trials=6, prune=prune, out=tmp_path, **given)
    assert again.pruned == found.pruned
    assert again.table() == found.table()


def test_a_combination_that_diverges_is_the_worst(tmp_path: Path) -> None:
    found = fedmap.sweep("fedavg", {"lr": [0.1, 1e9]}, trials=3, out=tmp_path, **SMALL)
    assert found.best == "fedavg[lr=0.1]"
    assert list(found.diverged) == ["fedavg[lr=1000000000.0]"]


def test_a_score_is_the_mean_over_seeds(tmp_path: Path) -> None:
    found = searched(tmp_path, trials=1, seeds=(0, 1), prune="none")
    for label, runs in found.results.items():
        assert [run.settings.seed for run in runs] == [0, 1]
        numbers = [
            run.final[f"{kind}_accuracy_validation"]
            for run in runs
            for kind in ("global", "personal")
        ]
        assert found.scores[label] == pytest.approx(sum(numbers) / 4)


@pytest.mark.parametrize(
    ("grid", "more", "sentence"),
    [
        ({"lr": "0.1..0.2"}, {"validation": 0}, "a search needs samples to choose by"),
        ({"lr": "0.1..0.2"}, {"trials": 0}, "trials is 0; allowed: whole number from 1"),
        ({"lr": "0.1..0.2"}, {"prune": "best"}, "prune is 'best'; allowed: median, hyperband"),
        ({}, {}, "there is nothing to search"),
        ({"lr": "0.2..0.1"}, {}, "the first number must be below the second"),
        ({"lr": "0..0.1:log"}, {}, "must be above 0 below the second"),
        ({"lr": "a..b"}, {}, "lr=a..b is no range; write LOW..HIGH"),
        ({"alpha": "0.1..2"}, {}, "has no parameter 'alpha'"),
        ({"lr": [0.1, -1]}, {}, "lr is -1; allowed: number above 0"),
    ],
)
def test_a_wrong_search_is_refused_before_anything_runs(
    grid: dict[str, Any], more: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"trials": 2} | SMALL | more
    with pytest.raises(FedmapError, match=sentence):
        fedmap.sweep("fedavg", grid, out=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_range_without_trials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match=r"lr is a range.*--trials 20"):
        fedmap.sweep("fedavg", {"lr": "0.1..0.9"}, out=tmp_path, **SMALL)


def test_without_optuna_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FedmapError, match=r"pip install 'fedmap\[search\]'"):
        searched(tmp_path)


def test_ranges_are_read_from_text() -> None:
    found = space_of({"a": "0.1..0.9", "b": "1e-3..1e-1:log", "c": "1..10", "d": ["x", "y"]})
    assert found == {
        "a": Range(0.1, 0.9),
        "b": Range(1e-3, 1e-1, True),
        "c": Range(1, 10),
        "d": ["x", "y"],
    }
    assert [isinstance(r, Range) and r.whole for r in found.values()] == [False, False, True, False]


def test_numbers_that_are_drawn_have_four_digits() -> None:
    assert [rounded(v) for v in (0.123456, 1.5e-7 / 7, 12, "kd")] == [0.1235, 2.143e-08, 12, "kd"]
