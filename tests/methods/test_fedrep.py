"""FedRep: a shared body and private heads, trained in turn."""

import pytest
import torch

from fedmap.errors import FedmapError
from fedmap.methods.fedrep import FedRep

BODY, HEAD = slice(0, 56), slice(56, 88)  # of the tiny net


def joined(body, head):
    return torch.cat([body, head])


def test_two_rounds_agree_with_the_formula(world):
    history = world.play(FedRep(head_share=0.6))
    body = world.initial().vector[BODY]
    heads = {k: world.initial().vector[HEAD] for k in range(3)}
    for round in (1, 2):
        bodies = []
        for k in range(3):
            batches = world.batches(k, round)
            first = int(0.6 * len(batches))
            assert 0 < first < len(batches)
            heads[k] = world.sgd(
                heads[k],
                batches[:first],
                lambda head, x, y, b=body: world.cross_entropy(joined(b, head), x, y),
            )
            bodies.append(
                world.sgd(
                    body,
                    batches[first:],
                    lambda b, x, y, head=heads[k]: world.cross_entropy(joined(b, head), x, y),
                )
            )
            assert torch.allclose(
                history[round - 1].personal[k]["model"], joined(bodies[k], heads[k]), atol=1e-6
            )
            assert torch.allclose(history[round - 1].states[k]["head"], heads[k], atol=1e-6)
        body = torch.stack(bodies).mean(0)
        assert torch.allclose(history[round - 1].server["features"], body, atol=1e-6)


@pytest.mark.parametrize(("share", "fixed"), [(1, BODY), (0, HEAD)])
def test_the_part_that_is_not_trained_stays_as_it_is_to_the_bit(world, share, fixed):
    (only,) = world.play(FedRep(head_share=share), 1)
    moved = only.personal[0]["model"] != world.initial().vector
    assert not moved[fixed].any()
    assert moved.any()


def test_joint_training_is_fedper(world):
    history = world.play(FedRep(schedule="joint"))
    models = {k: world.initial().vector for k in range(3)}
    for round in (1, 2):
        models = {
            k: world.sgd(model, world.batches(k, round), world.cross_entropy)
            for k, model in models.items()
        }
        assert torch.allclose(history[round - 1].personal[0]["model"], models[0], atol=1e-6)
        body = torch.stack([model[BODY] for model in models.values()]).mean(0)
        models = {k: joined(body, model[HEAD]) for k, model in models.items()}


def test_a_client_gets_the_shared_body_under_its_own_head(world):
    method = FedRep()
    (only,) = world.play(method, 1)
    got = method.downloaded(method.download(only.server), only.states[1])["model"]
    assert torch.equal(got, joined(only.server["features"], only.states[1]["head"]))


def test_heads_never_leave_their_clients_and_there_is_no_global_model(world):
    method = FedRep()
    (only,) = world.play(method, 1)
    assert method.global_model(only.server) is None
    for sent in (only.up[0], method.download(only.server)):
        assert {name: len(value) for name, value in sent.items()} == {
            "features": 56,
            "statistics": 0,
        }


def test_statistics_of_batch_norm_belong_to_the_body(world):
    method, net = FedRep(head_share=1), "tiny-bn"
    (only,) = world.play(method, 1, net=net)
    model = world.initial(net)
    assert torch.equal(only.up[0]["features"], model.vector[model.features_part])
    assert not torch.equal(
        only.up[0]["statistics"], model.buffers
    )  # they follow the data while the head is trained
    expected = torch.stack([only.up[k]["statistics"] for k in range(3)]).mean(0)
    assert torch.allclose(only.server["statistics"], expected)
    assert torch.equal(only.personal[0]["model"][model.weight_count :], only.up[0]["statistics"])


@pytest.mark.parametrize("wrong", [{"head_share": 1.5}, {"head_share": -0.1}, {"schedule": "both"}])
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(FedmapError, match=f"method fedrep: {next(iter(wrong))} is"):
        FedRep(**wrong)
