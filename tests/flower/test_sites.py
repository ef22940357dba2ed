"""Sites that come and go, fail, send nonsense, or lose their files; and what leaves a site."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message, RecordDict
from tests.flower.conftest import DirectGrid, write_site
from tests.flower.test_direct import CONFIG, simulated
from tests.flower.test_direct import records as without_seconds

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.flower import records
from fedmap.flower.server_app import serve
from fedmap.flower.terms import Answer, Offer, Order, agree, unfit
from fedmap.methods import METHODS
from fedmap.simulate.result import Result
from fedmap.simulate.round import play_round
from fedmap.simulate.tasks import Setup

MAP = CONFIG | {"method": "map", "fraction": 1.0}
OSLO, BERGEN, TROMSO = 100, 101, 102  # nodes; in the order of names bergen is site 0, oslo 1


def orders(message: Message) -> Order:
    return records.words(message.content, Order)


def spoil(grid: DirectGrid, node: int, round: int, change: Any) -> None:
    """Change what a node answers in one round."""
    asked: dict[int, int] = {}
    ask = grid.ask

    def noted(to: int, message: Message) -> Message | None:
        training = message.metadata.message_type == "train"
        asked[to] = orders(message).round if training else 0
        return ask(to, message)

    def answer(message: Message, by: int) -> Message | None:
        wanted = by == node and asked.get(by) == round
        return change(message) if wanted else message

    setattr(grid, "ask", noted)  # noqa: B010
    grid.on_answer = answer


def replaced(message: Message, sent: Any) -> Message:
    """The same answer with other tensors."""
    content = records.message(records.words(message.content, Answer), records.arrays(sent))
    message.content = content
    return message


def left_out(result: Result) -> dict[tuple[int, int], str]:
    return {
        (record["round"], one["client"]): one["reason"]
        for record in result.rounds
        for one in record.get("left_out", ())
    }


def config(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return MAP | {"out": str(tmp_path / "run"), "min-sites": 2, "classes": ""} | more


@pytest.fixture
def three(grid: DirectGrid) -> DirectGrid:
    """All three are there when the run begins, though two would do."""
    return grid


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda v: {"model": v["model"] * float("nan")}, "not finite"),
        (lambda v: {"model": v["model"] * 1e6}, "moved by"),
        (lambda v: {"model": v["model"][:-1]}, "entry 'model' is torch.float32 of"),
        (lambda v: {"model": v["model"].double()}, "entry 'model' is torch.float64 of"),
        (lambda v: v | {"more": torch.zeros(1)}, "entry 'more' is not known"),
        (lambda v: {}, "entry 'model' is missing"),
    ],
)
def test_a_bad_upload_is_refused_and_the_others_go_on(
    three: DirectGrid, tmp_path: Path, change: Any, sentence: str
) -> None:
    spoil(three, OSLO, 2, lambda m: replaced(m, change(records.values(m.content))))
    result = serve(three, config(tmp_path))
    ((where, reason),) = left_out(result).items()
    assert where == (2, 1)
    assert sentence in reason


def test_a_site_that_does_not_answer_in_time_is_left_out(three: DirectGrid, tmp_path: Path) -> None:
    spoil(three, OSLO, 2, lambda message: None)
    result = serve(three, config(tmp_path, **{"round-timeout": 0.3}))
    assert left_out(result) == {(2, 1): "no answer within 0.3 s"}


def with_participation(grid: DirectGrid, tmp_path: Path, absent: dict[int, int]) -> Any:
    """The simulator's server state where one site is absent in some rounds."""
    given: dict[str, Any] = {"method": "map", "fraction": 1.0, "rounds": 4}

    def play(setup: Setup, engine: Any, round: int, state: Any) -> Any:
        selected = [k for k in range(3) if absent.get(round) != k]
        return play_round(setup, engine, round, state, selected)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedmap.simulate.run.play_round", play)
        return simulated(grid.configs, tmp_path / "simulated", **given)


def test_a_late_site_falls_back_to_its_last_round_that_counts(
    three: DirectGrid, tmp_path: Path
) -> None:
    spoil(three, OSLO, 2, lambda message: None)  # it has trained, but its answer is lost
    result = serve(three, config(tmp_path, rounds=4, **{"round-timeout": 0.3}))
    expected = with_participation(three, tmp_path, {2: 1})
    for ours, other in zip(without_seconds(result), without_seconds(expected), strict=True):
        ours.pop("left_out", None)
        assert ours == other
    (kept,) = (tmp_path / "oslo/states").glob("*/personal.safetensors")
    assert torch.equal(
        values.load(kept)["classifier.weight"],
        values.load(expected.folder / "personal/00001.safetensors")["classifier.weight"],
    )


