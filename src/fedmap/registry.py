"""Names for methods, nets, datasets and partitions: look-up with the nearest name suggested, and
packages' entry points."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from fedmap.errors import FedmapError

T = TypeVar("T")
_all: list["Registry[Any]"] = []


def nearest(name: str, names: Iterable[str]) -> str:
    """Half a sentence for an unknown name: the nearest one if there is one, then all of them."""
    names = sorted(names)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"there are: {', '.join(names)}"


def headline(thing: object) -> str:
    """What a thing is, in one line: the first paragraph of its docstring."""
    return " ".join((thing.__doc__ or "").partition("\n\n")[0].split())


class Registry(Generic[T]):
    """A dictionary of things that users choose by name, open to other packages through the entry
    points `fedmap.<kind>s`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}
        self._entry_points_loaded = False
        _all.append(self)

    def add(self, name: str) -> Callable[[T], T]:
        """Decorator: register the thing under this name."""

        def register(thing: T) -> T:
            before = self._things.get(name)
            if before is not None and getattr(before, "__module__", None) != getattr(
                thing, "__module__", None
            ):
                raise FedmapError(
                    f"{self.kind} {name!r} is registered already, by "
                    f"{getattr(before, '__module__', before)}; choose another name"
                )
            self._things[name] = thing
            return thing

        return register

    @contextmanager
    def restored(self) -> Iterator[None]:
        """What is registered inside is forgotten afterwards."""
        before = self._things.copy()
        try:
            yield
        finally:
            self._things = before

    @contextmanager
    def lent(self, name: str, thing: T) -> Iterator[None]:
        """Inside, the name means this thing."""
        with self.restored():
            self._things[name] = thing
            yield

    def _load_entry_points(self) -> None:
        if not self._entry_points_loaded:
            self._entry_points_loaded = True
            for point in entry_points(group=f"fedmap.{self.kind}s"):
                self._things.setdefault(point.name, point.load())

    def __getitem__(self, name: str) -> T:
        self._load_entry_points()
        if name not in self._things:
            raise FedmapError(f"there is no {self.kind} {name!r}; {nearest(name, self)}")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        self._load_entry_points()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(self._things)

    def values(self) -> list[T]:
        """All things, in the order of their registration."""
        return [self._things[name] for name in self]

    def items(self) -> list[tuple[str, T]]:
        """All names with their things."""
        return [(name, self._things[name]) for name in self]


@contextmanager
def all_restored() -> Iterator[None]:
    """What is registered inside, in whichever registry, is forgotten afterwards."""
    with ExitStack() as stack:
        for registry in _all:
            stack.enter_context(registry.restored())
        yield
