"""FedVLS: the masked softmax, the download's ranking of missing classes, the suppression."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.methods.conftest import World, assert_gradient
from tests.methods.differences import client_of
from torch import Tensor

from fedmap import FedmapError, check_method
from fedmap.methods.fedrod import FedROD
from fedmap.methods.fedvls import FedVLS, Form, among_missing, suppressed

COUNTS = torch.tensor([6, 0, 3, 0, 0])
Y = torch.tensor([0, 2, 0, 0, 2, 0])
FORMS: list[Form] = ["code", "paper"]
form_of_it = pytest.mark.parametrize("form", FORMS)


def two_logits(classes: int = 5) -> tuple[Tensor, Tensor]:
    """A student's and a teacher's."""
    rng = torch.Generator().manual_seed(0)
    g, t = 2 * torch.randn(2, len(Y), classes, generator=rng, dtype=torch.float64)
    return g, t


def ranking(g: Tensor, t: Tensor, n: Tensor) -> Tensor:
    """The divergence over the list of missing classes."""
    missing = [c for c in range(len(n)) if n[c] == 0]
    q_t, q_s = torch.softmax(t[:, missing], 1), torch.softmax(g[:, missing], 1)
    return (q_t * (q_t / q_s).log()).sum(1).mean()


def pressure(g: Tensor, y: Tensor, n: Tensor, form: Form) -> Tensor:
    """The suppression class by class, sample by sample."""
    total, one, none = g.new_zeros(()), g.new_ones(()), g.new_zeros(())
    for c in range(len(n)):
        if n[c] == 0 or (form == "paper" and bool((y == c).all())):
            continue
        p = n[c] / n.sum()
        if form == "code":
            entries = [one if y[i] == c else g[i, c].exp() / (p * len(n)) for i in range(len(y))]
        else:
            entries = [none if y[i] == c else g[i, c].exp() for i in range(len(y))]
        total = total + p * (torch.stack(entries).sum() / len(y)).log()
    return total


def masked_softmax(g: Tensor, y: Tensor, n: Tensor) -> Tensor:
    """By its definition, in odds."""
    odds = g.exp() * n / n.sum()
    return -(odds[torch.arange(len(y)), y] / odds.sum(1)).log().mean()


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_its_two_terms_its_global_model_is_fedrods_to_the_bit(
    world: World, net: str
) -> None:
    ours = world.play(FedVLS(weight=0, suppression=0), net=net)
    assert world.same(ours, world.play(FedROD(), net=net))


@form_of_it
def test_two_rounds_agree_with_the_three_terms_written_out(world: World, form: Form) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedVLS(weight=2, suppression=0.3, form=form)), 1):
        uploads = []
        for k in range(3):
            n = world.federation.counts[k]

            def loss(w: Tensor, x: Tensor, y: Tensor, start: Tensor = w, n: Tensor = n) -> Tensor:
                g, t = world.logits(w, x), world.logits(start, x)
                told = 2 * ranking(g, t, n) + 0.3 * pressure(g, y, n, form)
                return masked_softmax(g, y, n) + told

            uploads.append(world.sgd(w, world.batches(k, round), loss))
        w = world.mean(uploads)
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


def test_the_gradient_of_the_ranking_agrees_with_finite_differences() -> None:
    g, t = two_logits()
    assert_gradient(lambda g: among_missing(g, t, COUNTS), lambda g: ranking(g, t, COUNTS), g)


def test_the_ranking_moves_missing_classes_alone_by_the_difference_of_the_softmaxes() -> None:
    g, t = two_logits()
    g.requires_grad_()
    (gradient,) = torch.autograd.grad(among_missing(g, t, COUNTS), g)
    q_s, q_t = (torch.softmax(logits.detach()[:, [1, 3, 4]], 1) for logits in (g, t))
    torch.testing.assert_close(gradient[:, [1, 3, 4]], (q_s - q_t) / len(Y))
    assert torch.equal(gradient[:, [0, 2]], torch.zeros(len(Y), 2).double())


@pytest.mark.parametrize("counts", [[6, 1, 3, 2, 2], [6, 1, 3, 2, 0]])
def test_with_one_missing_class_or_none_there_is_no_ranking(counts: list[int]) -> None:
    g, t = two_logits()
    g.requires_grad_()
    value = among_missing(g, t, torch.tensor(counts))
    assert value == 0
    assert torch.equal(torch.autograd.grad(value, g)[0], torch.zeros_like(g))


def test_with_one_missing_class_every_weight_gives_the_same_bits() -> None:
    down = {"model": torch.linspace(-1, 1, 88)}
    none, much = (
        FedVLS(weight=weight).local_round(client_of([0, 1, 2] * 4), down, {}).up["model"]
        for weight in (0, 50)
    )
    assert torch.equal(none, much)
    assert not torch.equal(none, down["model"])


def test_what_the_teacher_says_of_all_classes_alike_or_of_observed_ones_changes_nothing() -> None:
    g, t = two_logits()
    other = t + 5
    other[:, [0, 2]] -= 30
    torch.testing.assert_close(among_missing(g, t, COUNTS), among_missing(g, other, COUNTS))


def test_before_the_first_step_student_and_teacher_agree(world: World) -> None:
    client = world.client(0, 1)
    model, ((x, y),) = client.model(world.initial().vector), world.batches(0, 1, 1)
    losses = [
        FedVLS(weight=weight).local_loss(client, {"model": model.vector}, {})(model, x, y)
        for weight in (0, 1000)
    ]
    assert abs(float((losses[1] - losses[0]).detach())) < 1e-3


@form_of_it
@pytest.mark.parametrize("y", [Y, torch.zeros(6, dtype=torch.long)])
def test_the_gradient_of_the_suppression_agrees_with_finite_differences(
    form: Form, y: Tensor
) -> None:
    """Also of a batch of one class."""
    g, _ = two_logits()
    assert_gradient(
        lambda g: suppressed(g, y, COUNTS, form), lambda g: pressure(g, y, COUNTS, form), g
    )


@form_of_it
def test_logits_of_labels_and_of_missing_classes_are_not_suppressed(form: Form) -> None:
    g, _ = two_logits()
    g.requires_grad_()
    (gradient,) = torch.autograd.grad(suppressed(g, Y, COUNTS, form), g)
    held = torch.tensor([[c in (0, 2) and c != label for c in range(5)] for label in Y.tolist()])
    assert torch.equal(gradient > 0, held)
    assert torch.equal(gradient != 0, held)


@given(st.floats(0.01, 20), st.floats(-10, 10))
@settings(max_examples=25, deadline=None)
def test_raising_all_logits_costs_less_than_that_in_the_form_of_the_code(
    more: float, start: float
) -> None:
    g = two_logits()[0] + start
    rise = {form: suppressed(g + more, Y, COUNTS, form) - suppressed(g, Y, COUNTS, form)
            for form in FORMS}  # fmt: skip
    assert 0 < rise["code"] < more
    assert float(rise["paper"]) == pytest.approx(more)  # so the paper's has no lower bound


def test_logits_too_large_for_an_exponential_stay_finite() -> None:
    g, _ = two_logits()
    for form in FORMS:
        assert torch.isfinite(suppressed(1000 * g.float(), Y, COUNTS, form))


def test_without_the_two_terms_proxies_of_missing_classes_do_not_move(world: World) -> None:
    (still,) = world.play(FedVLS(weight=0), 1, weight_decay=0)
    (moving,) = world.play(FedVLS(weight=1), 1, weight_decay=0)
    moved = [
        (only.up[0]["model"] != world.initial().vector)[56:].view(4, 8).any(1).tolist()
        for only in (still, moving)
    ]
    assert moved == [[True, True, False, False], [True] * 4]  # client 0 has the classes 0 and 1


def test_the_papers_form_is_a_preset() -> None:
    assert FedVLS(preset="printed").params == FedVLS(form="paper", suppression=1).params


def test_its_preset_holds_the_battery_too() -> None:
    check_method(FedVLS, preset="printed")


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("fedvls")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"weight": -1}, {"suppression": -1}, {"form": "both"}])
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedVLS(**wrong)
