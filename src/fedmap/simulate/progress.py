"""A round in words, for who waits."""

from collections.abc import Callable

from fedmap.simulate.folder import Record


def percent(share: float | None) -> str:
    """An accuracy in per cent, always five characters; a dash where there is none."""
    return "   - " if share is None else f"{100 * share:4.1f}%"


def by_round(on_step: Callable[[int, str], None]) -> Callable[[Record], None]:
    """What a run calls after each round: the step is the round, shown with both accuracies."""

    def on_round(record: Record) -> None:
        global_, personal = record["global_accuracy"], record["personal_accuracy"]
        on_step(record["round"], f"global {percent(global_)}  personal {percent(personal)}")

    return on_round


def say_early_end(on_step: Callable[[int, str], None], rounds: int, done: int) -> None:
    """What is called after a run's last round: where that came early, no round is missing."""
    if done < rounds:
        on_step(rounds, f"ended early, after round {done}")
