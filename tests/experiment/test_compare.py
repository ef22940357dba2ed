"""Comparisons and sweeps from Python: what is run, what is skipped, and what comes out."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmap
from fedmap.errors import FedmapError
from fedmap.experiment import runs as works
from fedmap.experiment.compare import compared
from fedmap.experiment.progress import Progress
from fedmap.methods.central import Central
from fedmap.simulate.settings import Settings

SMALL: dict[str, Any] = {
    "data": "synthetic",
    "net": "tiny",
    "clients": 4,
    "rounds": 2,
    "epochs": 0.2,
}


def test_compare_runs_every_method_with_every_seed(tmp_path: Path) -> None:
    found = fedmap.compare(["fedavg", "map"], seeds=(0, 3), out=tmp_path, **SMALL)
    runs = [(name, run.settings.seed) for name, runs in found.results.items() for run in runs]
    assert runs == [("fedavg", 0), ("fedavg", 3), ("map", 0), ("map", 3)]


def test_methods_of_one_seed_share_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int | None] = []
    draw = Settings.federation

    def counting(settings: Settings) -> fedmap.Federation:
        drawn.append(settings.partition_seed)
        return draw(settings)

    monkeypatch.setattr(Settings, "federation", counting)
    given = SMALL | {"clients": 5}  # no other test draws this one
    fedmap.compare(["fedavg", "map"], seeds=(0, 1), out=tmp_path, **given)
    assert drawn == [0, 1]


def test_compare_shows_progress_of_the_whole_and_skips_what_is_done(tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = fedmap.compare(["fedavg", "map"], out=tmp_path, on_progress=seen.append, **SMALL)
    steps = [(p.label, p.step) for p in seen]
    assert steps == [("fedavg", 1), ("fedavg", 2), ("map", 1), ("map", 2)]
    shares = [p.share for p in seen]
    assert 0 < shares[0] < shares[1] < shares[2] < shares[3] == 1
    again = fedmap.compare(["fedavg", "map"], out=tmp_path, on_progress=seen.append, **SMALL)
    assert [(p.label, p.step, p.now) for p in seen[4:]] == [
        ("fedavg", 2, "finished before"),
        ("map", 2, "finished before"),
    ]
    assert again.table() == first.table()


def test_runs_on_data_that_changed_since_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    table, out = tmp_path / "all.csv", tmp_path / "out"
    lines = [f"{k % 7},{k % 3},{k % 2}" for k in range(60)]
    table.write_text("\n".join(["a,b,y", *lines]))
    given = SMALL | {"data": f"csv:{table}", "net": "mlp", "out": out}
    fedmap.compare(["fedavg"], **given)
    first = next(out.glob("fedavg-*"))
    for more, says in ((["0,0,1"], "the number of samples changed"), ([], "a label, or who holds")):
        table.write_text("\n".join(["a,b,y", *lines[1:], "0,0,1", *more]))
        works._federation.cache_clear()
        with pytest.raises(FedmapError, match=f"holds a run on another federation: {says}"):
            fedmap.compare(["fedavg", "map"], **given)
    fedmap.compare(["map"], **given | {"out": tmp_path / "new"})
    second = next((tmp_path / "new").glob("map-*"))
    with pytest.raises(FedmapError, match=r"the runs are of different data: .*, which changed,"):
        fedmap.write_report(first, second, out=tmp_path / "page.html")


def test_methods_are_a_list(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match=r"methods is 'local,map'; give a list"):
        fedmap.compare("local,map", out=tmp_path, **SMALL)
    with pytest.raises(FedmapError, match="has a parameter 'alpha'; they have none"):
        fedmap.compare(["fedavg"], out=tmp_path, params={"alpha": 1}, **SMALL)


def test_runs_that_patience_ends_count_as_whole(tmp_path: Path) -> None:
    seen: list[Progress] = []
    given = SMALL | {
        "rounds": 30,
        "lr": 1e-9,
        "validation": 0.2,
        "patience": 1,
    }  # nothing is better
    fedmap.compare(["fedavg", "map"], out=tmp_path, on_progress=seen.append, **given)
    early = [one for one in seen if one.now == f"ended early, after round {one.step}"]
    assert [(one.label, one.step == one.steps < 30) for one in early] == [
        ("fedavg", True),
        ("map", True),
    ]
    assert (seen[-1].share, seen[-1].seconds_left) == (1, 0)


def test_a_stopped_comparison_goes_on_where_it_was(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if (progress.label, progress.step) == ("map", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedmap.compare(["fedavg", "map"], out=tmp_path, on_progress=stop, **SMALL)
    seen: list[Progress] = []
    fedmap.compare(["fedavg", "map"], out=tmp_path, on_progress=seen.append, **SMALL)
    assert [(progress.label, progress.step) for progress in seen] == [("fedavg", 2), ("map", 2)]
    assert seen[0].now == "finished before"
    assert seen[1].now.startswith("global ")


def test_the_table_has_the_numbers_of_the_runs(tmp_path: Path) -> None:
    found = fedmap.compare(["fedavg"], seeds=(0, 1), out=tmp_path, **SMALL)
    finals = [json.loads(path.read_text()) for path in tmp_path.glob("*/final.json")]
    mean = sum(100 * final["global_accuracy"] for final in finals) / 2
    (line,) = found.table().lines
    assert line[0] == "fedavg"
    assert line[1].startswith(f"{mean:.1f} ± ")
    entries = {(entry["seed"], entry["global_accuracy"]) for entry in found.json()}
    assert {accuracy for _, accuracy in entries} == {final["global_accuracy"] for final in finals}
    assert {seed for seed, _ in entries} == {0, 1}


def finals(found: fedmap.Comparison, label: str) -> list[dict[str, Any]]:
    return [run.final for run in found.results[label]]


@pytest.fixture(scope="module")
def with_local(tmp_path_factory: pytest.TempPathFactory) -> fedmap.Comparison:
    folder = tmp_path_factory.mktemp("compared")
    given = SMALL | {"rounds": 3, "fraction": 0.5}
    return fedmap.compare(["local", "fedavg", "central"], seeds=(0, 1), out=folder, **given)


def test_every_client_stands_beside_what_it_has_from_training_alone(
    with_local: fedmap.Comparison,
) -> None:
    table = with_local.clients()
    assert [line[0] for line in table.lines] == ["fedavg"] * 8 + ["central"] * 8
    assert table.head[:3] == ["method", "seed", "client"]
    assert [line[1] for line in table.lines[:8]] == ["0"] * 4 + ["1"] * 4
    (alone, _), (own, _) = finals(with_local, "local"), finals(with_local, "fedavg")
    for k, line in enumerate(table.lines[:4]):
        numbers = [
            100 * alone["personal_accuracy_per_client"][k],
            100 * own["global_accuracy_per_client"][k],
            100 * own["personal_accuracy_per_client"][k],
            100 * own["personal_accuracy_observed_per_client"][k],
        ]
        cells = [f"{number:.1f}" for number in numbers] + [f"{numbers[2] - numbers[0]:+.1f}"]
        assert line[2:] == [f"client {k}", *cells]


def test_gains_are_those_over_the_same_client_alone_with_the_same_seed(
    with_local: fedmap.Comparison,
) -> None:
    found = [
        mine - alone
        for one, other in zip(
            finals(with_local, "fedavg"), finals(with_local, "local"), strict=True
        )
        for mine, alone in zip(
            one["personal_accuracy_per_client"], other["personal_accuracy_per_client"], strict=True
        )
    ]
    rows = {row.method: row for row in with_local.rows()}
    assert rows["fedavg"].gain == f"{100 * sum(found) / 8:+.1f}"
    assert rows["fedavg"].losers == f"{sum(gain < 0 for gain in found)} of 8"
    assert rows["local"].gain == rows["local"].losers == ""
    entries = [entry for entry in with_local.json() if entry["method"] == "fedavg"]
    assert entries[1]["gain_over_local"] == pytest.approx(sum(found[4:]) / 4)
    assert sum(entry["clients_that_lose"] for entry in entries) == sum(g < 0 for g in found)
    first = with_local.sentences()[0]
    assert first.startswith(f"fedavg: {sum(g > 0 for g in found)} of 8 clients gain")
    assert first.endswith(f"; {100 * sum(found) / 8:+.1f} points in the mean over all")


def test_clients_that_each_seed_draws_anew_are_not_listed(with_local: fedmap.Comparison) -> None:
    assert with_local.by_client().lines == []


def test_the_clients_of_one_seed_are_listed(tmp_path: Path) -> None:
    table = fedmap.compare(["local", "fedavg"], out=tmp_path, **SMALL).by_client()
    assert [line[0] for line in table.lines] == [f"client {k}" for k in range(4)]


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three shops of own data."""
    folder = tmp_path_factory.mktemp("shops")
    rng = np.random.default_rng(0)
    for name in ("oslo", "bergen", "molde"):
        y = rng.integers(0, 2, 40)
        np.savez(folder / f"{name}.npz", x=rng.standard_normal((40, 3)) + y[:, None], y=y)
    return f"npz:{folder}"


