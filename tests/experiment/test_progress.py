"""How far an experiment is, by a clock of our own."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from fedmap.experiment.plan import carry_out, plan
from fedmap.experiment.progress import Progress, Seconds, Watch
from fedmap.experiment.work import OnStep, Work


class Fake:
    """Work that counts: a step takes `seconds` by the plan."""

    def __init__(self, name: str, steps: int = 2, seconds: float = 1.0, end: float = 0.0) -> None:
        self.name = name
        self.label = f"label of {name}"
        self.steps = steps
        self.seconds = seconds
        self.end = end
        self.gone = 0

    def done(self, root: Path) -> bool:
        return (root / self.name).exists()

    def seconds_a_step(self) -> float:
        return self.seconds

    def seconds_at_end(self) -> float:
        return self.end

    def go(self, root: Path, on_step: OnStep) -> None:
        self.gone += 1
        for step in range(1, self.steps + 1):
            on_step(step, f"at {step}")
        (root / self.name).touch()


def silent(work: Work) -> OnStep:
    return lambda step, now: None


def watched(
    pieces: list[tuple[Fake, float]], second: Callable[[], float], before: Sequence[int] = ()
) -> tuple[Watch, list[Progress]]:
    """Each piece with the seconds that all its steps are foreseen to take."""
    seen: list[Progress] = []
    work = [(piece, Seconds(whole / piece.steps, piece.end)) for piece, whole in pieces]
    return Watch(work, seen.append, second, before), seen


def clock(*readings: float) -> Callable[[], float]:
    """The first reading is when the watch is made."""
    return iter(readings).__next__


def test_a_plan_tells_what_is_done_from_what_is_left_with_its_seconds(tmp_path: Path) -> None:
    done, left = Fake("a"), Fake("b", steps=3, seconds=4)
    (tmp_path / "a").touch()
    planned = plan([done, left], tmp_path)
    assert planned.done == [done]
    assert planned.left == [(left, Seconds(4))]
    assert planned.seconds == 12


def test_the_seconds_of_a_plan_are_those_of_all_that_is_left(tmp_path: Path) -> None:
    assert plan([Fake("a", 2, 3), Fake("b", 4, 5, end=7)], tmp_path).seconds == 33


def test_work_that_is_asked_for_twice_is_planned_once(tmp_path: Path) -> None:
    assert len(plan([Fake("a"), Fake("a")], tmp_path).left) == 1


def test_work_is_carried_out_in_its_order(tmp_path: Path) -> None:
    order: list[str] = []

    def on_step(work: Work) -> OnStep:
        order.append(work.name)
        return lambda step, now: None

    carry_out([Fake("b"), Fake("a")], tmp_path, on_step)
    assert order == ["b", "a"]


def test_work_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    pieces = [Fake("a"), Fake("b")]
    (tmp_path / "a").touch()
    carry_out(pieces, tmp_path, silent)
    assert [piece.gone for piece in pieces] == [0, 1]


def test_a_step_is_shown_with_its_piece_and_its_words() -> None:
    work = Fake("a", steps=4)
    watch, seen = watched([(work, 4)], clock(0, 1))
    watch.of(work)(1, "well")
    assert seen == [Progress("label of a", 1, 4, "well", 1, 0.25, 3.0)]


def test_the_time_left_follows_from_the_speed_so_far() -> None:
    first, second = Fake("a", steps=2), Fake("b", steps=2)
    # the plan says 10 and 30 seconds; really, everything takes twice as long
    watch, seen = watched([(first, 10), (second, 30)], clock(0, 10, 20, 20, 50))
    on_step = watch.of(first)
    on_step(1, "")
    on_step(2, "")
    watch.of(second)(1, "")
    assert [progress.seconds_left for progress in seen] == pytest.approx([70, 60, 30])
    assert [progress.share for progress in seen] == pytest.approx([0.125, 0.25, 0.625])


def test_steps_that_were_done_before_a_stop_do_not_count_as_speed() -> None:
    work = Fake("a", steps=10)
    watch, seen = watched([(work, 10)], clock(0, 3))
    watch.of(work)(8, "")  # resumed: the first step that is seen
    assert seen[0].share == pytest.approx(0.8)
    assert seen[0].seconds_left == pytest.approx(6)


def test_work_that_ends_early_is_done_and_does_not_speed_up_the_rest() -> None:
    first, second = Fake("a", steps=10), Fake("b", steps=10)
    watch, seen = watched([(first, 10), (second, 10)], clock(0, 1, 2, 2, 3))
    on_step = watch.of(first)
    on_step(1, "")
    on_step(2, "")
    on_step(10, "early")
    watch.of(second)(1, "")
    assert (seen[2].step, seen[2].steps, seen[2].now) == (2, 2, "early")
    assert [progress.share for progress in seen[2:]] == pytest.approx([0.5, 0.55])
    assert [progress.seconds_left for progress in seen[2:]] == pytest.approx([10, 9])


def test_work_that_is_skipped_counts_as_done_without_speeding_up_the_rest() -> None:
    skipped, work = Fake("a", steps=2), Fake("b", steps=2)
    watch, seen = watched([(skipped, 2), (work, 2)], clock(0, 5))
    watch.of(work)(1, "")
    assert seen[0].share == pytest.approx(0.75)
    assert seen[0].seconds_left == pytest.approx(5)


def test_pieces_that_go_on_at_once_count_each_for_what_is_left_of_it() -> None:
    first, second = Fake("a", steps=2), Fake("b", steps=2)
    watch, seen = watched([(first, 2), (second, 2), (Fake("c"), 4)], clock(0, 1, 2, 3))
    on_first, on_second = watch.of(first), watch.of(second)
    on_first(1, "")
    on_second(1, "")
    on_second(2, "")
    assert [progress.share for progress in seen] == pytest.approx([1 / 8, 2 / 8, 3 / 8])
    assert [progress.seconds_left for progress in seen] == pytest.approx([7, 6, 5])


def test_the_watch_knows_how_many_pieces_there_are() -> None:
    pieces = [(Fake(name), 1.0) for name in "abc"]
    watch, seen = watched(pieces, clock(0, 1))
    watch.of(pieces[1][0])(1, "")
    assert seen[0].pieces == 3


def real(first: float, rest: float, end: float, steps: int) -> list[float]:
    """When the steps of a run really end, its first one slower; then its own end."""
    times = [first, *([rest] * (steps - 1))]
    return [*accumulate(times), sum(times) + end]


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("off", [0.5, 1.0, 3.0])
def test_the_time_left_is_right_within_a_fifth_after_the_first_tenth(
    off: float, seeds: int
) -> None:
    """Methods that cost differently, foreseen up to a tenth wrong beside each other, and all
    together `off` times too short; the first round and the end of a run take their own time."""
    costs = {"local": 0.8, "fedavg": 1.0, "map": 2.9, "scamap": 4.3}
    wrong = {"local": 1.1, "fedavg": 0.95, "map": 0.92, "scamap": 1.08}
    steps, ends = 30, 4.0
    pieces = {
        (name, seed): (
            Fake(f"{name} {seed}", steps, end=costs[name] * ends * wrong[name]),
            costs[name] * steps * wrong[name],
        )
        for seed in range(seeds)
        for name in costs
    }
    now = 0.0
    watch, seen = watched(list(pieces.values()), lambda: now)
    when: list[float] = []
    began = 0.0
    for (name, _), (piece, _) in pieces.items():
        cost = off * costs[name]
        *times, end = real(1.5 * cost, cost, ends * cost, steps)
        now = began
        on_step = watch.of(piece)
        for step, time in enumerate(times, 1):
            now = began + time
            on_step(step, "")
            when.append(now)
        began += end
    for progress, time in zip(seen, when, strict=True):
        if 0.1 * began < time and progress.step < steps:
            assert progress.seconds_left == pytest.approx(began - time, rel=0.2)


def test_runs_that_are_finished_are_shown_and_count_as_finished() -> None:
    first, second, third = Fake("a", 4), Fake("b", 4), Fake("c", 4)
    watch, seen = watched([(first, 4), (second, 4), (third, 4)], clock(0, 10), [0, 0, 4])
    assert [(one.label, one.step, one.now) for one in seen] == [
        ("label of c", 4, "finished before")
    ]
    assert seen[0].share == pytest.approx(1 / 3)
    watch.of(first)(1, "")
    assert seen[1].seconds_left == pytest.approx(70)  # of seven steps


def test_steps_of_a_later_piece_that_are_done_need_not_be_waited_for() -> None:
    first, second = Fake("a", 4), Fake("b", 4)
    watch, seen = watched([(first, 4), (second, 4)], clock(0, 10), [0, 3])
    watch.of(first)(1, "")
    assert seen[0].seconds_left == pytest.approx(40)


def test_the_end_of_a_piece_is_not_taken_for_a_slow_step_of_the_next() -> None:
    first, second = Fake("a", 2, end=10), Fake("b", 2, end=10)
    watch, seen = watched([(first, 2), (second, 2)], clock(0, 1, 2, 12, 13))
    on_step = watch.of(first)
    on_step(1, "")
    on_step(2, "")
    watch.of(second)(1, "")  # begun ten seconds after the last step
    assert seen[0].seconds_left == pytest.approx(1 + 10 + 2 + 10)
    assert seen[2].seconds_left == pytest.approx(1 + 10)
