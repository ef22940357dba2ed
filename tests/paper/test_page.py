"""The pages of the whole reproduction, from small CSV files written by hand and from our own."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedmap.errors import FedmapError
from fedmap.paper import STUDIES
from fedmap.paper.claims import gather
from fedmap.paper.page import (
    Pages,
    Tables,
    as_block,
    as_sentence,
    choice_of,
    commands_of,
    facts,
    gaps,
    judge,
    listed,
    methods_not_run,
    overview,
    pages,
    part_by_part,
    read_reasons,
    read_results,
    to_come,
    wrapped,
    write_pages,
)
from fedmap.paper.study import Claim, Row, to_csv

ROOT = Path(__file__).parents[2]
RunRow = Callable[..., Row]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"
ABOVE = "MAP is above FedAvg in aggregation and in personalization"


def two(run_row: RunRow, gain: float = 1.0, **where: object) -> list[Row]:
    """FedAvg at 80 and 90, MAP so much above."""
    ours = run_row("map", (80.0 + gain, 90.0 + gain), **where)
    return [run_row("fedavg", (80.0, 90.0), **where), ours]


def three(run_row: RunRow, gain: float = 1.0) -> list[Row]:
    """The same with three seeds."""
    return [r for seed in range(3) for r in two(run_row, gain, seed=seed)]


def test_the_claims_come_in_their_order() -> None:
    names = [name for name, _ in gather()]
    assert names == [
        *["table-1-2"] * 4,
        "fairness",
        *["parameters"] * 2,
        "table-3",
        "femnist",
        "missing-features",
        "proxy-drift",
        "partial-classes",
        "two-client-demo",
    ]


@pytest.mark.parametrize("claim", [claim for _, claim in gather()], ids=lambda claim: claim.text)
def test_every_claim_says_when_it_holds_and_when_in_part(claim: Claim) -> None:
    assert re.fullmatch(r"[A-Z][^\n]+; in part: [^\n]+\.", claim.condition)


def test_a_claim_without_a_file_is_not_tested() -> None:
    lines = overview({}).splitlines()
    claims = [line for line in lines if line.startswith("| ")][2:]
    assert len(claims) == len(gather())
    link = "[table-1-2](reproduction/table-1-2.md)"
    assert claims[0] == f"| {ABOVE} | **not tested** | not run yet | {link} |"


def test_the_largest_scale_that_can_decides(run_row: RunRow) -> None:
    small, paper = three(run_row, -1.0), three(run_row, +1.0)
    tables: Tables = {("table-1-2", "paper"): paper, ("table-1-2", "small"): small}
    claim = gather()[0][1]

    def verdict_and_scale() -> tuple[str, str | None]:
        finding, scale = judge("table-1-2", claim, tables)
        return finding.verdict, scale

    assert verdict_and_scale() == ("holds", "paper")
    tables["table-1-2", "paper"] = paper[:2]
    assert verdict_and_scale() == ("does not hold", "small")
    tables["table-1-2", "small"] = small[:2]
    assert verdict_and_scale() == ("not tested", "paper")
    tables.clear()
    assert verdict_and_scale() == ("not tested", None)


def test_a_verdict_of_the_small_scale_says_so(run_row: RunRow) -> None:
    def line(tables: Tables) -> str:
        return next(line for line in overview(tables).splitlines() if ABOVE in line)

    number = "global +1.00 ± 0.00, personal +1.00 ± 0.00, 1 of 8 columns, "
    number += "2 of 2 gains by more than chance, 2 by seeds alone"
    rows, begun = three(run_row), two(run_row)
    assert f" | {number} (small scale) | " in line({("table-1-2", "small"): rows})
    both: Tables = {("table-1-2", "paper"): begun, ("table-1-2", "small"): rows}
    assert f" | {number} (small scale) | " in line(both)
    both = {("table-1-2", "paper"): rows, ("table-1-2", "small"): rows}
    assert f" | {number} | " in line(both)
    few = "no column has MAP and FedAvg with enough seeds"
    assert f" | **not tested** | {few} | " in line({("table-1-2", "small"): begun})


def test_a_line_has_the_verdict_and_one_number_with_its_error(run_row: RunRow) -> None:
    names = ("table-1-2", "joint", "readings")
    text = overview({(name, "paper"): three(run_row) for name in names})
    number = "global +1.00 ± 0.00, personal +1.00 ± 0.00, 1 of 8 columns, "
    number += "2 of 2 gains by more than chance, 2 by seeds alone"
    link = "[table-1-2](reproduction/table-1-2.md)"
    assert f"| {ABOVE} | **holds, so far** | {number} | {link} |" in text
    assert "| No other method is above MAP in both | **not tested** |" in text
    others = ", ".join(f"[{name}](reproduction/{name}.md)" for name in names[1:])
    assert f"\n\nWithout a claim of their own: {others}.\n\n## " in text
    assert "Without a claim" not in overview({("table-1-2", "paper"): three(run_row)})


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
    assert ABOVE in read_reasons(ROOT / "docs/reproduction/reasons.md")


def test_results_are_read_in_order_and_the_joint_look_has_the_tables_runs(
    run_row: RunRow, tmp_path: Path
) -> None:
    for stem in ("table-3-small", "table-1-2-paper"):
        (tmp_path / f"{stem}.csv").write_text(to_csv(two(run_row)))
    tables = read_results(tmp_path)
    assert list(tables) == [("table-1-2", "paper"), ("joint", "paper"), ("table-3", "small")]
    assert tables["joint", "paper"] == tables["table-1-2", "paper"] == two(run_row)


def test_the_queues_commands_are_shown_with_what_is_to_come(run_row: RunRow) -> None:
    queue = [
        "fedmap study table-1-2 --scale small --seeds 0,1,2",
        "fedmap study table-1-2 --scale small --methods map",
        "fedmap study table-1-2 --scale paper",
    ]
    assert commands_of("joint", "small", queue) == queue[:2]
    assert as_block("table-1-2", "small", queue) == f"```\n{queue[0]}\n{queue[1]}\n```"
    assert as_block("joint", "smoke", queue) == "```\nfedmap study joint --scale smoke\n```"


def test_runs_without_a_row_are_to_come_whichever_command_has_them() -> None:
    study = STUDIES["table-1-2"]
    plain = "fedmap study table-1-2 --scale small --methods"
    queue = [f"{plain} fedavg,map --seeds 0,1 --columns {MLP}", f'{plain} "map[alpha=0.5],fedavg"']
    work = [study.where(run) for line in queue for run in study.work(choice_of(study, line))]
    columns = len(study.default_columns("small"))
    assert len(work) == 2 * 2 + 2 * columns
    # FedAvg with seed 0 is in both commands
    others = [f"2 runs of {name}" for name in study.default_columns("small") if name != MLP]
    assert to_come(study, queue, []) == f"To come: {', '.join([f'5 runs of {MLP}', *others])}."
    first = [row for row in work if row["column"] == MLP]
    assert to_come(study, queue, first) == f"To come: {', '.join(others)}."
    assert to_come(study, queue[:1], first[1:]) == ""  # the other command has the row
    assert to_come(study, queue[:1], first[1:4]) == f"To come: 1 run of {MLP} (fedavg)."
    assert to_come(study, queue, work) == ""


def test_runs_with_another_limit_on_gradients_are_still_to_come() -> None:
    study = STUDIES["table-1-2"]
    plain = f"fedmap study table-1-2 --scale small --methods map --columns {MLP}"
    (run,) = study.work(choice_of(study, plain))
    for clip in (None, 5.0):
        rows = [study.where(run) | {"clip": clip}]
        assert to_come(study, [f"{plain} --clip 100"], rows) == f"To come: 1 run of {MLP} (map)."
        assert (to_come(study, [plain], rows) == "") == (clip is None)


def test_trainings_in_one_place_are_to_come_too() -> None:
    study, command = STUDIES["proxy-drift"], "fedmap study proxy-drift --scale small --seeds 0,1"
    assert to_come(study, [command], []) == "To come: 4 runs."
    three = [study.where(work) for work in study.work(choice_of(study, command))][:3]
    assert to_come(study, [command], three) == "To come: 1 run."


def test_several_parts_of_a_sentence_are_a_list() -> None:
    assert part_by_part("Not run: all of it.") == "Not run: all of it."
    assert part_by_part("Not run: a, b; c on d.") == "Not run:\n\n- a, b\n- c on d"
    assert part_by_part("") == ""


def test_facts_are_seeds_limits_and_what_was_not_run(run_row: RunRow) -> None:
    study = STUDIES["readings"]
    rows = two(run_row, seed=2)
    assert facts(study, rows) == "Seed 2 alone; no limit on gradients."
    assert gaps(study, rows) == f"Not run: {LENET}."
    more = two(run_row, clip=100.0, column=LENET)
    found = facts(study, rows + more)
    seeds = f"Seeds: 2 of {MLP}; 0 of {LENET}"
    assert found == f"{seeds}; no limit on gradients and gradients up to 100."
    assert gaps(study, rows + more) == ""
    uneven = [*three(run_row), run_row("fedrs", (80.0, 90.0), seed=1)]
    assert facts(study, uneven).startswith("Seeds 0, 1, 2 (1 alone: fedrs); no limit")
    uneven += [run_row(name, (80.0, 90.0)) for name in ("local", "ditto")]
    assert facts(study, uneven).startswith("Seeds 0, 1, 2 (1 alone: fedrs; 0 alone: local, ditto)")
    uneven += [run_row(name, (80.0, 90.0)) for name in ("moon", "fednova", "fedprox", "fedopt")]
    assert facts(study, uneven).startswith("Seeds 0, 1, 2 (1 alone: fedrs; 0 alone: 6 others)")
    assert "gradients up to 100" in facts(STUDIES["robust"], [{"seed": 0, "column": "labels"}])
    missing = gaps(STUDIES["table-1-2"], rows).partition("; all methods but ")[2]
    assert missing.startswith("fedavg, map; ")
    assert missing.endswith(f"; the three groups of parameters on {MLP}.")
    assert facts(STUDIES["proxy-drift"], [{"seed": 0}]) == "Seed 0 alone; no limit on gradients."


def test_methods_that_were_not_run_are_named_by_column(run_row: RunRow) -> None:
    study = STUDIES["femnist"]  # FedAvg, Scaffold, FedROD and MAP
    first, second = [
        [run_row(m, (80.0, 90.0), column=column) for m in study.methods] for column in ("a", "b")
    ]
    assert methods_not_run(study, first + second) == []
    assert methods_not_run(study, first[:3] + second[:3]) == ["the methods map"]
    assert methods_not_run(study, first[:3] + second) == ["the methods map on a"]
    assert methods_not_run(study, first[:2] + second) == ["the methods fedrod, map on a"]
    assert methods_not_run(study, first[:1] + second[3:]) == [
        "all methods but fedavg on a",
        "all methods but map on b",
    ]
    assert methods_not_run(study, first[:1] + second[:1]) == ["all methods but fedavg"]
    another = run_row("map[preset=own]", (80.0, 90.0), column="a")
    assert methods_not_run(study, [*first[:3], another]) == []  # a variant is the method


def test_text_is_in_lines_of_a_hundred_columns_and_sentences_are_whole() -> None:
    assert wrapped("a" * 60 + " " + "b" * 60) == "a" * 60 + "\n" + "b" * 60
    assert listed(["one", "b" * 60 + " " + "c" * 60]) == f"- one\n- {'b' * 60}\n  {'c' * 60}"
    assert as_sentence("personal: MAP is 3.") == "Personal: MAP is 3."
    assert as_sentence("") == "."
    for name in ("n_c / sum n: 3", "fashion-mnist/mlp, above MAP: none"):
        assert as_sentence(name) == f"{name}."


def test_the_pages_have_claims_commands_findings_tables_and_pictures(
    run_row: RunRow, tmp_path: Path
) -> None:
    (tmp_path / "table-1-2-paper.csv").write_text(to_csv(three(run_row)))
    (tmp_path / "reasons.md").write_text(f"# Why\n\n## {ABOVE}\n\nBy little.\n")
    (tmp_path / "queue.toml").write_text("commands = ['fedmap study table-1-2 --scale paper']")
    docs = tmp_path / "docs"
    write_pages(tmp_path, tmp_path / "reasons.md", docs)
    text = (docs / "reproduction/table-1-2.md").read_text()
    assert text.startswith(f"# {STUDIES['table-1-2'].line}\n\nTables 1 and 2 of the paper. ")
    rule = (
        "*When it holds:* MAP with its default setting is above FedAvg in both accuracies in every"
    )
    assert f"## {ABOVE}: holds, so far\n\n{rule}" in text
    own = wrapped(f"*In the paper's own numbers* {STUDIES['table-1-2'].claims()[0].printed}")
    assert f"of these.\n\n{own}\n\n- {MLP} +1.00 ± 0.00 global" in text
    assert "personal.\n\nBy little.\n\n## " in text
    assert "## Runs at the scale `paper`\n\nAt the paper's scale. Seeds 0, 1, 2; no limit" in text
    assert "```\nfedmap study table-1-2 --scale paper\n```" in text
    assert "- fashion-mnist/mlp, MAP from FedAvg with one setting for both goals: default" in text
    assert "| MAP | 81.0 ± 0.0 | +1.00 ± 0.00 | 81.0 | 88.1 |" in text
    picture = "images/reproduction/joint-paper-joint.png"
    assert f"joint](../{picture})" in (docs / "reproduction/joint.md").read_text()
    assert (docs / picture).stat().st_size > 1000
    never = (docs / "reproduction/femnist.md").read_text()
    plain = "```\nfedmap study femnist --scale small\n```\n"
    assert never.endswith(f"\n\n## How to run it at the scale `small`\n\n{plain}")
    assert "## How to run it" not in text
    assert "- Not run yet." in never
    assert (docs / "reproduction.md").read_text() == overview(read_results(tmp_path))
    assert not (docs / "reproduction/readings.md").exists()


def test_a_page_has_the_queued_commands_of_every_scale_without_rows(
    run_row: RunRow, tmp_path: Path
) -> None:
    (tmp_path / "table-1-2-paper.csv").write_text(to_csv(three(run_row)))
    (tmp_path / "reasons.md").write_text("# Why\n")
    queue = [
        "fedmap study table-1-2 --scale paper --seeds 0,1,2",
        "fedmap study table-1-2 --scale small --seeds 0,1",
        "fedmap study table-1-2 --scale small --seeds 2",
        "fedmap study femnist --scale paper --seeds 4",
    ]
    (tmp_path / "queue.toml").write_text(f"commands = {queue}")
    texts = pages(tmp_path, tmp_path / "reasons.md").texts
    small = f"\n\n## How to run it at the scale `small`\n\n```\n{queue[1]}\n{queue[2]}\n```\n"
    for name in ("table-1-2", "joint"):
        text = texts[f"reproduction/{name}.md"]
        assert text.endswith(small)
        assert text.count("## How to run it") == 1
    femnist = texts["reproduction/femnist.md"]
    paper = f"\n\n## How to run it at the scale `paper`\n\n```\n{queue[3]}\n```\n"
    assert femnist.endswith(paper)
    assert femnist.count("## How to run it") == 1


@pytest.fixture(scope="module")
def made() -> Pages:
    """The project's own pages, made now."""
    return pages(ROOT / "results", ROOT / "docs/reproduction/reasons.md")