def test_a_client_with_a_name_has_one_line_with_its_means_over_seeds(
    shops: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"data": shops, "net": "tiny", "rounds": 2}
    found = fedmap.compare(["local", "fedavg", "map"], seeds=(0, 1), out=tmp_path, **given)
    table = found.by_client()
    assert table.head == ["client", "local", "fedavg", "map"]
    assert [line[0] for line in table.lines] == ["bergen", "molde", "oslo"]
    mine, alone = (
        np.array([one["personal_accuracy_per_client"] for one in finals(found, label)]).mean(0)
        for label in ("map", "local")
    )
    cells = [
        [f"{100 * a:.1f}", f"{100 * m:.1f} ({100 * (m - a):+.1f})"]
        for m, a in zip(mine, alone, strict=True)
    ]
    assert [[line[1], line[3]] for line in table.lines] == cells
    assert found.rows()[2].losers == f"{sum(mine < alone)} of 3"
    assert found.sentences()[1].startswith(f"map: {sum(mine > alone)} of 3 clients ")
    assert len(found.clients().lines) == 2 * 2 * 3


def test_it_is_said_that_central_breaks_the_rule(with_local: fedmap.Comparison) -> None:
    assert with_local.sentences()[-1].startswith(
        "central has all samples in one place, which breaks"
    )


