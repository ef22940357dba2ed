from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from fedmap.errors import FedmapError
from fedmap.params import allowed, checked


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    alpha: float = Field(0.5, ge=0, le=1)
    steps: int = Field(3, gt=0)
    mode: Literal["a", "b", "c"] = "a"
    rate: float = Field(1.0, gt=0, lt=2)
    kind: Literal["x", "y"] | None = None
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("alpha", 2, "thing: alpha is 2; allowed: number from 0 up to 1"),
        ("alpha", "much", "thing: alpha is 'much'; allowed: number from 0 up to 1"),
        ("steps", 0, "thing: steps is 0; allowed: whole number above 0"),
        ("steps", 1.5, "thing: steps is 1.5; allowed: whole number above 0"),
        ("mode", "d", "thing: mode is 'd'; allowed: a, b or c"),
        ("kind", "d", "thing: kind is 'd'; allowed: x or y"),
        ("size", 0, "thing: size is 0; allowed: value above 0"),
        (
            "alhpa",
            1,
            "thing has no parameter 'alhpa'; did you mean 'alpha'? there are: alpha, kind, mode, "
            "rate, size, steps",
        ),
    ],
)
def test_a_wrong_parameter_gets_one_sentence(name: str, value: object, sentence: str) -> None:
    with pytest.raises(FedmapError) as wrong:
        checked(Params, {name: value}, "thing")
    assert str(wrong.value) == sentence


def test_nan_is_no_number_in_a_range() -> None:
    with pytest.raises(FedmapError, match="alpha is nan"):
        checked(Params, {"alpha": float("nan")}, "thing")


def test_what_is_allowed_is_said_in_words() -> None:
    assert allowed(Params.model_fields["rate"]) == "number above 0 below 2"
