"""Options: how their text is read, and that each one really arrives where it is used."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap import kernels
from fedmap.cli import studies, train
from fedmap.cli.parsing import cores, grid_values, listed, seed_list, values
from fedmap.errors import FedmapError
from fedmap.experiment.compare import Comparison

Call = Callable[[str], None]


@pytest.fixture
def call(fedmap: Callable[[str], Any]) -> Call:
    """A command that must end well."""

    def checked(arguments: str) -> None:
        done = fedmap(arguments)
        assert done.returncode == 0, done.stderr

    return checked


# of every option that is a setting, a value that is not its default
SETTINGS: dict[str, tuple[str, Any]] = {
    "--net": ("mlp", "mlp"),
    "--data": ("synthetic", "synthetic"),
    "--data-dir": ("files", "files"),
    "--samples": ("900", 900),
    "--clients": ("4", 4),
    "--partition": ("dirichlet", "dirichlet"),
    "--partition-param": ("alpha=0.7", {"alpha": 0.7}),
    "--partition-seed": ("5", 5),
    "--rounds": ("2", 2),
    "--fraction": ("0.5", 0.5),
    "--epochs": ("0.25", 0.25),
    "--batch": ("32", 32),
    "--lr": ("0.02", 0.02),
    "--momentum": ("0.8", 0.8),
    "--weight-decay": ("0.001", 0.001),
    "--clip": ("50", 50.0),
    "--warmup-rounds": ("1", 1),
    "--aggregate": ("median", "median"),
    "--assumed-attackers": ("0.1", 0.1),
    "--dp-delta": ("1e-6", 1e-6),
    "--attack": ("signs", "signs"),
    "--attackers": ("0.25", 0.25),
    "--workers": ("2", 2),
    "--client-timeout": ("300", 300.0),
    "--on-bad-upload": ("skip", "skip"),
    "--norm-bound": ("1000", 1000.0),
    "--min-clients": ("2", 2),
}
LINE = " ".join(f"{flag} {text}" for flag, (text, _) in SETTINGS.items())


def check_arrived(path: Path, more: dict[str, Any]) -> None:
    found = tomllib.loads(path.read_text())
    for flag, (_, value) in SETTINGS.items():
        name = flag[2:].replace("-", "_").replace("_param", "_params")
        kept = found[name]
        assert (kept | value if isinstance(value, dict) else value) == kept, flag
    assert {name: found[name] for name in more} == more


def test_every_setting_of_run_arrives(call: Call, tmp_path: Path) -> None:
    call(f"run {LINE} --method fedprox -p mu=0.3 --seed 7 --quiet --out out")
    check_arrived(tmp_path / "out/run.toml", {"method": "fedprox", "seed": 7})
    assert tomllib.loads((tmp_path / "out/run.toml").read_text())["params"]["mu"] == 0.3


def test_every_setting_of_compare_arrives(call: Call, tmp_path: Path) -> None:
    call(f"compare {LINE} --methods fedavg --seeds 7 --quiet --out out")
    (path,) = tmp_path.glob("out/*/run.toml")
    check_arrived(path, {"method": "fedavg", "seed": 7})


def test_every_setting_of_sweep_arrives(call: Call, tmp_path: Path) -> None:
    call(f"sweep {LINE} --method fedprox -g mu=0.3 --seeds 7 --quiet --out out")
    (path,) = tmp_path.glob("out/*/run.toml")
    check_arrived(path, {"method": "fedprox", "seed": 7})


@pytest.mark.parametrize("command", ["run", "compare --methods fedavg", "sweep -g alpha=0.5"])
@pytest.mark.parametrize("choice", ["native", "torch"])
def test_the_choice_of_kernels_arrives(
    command: str, choice: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def resolve(choice: str) -> str:
        asked.append(choice)
        return "torch"  # there may be no native ones on this machine

    monkeypatch.setattr(kernels, "resolve", resolve)
    small = "--data synthetic --net mlp --clients 4 --rounds 1 --epochs 0.2 --workers 1 --quiet"
    call(f"{command} {small} --kernels {choice}")
    assert choice in asked
    assert "auto" not in asked


@pytest.mark.parametrize("command", ["compare", "sweep -g alpha=0.5", "demo"])
@pytest.mark.parametrize(("option", "expected"), [("", cores()), ("--workers 3", 3)])
def test_many_runs_take_all_cores_unless_told_otherwise(
    command: str, option: str, expected: int, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def many_runs(experiment: Any, *more: object) -> None:
        given.update(experiment.keywords)

    monkeypatch.setattr(train, "many_runs", many_runs)
    call(f"{command} {option}")
    assert given["workers"] == expected


@pytest.mark.parametrize(
    ("command", "out"),
    [("compare", "runs/compare"), ("sweep -g alpha=0.5", "runs/sweep"), ("demo", "runs/demo")],
)
def test_runs_are_kept_below_runs_unless_told_otherwise(
    command: str, out: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def many_runs(experiment: Callable[..., Comparison], folder: Path, *more: object) -> None:
        folders.append(folder)

    monkeypatch.setattr(train, "many_runs", many_runs)
    call(command)
    call(f"{command} --out mine")
    assert folders == [Path(out), Path("mine")]


def test_every_option_of_study_arrives(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(studies, "study", lambda *given: calls.append(given))
    call("study joint")
    call(
        "study joint --scale smoke --columns a;b --methods map[alpha=0.5,weight=1],fedavg "
        "--defaults --seeds 1,2 -p alpha=0.5 --clip 100 "
        "--data-dir files --workers 3 --engine ray --ray-address auto "
        "--out o --runs r --known k --plan --report --quiet"
    )
    plain = {
        "columns": [],
        "methods": [],
        "seeds": [0],
        "defaults_only": False,
        "params": {},
        "clip": None,
        "workers": cores(),
        "engine": "auto",
        "ray_address": None,
        "data_dir": None,
    }
    chosen = {
        "columns": ["a", "b"],
        "methods": ["map[alpha=0.5,weight=1]", "fedavg"],
        "seeds": [1, 2],
        "defaults_only": True,
        "params": {"alpha": 0.5},
        "clip": 100,
        "workers": 3,
        "engine": "ray",
        "ray_address": "auto",
        "data_dir": "files",
    }
    assert calls == [
        ("joint", "small", plain, Path("studies"), Path("runs"), None, False, False, False),
        ("joint", "smoke", chosen, Path("o"), Path("r"), Path("k"), True, True, True),
    ]


def test_resume_takes_another_engine(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out").mkdir()
    Path("out/run.toml").write_text('engine = "ray"\nray_address = "10.0.0.1:6379"\n')
    seen: list[Any] = []
    monkeypatch.setattr(train, "one_run", lambda settings, *rest, **more: seen.append(settings))
    call("resume out")
    call("resume out --engine fork")
    call("resume out --ray-address auto")
    assert [(settings.engine, settings.ray_address) for settings in seen] == [
        ("ray", "10.0.0.1:6379"),
        ("fork", "10.0.0.1:6379"),
        ("ray", "auto"),
    ]


def test_resume_takes_the_workers_that_are_given(call: Call, tmp_path: Path) -> None:
    small = "--data synthetic --net mlp --clients 4 --rounds 1 --epochs 0.2 --workers 1 --quiet"
    call(f"run {small} --out out")
    (tmp_path / "out/done").unlink()
    call("resume out --workers 2 --quiet")
    assert tomllib.loads((tmp_path / "out/run.toml").read_text())["workers"] == 2


def test_values_are_numbers_truths_or_text() -> None:
    found = values(["a=1", "b=0.5", "c=true", "d=soft", "e=x=y"], "-p")
    assert found == {"a": 1, "b": 0.5, "c": True, "d": "soft", "e": "x=y"}


@pytest.mark.parametrize("text", ["alpha", "=1"])
def test_a_pair_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(FedmapError, match=f"-p '{text}' is not of the form NAME=VALUE"):
        values([text], "-p")


def test_a_grid_has_a_list_of_values_for_each_name() -> None:
    for parse in (values, grid_values):
        with pytest.raises(FedmapError, match=r"-g lr is given twice: 0\.1 and 0\.2"):
            parse(["lr=0.1", "lr=0.2"], "-g")
    found = grid_values(["alpha=0.1,1", "transfer=kd, l2"], "-g")
    assert found == {"alpha": [0.1, 1], "transfer": ["kd", "l2"]}


def test_a_list_has_each_part_once_in_its_order() -> None:
    assert listed(" b, a,,b ", "--methods") == ["b", "a"]


def test_columns_are_divided_by_semicolons() -> None:
    assert listed("Q=0.1, E=2; Q=0.3, E=2", "--columns", ";") == ["Q=0.1, E=2", "Q=0.3, E=2"]


def test_commas_in_brackets_belong_to_a_method() -> None:
    text = "fedavg, map[alpha=0.5,weight=0.1],map"
    assert listed(text, "--methods") == ["fedavg", "map[alpha=0.5,weight=0.1]", "map"]


def test_seeds_are_whole_numbers_or_ranges_of_them() -> None:
    assert seed_list("3,0,3") == [3, 0]
    assert seed_list("0-2,7") == [0, 1, 2, 7]


@pytest.mark.parametrize("text", ["1.5", "2-1", "-1", "0-", "²", "a"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(FedmapError, match=f"--seeds '{text}' is not a list of whole numbers"):
        seed_list(text)


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "inspect", "partition"])
def test_a_help_text_shows_no_markup(fedmap: Callable[[str], Any], command: str) -> None:
    shown = fedmap(f"{command} --help").stdout
    assert "[b]" not in shown
    assert "FILE.py:" in shown
