"""Every study from its plan to its report, at a scale of seconds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from fedmap.cli.main import app
from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out, plan
from fedmap.paper import STUDIES
from fedmap.paper.claims import ORDER
from fedmap.paper.figures import parameters
from fedmap.paper.report import as_page, bullets, write_report
from fedmap.paper.study import Choice, Report, from_csv, to_csv
from fedmap.report.table import Table

# Fewer runs than the scale has, so that a test takes seconds.
FEW: dict[str, dict[str, Any]] = {
    "table-1-2": {"methods": ["fedavg", "fedrep", "map"]},
    "joint": {"methods": ["fedavg", "map"]},
    "table-3": {"methods": ["fedavg", "map"]},
    "fairness": {"columns": ["fashion-mnist/mlp"]},
    "femnist": {"columns": ["Q=0.1, E=2"], "methods": ["fedavg", "map"]},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs are shared by the studies here, as they are for users."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def two_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAP's parameters: the preferred setting and one more, instead of twenty."""
    few = {name: parameters.SETTINGS[name] for name in (parameters.PREFERRED, "alpha 0.5, mmd 0.1")}
    monkeypatch.setattr(parameters, "SETTINGS", few)


def nothing(work: object) -> Any:
    return lambda step, message: None


@pytest.mark.parametrize("name", ORDER)
def test_a_study_goes_from_plan_to_report_and_is_not_done_twice(
    name: str, runs: Path, tmp_path: Path
) -> None:
    study = STUDIES[name]
    choice = study.choice("smoke", **FEW.get(name, {}))
    work = study.work(choice)
    carry_out(work, runs, nothing)
    assert plan(work, runs).left == []

    rows = study.collect(choice, runs)
    written = write_report(study, name, choice, rows, tmp_path)
    assert from_csv(written[0]) == rows
    elsewhere = tmp_path / "another machine"
    assert study.collect(choice, elsewhere) == []
    assert study.collect(choice, elsewhere, from_csv(written[0])) == rows
    assert study.rows_by_name(choice, rows).keys() == {piece.name for piece in work}
    report = study.report(rows)
    tables = [f"{name}-smoke-{t}{end}" for t in report.tables for end in (".md", ".csv", ".tex")]
    figures = [f"{name}-smoke-{t}{end}" for t in report.figures for end in (".png", ".svg")]
    names = [f"{name}-smoke.csv", *tables, *figures, f"{name}-smoke.md"]
    assert [path.name for path in written] == names
    assert all(path.stat().st_size > 100 for path in written)
    assert written[-1].read_text() == as_page(study, f"{name}-smoke", study.cuts("smoke"), report)
    assert len(report.findings) == {
        "parameters": 2,
        "proxy-drift": 6,
        "partial-classes": 3,
        "two-client-demo": 5,
    }.get(name, 0)


def test_a_report_makes_the_folders_that_it_needs(tmp_path: Path) -> None:
    study = STUDIES["fairness"]
    row = {"column": "fashion-mnist/mlp", "seed": 0, "client": 0, "accuracy": 80.0}
    rows = [row | {"method": method} for method in ("fedavg", "map")]
    out = tmp_path / "new" / "deep"
    written = write_report(study, "fairness", study.choice("smoke"), rows, out)
    assert sorted(written) == sorted(out.iterdir())


def test_a_plan_counts_steps_and_seconds(tmp_path: Path) -> None:
    study = STUDIES["proxy-drift"]
    planned = plan(study.work(study.choice("smoke")), tmp_path)
    assert [work.steps for work, _ in planned.left] == [2, 2]
    own = [seconds.of(work.steps) for work, seconds in planned.left]
    assert 0 < sum(own) == planned.seconds < 60


def test_rows_are_the_runs_own_numbers(runs: Path) -> None:
    study = STUDIES["table-1-2"]
    choice = study.choice("smoke", methods=["fedavg"], seeds=(0, 1))
    work = study.work(choice)
    carry_out(work, runs, nothing)
    finals = [json.loads((runs / run.name / "final.json").read_text()) for run in work]
    found = [row["global_last_10"] for row in study.collect(choice, runs)]
    assert found == [round(100 * final["global_accuracy_last_10"], 2) for final in finals]
    assert found[0] != found[1]


def test_a_study_that_is_half_done_reports_what_there_is(tmp_path: Path) -> None:
    for name in ("missing-features", "partial-classes"):
        study = STUDIES[name]
        choice = study.choice("smoke")
        carry_out(study.work(choice)[:1], tmp_path, nothing)
        report = study.report(study.collect(choice, tmp_path))
        assert [len(table.lines) for table in report.tables.values()] == [1]


def test_a_page_says_how_much_smaller_the_study_is() -> None:
    study, report = STUDIES["proxy-drift"], Report(notes=["One note."])
    about = f"# {study.line}\n\n{study.paper} of the paper. "
    smaller = as_page(study, "stem", ["2 epochs", "lenet"], report)
    assert smaller == f"{about}Smaller than the paper: 2 epochs, lenet.\n\n- One note.\n"
    assert as_page(study, "stem", [], report) == f"{about}At the paper's scale.\n\n- One note.\n"


