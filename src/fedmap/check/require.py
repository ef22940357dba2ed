"""How the battery says what is wrong."""

from typing import NoReturn

from fedmap.errors import FedmapError


def require(holds: bool, sentence: str) -> None:
    """An assertion that stays one under `python -O`."""
    if not holds:
        raise AssertionError(sentence)


def failed(wrong: Exception, what: str) -> NoReturn:
    """A property's own sentence where an engine has wrapped it; else what went wrong."""
    broken = wrong if isinstance(wrong, AssertionError) else wrong.__cause__
    if isinstance(broken, AssertionError) and str(broken):
        raise broken
    raise AssertionError(
        f"{what}: {wrong if isinstance(wrong, FedmapError) else repr(wrong)}"
    ) from wrong
