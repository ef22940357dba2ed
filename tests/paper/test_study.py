"""What every study does: a checked choice, and rows to CSV and back."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedmap.cli.main import app
from fedmap.errors import FedmapError
from fedmap.experiment.work import Work
from fedmap.methods import variant
from fedmap.paper import STUDIES, Choice
from fedmap.paper.claims import ORDER
from fedmap.paper.finding import Finding, Verdict
from fedmap.paper.study import Report, from_csv, names_of, to_csv
from fedmap.paper.tables.table_1_2 import Tables12

TABLES = STUDIES["table-1-2"]


def test_every_study_has_its_place_in_the_order() -> None:
    assert sorted(STUDIES) == sorted(ORDER)


def test_a_choice_takes_the_columns_of_its_scale_and_all_methods() -> None:
    choice = TABLES.choice("small", seeds=(3,))
    assert choice.columns == tuple(TABLES.columns[:4])
    assert choice.methods == tuple(TABLES.methods)
    assert (choice.scale, choice.seeds, choice.defaults_only) == ("small", (3,), False)


def test_given_columns_and_methods_are_taken_instead() -> None:
    choice = TABLES.choice("paper", columns=["cifar-10/vgg8"], methods=["map", "fedavg"])
    assert (choice.columns, choice.methods) == (("cifar-10/vgg8",), ("map", "fedavg"))


def test_without_a_word_a_study_has_one_seed_and_one_worker() -> None:
    choice = TABLES.choice("paper")
    assert (choice.seeds, choice.workers, choice.data_dir) == ((0,), 1, None)


@pytest.mark.parametrize("name", ORDER)
def test_a_scale_has_its_number_of_columns(name: str) -> None:
    scales = ("smoke", "small", "paper")
    counts = {
        "table-1-2": [1, 4, 8],
        "joint": [1, 4, 8],
        "table-3": [1, 2, 3],
        "fairness": [2, 3, 8],
        "parameters": [1, 3, 6],
        "readings": [1, 2, 2],
        "femnist": [6, 6, 6],
        "federations": [2, 7, 7],
        "robust": [1, 3, 3],
    }.get(name, [0, 0, 0])
    assert [len(STUDIES[name].choice(scale).columns) for scale in scales] == counts


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scale": "huge"}, "there is no scale 'huge'; there are: smoke, small, paper"),
        (
            {"scale": "smoke", "columns": ["fashion-mnist/lenet5"]},
            "no column 'fashion-mnist/lenet5'; did you mean 'fashion-mnist/lenet'",
        ),
        ({"scale": "smoke", "methods": ["fedsgd"]}, "has no method 'fedsgd'"),
        ({"scale": "smoke", "methods": ["fedsgd[alpha=1]"]}, "has no method 'fedsgd'"),
        ({"scale": "smoke", "methods": ["map[alpha]"]}, r"'map\[alpha\]' is not of the form"),
        ({"scale": "smoke", "methods": ["map[alpha=1"]}, r"'map\[alpha=1' is not of the form"),
        (
            {"scale": "smoke", "params": {"alphas": 1}},
            "no parameter 'alphas'; did you mean 'alpha'",
        ),
    ],
)
def test_a_wrong_choice_is_one_clear_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedmapError, match=sentence):
        TABLES.choice(**given)


def test_a_study_of_single_nets_takes_no_clip_and_no_parameters() -> None:
    for given in ({"clip": 1.0}, {"params": {"alpha": 1}}):
        with pytest.raises(FedmapError, match="no --clip and no --param"):
            STUDIES["proxy-drift"].choice("smoke", **given)


def test_a_variant_has_a_method_and_values() -> None:
    assert variant("map") == ("map", {})
    values = {"alpha": 0.5, "transfer": "mmd", "own": True}
    assert variant("map[alpha=0.5,transfer=mmd,own=true]") == ("map", values)


def test_beside_columns_and_methods_a_study_leaves_nothing_out_unless_it_says_so() -> None:
    assert STUDIES["proxy-drift"].not_run([{"seed": 0}]) == []


def test_a_study_without_columns_says_so() -> None:
    with pytest.raises(FedmapError, match="no column 'mnist/lenet'; it has none"):
        STUDIES["proxy-drift"].choice("smoke", columns=["mnist/lenet"])


@pytest.mark.parametrize(("options", "expected"), [([], False), (["--defaults"], True)])
def test_the_commands_defaults_reach_the_study(
    options: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Choice] = []

    def work(study: Tables12, choice: Choice) -> list[Work]:
        seen.append(choice)
        return []

    monkeypatch.setattr(Tables12, "work", work)
    command = ["study", "table-1-2", "--scale", "paper", "--plan", "--runs", str(tmp_path)]
    shown = CliRunner().invoke(app, [*command, *options])
    assert shown.exit_code == 0, shown.output
    assert [choice.defaults_only for choice in seen] == [expected]


def test_rows_come_back_from_csv_with_their_types(tmp_path: Path) -> None:
    rows = [
        {"column": "a, b", "seed": 0, "accuracy": 91.25, "client": None},
        {"column": "c", "seed": 1, "accuracy": -0.5, "client": 7},
    ]
    (tmp_path / "rows.csv").write_text(to_csv(rows))
    assert from_csv(tmp_path / "rows.csv") == rows
    assert isinstance(from_csv(tmp_path / "rows.csv")[0]["seed"], int)


def test_no_rows_have_no_head() -> None:
    assert to_csv([]) == "\n"
    assert to_csv([{"seed": 0, "x": None}]) == "seed,x\n0,\n"


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match=r"there is no file .*rows\.csv"):
        from_csv(tmp_path / "rows.csv")


def test_names_come_once_and_in_the_order_of_the_rows() -> None:
    assert names_of([{"a": 2}, {"a": 1}, {"a": 2}], "a") == [2, 1]


def test_a_report_tells_its_findings_before_its_notes() -> None:
    report = Report(findings=[Finding("Less", Verdict.FAILS, "3")], notes=["One diverged."])
    assert report.sentences() == ["3. Less: does not hold.", "One diverged."]
