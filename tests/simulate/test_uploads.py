import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap
from fedmap.client import Client
from fedmap.errors import DivergenceError, FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS, Local, Method, MethodParams
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup, do
from fedmap.simulate.uploads import expected_kinds, kinds, misfit
from fedmap.values import Values, number

SMALL: dict[str, Any] = {
    "net": "tiny", "rounds": 2, "fraction": 1.0, "epochs": 1, "batch": 20, "lr": 0.1,
}  # fmt: skip


def spoiled(
    change: Callable[[Values], Values], when: int = 2, by: tuple[int, ...] = (2,)
) -> type[Method[MethodParams]]:
    """FedAvg, except that client 2 changes its upload in round 2."""

    class Spoiled(Method[MethodParams]):
        """One bad client."""

        def client_state(self, model: Any) -> Values:
            return {"rounds": number(0)}

        def local_round(self, client: Client, down: Values, state: Values) -> Local:
            local = super().local_round(client, down, state)
            bad = client.number in by and client.round == when
            up = change(local.up) if bad else local.up
            return local._replace(up=up, state={"rounds": state["rounds"] + 1})

    return Spoiled


def nan(up: Values) -> Values:
    return {"model": up["model"].clone().fill_(float("nan"))}


def infinite(up: Values) -> Values:
    return {"model": torch.full_like(up["model"], float("inf"))}


def huge(up: Values) -> Values:
    return {"model": up["model"] * 1e6}


def longer(up: Values) -> Values:
    return {"model": torch.cat([up["model"], torch.zeros(1)])}


def double(up: Values) -> Values:
    return {"model": up["model"].double()}


def more(up: Values) -> Values:
    return up | {"present": torch.zeros(3)}


BAD: Sequence[tuple[Callable[[Values], Values], str]] = [
    (nan, "entry 'model' has values that are not finite"),
    (infinite, "entry 'model' has values that are not finite"),
    (huge, r"entry 'model' has moved by .*, where .* is usual; at most 100 times"),
    (longer, r"entry 'model' is torch.float32 of \(\d+,\), not torch.float32 of \(\d+,\)"),
    (double, "entry 'model' is torch.float64 of"),
    (more, "entry 'present' is not known; expected are model"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_a_bad_upload_stops_the_run_with_the_clients_name(
    federation: Federation, change: Callable[[Values], Values], sentence: str
) -> None:
    with (
        METHODS.lent("spoiled", spoiled(change)),
        pytest.raises(FedmapError, match=f"the upload of client 2 in round 2: {sentence}"),
    ):
        fedmap.run("spoiled", federation, **SMALL)


@pytest.mark.parametrize("change", [nan, huge])
def test_an_upload_out_of_bounds_counts_as_a_run_that_diverged(
    federation: Federation, change: Callable[[Values], Values]
) -> None:
    with METHODS.lent("spoiled", spoiled(change)), pytest.raises(DivergenceError):
        fedmap.run("spoiled", federation, **SMALL)


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_with_skip_the_others_are_averaged_without_it(
    federation: Federation, change: Callable[[Values], Values], sentence: str
) -> None:
    with METHODS.lent("spoiled", spoiled(change)):
        result = fedmap.run("spoiled", federation, on_bad_upload="skip", **SMALL)
    record = result.rounds[1]
    assert [client["client"] for client in record["clients"]] == [0, 1, 3, 4, 5]
    (left_out,) = record["left_out"]
    assert left_out["client"] == 2
    assert "entry" in left_out["reason"]
    assert "left_out" not in result.rounds[0]


def test_skipped_clients_fall_back_to_the_state_before(
    federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    given = SMALL | {"rounds": 3, "on_bad_upload": "skip", "out": out}
    with METHODS.lent("spoiled", spoiled(nan)):
        with pytest.raises(KeyboardInterrupt):
            fedmap.run("spoiled", federation, on_round=stop, **given)
        result = fedmap.run("spoiled", federation, resume=True, **given)
        whole = fedmap.run("spoiled", federation, **SMALL | {"rounds": 3, "on_bad_upload": "skip"})
    strip = [{**record, "seconds": 0} for record in result.rounds]
    assert strip == [{**record, "seconds": 0} for record in whole.rounds]
    assert json.loads((out / "final.json").read_text())["rounds"] == 3


def test_too_few_uploads_stop_the_run_with_the_reasons(federation: Federation) -> None:
    with (
        METHODS.lent("spoiled", spoiled(nan)),
        pytest.raises(FedmapError, match=r"round 2 has 5 uploads, min_clients is 6 \(client 2: "),
    ):
        fedmap.run("spoiled", federation, on_bad_upload="skip", min_clients=6, **SMALL)


@pytest.mark.parametrize("bad", [nan, infinite, huge])
def test_the_only_round_of_a_run_is_checked_too(
    bad: Callable[[Values], Values], federation: Federation, tmp_path: Path
) -> None:
    given = SMALL | {"rounds": 1, "out": tmp_path / "run"}
    with METHODS.lent("spoiled", spoiled(bad, when=1)):
        with pytest.raises(FedmapError, match="the upload of client 2 in round 1: entry 'model'"):
            fedmap.run("spoiled", federation, **given)
        assert not (tmp_path / "run/done").exists()
        del given["out"]
        result = fedmap.run("spoiled", federation, on_bad_upload="skip", **given)
    assert result.global_model is not None
    assert all(bool(torch.isfinite(p).all()) for p in result.global_model.parameters())


def test_what_was_left_out_is_counted_in_what_a_person_sees(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedmap.cli import show
    from fedmap.report.table import as_json

    with METHODS.lent("spoiled", spoiled(nan, by=(1, 2))):
        bad = fedmap.run("spoiled", federation, on_bad_upload="skip", **SMALL)
        good = fedmap.run("fedavg", federation, **SMALL)
    found = {"spoiled": [bad], "fedavg": [good]}
    show.left_out(found)
    assert capsys.readouterr().out.startswith(
        "\nspoiled: 2 uploads were left out (client 1 in round 2: entry 'model' has values that"
    )
    assert [entry["left_out"] for entry in as_json(found)] == [2, 0]


def test_one_of_two_uploads_that_is_far_too_long_is_found(federation: Federation) -> None:
    with (
        METHODS.lent("spoiled", spoiled(huge)),
        pytest.raises(FedmapError, match="the upload of client 2"),
    ):
        fedmap.run("spoiled", federation, **SMALL | {"fraction": 0.34, "seed": 1})


@pytest.mark.parametrize("method", sorted(METHODS))
def test_what_a_client_uploads_is_known_beforehand(method: str, images: Federation) -> None:
    setup = Setup(Settings.of({"method": method, "net": "tiny-bn", "epochs": 1}), images)
    state = setup.method.client_state(setup.initial)
    down = setup.method.download(setup.method.start(setup.initial))
    with setup.in_force():
        up = do(setup, "train", 1, 1, down, state).up
        assert misfit(up, expected_kinds(setup)) == ""
        assert kinds(up) == expected_kinds(setup)
