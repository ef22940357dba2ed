"""The page of the whole reproduction, from small CSV files written by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap.errors import FedmapError
from fedmap.paper import STUDIES
from fedmap.paper.claims import gather
from fedmap.paper.page import Tables, claims_part, options, read_reasons, read_results, write_page
from fedmap.paper.study import Row, Scale, to_csv

RunRow = Callable[..., Row]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"
ABOVE = "MAP is above FedAvg in aggregation and in personalization"


def two(run_row: RunRow, gain: float = 1.0, **where: object) -> list[Row]:
    """FedAvg at 80 and 90, MAP so much above."""
    ours = run_row("map", (80.0 + gain, 90.0 + gain), **where)
    return [run_row("fedavg", (80.0, 90.0), **where), ours]


def test_the_claims_come_in_their_order() -> None:
    names = [name for name, _ in gather()]
    assert names == [
        *["table-1-2"] * 4,
        "fairness",
        "parameters",
        "table-3",
        "femnist",
        "missing-features",
        "proxy-drift",
        "partial-classes",
        "two-client-demo",
    ]


def test_a_claim_without_a_file_is_not_tested() -> None:
    _, table = claims_part({}, {})
    lines = table.splitlines()[2:]
    assert len(lines) == len(gather())
    assert lines[0] == f"| {ABOVE} | **not tested** | `fedmap study table-1-2` |"


def test_the_largest_scale_decides(run_row: RunRow) -> None:
    tables: Tables = {
        ("table-1-2", "small"): two(run_row, -1.0),
        ("table-1-2", "paper"): two(run_row, +1.0),
    }
    line = claims_part(tables, {})[1].splitlines()[2]
    numbers = f"{MLP} global 81.0 against 80.0; {MLP} personal 91.0 against 90.0"
    assert line == f"| {ABOVE} | **holds** | {numbers} (table-1-2-paper) |"


def test_a_claim_on_some_of_the_methods_holds_so_far(run_row: RunRow) -> None:
    table = claims_part({("table-1-2", "paper"): two(run_row)}, {})[1]
    assert "| No other method is above MAP in both | **holds, so far** |" in table


def test_a_reason_stands_below_the_table_where_there_are_numbers(run_row: RunRow) -> None:
    reasons = {ABOVE: "By little.", "On FEMNIST MAP is better in every setting": "Too few rounds."}
    parts = claims_part({("table-1-2", "paper"): two(run_row)}, reasons)
    assert parts[2:] == [f"**{ABOVE}.** By little."]


def test_reasons_are_read_by_their_headings(tmp_path: Path) -> None:
    path = tmp_path / "reasons.md"
    path.write_text(f"# Why\n\nWritten by hand.\n\n## {ABOVE}\n\nBy little.\nBut so.\n")
    assert read_reasons(path) == {ABOVE: "By little.\nBut so."}


def test_a_reason_for_no_claim_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "reasons.md"
    path.write_text("# Why\n\n## MAP is the best\n\nIt is.\n")
    with pytest.raises(FedmapError, match="reasons for what is no claim: MAP is the best"):
        read_reasons(path)


def test_the_projects_own_reasons_are_for_claims() -> None:
    assert ABOVE in read_reasons(Path(__file__).parents[2] / "docs" / "reasons.md")


def test_results_are_read_in_order_and_the_joint_look_has_the_tables_runs(
    run_row: RunRow, tmp_path: Path
) -> None:
    for stem in ("table-3-small", "table-1-2-paper"):
        (tmp_path / f"{stem}.csv").write_text(to_csv(two(run_row)))
    tables = read_results(tmp_path)
    assert list(tables) == [("table-1-2", "paper"), ("joint", "paper"), ("table-3", "small")]
    assert tables["joint", "paper"] == tables["table-1-2", "paper"] == two(run_row)


@pytest.mark.parametrize(
    ("name", "scale", "where", "expected"),
    [
        ("readings", "smoke", {}, ""),
        ("readings", "paper", {}, f' --columns "{MLP}"'),
        ("readings", "smoke", {"seed": 1}, " --seeds 1"),
        ("table-1-2", "smoke", {}, " --methods fedavg,map"),
        ("table-1-2", "smoke", {"column": LENET}, f' --columns "{LENET}" --methods fedavg,map'),
        (
            "table-1-2",
            "paper",
            {"seed": 2},
            f' --columns "{MLP}" --methods fedavg,map --defaults --seeds 2',
        ),
        (
            "table-1-2",
            "paper",
            {"group": "group 1"},
            f' --columns "{MLP}" --methods fedavg,map',
        ),
    ],
)
def test_the_options_lead_to_the_rows(
    name: str, scale: Scale, where: dict[str, Any], expected: str, run_row: RunRow
) -> None:
    assert options(name, scale, two(run_row, **where)) == expected


def test_the_page_has_claims_commands_findings_tables_and_pictures(
    run_row: RunRow, tmp_path: Path
) -> None:
    (tmp_path / "table-1-2-paper.csv").write_text(to_csv(two(run_row)))
    (tmp_path / "reasons.md").write_text(f"# Why\n\n## {ABOVE}\n\nBy little.\n")
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    write_page(tmp_path, tmp_path / "reasons.md", page)
    text = page.read_text()
    study = STUDIES["table-1-2"]
    command = f'--scale paper --columns "{MLP}" --methods fedavg,map --defaults'
    cuts = "default parameters instead of the best of three groups, and only the methods below"
    assert f"**{ABOVE}.** By little." in text
    assert f"## {study.line}\n\nTables 1 and 2. Smaller than the paper: {cuts};" in text
    assert f"```\nfedmap study table-1-2 {command}\n```" in text
    assert "- fashion-mnist/mlp, global, mean of the last ten rounds: MAP is +1.0 points" in text
    assert "| MAP | 81.0 | 81.0 | 88.1 | −7.1 |" in text
    picture = "images/reproduction/joint-paper-joint.png"
    assert f"![Both accuracies of every method in one picture: joint]({picture})" in text
    assert (page.parent / picture).stat().st_size > 1000
