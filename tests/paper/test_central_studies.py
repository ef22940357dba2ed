from pathlib import Path

import pytest

from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out, plan
from fedmap.paper.figures import missing_features, partial_classes, proxy_drift, two_client_demo  # noqa: F401 (each registers its study)
from fedmap.paper.figures.missing_features import View, point
from fedmap.paper.figures.two_client_demo import TwoClientDemo, drops
from fedmap.paper.report import write_report
from fedmap.paper.study import STUDIES, from_csv

NAMES = ["missing-features", "proxy-drift", "partial-classes", "two-client-demo"]


@pytest.mark.parametrize("name", NAMES)
def test_a_study_goes_from_plan_to_report(name: str, tmp_path: Path) -> None:
    study, root, out = STUDIES[name], tmp_path / "runs", tmp_path / "out"
    choice = study.choice("smoke")
    planned = plan(study.work(choice), root)
    assert planned.left
    assert 0 < planned.seconds < 60
    steps: list[int] = []
    carry_out(
        [piece for piece, _ in planned.left],
        root,
        lambda piece: lambda number, said: steps.append(number),
    )
    assert len(steps) == sum(piece.steps for piece, _ in planned.left)
    assert not plan(study.work(choice), root).left

    rows = study.collect(choice, root)
    written = write_report(study, name, choice, rows, out)
    endings = [path.suffix for path in written]
    assert {".csv", ".md", ".tex", ".png", ".svg"} <= set(endings)
    assert all(path.stat().st_size for path in written)
    assert (out / f"{name}-smoke.csv").stat().st_size < 300_000
    findings = [line for line in written[-1].read_text().splitlines() if line.startswith("- ")]
    assert len(findings) >= 3
    assert all(
        finding.endswith((": holds.", ": holds in part.", ": does not hold."))
        for finding in findings
    )
    assert from_csv(out / f"{name}-smoke.csv") == rows


def test_a_study_that_is_half_done_reports_what_there_is(tmp_path: Path) -> None:
    for name in ("missing-features", "partial-classes"):
        study = STUDIES[name]
        choice = study.choice("smoke")
        carry_out(study.work(choice)[:1], tmp_path, lambda piece: lambda number, said: None)
        report = study.report(study.collect(choice, tmp_path))
        assert report.figures
        assert all(len(table.lines) == 1 for table in report.tables.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_scale_cuts_nothing_and_the_others_say_what(name: str) -> None:
    study = STUDIES[name]
    assert study.cuts("paper") == []
    assert any("training images" in cut for cut in study.cuts("small"))
    assert any("fashion-mini" in cut for cut in study.cuts("smoke"))


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_choice_is_an_error_that_says_what_there_is(name: str) -> None:
    with pytest.raises(FedmapError, match="there are: smoke, small, paper"):
        STUDIES[name].choice("huge")
    with pytest.raises(FedmapError, match="no column 'mnist/lenet'"):
        STUDIES[name].choice("smoke", columns=["mnist/lenet"])


def test_the_printed_settings_at_the_papers_scale() -> None:
    drift, *more = STUDIES["proxy-drift"].work(STUDIES["proxy-drift"].choice("paper"))
    assert not more
    assert (drift.data, drift.net, drift.classes, drift.epochs) == ("cifar-10", "vgg11-bn", 8, 50)  # type: ignore[attr-defined]
    assert (drift.lr, drift.momentum, drift.samples) == (0.03, 0.9, None)  # type: ignore[attr-defined]
    classes = [
        piece.classes
        for piece in STUDIES["partial-classes"].work(STUDIES["partial-classes"].choice("paper"))
    ]  # type: ignore[attr-defined]
    assert classes == [10, 20, 30, 40, 50, 60, 70, 80, 100]


def test_a_demo_stopped_after_any_round_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    def stop(number: int, said: str) -> None:
        if number == 2:
            raise KeyboardInterrupt

    work = TwoClientDemo().work(TwoClientDemo().choice("smoke"))[
        1
    ]  # MAP, whose clients keep a model
    work.go(tmp_path / "whole", lambda number, said: None)
    with pytest.raises(KeyboardInterrupt):
        work.go(tmp_path / "parts", stop)
    work.go(tmp_path / "parts", lambda number, said: None)
    whole, parts = (
        (tmp_path / root / work.name / "measured.csv").read_bytes() for root in ("whole", "parts")
    )
    assert parts == whole


def test_a_view_measures_norms_directions_and_looseness() -> None:
    dots = [
        point("feature", 0, 3, 0),
        point("feature", 0, 5, 0),
        point("feature", 1, 0, 4),
        point("feature", 1, 0, 4),
    ]
    seen = View(
        [*dots, point("proxy", 0, 2, 0), point("proxy", 1, 0, 2), point("proxy", 2, -1, -1)], {0, 1}
    )
    assert seen.missing == [2]
    assert seen.norm(seen.observed) == 2
    assert seen.against() == [pytest.approx(-1)]
    assert seen.looseness() == pytest.approx(0.5 / 4)


def test_a_drop_is_the_personal_model_above_the_next_download() -> None:
    def row(number: int, moment: str, accuracy: float) -> dict[str, object]:
        return {
            "method": "FedAvg",
            "seed": 0,
            "round": number,
            "moment": moment,
            "client": "A",
        } | point("accuracy", None, accuracy)

    rows = [
        row(1, "download", 10),
        row(1, "personal", 90),
        row(2, "download", 50),
        row(2, "personal", 95),
    ]
    assert drops(rows, "FedAvg") == [40]
