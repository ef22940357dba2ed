"""The speed comparison, without any peer: fedmap and the bare loop through the harness, the page
writer, the contenders' nets."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
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
    sys.path.insert(0, str(BENCHMARKS))
    with NETS.restored():
        module = loaded(BENCHMARKS / "compare.py")
        # it registers the nets that fedmap itself does not have
        loaded(BENCHMARKS / "contenders" / "run_fedmap.py")
        yield module
    sys.path[:] = before


@pytest.fixture(scope="module")
def catalog(compare: ModuleType) -> ModuleType:
    return sys.modules["catalog"]


@pytest.fixture(scope="module")
def measure(compare: ModuleType) -> ModuleType:
    return sys.modules["measure"]


@pytest.fixture
def small(catalog: ModuleType) -> Any:
    size = {"train": 80, "test": 20, "global_test": 50, "epochs": 3}
    return replace(
        catalog.LENET,
        net="mlp",
        data="noise",
        shape=(1, 4, 4),
        clients=4,
        clients_a_round=2,
        **size,
    )


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
def stubs(
    catalog: ModuleType,
    measure: ModuleType,
    small: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Contenders that only talk as the harness expects: a is fast, b is slow, c fails in its third
    round."""
    monkeypatch.setitem(catalog.WORKLOADS, "small", small)
    monkeypatch.setattr(measure, "matmul_peak", lambda: 1e9)
    size = measure.parameters(small.build())
    for name, speed, last in (("a", 1, 0), ("b", 2, 0), ("c", 3, 3)):
        script = tmp_path / f"{name}.py"
        values = f"NAME, SPEED, LAST, PARAMETERS = {name!r}, {speed}, {last}, {size}"
        script.write_text(values + OBEDIENT)
        monkeypatch.setitem(catalog.CONTENDERS, name, catalog.Contender("a stub", str(script)))


@pytest.fixture
def results() -> dict[str, Any]:
    """Invented: bare is twice as slow as fedmap in two turns of three, and flower was not there."""

    def entry(*seconds: float, remarks: tuple[str, ...] = ()) -> dict[str, Any]:
        about = {"memory": 100.0, "start": 1.0, "parameters": 10, "flop": 100e9}
        return {"seconds": list(seconds), "remarks": list(remarks), **about}

    workload = {"net": "lenet", "data": "fashion-mnist", "shape": [1, 32, 32], "method": "fedavg"}
    lenet = {
        "contenders": {
            "bare": entry(2.0, 6.0, 2.0, remarks=("39 steps instead of 40",)),
            "fedmap": entry(1.0, 1.0, 1.0),
        },
        "failed": {"flower": "cannot be installed: no network"},
        "peak": 200e9,
        "workload": workload | {"train": 480, "epochs": 5, "clients_a_round": 20},
    }
    return {
        "workloads": {"lenet": lenet},
        "versions": {"torch": "2.0"},
        "machine": {"cpu": "Test CPU", "cores": 2, "python": "3.11"},
        "command": "python benchmarks/compare.py",
    }


def test_the_bare_loop_does_exactly_the_work_that_is_asked_for(
    measure: ModuleType, small: Any, tmp_path: Path
) -> None:
    assert measure.remarks("bare", small, tmp_path / "log") == []


def test_fedmap_does_it_too_and_also_scores_the_downloads(
    catalog: ModuleType, measure: ModuleType, small: Any, tmp_path: Path
) -> None:
    work = catalog.fitted("fedmap-torch", small)
    remarks = measure.remarks("fedmap-torch", work, tmp_path / "log")
    assert remarks == ["scores 130 samples instead of 90 in the small case"]


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
    measure: ModuleType, small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = measure.measure(small, ["c", "a"], 2, tmp_path)
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
    bare = "| bare | 2.00 | 2.00 to 6.00 | 2.00 | 50 (25%) | 1.0 | 100 | 39 steps instead of 40 |"
    assert bare in text
    assert "Test CPU, 2 cores" in text
    assert "- flower did not take part: cannot be installed: no network" in text
    assert (tmp_path / "images" / "comparison.png").stat().st_size > 1000


def test_a_table_is_titled_by_net_and_data_with_the_workloads_key(
    compare: ModuleType, results: dict[str, Any]
) -> None:
    assert compare.caption("lenet", results["workloads"]["lenet"]) == (
        "LeNet, Fashion-MNIST (lenet): samples of 1x32x32, E = 5, 480 for each client, "
        "20 clients a round; 3 rounds"
    )


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("mlp", "MLPNet, Fashion-MNIST"),
        ("resnet20", "ResNet20, CIFAR-10"),
        ("empty", "Clients that train nothing"),
        ("lenet-map", "LeNet, Fashion-MNIST, MAP"),
    ],
)
def test_a_workload_has_a_title_that_says_what_it_is(
    catalog: ModuleType, key: str, title: str
) -> None:
    assert catalog.title(asdict(catalog.WORKLOADS[key])) == title


def test_a_title_says_when_noise_took_the_place_of_the_data(catalog: ModuleType) -> None:
    assert catalog.title(asdict(replace(catalog.LENET, data="noise"))) == "LeNet, noise"


def test_workloads_have_titles_of_their_own(catalog: ModuleType) -> None:
    titles = {catalog.title(asdict(workload)) for workload in catalog.WORKLOADS.values()}
    assert len(titles) == len(catalog.WORKLOADS)


