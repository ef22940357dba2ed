"""What the paper says of tables 1 and 2, judged by rows that are written by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from fedmap.methods import METHODS
from fedmap.paper import STUDIES
from fedmap.paper.finding import Estimate, Verdict
from fedmap.paper.published import PUBLISHED
from fedmap.paper.study import GOALS, Claim, Row
from fedmap.paper.tables.verdicts_1_2 import METHODS_OF

RunRow = Callable[..., Row]
MLP, LENET, TFCNN = "fashion-mnist/mlp", "fashion-mnist/lenet", "cifar-10/tfcnn"
TABLES = STUDIES["table-1-2"]
ABOVE, SINGLES, HPM, NOBODY = TABLES.claims()
COMBINED = ("dittors", "scars", "map", "scamap")
NO_RIVALS = ("map", "scamap", "fedrs", "fedavg")


def seeds(
    run_row: RunRow, method: str, steady: float | None, own: float, **where: Any
) -> list[Row]:
    """Three seeds: the global model's last ten rounds, and all clients."""
    numbers = {"outcome": "done"} | where
    return [run_row(method, (steady, own), seed=seed, **numbers) for seed in range(3)]


@pytest.mark.parametrize(
    ("ours", "verdict", "won", "small"),
    [
        ((81.0, 91.0), Verdict.HOLDS, 2, ""),
        ((81.0, 89.0), Verdict.FAILS, 1, ""),
        ((79.0, 91.0), Verdict.FAILS, 1, ""),
        ((79.0, 89.0), Verdict.FAILS, 0, ""),
        ((80.0, 91.0), Verdict.FAILS, 1, " (global too small to count)"),
        ((80.0, 90.0), Verdict.FAILS, 0, " (global and personal too small to count)"),
    ],
)
def test_map_is_above_fedavg_with_three_seeds(
    ours: tuple[float, float], verdict: Verdict, won: int, small: str, run_row: RunRow
) -> None:
    rows = seeds(run_row, "fedavg", 80.0, 90.0) + seeds(run_row, "map", *ours)
    rows += seeds(run_row, "map", 99.0, 99.0, group="group 1")  # the default decides
    finding = ABOVE.judge(rows)
    assert finding.verdict is verdict
    gains = [Estimate(a - b, 0.0) for a, b in zip(ours, (80.0, 90.0), strict=True)]
    told = f"{gains[0]} global and {gains[1]} personal"
    assert finding.numbers == f"{MLP} {told}{small}"
    assert finding.short == (
        f"global {gains[0]}, personal {gains[1]}, 1 of 8 columns, {won} of 2 gains by more than "
        f"chance, {won} by seeds alone"
    )
    assert finding.so_far
    assert ABOVE.judge([r for r in rows if r["seed"] < 2]).verdict is Verdict.NOT_TESTED


@pytest.mark.parametrize(("gain", "verdict"), [(2.4, Verdict.FAILS), (2.6, Verdict.HOLDS)])
def test_a_gain_that_three_seeds_may_give_by_chance_is_none(
    gain: float, verdict: Verdict, run_row: RunRow
) -> None:
    rows = seeds(run_row, "fedavg", 80.0, 90.0)
    rows += [run_row("map", (79.0 + gain + s, 91.0), seed=s) for s in range(3)]
    assert ABOVE.judge(rows).verdict is verdict  # 4.3 standard errors of 0.577 are 2.48


def test_map_is_above_fedavg_in_part_if_in_more_than_half_of_the_numbers(run_row: RunRow) -> None:
    rows = [r for c in (MLP, LENET) for r in seeds(run_row, "fedavg", 80.0, 90.0, column=c)]
    rows += seeds(run_row, "map", 81.0, 91.0)
    three = seeds(run_row, "map", 81.0, 89.0, column=LENET)
    assert ABOVE.judge(rows + three).verdict is Verdict.IN_PART
    rows += [run_row("map", (79.0 - s, 89.0 - s), column=LENET, seed=s) for s in range(3)]
    finding = ABOVE.judge(rows)
    assert finding.verdict is Verdict.FAILS
    # LeNet: the seeds' −1, −2, −3 have the error (2 / 2 / 3) ** 0.5, the six clients'
    # (4 / 5 / 6) ** 0.5
    assert finding.numbers == (
        f"{MLP} +1.00 ± 0.00 global and +1.00 ± 0.00 personal; "
        f"{LENET} −2.00 ± 0.58 global and −2.00 ± 0.37 personal (global too small to count)"
    )
    assert finding.short == (
        "global −2.00 ± 0.58 to +1.00 ± 0.00, personal −2.00 ± 0.37 to +1.00 ± 0.00, 2 of 8 "
        "columns, 2 of 4 gains by more than chance, 2 by seeds alone"
    )