def test_three_classes_of_one_name_have_three_labels(tmp_path: Path) -> None:
    def made() -> type[Central]:
        class Mine(Central):
            """Mine."""

        return Mine

    runs = compared([made(), made(), made()], (0,), **SMALL)
    assert len(runs) == 3
    assert next(iter(runs)) == "Mine"
    assert [label.rpartition("Mine")[2] for label in runs] == ["", "", " (2)"]


def test_a_parameter_is_for_the_methods_that_have_it_and_a_variant_keeps_its_own() -> None:
    runs = compared(["fedavg", "fedrs", "map[alpha=0.9]"], (0,), **SMALL, params={"alpha": 0.3})
    alphas = [some[0].settings.params.get("alpha") for some in runs.values()]
    assert alphas == [None, 0.3, 0.9]


def test_a_parameter_that_no_method_has_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(FedmapError, match="no method here has a parameter 'alpa'; did you mean"):
        compared(["fedavg", "map"], (0,), **SMALL, params={"alpa": 0.3})


def test_a_class_given_in_python_is_spoken_of_like_any_other(tmp_path: Path) -> None:
    class Mine(Central):
        """Mine."""

    found = fedmap.compare([Mine, "local"], out=tmp_path, **SMALL)
    assert found.sentences()[-1].startswith("Mine has all samples in one place")