def test_a_page_without_markers_is_left_alone(
    compare: ModuleType, results: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Speed\n")
    with pytest.raises(SystemExit, match="needs one line"):
        compare.write(results, page)
    assert page.read_text() == "# Speed\n"


@pytest.mark.parametrize("key", ["lenet", "mlp", "conv2", "vgg8", "resnet20", "empty"])
def test_the_contenders_nets_are_fedmaps(catalog: ModuleType, key: str) -> None:
    workload = catalog.WORKLOADS[key]
    plain, net = workload.build(), build(workload.net, workload.shape, 10, seed=1)
    with torch.no_grad():
        for copy, weight in zip(plain.parameters(), net.parameters(), strict=True):
            copy.copy_(weight)
        for copy, buffer in zip(plain.buffers(), net.buffers(), strict=True):
            copy.copy_(buffer)
    x = torch.randn(4, *workload.shape)
    torch.testing.assert_close(plain(x), net.train()(x))
    torch.testing.assert_close(plain.eval()(x), net.eval()(x))


def test_the_operations_of_a_round_of_lenet_are_those_counted_by_hand(
    catalog: ModuleType, measure: ModuleType
) -> None:
    forward, step = measure.flop("lenet", (1, 32, 32))
    first, rest = 2 * 28 * 28 * 6 * 25, 2 * (10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10)
    assert (forward, step) == (first + rest, 2 * first + 3 * rest)
    assert measure.operations(catalog.LENET) == 12_400 * forward + 20 * 480 * 5 * step


def test_every_peer_has_pinned_requirements_with_the_same_torch(catalog: ModuleType) -> None:
    environments = {contender.environment for contender in catalog.CONTENDERS.values()}
    for environment in environments - {None}:
        lines = (BENCHMARKS / "environments" / f"{environment}.txt").read_text().split()
        assert "torch==2.13.0" in lines
        assert all("==" in line for line in lines)


def test_a_peer_that_is_no_package_takes_part_where_its_checkout_is_given(
    compare: ModuleType, catalog: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalog.CONTENDERS, "pfllib", catalog.CONTENDERS["pfllib"])  # put back
    assert "pfllib" not in compare.all_ready()
    assert "fedlab" in compare.all_ready()
    catalog.check_out([f"pfllib={tmp_path}"])
    assert "pfllib" in compare.all_ready()
    assert catalog.fitted("pfllib", catalog.LENET).options == {"checkout": str(tmp_path)}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("fedlab=.", "'fedlab' is no contender that needs one"),
        ("authors=nowhere", "no folder 'nowhere'"),
    ],
)
def test_a_checkout_that_is_none_is_an_error(
    catalog: ModuleType, given: str, sentence: str
) -> None:
    with pytest.raises(SystemExit, match=sentence):
        catalog.check_out([given])


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "--contenders",
            "bare,fl-bench",
            "fl-bench needs --checkout fl-bench=PATH, the folder of KarhouTam/FL-bench",
        ),
        ("--contenders", "bare,nobody", "there is no contender 'nobody'; there are: fedmap, "),
        ("--workloads", "w1", "there is no workload 'w1'; there are: lenet, mlp, "),
    ],
)
def test_who_or_what_cannot_take_part_is_an_error(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, option: str, value: str, sentence: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", option, value])
    with pytest.raises(SystemExit, match=sentence):
        compare.main()


@pytest.mark.parametrize("script", ["run_pfllib.py", "run_authors.py"])
def test_a_folder_that_is_not_the_peers_is_an_error(
    catalog: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    work = replace(catalog.LENET, options={"checkout": str(tmp_path)})
    monkeypatch.setattr(sys, "argv", [script, work.write()])
    with pytest.raises(SystemExit, match="should be the folder of"):
        loaded(BENCHMARKS / "contenders" / script)


@pytest.mark.skipif(not kernels.available(), reason="there are no native kernels here")
def test_speed_has_not_collapsed(
    compare: ModuleType, catalog: ModuleType, measure: ModuleType, tmp_path: Path
) -> None:
    """Some four times faster than the bare loop: far from the bound, whatever else the machine
    does."""
    size = {"train": 240, "test": 60, "global_test": 500, "epochs": 2}
    small = replace(catalog.LENET, clients=4, clients_a_round=2, **size)
    entries = measure.measure(small, ["fedmap", "bare"], 3, tmp_path)["contenders"]
    assert compare.ratio(entries["bare"], entries["fedmap"]) > 1.5


def test_contenders_read_the_same_real_images(
    measure: ModuleType, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = synthetic(classes=3, shape=(1, 4, 4), train=500)
    monkeypatch.setattr(measure, "load", lambda name: pictures)
    workload = measure.with_images(replace(small, data="pictures"), tmp_path)
    data = loaded(BENCHMARKS / "contenders" / "workload.py").Data(workload)
    assert data.x.shape == (400, 1, 4, 4)
    assert not torch.equal(data.y, pictures.train_y[:400])  # in another order
    torch.testing.assert_close(data.global_test[0], pictures.test_x[:50] / 127.5 - 1)


def test_contenders_get_noise_where_there_are_no_images(
    measure: ModuleType,
    small: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing(name: str) -> None:
        raise FedmapError("there are no pictures")

    monkeypatch.setattr(measure, "load", missing)
    assert measure.with_images(replace(small, data="pictures"), tmp_path).data == "noise"
    assert "noise instead of pictures: there are no pictures" in capsys.readouterr().out