def test_a_server_that_stops_after_the_sites_have_trained_does_the_round_again(
    three: DirectGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = iter([False, True])

    def aggregate(self: Any, server: Any, state: Any, uploads: Any) -> Any:
        if next(crash, False):
            raise RuntimeError("the server is killed")
        return original(self, server, state, uploads)

    method = METHODS["map"]
    original = method.aggregate
    monkeypatch.setattr(method, "aggregate", aggregate)
    with pytest.raises(RuntimeError, match="killed"):
        serve(three, config(tmp_path, **{"min-sites": 3}))
    result = serve(three, config(tmp_path, **{"min-sites": 3}))
    expected = simulated(three.configs, tmp_path / "simulated", method="map", fraction=1.0)
    assert without_seconds(result) == without_seconds(expected)
    assert json.loads((tmp_path / "run/sites.json").read_text())["start"] == 2


def test_an_old_order_is_refused_and_wipes_nothing(three: DirectGrid, tmp_path: Path) -> None:
    seen: list[Message] = []
    ask = three.ask

    def noted(node: int, message: Message) -> Message | None:
        if node == OSLO and message.metadata.message_type == "train":
            seen.append(message)
        return ask(node, message)

    three.ask = noted  # type: ignore[method-assign]
    serve(three, config(tmp_path))
    before = {path: path.read_bytes() for path in (tmp_path / "oslo").rglob("*.safetensors")}
    answer = ask(OSLO, seen[1])
    assert answer is not None
    reason = records.words(answer.content, Answer).reason
    assert "an old order (round 2 of start 1): this site has done round 3" in reason
    after = {path: path.read_bytes() for path in (tmp_path / "oslo").rglob("*.safetensors")}
    assert before == after


def test_a_repeated_order_gives_the_same_answer(three: DirectGrid, tmp_path: Path) -> None:
    answers: list[dict[str, torch.Tensor]] = []
    ask = three.ask

    def twice(node: int, message: Message) -> Message | None:
        if message.metadata.message_type == "train" and node == OSLO:
            first = ask(node, message)
            assert first is not None
            answers.append(records.values(first.content))
            second = ask(node, message)
            assert second is not None
            answers.append(records.values(second.content))
            return second
        return ask(node, message)

    three.ask = twice  # type: ignore[method-assign]
    result = serve(three, config(tmp_path, **{"min-sites": 3}))
    assert all(torch.equal(answers[k]["model"], answers[k + 1]["model"]) for k in (0, 2, 4))
    expected = simulated(three.configs, tmp_path / "simulated", method="map", fraction=1.0)
    assert without_seconds(result) == without_seconds(expected)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_state_is_told_and_the_site_goes_on_as_a_newcomer(
    three: DirectGrid, tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    def harm() -> None:
        for path in (tmp_path / "oslo").rglob("state-*.safetensors"):
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            if damage == "remove":
                path.unlink()
            else:
                path.write_bytes(content if damage == "flip" else content[: len(content) // 2])

    sent = iter(range(100))
    three.before_send = lambda: harm() if next(sent) == 4 else None  # before round 3's order
    result = serve(three, config(tmp_path))
    assert left_out(result) == {}
    printed = capfd.readouterr()
    assert "round 3: oslo: the state of round 2 in" in printed.out
    assert "goes on as a newcomer" in printed.err


def test_a_site_may_join_between_rounds(
    three: DirectGrid, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    three.offline = {TROMSO}
    sent = iter(range(100))

    def come() -> None:
        if next(sent) == 3:  # in round 2
            three.offline = set()

    three.before_send = come
    everything = ",".join(f"class {k}" for k in range(4))
    result = serve(three, config(tmp_path, classes=everything))
    assert [len(record["clients"]) for record in result.rounds] == [2, 2, 3]
    assert "site tromso has joined as number 2" in capfd.readouterr().out
    assert len(result.final["personal_accuracy_per_client"]) == 3
    sites = json.loads((tmp_path / "run/sites.json").read_text())["sites"]
    assert [site["name"] for site in sites] == ["bergen", "oslo", "tromso"]


def test_a_site_that_joins_with_an_unknown_class_is_refused_with_its_name(
    three: DirectGrid, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_site(tmp_path / "paris" / "data", 7, [1, 0])
    content = dict(np.load(tmp_path / "paris/data/all.npz"))
    content["y"] = np.full(len(content["y"]), "rare disease")
    np.savez(tmp_path / "paris/data/all.npz", **content)
    paris = {"site": "paris", "data": f"npz:{tmp_path / 'paris/data'}", "states": str(tmp_path)}
    three.configs[103] = paris
    everything = ",".join(f"class {k}" for k in range(4))
    serve(three, config(tmp_path, classes=everything))
    said = capfd.readouterr().out
    assert "site paris has samples of class 'rare disease', which is none of" in said


def test_with_classes_given_a_hello_names_none(three: DirectGrid, tmp_path: Path) -> None:
    everything = ",".join(f"class {k}" for k in (3, 2, 1, 0))
    said: list[Message] = []

    def noted(message: Message, node: int) -> Message:
        said.append(message)
        return message

    three.on_answer = noted
    result = serve(three, config(tmp_path, classes=everything))
    hellos = [str(message.content.config_records["fedmap"]["json"]) for message in said[:3]]
    assert len(hellos) == 3
    assert not any("class 0" in hello for hello in hellos)
    assert list(result.final["global_accuracy_per_class"]) == [f"class {k}" for k in (3, 2, 1, 0)]


def test_two_nodes_cannot_be_the_same_site(
    three: DirectGrid, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    three.configs[104] = three.configs[OSLO] | {"states": str(tmp_path / "thief")}
    three.offline = {104}
    sent = iter(range(100))

    def come() -> None:
        if next(sent) == 3:
            three.offline = set()

    three.before_send = come
    serve(three, config(tmp_path))
    assert "node 104 is refused: site oslo is node 100 in this run" in capfd.readouterr().out
    assert not list(tmp_path.glob("thief/*"))


def test_a_site_with_a_new_key_comes_back_when_the_server_says_so(
    three: DirectGrid, tmp_path: Path
) -> None:
    serve(three, config(tmp_path, rounds=2))
    out = tmp_path / "run"
    (out / "done").unlink()
    three.configs[200] = three.configs.pop(OSLO)
    # The finished run's checkpoint is gone, so a new one begins; its list of sites is kept.
    for path in ("rounds.jsonl", "final.json"):
        (out / path).unlink()
    serve(three, config(tmp_path, rounds=2, moved="oslo"))
    sites = json.loads((out / "sites.json").read_text())["sites"]
    assert {site["name"]: site["node"] for site in sites}["oslo"] == 200


def test_nothing_private_is_in_any_message(three: DirectGrid, tmp_path: Path) -> None:
    serve(three, config(tmp_path))
    wire = b"".join(three.bytes)
    for path in (tmp_path / "oslo/states").rglob("*.safetensors"):
        for name, tensor in values.load(path).items():
            content = tensor.numpy().tobytes()
            if len(content) > 16:
                assert content[:64] not in wire, (path.name, name)
    samples = np.load(tmp_path / "oslo/data/all.npz")["x"]
    assert all(row.tobytes() not in wire for row in samples)
    # The search can find something: what went up is there.
    model = values.load(tmp_path / "run/global.safetensors")["classifier.weight"]
    assert model.numpy().tobytes()[:64] in wire


def test_private_files_are_the_owners_alone(three: DirectGrid, tmp_path: Path) -> None:
    serve(three, config(tmp_path))
    (folder,) = (tmp_path / "oslo/states").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = {path.name for path in folder.iterdir()}
    assert {"state-0.safetensors", "state-1.safetensors", "personal.safetensors"} <= names
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())


def test_a_personal_model_says_what_is_needed_to_use_it(three: DirectGrid, tmp_path: Path) -> None:
    serve(three, config(tmp_path))
    (file,) = (tmp_path / "oslo/states").glob("*/personal.safetensors")
    about = json.loads(values.load_notes(file)["fedmap"])
    assert about["classes"] == [f"class {k}" for k in range(4)]
    assert about["observed"] == [0, 1, 2]
    assert about["shape"] == [6]
    assert about["net"] == "tiny"
    report = json.loads((file.parent / "accuracy.json").read_text())
    assert report["site"] == "oslo"
    assert 0 <= report["accuracy"] <= 1
    assert report["training_samples"]["class 3"] == 0


def test_the_servers_own_test_data_gives_the_global_accuracy(
    three: DirectGrid, tmp_path: Path
) -> None:
    write_site(tmp_path / "test", 50, range(4), each=25)
    three.on_answer = lambda message, node: message
    result = serve(three, config(tmp_path, **{"test-data": f"npz:{tmp_path / 'test'}"}))
    accuracy = result.global_accuracy
    assert accuracy is not None
    assert accuracy * 100 == pytest.approx(round(accuracy * 100))


def test_the_global_model_is_tested_at_the_sites_every_few_rounds(
    three: DirectGrid, tmp_path: Path
) -> None:
    result = serve(three, config(tmp_path, rounds=5, **{"evaluate-every": 2}))
    known = [record["global_accuracy"] is not None for record in result.rounds]
    assert known == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"method": "fedagv"}, "fedavg"),
        ({"params.alhpa": 1}, "alpha"),
        ({"min-sites": 0}, "min_sites"),
        ({"speed": 3}, "speed"),
        ({"method": "evil.py:Evil"}, "evil.py:Evil"),
    ],
)
def test_a_wrong_configuration_is_named(
    three: DirectGrid, tmp_path: Path, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FedmapError, match=sentence):
        serve(three, config(tmp_path, **wrong))


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ({"site": ""}, "no 'site' in its --node-config"),
        ({"site": "../oslo"}, "the site's name '../oslo' is not allowed"),
        ({"data": "npz:nowhere"}, "nowhere"),
        ({"states": "/proc/nowhere"}, "cannot make the folder"),
    ],
)
def test_a_site_that_is_set_up_wrongly_says_so(
    three: DirectGrid,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    node: dict[str, Any],
    sentence: str,
) -> None:
    three.configs[OSLO] |= node
    serve(three, config(tmp_path))
    printed = capfd.readouterr()
    assert sentence in printed.out
    assert sentence in printed.err


