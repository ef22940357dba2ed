"""The speed comparison, without any peer: fedmap and the bare loop through the harness, the page
writer, the contenders' nets."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedmap import kernels
from fedmap.data import synthetic
from fedmap.errors import FedmapError
from fedmap.nets import NETS, build

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def loaded(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"benchmarks_{path.stem}", path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compare() -> Iterator[ModuleType]:
    before = sys.path.copy()
    with NETS.restored():
        module = loaded(BENCHMARKS / "compare.py")
        # it registers the nets that fedmap itself does not have
        loaded(BENCHMARKS / "contenders" / "run_fedmap.py")
        yield module
    sys.path[:] = before


@pytest.fixture
def small(compare: ModuleType) -> Any:
    size = {
        "train": 80,
        "test": 20,
        "global_test": 50,
        "clients": 4,
        "clients_a_round": 2,
        "epochs": 3,
    }
    return replace(compare.W1, net="mlp", data="noise", shape=(1, 4, 4), **size)


OBEDIENT = """
import json, sys
print(json.dumps({"parameters": PARAMETERS, "versions": {"stub": "1.0"}}), flush=True)
for number, line in enumerate(sys.stdin, 1):
    if number == LAST:
        raise ValueError("no more")
    with open("turns.txt", "a") as turns:
        turns.write(NAME)
    print(json.dumps({"seconds": number * SPEED, "steps": 12, "scored": 90}), flush=True)
"""


@pytest.fixture
def stubs(compare: ModuleType, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contenders that only talk as the harness expects: a is fast, b is slow, c fails in its third
    round."""
    monkeypatch.setitem(compare.WORKLOADS, "small", small)
    monkeypatch.setattr(compare, "matmul_peak", lambda: 1e9)
    size = compare.parameters(small.build())
    for name, speed, last in (("a", 1, 0), ("b", 2, 0), ("c", 3, 3)):
        values = f"NAME, SPEED, LAST, PARAMETERS = {name!r}, {speed}, {last}, {size}"
        (tmp_path / f"{name}.py").write_text(values + OBEDIENT)
        monkeypatch.setitem(
            compare.CONTENDERS, name, compare.Contender("a stub", str(tmp_path / f"{name}.py"))
        )


@pytest.fixture
def results() -> dict[str, Any]:
    """Made up: bare is twice as slow as fedmap in two turns of three, and flower was not there."""

    def entry(*seconds: float, **more: Any) -> dict[str, Any]:
        return {
            "seconds": list(seconds),
            "memory": 100.0,
            "remarks": [],
            "start": 1.0,
            "parameters": 10,
            "flop": 100e9,
        } | more

    workload = {
        "net": "lenet",
        "shape": [1, 32, 32],
        "train": 480,
        "epochs": 5,
        "clients_a_round": 20,
        "method": "fedavg",
    }
    w1 = {
        "contenders": {
            "bare": entry(2.0, 6.0, 2.0, remarks=["39 steps instead of 40"]),
            "fedmap": entry(1.0, 1.0, 1.0),
        },
        "failed": {"flower": "cannot be installed: no network"},
        "peak": 200e9,
        "workload": workload,
    }
    machine = {"cpu": "Test CPU", "cores": 2, "python": "3.11"}
    return {
        "workloads": {"w1": w1},
        "versions": {"torch": "2.0"},
        "machine": machine,
        "command": "python benchmarks/compare.py",
    }


def test_the_bare_loop_does_exactly_the_work_that_is_asked_for(
    compare: ModuleType, small: Any, tmp_path: Path
) -> None:
    assert compare.remarks("bare", small, tmp_path / "log") == []


def test_fedmap_does_it_too_and_also_scores_the_downloads(
    compare: ModuleType, small: Any, tmp_path: Path
) -> None:
    assert compare.remarks(
        "fedmap-torch", compare.fitted("fedmap-torch", small), tmp_path / "log"
    ) == ["scores 130 samples instead of 90 in the small case"]


@pytest.mark.usefixtures("stubs")
def test_contenders_take_turns_and_the_first_round_does_not_count(
    compare: ModuleType, tmp_path: Path
) -> None:
    compare.compare(["small"], ["a", "b"], 2, tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text())
    entries = kept["workloads"]["small"]["contenders"]
    assert {name: entry["seconds"] for name, entry in entries.items()} == {"a": [2, 3], "b": [4, 6]}
    # two rounds each to compare the work
    assert (tmp_path / "logs" / "turns.txt").read_text() == "aabb" + "abbaab"
    assert kept["versions"] == {"stub": "1.0"}