@pytest.mark.parametrize("seed", [0, 4])
def test_a_single_seed_has_no_error_over_seeds(run_row: RunRow, seed: int) -> None:
    rows = seeds(run_row, "fedavg", 80.0, 90.0) + seeds(run_row, "map", 81.0, 91.0)
    alone = [("fedavg", (50.0, 70.0)), ("map", (53.6, 73.0))]
    rows += [run_row(m, last, column=TFCNN, seed=seed) for m, last in alone]
    finding = ABOVE.judge(rows)
    assert finding.verdict is Verdict.HOLDS
    assert finding.short == (
        "global +1.00 ± 0.00 to +3.60, personal +1.00 ± 0.00 to +3.00 ± 0.00, 2 of 8 columns, "
        "4 of 4 gains by more than chance, 3 by seeds alone"
    )
    only = ABOVE.judge([r for r in rows if r["column"] == TFCNN])
    assert only.short == (
        "global +3.60, personal +3.00 ± 0.00, 1 of 8 columns, 2 of 2 gains by more than chance, "
        "1 by seeds alone"
    )
    # one more seed of FedAvg alone changes nothing
    more = run_row("fedavg", (50.0, 70.0), column=TFCNN, seed=seed + 1)
    assert ABOVE.judge([*rows, more]).short == finding.short


@pytest.mark.parametrize(("gain", "verdict"), [(3.4, Verdict.FAILS), (3.6, Verdict.HOLDS)])
def test_between_two_single_runs_3_and_a_half_points_count(
    gain: float, verdict: Verdict, run_row: RunRow
) -> None:
    rows = [
        run_row("fedavg", (50.0, 70.0), column=TFCNN),
        run_row("map", (50.0 + gain, 71.0), column=TFCNN),
    ]
    assert ABOVE.judge(rows).verdict is verdict


def test_a_column_without_one_of_maps_numbers_does_not_count(run_row: RunRow) -> None:
    rows = [r for c in (MLP, LENET) for r in seeds(run_row, "fedavg", 80.0, 90.0, column=c)]
    rows += seeds(run_row, "map", 81.0, 91.0) + seeds(run_row, "map", None, 89.0, column=LENET)
    finding = ABOVE.judge(rows)
    assert finding.verdict is Verdict.HOLDS
    assert LENET not in finding.numbers


def singles(run_row: RunRow, goal: str, **scores: float) -> list[Row]:
    """All methods of the paper, at 50 where nothing else is given."""
    both = METHODS_OF["global"]
    return [
        r
        for m in METHODS_OF[goal]
        for r in seeds(run_row, m, scores.get(m, 50.0) if m in both else None, scores.get(m, 50.0))
    ]


def all_but(goal: str, *methods: str) -> list[str]:
    """The names of the paper's other methods."""
    return [METHODS[m].__name__ for m in METHODS_OF[goal] if m not in methods]


SINGLE = " and ".join(all_but("global", *COMBINED, "fedrs", "scaffold"))