def test_too_few_sites_end_the_run_with_who_is_there(three: DirectGrid, tmp_path: Path) -> None:
    three.offline = {OSLO, BERGEN}
    with pytest.raises(FedmapError, match=r"1 sites have answered \(tromso\), 2 are needed"):
        serve(three, config(tmp_path, **{"round-timeout": 0.3}))


def test_a_message_that_is_no_order_is_refused_at_the_site(three: DirectGrid) -> None:
    answer = three.ask(OSLO, Message(RecordDict(), dst_node_id=OSLO, message_type="train"))
    assert answer is not None
    assert "no Order of this version" in records.words(answer.content, Answer).reason


def test_a_site_without_native_kernels_cannot_join_a_run_that_has_them() -> None:
    here = Offer(
        site="oslo", classes=("a",), shape=(3,), kind="float32", mean=(), std=(), native=True
    )
    other = here.model_copy(update={"site": "bergen", "native": False})
    assert agree([here, here]).kernels == "native"
    assert agree([here, other]).kernels == "torch"
    assert "site bergen has no native kernels" in unfit(other, agree([here]))
    assert unfit(other, agree([here], choice="torch")) == ""
    with pytest.raises(FedmapError, match="kernels = 'native', but bergen has none"):
        agree([here, other], choice="native")


