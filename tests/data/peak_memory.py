"""How much memory a call takes, for the tests with hostile files."""

import tracemalloc
from collections.abc import Callable


def peak_memory(call: Callable[[], object]) -> int:
    """The most bytes that the call holds at once."""
    tracemalloc.start()
    try:
        call()
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most
