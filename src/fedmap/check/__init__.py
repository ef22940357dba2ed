"""check_method: one battery for every method, fedmap's own and anybody's. It needs no data and
takes about a second."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmap.check import leaks
from fedmap.check.parameters import refuses_wrong_parameters
from fedmap.check.require import failed
from fedmap.check.runs import holds_on
from fedmap.check.world import batch_norm, plain
from fedmap.methods import AnyMethod, find_method
from fedmap.nets import NETS


def check_method(method: str | type[AnyMethod], **params: Any) -> None:
    """Assert what every method must hold, for a registered name, a `file.py:Class` or a class;
    `params` are not the defaults.

    An AssertionError says which of these fails, and how: it refuses parameters outside their range;
    it runs two rounds on clients that miss classes, one of which has a single class, on a plain net
    and on one with batch norm; its losses and uploads are finite; it draws from no global random
    generator (torch's is seeded for layers such as dropout); it leaves what it is given as it was;
    its states keep their form and survive a save and load; no upload holds an entry of the state,
    follows samples or labels in another way than by training, or has an entry that is not trained
    from the download, unless `sends` explains it; the record's bytes are what goes down and up; two
    workers, and a stop and resume, give the same bits as one uninterrupted process."""
    checked = find_method(method)
    try:
        refuses_wrong_parameters(checked, params)
        with NETS.lent("plain", plain):
            leaks_nothing(leaks.keeps_shapes, checked(**params))
        for net, features in (("plain", plain), ("batch-norm", batch_norm)):
            with NETS.lent(net, features), tempfile.TemporaryDirectory() as folder:
                holds_on(net, checked, params, Path(folder))
        with NETS.lent("plain", plain):
            leaks_nothing(leaks.look, checked(**params))
    except AssertionError as broken:
        raise AssertionError(f"method {checked.name()}: {broken}") from broken.__cause__


def leaks_nothing(look: Callable[[AnyMethod, str], None], method: AnyMethod) -> None:
    """What `leaks` finds, or what goes wrong on its data."""
    try:
        look(method, "plain")
    except leaks.Found as found:
        raise AssertionError(str(found)) from None
    except Exception as wrong:
        failed(wrong, "it fails on other labels or samples")