def test_a_name_that_could_be_a_path_is_refused_at_the_server_too(
    three: DirectGrid, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def rename(message: Message, node: int) -> Message:
        if node == OSLO and "site" in str(message.content.config_records["fedmap"]["json"]):
            offer = records.words(message.content, Offer)
            message.content = records.message(offer.model_copy(update={"site": "../oslo"}))
        return message

    three.on_answer = rename
    serve(three, config(tmp_path))
    assert "node 100 is refused" in capfd.readouterr().out


def test_sites_whose_tables_have_other_columns_are_refused(tmp_path: Path) -> None:
    nodes = {}
    for number, (site, color) in enumerate((("oslo", "red"), ("bergen", "blue"))):
        rows = [f"{k % 5},{color},{k % 2}" for k in range(20)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["f,color,sold", *rows]) + "\n")
        nodes[number] = {
            "site": site, "data": f"csv:{tmp_path / site}.csv", "states": str(tmp_path / site),
            "label": "sold", "categories": "color",
        }  # fmt: skip
    config = {"method": "fedavg", "rounds": 1, "min-sites": 2, "out": str(tmp_path / "run")}
    with pytest.raises(FedmapError, match="site oslo has color=red and lacks color=blue, unlike"):
        serve(DirectGrid(nodes), config)
