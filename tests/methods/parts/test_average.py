"""The server's averages beside a few lines of numpy, and what they withstand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.methods.parts import average
from fedmap.methods.parts.average import Kind, Rule
from fedmap.values import Stored, Values

Matrix = NDArray[np.float64]
ROBUST: list[Kind] = [kind for kind in get_args(Kind) if kind != "mean"]
FAR = 1e6


def averaged(kind: Kind, x: Matrix, assumed: float = 0.3) -> Matrix:
    ups = [{"model": torch.from_numpy(row.copy())} for row in x]
    return Rule(kind, assumed).of(ups, "model").numpy()


def scores(x: Matrix, bad: int) -> Matrix:
    apart = ((x[:, None] - x[None]) ** 2).sum(2)
    return np.array([np.sort(row)[1 : len(x) - bad - 1].sum() for row in apart])


def reference(kind: Kind, x: Matrix, bad: int) -> Any:
    if kind == "median":
        return np.median(x, 0)
    if kind == "trimmed":
        return np.sort(x, 0)[bad : len(x) - bad].mean(0)
    if kind == "clipped":
        center = np.median(x, 0)
        away = np.linalg.norm(x - center, axis=1)
        factors = np.minimum(1, np.median(away) / away)
        return center + ((x - center) * factors[:, None]).mean(0)
    order = np.argsort(scores(x, bad), kind="stable")
    return x[order[: 1 if kind == "krum" else len(x) - bad]].mean(0)


@pytest.mark.parametrize("kind", ROBUST)
@pytest.mark.parametrize(("uploads", "bad"), [(10, 3), (11, 4), (5, 1)])
def test_a_rule_is_what_its_paper_says(kind: Kind, uploads: int, bad: int) -> None:
    x = np.random.default_rng(uploads).standard_normal((uploads, 7))
    np.testing.assert_allclose(averaged(kind, x, bad / uploads), reference(kind, x, bad))


def test_the_share_of_bad_uploads_is_rounded_up() -> None:
    assert [Rule("krum", 0.3).bad(uploads) for uploads in (9, 10, 11)] == [3, 3, 4]
    assert Rule("krum", 0.0).bad(10) == 0


# All of a column's honest values lie between 0 and 1.
HONEST = arrays(np.float64, (7, 4), elements=st.floats(0, 1, width=32))
BAD = arrays(np.float64, (3, 4), elements=st.floats(-FAR, FAR, width=32))


@given(HONEST, BAD, st.permutations(range(10)))
@settings(max_examples=60, deadline=None)
def test_three_arbitrary_uploads_of_ten_do_not_move_a_column_out_of_the_honest_range(
    honest: Matrix, bad: Matrix, order: Sequence[int]
) -> None:
    x = np.concatenate([honest, bad])[list(order)]
    for kind in ("median", "trimmed"):
        found = averaged(kind, x)
        assert (found >= honest.min(0) - 1e-12).all()
        assert (found <= honest.max(0) + 1e-12).all()


@given(HONEST, BAD, st.permutations(range(10)))
@settings(max_examples=60, deadline=None)
def test_three_arbitrary_uploads_of_ten_leave_krum_near_the_honest_ones(
    honest: Matrix, bad: Matrix, order: Sequence[int]
) -> None:
    """Whoever is chosen scores no worse than an honest one, whose 5 nearest lie within D, and has
    an honest one among its own 5: it is within sqrt(5) D of that one."""
    x = np.concatenate([honest, bad])[list(order)]
    across = max(float(np.linalg.norm(a - b)) for a in honest for b in honest)
    for kind in ("krum", "multi-krum"):
        away = np.linalg.norm(averaged(kind, x) - honest, axis=1).min()
        assert away <= (5**0.5 + 1) * across + 1e-6


@given(HONEST, BAD, st.permutations(range(10)))
@settings(max_examples=60, deadline=None)
def test_three_arbitrary_uploads_of_ten_leave_clipped_near_the_median(
    honest: Matrix, bad: Matrix, order: Sequence[int]
) -> None:
    """The radius is a median of distances, which the honest ones bound."""
    x = np.concatenate([honest, bad])[list(order)]
    center = np.median(x, 0)
    radius = np.linalg.norm(honest - center, axis=1).max()
    assert np.linalg.norm(averaged("clipped", x) - center) <= radius + 1e-9


@pytest.mark.parametrize("kind", ["mean", *ROBUST])
def test_more_bad_uploads_than_a_rule_withstands_break_it(kind: Kind) -> None:
    """The mean falls to one; the others to as many as there are honest ones."""
    bad = 1 if kind == "mean" else 6
    x = np.concatenate([np.linspace(0, 1, 10 - bad)[:, None], np.full((bad, 1), FAR)])
    found = x.mean(0) if kind == "mean" else averaged(kind, x)
    assert found[0] > 1000


@pytest.mark.parametrize("kind", ROBUST)
def test_a_rule_gives_the_same_in_slices_and_from_files(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((9, 50), np.float32))
    ups: list[Values] = [{"model": row.clone()} for row in x]
    whole = Rule(kind, 0.2).of(ups, "model")
    stored = []
    for number, up in enumerate(ups):
        path = tmp_path / f"{number}"
        path.write_bytes(values.save(up))
        stored.append(Stored(path))
    monkeypatch.setattr(average, "ROOM", 9 * 8)  # seven slices
    assert torch.allclose(Rule(kind, 0.2).of(stored, "model"), whole, atol=1e-6)
    if kind == "median":
        assert torch.equal(Rule(kind, 0.2).of(stored, "model"), whole)


def test_of_files_no_more_than_a_slice_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "up"
    path.write_bytes(values.save({"model": torch.arange(20.0), "square": torch.ones(3, 4)}))
    stored = Stored(path)
    assert values.part(stored, "square", slice(5, 9)).tolist() == [1.0] * 4
    monkeypatch.setattr(Stored, "__getitem__", None)
    assert values.part(stored, "model", slice(3, 6)).tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("kind", ROBUST)
def test_entries_of_any_shape_keep_it(kind: Kind) -> None:
    for shape in [(0,), (), (2, 3)]:
        ups: list[Values] = [{"entry": torch.full(shape, 2.0)} for _ in range(5)]
        found = Rule(kind, 0.2).of(ups, "entry")
        assert torch.equal(found, ups[0]["entry"])


@pytest.mark.parametrize(("kind", "uploads"), [("trimmed", 2), ("krum", 8), ("multi-krum", 8)])
def test_too_few_uploads_are_refused(kind: Kind, uploads: int) -> None:
    with pytest.raises(FedmapError, match=f"'{kind}' with .* bad of {uploads} uploads .* at least"):
        averaged(kind, np.zeros((uploads, 2)))
    assert averaged(kind, np.zeros((uploads + 1, 2))).tolist() == [0.0, 0.0]