@pytest.mark.parametrize(
    ("scores", "verdict", "above"),
    [
        (
            {"fedrs": 60.0, "scaffold": 61.0, "map": 70.0, "scamap": 70.0},
            Verdict.HOLDS,
            ("none", "none"),
        ),
        ({"fedrs": 60.0, "scaffold": 55.0, "ditto": 55.0}, Verdict.HOLDS, ("none", "none")),
        ({"fedrs": 60.0, "scaffold": 55.0, "ditto": 56.0}, Verdict.IN_PART, ("none", "Ditto")),
        (
            {"fedrs": 60.0, "scaffold": 55.0, "ditto": 56.0, "moon": 61.0},
            Verdict.FAILS,
            ("MOON", "MOON and Ditto", "MOON"),
        ),
        ({"fedrs": 49.0, "scaffold": 61.0}, Verdict.IN_PART, (SINGLE, "none")),
        ({"fedrs": 50.0, "scaffold": 50.0}, Verdict.FAILS, ("none", "none")),
        ({"fedrs": 49.0, "scaffold": 48.0}, Verdict.FAILS, (SINGLE, SINGLE, "15")),
    ],
)
def test_the_best_single_methods_for_aggregation(
    scores: dict[str, float], verdict: Verdict, above: tuple[str, ...], run_row: RunRow
) -> None:
    finding = SINGLES.judge(singles(run_row, "global", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, True)  # one column alone
    gains = [Estimate(scores[m] - 50, 0.0) for m in ("fedrs", "scaffold")]
    told = f"FedRS {gains[0]}, Scaffold {gains[1]} from FedAvg"
    small = " (FedRS and Scaffold too small to count)" if scores["fedrs"] == 50 else ""
    assert finding.numbers == (
        f"{MLP}: {told}{small}. Of 15 other single methods with enough seeds: {above[0]} above "
        f"FedRS, {above[1]} above Scaffold"
    )
    won = [
        f"{name} in {int(gain.mean > 0)} of 1"
        for name, gain in zip(("FedRS", "Scaffold"), gains, strict=True)
    ]
    counts = f"above it by more than chance: {', '.join(won)}"
    both = "".join(f", above both in a column: {some}" for some in above[2:])
    assert finding.short == f"{told}, 1 of 8 columns, {counts}{both}"


@pytest.mark.parametrize(
    ("scores", "verdict", "above"),
    [
        ({"fedphp": 60.0, "map": 70.0}, Verdict.HOLDS, "none"),
        ({"fedphp": 60.0, "ditto": 61.0}, Verdict.FAILS, "Ditto"),
        (
            {"fedphp": 49.0},
            Verdict.FAILS,
            " and ".join(all_but("personal", *COMBINED, "fedphp")),
        ),
    ],
)
def test_the_best_single_method_for_personalization(
    scores: dict[str, float], verdict: Verdict, above: str, run_row: RunRow
) -> None:
    finding = HPM.judge(singles(run_row, "personal", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, True)  # one column alone
    told = f"FedPHP {Estimate(scores['fedphp'] - 50, 0.0)} from FedAvg"
    assert finding.numbers == (
        f"{MLP}: {told}. Of 18 other single methods with enough seeds: {above} above FedPHP"
    )
    won = f"FedPHP in {int(scores['fedphp'] > 50)} of 1"
    rival = {"none": "", "Ditto": ", above it in a column: Ditto"}.get(
        above, ", above it in a column: 18"
    )
    assert finding.short == (
        f"{told}, 1 of 8 columns, above it by more than chance: {won}, by seeds alone in "
        f"{int(scores['fedphp'] > 50)}{rival}"
    )


def test_a_ranking_tells_what_the_best_groups_gain(run_row: RunRow) -> None:
    rows = singles(run_row, "global", fedrs=60.0, scaffold=61.0)
    rows += [r for i in (1, 2) for r in seeds(run_row, "fedrs", 60.0 + i, 0.0, group=f"group {i}")]
    assert "best group" not in SINGLES.judge(rows).numbers
    rows += seeds(run_row, "fedrs", 55.0, 99.0, group="group 3", **{"global": 90.0})
    told = SINGLES.judge(rows).numbers.split("; ")
    # chosen by the last round, as the paper does
    assert told[1:] == [f"{MLP}, with the best group: FedRS +5.00 ± 0.00 (group 3)"]


@pytest.mark.parametrize(("gains", "told"), [((0.6, 0.9, 0.0), True), ((0.6, 0.9, 0.7), False)])
def test_a_personal_gain_that_seeds_alone_would_not_decide_says_so(
    gains: tuple[float, ...], told: bool, run_row: RunRow
) -> None:
    rows = seeds(run_row, "fedavg", 80.0, 90.0)
    for method in ("map", "fedphp"):
        for seed, gain in enumerate(gains):
            many = " ".join([f"{90 + gain:.2f}"] * 50)
            rows.append(run_row(method, (81.0, 90.0 + gain), seed=seed, per_client=many))
    for r in rows[:3]:
        r["per_client"] = " ".join(["90.00"] * 50)
    for claim, name in ((ABOVE, "MAP"), (HPM, "FedPHP")):
        finding = claim.judge(rows)
        # the seeds' mean of 0.5 has the error (0.21 / 3) ** 0.5, 4.3 times which is 1.14
        words = f"; {MLP}, by seeds alone too small to count: {name} +0.50 ± 0.26"
        assert (words in finding.numbers) == told
        assert finding.verdict is Verdict.HOLDS


def test_a_rankings_numbers_are_the_least_and_the_most_of_the_columns(run_row: RunRow) -> None:
    rows = singles(run_row, "global", fedrs=60.0, scaffold=61.0)
    more = singles(run_row, "global", fedrs=54.0, scaffold=48.0)
    finding = SINGLES.judge(rows + [r | {"column": LENET} for r in more])
    told = "FedRS +4.00 ± 0.00 to +10.00 ± 0.00, Scaffold −2.00 ± 0.00 to +11.00 ± 0.00 from FedAvg"
    won = "above it by more than chance: FedRS in 2 of 2, Scaffold in 1 of 2"
    assert finding.short == f"{told}, 2 of 8 columns, {won}"  # FedRS is best in both
    first, second = finding.numbers.split("; ")
    assert first.startswith(f"{MLP}: FedRS +10.00 ± 0.00, Scaffold +11.00 ± 0.00 from FedAvg. ")
    assert second.startswith(f"{LENET}: FedRS +4.00 ± 0.00, Scaffold −2.00 ± 0.00 from FedAvg. ")


def test_a_ranking_holds_so_far_while_methods_are_missing(run_row: RunRow) -> None:
    rows = [r for m, v in {"fedavg": 7.0, "fedphp": 9.0}.items() for r in seeds(run_row, m, v, v)]
    finding = HPM.judge([*rows, run_row("ditto", (99.0, 99.0))])  # one seed does not count
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)
    others = "1 other single method with enough seeds"
    assert finding.numbers.endswith(f". Of {others}: none above FedPHP")


@pytest.mark.parametrize(
    ("scores", "verdict", "above"),
    [
        ({"map": 60.0, "scamap": 61.0}, Verdict.HOLDS, []),
        ({"map": 60.0, "ditto": 60.0}, Verdict.HOLDS, []),
        ({"map": 60.0, "ditto": 61.0}, Verdict.FAILS, ["Ditto"]),
        ({"map": 49.0, "ditto": 61.0}, Verdict.FAILS, all_but("global", *NO_RIVALS)),
    ],
)
def test_nobody_is_above_map_in_both(
    scores: dict[str, float], verdict: Verdict, above: list[str], run_row: RunRow
) -> None:
    finding = NOBODY.judge(singles(run_row, "personal", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, True)  # one column alone
    first, means = finding.numbers.split("; ")
    assert first == f"{MLP}, above MAP in both, of 17: {', '.join(above) or 'none'}"
    told = [f"{name} ({scores['ditto'] - scores['map']:+.2f} ± 0.00 and " for name in above[:1]]
    among = f"{MLP}, by their means alone, of 17 rivals with any seed: "
    assert means.startswith(among + "".join(told if above == ["Ditto"] else []))
    count = "17" if len(above) > 3 else ", ".join(above) or "none"
    assert finding.short == f"{count} of 17 rivals (there are 17), 1 of 8 columns"


def test_the_worst_column_decides_who_is_the_best_single_method(run_row: RunRow) -> None:
    good = {"fedrs": 60.0, "scaffold": 61.0}
    fair, bad = {"fedrs": 60.0, "ditto": 61.0}, {"fedrs": 49.0}
    first = singles(run_row, "global", **good)
    for scores, verdict in ((good, "HOLDS"), (fair, "IN_PART"), (bad, "FAILS")):
        second = [r | {"column": LENET} for r in singles(run_row, "global", **scores)]
        assert SINGLES.judge(first + second).verdict is Verdict[verdict]


def test_nobody_above_map_in_one_of_two_columns_is_in_part(run_row: RunRow) -> None:
    first, second = (singles(run_row, "global", map=60.0, ditto=ditto) for ditto in (60.0, 61.0))
    finding = NOBODY.judge(first + [r | {"column": LENET} for r in second])
    assert finding.verdict is Verdict.IN_PART
    assert finding.short == "Ditto of 17 rivals (there are 17), 2 of 8 columns"


def test_columns_without_another_method_do_not_count_and_all_others_do(run_row: RunRow) -> None:
    three = {"fedavg": 50.0, "map": 60.0, "ditto": 55.0}
    rows = [r for m, v in three.items() for r in seeds(run_row, m, v, v)]
    alone = [run_row(m, (v, v), column=TFCNN) for m, v in (("fedavg", 50.0), ("map", 40.0))]
    assert NOBODY.judge(alone).verdict is Verdict.NOT_TESTED
    finding = NOBODY.judge([*rows, *alone])
    assert finding.verdict is Verdict.HOLDS
    assert finding.short == "none of 1 rival (there are 17), 1 of 8 columns"
    more = NOBODY.judge([*rows, *alone, run_row("fedrod", (50.0, 50.0), column=TFCNN)])
    assert more.verdict is Verdict.IN_PART
    assert more.short == "FedROD of 2 rivals (there are 17), 2 of 8 columns"


@pytest.mark.parametrize("claim", TABLES.claims(), ids=lambda claim: claim.text)
def test_with_every_method_in_every_column_there_is_no_reservation(
    claim: Claim, run_row: RunRow
) -> None:
    good = {"map": 60.0, "fedrs": 60.0, "scaffold": 60.0, "fedphp": 60.0}
    rows = [r | {"column": c} for c in TABLES.columns for r in singles(run_row, "personal", **good)]
    finding = claim.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, False)


def test_map_above_fedavg_in_one_accuracy_alone_is_not_above_it(run_row: RunRow) -> None:
    rows = seeds(run_row, "fedavg", 50.0, 50.0) + seeds(run_row, "map", 60.0, 49.0)
    finding = NOBODY.judge(rows + seeds(run_row, "ditto", 61.0, 61.0))
    assert finding.verdict is Verdict.FAILS


def test_a_method_above_map_in_one_accuracy_alone_is_not_above_it(run_row: RunRow) -> None:
    rows = seeds(run_row, "fedavg", 50.0, 50.0) + seeds(run_row, "map", 60.0, 60.0)
    rows += seeds(run_row, "fedrod", 61.0, 59.0) + seeds(run_row, "ditto", 59.0, 61.0)
    finding = NOBODY.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)