def test_the_tables_are_written_beside_the_runs(with_local: fedmap.Comparison) -> None:
    written = with_local.tables()
    assert written["clients"].read_text() == with_local.clients().csv()
    for name in ("methods", "clients", "runs"):
        assert {path.suffix for path in with_local.folder.glob(f"{name}.*")} == {
            *(".md", ".csv", ".tex")
        }
    assert written["methods"].with_suffix(".tex").read_text() == with_local.table().latex()
    head, *lines = csv.reader(written["runs"].read_text().splitlines())
    found = [dict(zip(head, line, strict=True)) for line in lines]
    assert [(one["method"], one["seed"]) for one in found[:3]] == [
        ("local", "0"),
        ("local", "1"),
        ("fedavg", "0"),
    ]
    assert float(found[2]["global_macro_f1"]) == finals(with_local, "fedavg")[0]["global_macro_f1"]
    assert found[0]["global_macro_f1"] == ""


def test_without_local_there_is_no_gain(tmp_path: Path) -> None:
    found = fedmap.compare(["fedavg"], out=tmp_path, **SMALL)
    assert "gain over local" not in found.table().head
    assert found.sentences() == []
    assert {line[-1] for line in found.clients().lines} == {"-"}


def test_a_sweep_names_the_best_setting_by_held_out_samples(tmp_path: Path) -> None:
    grid, given = {"lr": [0.001, 0.3]}, SMALL | {"validation": 0.2, "rounds": 3}
    found = fedmap.sweep("fedavg", grid, seeds=(0, 1), out=tmp_path, **given)
    scores = {
        label: sum(
            run.final[f"{kind}_accuracy_validation"]
            for run in runs
            for kind in ("global", "personal")
        )
        / 4
        for label, runs in found.results.items()
    }
    best = max(scores, key=lambda label: scores[label])
    assert found.scores == pytest.approx(scores)
    assert found.best == best
    assert found.sentences() == [
        f"the best on held-out samples is {best}, with {100 * scores[best]:.1f} %"
    ]
    assert "held out" in found.table().head


def test_a_sweep_without_held_out_samples_names_no_best(tmp_path: Path) -> None:
    found = fedmap.sweep("fedavg", {"lr": [0.1, 0.3]}, out=tmp_path, **SMALL)
    assert found.best is None
    (sentence,) = found.sentences()
    assert sentence.startswith("no samples are held out, so no setting is called the best")


def test_the_pictures_are_drawn_beside_the_runs(tmp_path: Path) -> None:
    found = fedmap.compare(["fedavg"], out=tmp_path, **SMALL).pictures()
    assert found == {"curves": tmp_path / "curves.png", "partition": tmp_path / "partition.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in found.values())


def test_classes_of_one_name_in_two_files_are_told_apart(tmp_path: Path) -> None:
    text = "from fedmap.methods import FedAvg\n\nclass Mine(FedAvg):\n    '''Mine.'''\n"
    methods = []
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(text)
        methods.append(f"{tmp_path / name}:Mine")
    found = fedmap.compare(methods, out=tmp_path / "out", **SMALL)
    assert list(found.results) == ["Mine", methods[1]]


def test_a_method_is_compared_with_variants_of_itself(tmp_path: Path) -> None:
    variants = ["map", "map[alpha=0.5]", "map[alpha=0.5,weight=0.2]", "map[preset=printed]"]
    found = fedmap.compare(variants, out=tmp_path, **SMALL)
    assert list(found.results) == variants
    params = [runs[0].settings.params for runs in found.results.values()]
    assert [p["alpha"] for p in params] == [0.9, 0.5, 0.5, 0.9]
    assert [p["weight"] for p in params] == [0.01, 0.01, 0.2, 0.01]
    assert [p["stage_one"] for p in params] == [1.0, 1.0, 1.0, 0.5]


def test_a_variant_keeps_the_parameters_that_are_given_for_all(tmp_path: Path) -> None:
    given = SMALL | {"params": {"weight": 0.2}}
    found = fedmap.compare(["map", "map[alpha=0.5]"], out=tmp_path, **given)
    assert [runs[0].settings.params["weight"] for runs in found.results.values()] == [0.2, 0.2]


@pytest.mark.parametrize("text", ["map[alpha=0.5", "map[alpha]", "map[]", "map[=1]", "map[a=1]x"])
def test_a_variant_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match=r"is not of the form METHOD\[NAME=VALUE"):
        fedmap.compare([text], out=tmp_path / "out", **SMALL)