def test_a_page_has_its_tables_with_captions_and_its_figures_beside_it() -> None:
    table = Table("Accuracy in %", ["a"], [["1"]])
    page = as_page(STUDIES["fairness"], "stem", [], Report({"t": table}, {"f": Figure()}))
    assert page.endswith("\n\n**Accuracy in %**\n\n| a |\n| --- |\n| 1 |\n\n\n![f](stem-f.png)\n")


def test_a_stopped_study_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    study = STUDIES["table-1-2"]
    work = study.work(study.choice("smoke", methods=["map"], columns=["fashion-mnist/lenet"]))

    def stop(step: int, message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(work, tmp_path / "a", lambda work: stop)
    assert not work[0].done(tmp_path / "a")
    for root in ("a", "b"):
        carry_out(work, tmp_path / root, nothing)
    models = [tmp_path / root / work[0].name / "global.safetensors" for root in ("a", "b")]
    assert models[0].read_bytes() == models[1].read_bytes()


def study_command(*options: str, runs: Path, out: Path) -> Any:
    places = ["--workers", "1", "--runs", str(runs), "--out", str(out)]
    return CliRunner().invoke(app, ["study", *options, *places])


def test_the_command_shows_a_plan_and_can_stop_there(tmp_path: Path) -> None:
    options = ("table-1-2", "--scale", "smoke", "--methods", "fedavg,map", "--plan")
    shown = study_command(*options, runs=tmp_path / "runs", out=tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert "2 to do, 0 done already" in shown.output
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_when_nothing_is_done(tmp_path: Path) -> None:
    options = ("readings", "--scale", "smoke", "--report", "--quiet")
    shown = study_command(*options, runs=tmp_path / "none", out=tmp_path)
    assert isinstance(shown.exception, FedmapError)
    assert str(shown.exception) == "study readings has no finished work to report"


def test_the_command_reports_what_is_done(runs: Path, tmp_path: Path) -> None:
    study = STUDIES["table-1-2"]
    choice = study.choice("smoke", methods=["fedavg", "map"])
    carry_out(study.work(choice), runs, nothing)
    options = ("table-1-2", "--scale", "smoke", "--methods", "fedavg,map", "--report", "--quiet")
    shown = study_command(*options, runs=runs, out=tmp_path)
    assert shown.exit_code == 0, shown.output
    assert bullets(study.report(study.collect(choice, runs))) in shown.output


def test_runs_whose_rows_are_known_are_not_made_again(runs: Path, tmp_path: Path) -> None:
    known, out, elsewhere = (tmp_path / name for name in ("known", "out", "elsewhere"))
    known.mkdir()
    study = STUDIES["table-1-2"]
    choice = study.choice("smoke", methods=["fedavg"])
    carry_out(study.work(choice), runs, nothing)
    rows = [row | {"global": 12.34} for row in study.collect(choice, runs)]  # whatever they say
    (known / "table-1-2-smoke.csv").write_text(to_csv(rows))
    options = ["table-1-2", "--scale", "smoke", "--methods", "fedavg,map", "--known", str(known)]
    shown = study_command(*options, "--plan", runs=elsewhere, out=out)
    assert f"1 are known from {known}" in " ".join(shown.output.split())
    assert "1 to do, 0 done already" in shown.output
    assert study_command(*options, runs=elsewhere, out=out).exit_code == 0
    assert [path.name.partition("-")[0] for path in elsewhere.iterdir()] == ["map"]
    first, second = from_csv(out / "table-1-2-smoke.csv")
    assert first == rows[0]
    assert (second["method"], second["outcome"]) == ("map", "done")


def test_a_run_that_stands_in_two_groups_is_known_by_either(
    finished_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, groups = STUDIES["table-1-2"], ("default", "group 1", "group 2")
    # MAP's group 2 is its default
    three = [
        finished_run([0.5], done=False, group=group, name=name)
        for group, name in zip(groups, "aba", strict=True)
    ]
    monkeypatch.setattr(type(study), "work", lambda study, choice: three)
    known = study.where(three[0]) | {"outcome": "done", "global": 1.0}
    again = known | {"group": "group 2"}
    assert study.collect(Choice("paper"), Path(), [known]) == [known, again]
    assert study.collect(Choice("paper"), Path(), [again]) == [known, again]


def test_other_work_is_not_known() -> None:
    study = STUDIES["table-1-2"]
    choice = study.choice("smoke", methods=["fedavg"], clip=5.0)
    (run,) = study.work(choice)
    row = study.where(run) | {"outcome": "done"}
    assert study.rows_by_name(choice, [row]) == {run.name: [row]}
    others = {"clip": None, "seed": 1, "rounds": 7, "method": "map", "group": "group 1"}
    for name, value in others.items():
        assert study.rows_by_name(choice, [row | {name: value}]) == {}


def test_a_folder_of_known_rows_that_is_not_there_is_named(tmp_path: Path) -> None:
    options = ("readings", "--scale", "smoke", "--known", str(tmp_path / "nowhere"))
    shown = study_command(*options, runs=tmp_path, out=tmp_path)
    assert str(shown.exception) == (
        f"there is no folder {tmp_path / 'nowhere'} to know rows from (--known)"
    )


def test_the_command_lists_the_studies() -> None:
    shown = CliRunner().invoke(app, ["study"])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in STUDIES)