@pytest.mark.usefixtures("stubs")
def test_a_contender_that_fails_is_named_and_the_others_go_on(
    compare: ModuleType, small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = compare.measure(small, ["c", "a"], 2, tmp_path)
    assert list(result["contenders"]) == ["a"]
    assert result["failed"]["c"].startswith("ValueError: no more")
    assert "c: ValueError: no more" in capsys.readouterr().out


def test_a_ratio_is_the_median_of_the_ratios_within_a_turn(compare: ModuleType) -> None:
    assert compare.ratio({"seconds": [2.0, 30.0, 9.0]}, {"seconds": [1.0, 10.0, 3.0]}) == 3.0


def test_the_page_gets_table_and_plot_between_its_markers_and_keeps_the_rest(
    compare: ModuleType, results: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"# Speed\n\n{compare.BEGIN}\nold\n{compare.END}\n\nafter\n")
    compare.write(results, page)
    compare.write(results, page)
    text = page.read_text()
    assert text.startswith("# Speed\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    assert (
        "| bare | 2.00 | 2.00 to 6.00 | 2.00 | 50 (25%) | 1.0 | 100 | 39 steps instead of 40 |"
        in text
    )
    assert "Test CPU, 2 cores" in text
    assert "- flower did not take part: cannot be installed: no network" in text
    assert (tmp_path / "images" / "comparison.png").stat().st_size > 1000


def test_a_page_without_markers_is_left_alone(
    compare: ModuleType, results: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Speed\n")
    with pytest.raises(SystemExit, match="needs one line"):
        compare.write(results, page)
    assert page.read_text() == "# Speed\n"


@pytest.mark.parametrize("name", ["w1", "w2", "w3", "vgg8", "resnet20", "empty"])
def test_the_contenders_nets_are_fedmaps(compare: ModuleType, name: str) -> None:
    workload = compare.WORKLOADS[name]
    theirs, ours = workload.build(), build(workload.net, workload.shape, 10, seed=1)
    for part in (lambda net: net.parameters(), lambda net: net.buffers()):
        with torch.no_grad():
            for mine, its in zip(part(ours), part(theirs), strict=True):
                its.copy_(mine)
    x = torch.randn(4, *workload.shape)
    torch.testing.assert_close(theirs(x), ours.train()(x))
    torch.testing.assert_close(theirs.eval()(x), ours.eval()(x))


def test_the_operations_of_a_round_of_lenet_are_those_counted_by_hand(compare: ModuleType) -> None:
    forward, step = compare.flop("lenet", (1, 32, 32))
    first, rest = 2 * 28 * 28 * 6 * 25, 2 * (10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10)
    assert (forward, step) == (first + rest, 2 * first + 3 * rest)
    assert compare.operations(compare.W1) == 12_400 * forward + 20 * 480 * 5 * step


def test_every_peer_has_pinned_requirements_with_the_same_torch(compare: ModuleType) -> None:
    for environment in {contender.environment for contender in compare.CONTENDERS.values()} - {
        None
    }:
        lines = (BENCHMARKS / "environments" / f"{environment}.txt").read_text().split()
        assert "torch==2.13.0" in lines
        assert all("==" in line for line in lines)


def test_a_peer_that_is_no_package_takes_part_where_its_checkout_is_given(
    compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "CONTENDERS", dict(compare.CONTENDERS))
    assert not compare.ready("pfllib")
    assert compare.ready("fedlab")
    compare.check_out([f"pfllib={tmp_path}"])
    assert compare.ready("pfllib")
    assert compare.fitted("pfllib", compare.W1).options == {"checkout": str(tmp_path)}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("fedlab=.", "'fedlab' is no contender that needs one"),
        ("authors=nowhere", "no folder 'nowhere'"),
    ],
)
def test_a_checkout_that_is_none_is_told(compare: ModuleType, given: str, sentence: str) -> None:
    with pytest.raises(SystemExit, match=sentence):
        compare.check_out([given])


def test_a_contender_that_lacks_its_checkout_is_told(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", "--contenders", "bare,fl-bench"])
    with pytest.raises(
        SystemExit,
        match="fl-bench needs --checkout fl-bench=PATH, the folder of KarhouTam/FL-bench",
    ):
        compare.main()


@pytest.mark.parametrize("script", ["run_pfllib.py", "run_authors.py"])
def test_a_folder_that_is_not_the_peers_is_told(
    compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(
        sys, "argv", [script, replace(compare.W1, options={"checkout": str(tmp_path)}).write()]
    )
    with pytest.raises(SystemExit, match="should be the folder of"):
        loaded(BENCHMARKS / "contenders" / script)


@pytest.mark.skipif(not kernels.available(), reason="there are no native kernels here")
def test_speed_has_not_collapsed(compare: ModuleType, tmp_path: Path) -> None:
    """Some four times faster than the bare loop: far from the bound, whatever else the machine
    does."""
    small = replace(
        compare.W1, train=240, test=60, global_test=500, epochs=2, clients=4, clients_a_round=2
    )
    result = compare.measure(small, ["fedmap", "bare"], 3, tmp_path)
    assert compare.ratio(result["contenders"]["bare"], result["contenders"]["fedmap"]) > 1.5


def test_contenders_read_the_same_real_images_and_noise_where_there_are_none(
    compare: ModuleType,
    small: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = synthetic(classes=3, shape=(1, 4, 4), train=500)
    monkeypatch.setattr(compare, "load", lambda name: made)
    workload = compare.with_images(replace(small, data="pictures"), tmp_path)
    data = loaded(BENCHMARKS / "contenders" / "workload.py").Data(workload)
    assert data.x.shape == (400, 1, 4, 4)
    assert not torch.equal(data.y, made.train_y[:400])  # in another order
    torch.testing.assert_close(data.global_test[0], made.test_x[:50] / 127.5 - 1)

    def missing(name: str) -> None:
        raise FedmapError("there are no pictures")

    monkeypatch.setattr(compare, "load", missing)
    assert compare.with_images(replace(small, data="pictures"), tmp_path).data == "noise"
    assert "noise instead of pictures: there are no pictures" in capsys.readouterr().out
