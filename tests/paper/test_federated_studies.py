"""Every study of federated runs, end to end at smoke scale, and what its tables say."""

import json
from pathlib import Path
from statistics import mean

import pytest
import safetensors
from typer.testing import CliRunner

from fedmap.cli.main import app
from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out, plan
from fedmap.paper import STUDIES
from fedmap.paper.federated import SMOKE, FederatedRun, row, without_diverged
from fedmap.paper.published import AGGREGATION, COMPLETE, PERSONALIZATION, table
from fedmap.paper.report import write_report
from fedmap.paper.study import Choice, Row, from_csv
from fedmap.paper.tables.table_1_2 import best, goal_table

FEW = {
    "parameters": {},
    "table-3": {"methods": ["fedavg", "fedrs", "map"]},
    "femnist": {"columns": ["Q=0.1, E=2", "Q=0.3, E=5"]},
}
STUDIES_OF_RUNS = ["table-1-2", "joint", "table-3", "fairness", "parameters", "femnist", "readings"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs are shared by the studies here, as they are for users."""
    return tmp_path_factory.mktemp("runs")


def carried_out(name: str, runs: Path, out: Path, **chosen: object) -> tuple[Choice, list[Path]]:
    study = STUDIES[name]
    choice = study.choice("smoke", **chosen)  # type: ignore[arg-type]
    planned = plan(study.work(choice), runs)
    carry_out([work for work, _ in planned.left], runs, lambda work: lambda step, now: None)
    return choice, write_report(study, name, choice, study.collect(choice, runs), out)


@pytest.mark.parametrize("name", STUDIES_OF_RUNS)
def test_a_study_at_smoke_scale_writes_its_numbers_tables_and_figures_and_is_not_done_twice(
    name: str, runs: Path, tmp_path: Path
) -> None:
    choice, written = carried_out(name, runs, tmp_path, **FEW.get(name, {}))
    study = STUDIES[name]
    assert all(path.stat().st_size > 100 for path in written)
    endings = {path.suffix for path in written}
    report = study.report(from_csv(written[0]))
    assert report.findings
    assert {".csv", ".md"} <= endings
    assert (".tex" in endings) == bool(report.tables)
    assert ({".png", ".svg"} <= endings) == bool(report.figures)
    assert "Smaller than the paper: data fashion-mini" in written[-1].read_text()
    again = plan(study.work(choice), runs)
    assert again.left == []
    before = {
        path: path.read_bytes() for path in written if path.suffix != ".svg"
    }  # matplotlib draws new names into an SVG
    write_report(study, name, choice, study.collect(choice, runs), tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def test_table_1_and_2_show_the_runs_numbers_beside_the_printed_ones(
    runs: Path, tmp_path: Path
) -> None:
    _, written = carried_out(
        "table-1-2", runs, tmp_path, methods=["fedavg", "fedrep", "map"], seeds=(0, 1)
    )
    rows = from_csv(written[0])
    finals = [
        json.loads((runs / run / "final.json").read_text()) for run in names_of(runs, "map", "mlp")
    ]
    expected = mean(100 * final["global_accuracy"] for final in finals)
    assert len(finals) == 2
    found = best(rows, "map", "fashion-mnist/mlp", "global")
    assert found is not None
    assert found["last"] == pytest.approx(expected, abs=0.01)
    line = next(line for line in goal_table(rows, "global").lines if line[0] == "MAP")
    assert line[1].startswith(f"{expected:.1f} (± ")
    assert line[3] == "88.1"
    assert float(line[4].replace("−", "-")) == pytest.approx(expected - 88.1, abs=0.06)
    assert next(line for line in goal_table(rows, "global").lines if line[0] == "FedRep")[1:] == [
        "-",
        "-",
        "-",
        "-",
    ]


def names_of(runs: Path, method: str, net: str) -> list[str]:
    """The runs with default parameters."""
    default = (
        "alpha = 0.9",
        'transfer = "kd"',
        "weight = 0.01",
        "stage_one = 1.0",
        'partition = "incomplete"',
    )
    found = {
        path.name: (path / "run.toml").read_text()
        for path in runs.glob(f"{method}-fashion-mini-{net}-*")
    }
    return sorted(name for name, text in found.items() if all(part in text for part in default))


def test_a_stopped_study_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    chosen = {"methods": ("map",), "columns": ("fashion-mnist/lenet",)}
    choice = STUDIES["table-1-2"].choice("smoke", **chosen)
    work = STUDIES["table-1-2"].work(choice)

    def stop(step: int, now: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(work, tmp_path / "a", lambda work: stop)
    assert not work[0].done(tmp_path / "a")
    for root in ("a", "b"):
        carry_out(work, tmp_path / root, lambda work: lambda step, now: None)
    models = [tmp_path / root / work[0].name / "global.safetensors" for root in ("a", "b")]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert safetensors.safe_open(models[0], framework="pt").keys()


def test_a_run_that_diverges_is_said_to_have_and_leaves_the_others_alone(tmp_path: Path) -> None:
    choice = Choice("smoke")
    given = {**SMOKE, "net": "mlp", "method": "fedavg"}
    lost = FederatedRun(choice, "fashion-mnist/mlp", lr=1e8, **given)
    told: list[str] = []
    lost.go(tmp_path, lambda step, now: told.append(now))
    assert told[-1] == "diverged"
    assert lost.done(tmp_path)
    rows = [row(lost, tmp_path)]
    assert goal_table(rows, "global").lines[0][1] == "diverged"
    kept, sentences = without_diverged([*rows, rows[0] | {"group": "other", "outcome": "done"}])
    assert [r["group"] for r in kept] == ["other"]
    assert "diverged" in sentences[0]


def test_the_printed_tables_are_copied_rightly() -> None:
    """The paper's own average column is the mean of the eight others, up to its rounding."""
    for text in (AGGREGATION, PERSONALIZATION):
        numbers = table(text)
        for method in {method for method, _ in numbers}:
            columns = [
                value
                for (name, column), value in numbers.items()
                if name == method and column != "average"
            ]
            assert len(columns) == 8
            assert mean(columns) == pytest.approx(numbers[method, "average"], abs=0.071), method
    assert len(COMPLETE) == 11


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scale": "huge"}, "there is no scale 'huge'; there are: smoke, small, paper"),
        (
            {"scale": "smoke", "columns": ["fashion-mnist/lenet5"]},
            "no column 'fashion-mnist/lenet5'; did you mean 'fashion-mnist/lenet'",
        ),
        ({"scale": "smoke", "methods": ["fedsgd"]}, "has no method 'fedsgd'"),
    ],
)
def test_a_wrong_choice_is_one_clear_sentence(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(FedmapError, match=sentence):
        STUDIES["table-1-2"].choice(**given)  # type: ignore[arg-type]


def test_the_command_shows_a_plan_and_can_stop_there(tmp_path: Path) -> None:
    arguments = [
        "study",
        "table-1-2",
        "--scale",
        "smoke",
        "--methods",
        "fedavg,map",
        "--plan",
        "--workers",
        "1",
    ]
    shown = CliRunner().invoke(
        app, [*arguments, "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    )
    assert shown.exit_code == 0, shown.output
    assert "2 to do, 0 done already" in shown.output
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "out").exists()


def test_the_command_reports_what_is_done_and_says_when_nothing_is(
    runs: Path, tmp_path: Path
) -> None:
    arguments = [
        "study",
        "readings",
        "--scale",
        "smoke",
        "--report",
        "--quiet",
        "--workers",
        "1",
        "--out",
        str(tmp_path),
    ]
    shown = CliRunner().invoke(app, [*arguments, "--runs", str(tmp_path / "none")])
    assert isinstance(shown.exception, FedmapError)
    assert "no finished work" in str(shown.exception)
    carried_out("readings", runs, tmp_path / "first")
    shown = CliRunner().invoke(app, [*arguments, "--runs", str(runs)])
    assert shown.exit_code == 0, shown.output
    assert "MAP, released, alpha 0.9" in shown.output


def test_the_command_lists_the_studies() -> None:
    shown = CliRunner().invoke(app, ["study"])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in STUDIES)


def test_table_3_averages_over_columns_that_all_methods_have() -> None:
    def rows(method: str, *columns: str) -> list[Row]:
        numbers = {
            "global": 70.0,
            "global_last_10": 71.0,
            "personal": 80.0,
            "personal_last_10": 81.0,
        }
        return [
            {"column": c, "method": method, "group": "default", "seed": 0, "outcome": "done"}
            | numbers
            for c in columns
        ]

    both = ["fashion-mnist/lenet", "cifar-10/tfcnn"]
    report = STUDIES["table-3"].report([*rows("fedavg", *both), *rows("ditto", both[0])])
    assert report.tables["complete"].caption.endswith("average over fashion-mnist/lenet")
    assert (
        "cifar-10/tfcnn is left out of the averages: 1 of 2 rows have a number there."
        in report.findings
    )
    assert "difference" not in report.tables["complete"].head
    whole = STUDIES["table-3"].report(rows("fedavg", *STUDIES["table-3"].columns))
    assert whole.tables["complete"].lines[0][1:7] == [
        "70.0",
        "71.0",
        "+0.0",
        "70.9",
        "+0.0",
        "−0.9",
    ]


def test_femnist_shows_what_is_there_and_judges_settings_that_are_whole() -> None:
    def rows(method: str, column: str) -> list[Row]:
        return [
            {
                "column": column,
                "method": method,
                "seed": 0,
                "round": t,
                "global": 50.0 + t,
                "personal": 60.0,
            }
            for t in (1, 2)
        ]

    report = STUDIES["femnist"].report(
        [*rows("fedavg", "Q=0.1, E=2"), *rows("map", "Q=0.1, E=2"), *rows("fedavg", "Q=0.3, E=2")]
    )
    assert [line[:2] for line in report.tables["femnist"].lines] == [
        ["Q=0.1, E=2", "FedAvg"],
        ["Q=0.1, E=2", "MAP"],
        ["Q=0.3, E=2", "FedAvg"],
    ]
    assert "MAP is first in 1 of 1 settings" in report.findings[0]


def test_readings_are_compared_with_fedavg_of_the_same_seed_and_one_that_diverged_is_not_above_it() -> (
    None
):
    def row(group: str, seed: int, accuracy: float | None) -> Row:
        where = {"column": "fashion-mnist/lenet", "method": "map", "group": group, "seed": seed}
        numbers: dict[str, float | None] = {
            f"{goal}{end}": accuracy for goal in ("global", "personal") for end in ("", "_last_10")
        }
        return (
            where
            | {
                "outcome": "diverged" if accuracy is None else "done",
                "personal_all_clients": accuracy,
            }
            | numbers
        )

    found = {
        "default": [80.0, 90.0],
        "released, alpha 0.9": [81.0, 90.5],
        "released, alpha 0.5": [85.0, 84.0],
        "printed, alpha 0.9": [85.0, None],
    }
    report = STUDIES["readings"].report(
        [
            row(group, seed, value)
            for group, both in found.items()
            for seed, value in enumerate(both)
        ]
    )
    assert (
        report.findings[0]
        == "Above FedAvg in both accuracies in every column: released, alpha 0.9."
    )
    assert "diverged" in report.findings[1]
    for shown in report.tables.values():
        cells = {line[0]: line[1] for line in shown.lines}
        assert cells == {
            "FedAvg": "85.0 ± 7.1",
            "MAP, released, alpha 0.9": "85.8 ± 6.7 (+0.8)",
            "MAP, released, alpha 0.5": "84.5 ± 0.7 (−0.5)",
            "MAP, printed, alpha 0.9": "85.0 (+5.0) diverged",
        }
    assert [shown.caption.split(",")[0] for shown in report.tables.values()] == [
        "Mean of the last ten rounds",
        "Last round",
    ]
