"""The engine that runs one task after the other in this process."""

from collections.abc import Sequence

from fedmap.errors import FedmapError
from fedmap.simulate.engines.base import ENGINES, do_and_keep, failed, refuse_timeout
from fedmap.simulate.store import StateStore
from fedmap.simulate.tasks import Reply, Setup, TaskName
from fedmap.values import Values


@ENGINES.add("local")
class LocalEngine:
    """One task after the other in this process."""

    def __init__(self, setup: Setup, store: StateStore) -> None:
        refuse_timeout(setup, "local")
        self.setup = setup
        self.store = store

    def ready(self) -> range:
        """Everybody."""
        return range(len(self.setup.federation))

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        """Run one task for each key."""
        return [self._one(task, round, key, down) for key in keys]

    def _one(self, task: TaskName, round: int, key: int, down: Values) -> Reply:
        try:
            return do_and_keep(self.setup, self.store, task, round, key, down)
        except FedmapError:
            raise
        except (Exception, SystemExit) as wrong:
            raise failed(self.setup, task, round, key) from wrong

    def close(self) -> None:
        """There is nothing to end."""