def test_the_projects_pages_are_what_its_numbers_give(made: Pages) -> None:
    for place, text in made.texts.items():
        assert (ROOT / "docs" / place).read_text() == text, "run scripts/write_reproduction.py"
    kept = {path.name for path in (ROOT / "docs/reproduction").glob("*.md")} - {"reasons.md"}
    assert kept == {Path(place).name for place in made.texts} - {"reproduction.md"}
    pictures = {path.name for path in (ROOT / "docs/images/reproduction").iterdir()}
    assert pictures == set(made.pictures)


def test_the_gains_in_the_readme_stand_on_the_page_of_tables_1_and_2(made: Pages) -> None:
    (said,) = re.findall(
        r"The paper's MAP gains.*?With few", (ROOT / "README.md").read_text(), re.S
    )
    gains = re.findall(r"\d\.\d\d(?: ± \d\.\d\d)?", said)
    assert len(gains) == 8
    page = " ".join(made.texts["reproduction/table-1-2.md"].split())
    for gain in gains:
        assert re.search(rf"\+{re.escape(gain)}(?!\d)", page), gain


def test_no_paragraph_has_more_than_five_lines_and_the_first_page_is_one_screen(
    made: Pages,
) -> None:
    for place, text in made.texts.items():
        for paragraph in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n\n"):
            for item in re.split(r"^- ", paragraph, flags=re.MULTILINE):
                table = item.startswith("|")
                assert table or len(item.strip().splitlines()) <= 5, f"{place}: {item[:80]}"
    assert len(made.texts["reproduction.md"].splitlines()) <= 40