def test_a_run_that_diverges_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    found = fedmap.sweep("fedavg", {"lr": [1e8, 0.03]}, out=tmp_path, **SMALL)
    lost, kept = found.rows()
    assert lost.method == "fedavg[lr=100000000.0] (1 of 1 diverged)"
    assert set(lost.cells) == {"-"}
    assert kept.method == "fedavg[lr=0.03]"
    assert "-" not in kept.cells
    entry = next(entry for entry in found.json() if "diverged" in entry)
    assert entry["method"] == "fedavg[lr=100000000.0]"
    assert entry["global_accuracy"] is None
    assert found.pictures()["curves"].exists()


def test_sweep_runs_every_combination_with_every_seed(tmp_path: Path) -> None:
    grid = {"alpha": [0.1, 0.5], "weight": [0.01, 0.2]}
    found = fedmap.sweep("map", grid, seeds=(0, 1), out=tmp_path, **SMALL)
    assert list(found.results) == [
        "map[alpha=0.1,weight=0.01]",
        "map[alpha=0.1,weight=0.2]",
        "map[alpha=0.5,weight=0.01]",
        "map[alpha=0.5,weight=0.2]",
    ]
    for label, runs in found.results.items():
        assert [run.settings.seed for run in runs] == [0, 1]
        for run in runs:
            params = run.settings.params
            assert label == f"map[alpha={params['alpha']},weight={params['weight']}]"


def test_a_sweep_keeps_the_other_parameters(tmp_path: Path) -> None:
    given = SMALL | {"params": {"weight": 0.2}}
    found = fedmap.sweep("map", {"alpha": [0.1]}, out=tmp_path, **given)
    (run,) = found.results["map[alpha=0.1]"]
    assert run.settings.params["weight"] == 0.2


def test_a_sweep_varies_settings_of_training_too(tmp_path: Path) -> None:
    found = fedmap.sweep("fedavg", {"lr": [0.01, 0.1]}, out=tmp_path, **SMALL)
    assert [runs[0].settings.lr for runs in found.results.values()] == [0.01, 0.1]


def test_a_name_that_a_method_shares_with_training_is_the_methods(tmp_path: Path) -> None:
    found = fedmap.sweep("fedopt", {"momentum": [0.5]}, out=tmp_path, **SMALL)
    (run,) = found.results["fedopt[momentum=0.5]"]
    assert (run.settings.params["momentum"], run.settings.momentum) == (0.5, 0.9)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"alpha": [0.5], "wieght": [1]}, "method map has no parameter 'wieght'; did you mean"),
        ({"alpha": [0.5, 2]}, "method map: alpha is 2; allowed: number from 0 up to 1"),
        ({"lr": [0.1, -1]}, "lr is -1; allowed: number above 0"),
        ({"alpha": []}, "the grid has no value for 'alpha'"),
        ({}, "the grid is empty"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_runs(
    grid: dict[str, list[float]], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FedmapError, match=sentence):
        fedmap.sweep("map", grid, out=tmp_path / "out", **SMALL)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("methods", "given", "sentence"),
    [
        (["fedavg", "fedavgg"], {}, "there is no method 'fedavgg'; did you mean 'fedavg'?"),
        (["fedavg"], {"rounds": 0}, "rounds is 0"),
        (["fedavg"], {"seed": 1}, "`seed` is of a single run; give `seeds`"),
        (["fedavg"], {"seeds": ()}, "there is no seed to run"),
        ([], {}, "there is no method to run"),
    ],
)
def test_a_wrong_comparison_is_refused_before_anything_runs(
    methods: list[str], given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FedmapError, match=sentence):
        fedmap.compare(methods, out=tmp_path / "out", **(SMALL | given))
    assert not (tmp_path / "out").exists()