@pytest.mark.parametrize("claim", TABLES.claims(), ids=lambda claim: claim.text)
def test_a_claim_without_its_methods_is_not_tested(claim: Claim, run_row: RunRow) -> None:
    for method in ("map", "fedavg", "fedrs"):
        finding = claim.judge(seeds(run_row, method, 50.0, 50.0))
        assert finding.verdict is Verdict.NOT_TESTED
        assert finding.numbers.startswith("no column has ")


def test_the_papers_own_numbers_stand_beside_the_claims() -> None:
    assert ABOVE.printed == "MAP is above FedAvg in 15 of 16; not in personal of cinic-10/resnet56."
    assert SINGLES.printed == (
        "FedRS is above FedAvg in 8 of 8 columns, and no other single method is above it in 4; "
        "Scaffold is above FedAvg in 7 of 8 columns, and no other single method is above it in 5."
    )
    assert HPM.printed == (
        "FedPHP is above FedAvg in 8 of 8 columns, and no other single method is above it in 5."
    )
    assert NOBODY.printed == (
        "above MAP in both are ScaRS on cifar-10/tfcnn and cifar-100/vgg8-bn, FedMMD on "
        "cifar-100/vgg11, FedPHP on cifar-100/vgg11, FedRS on cinic-10/resnet56; in the averages "
        "over columns nobody is."
    )
    own = {goal: PUBLISHED[goal]["map", "average"] for goal in GOALS}
    for method in METHODS_OF["global"]:
        assert any(PUBLISHED[goal][method, "average"] <= own[goal] for goal in GOALS)
