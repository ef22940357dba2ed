"""The numbers of the page beside references of a few lines, its words, and how large it is."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedmap
from fedmap.errors import FedmapError
from fedmap.report.clients import Served
from fedmap.report.page import numbers
from fedmap.report.page.build import Contents, as_text, columns, library, page
from fedmap.report.page.found import of_results, shown
from fedmap.report.page.models import Holdings, Proxies, holdings, proxies
from fedmap.report.page.verdict import Card, apart, cards
from fedmap.simulate.result import Result, summary
from fedmap.simulate.settings import Settings

Final = dict[str, Any]


@pytest.fixture(scope="module")
def contents(hostile_runs: Path) -> Contents:
    return Contents(shown([hostile_runs]))


@pytest.fixture(scope="module")
def html(contents: Contents) -> str:
    return page(contents)


def final(folder: Path, run: str) -> Final:
    found: Final = json.loads((folder / run / "final.json").read_text())
    return found


def records(folder: Path, run: str) -> list[Final]:
    return [json.loads(line) for line in (folder / run / "rounds.jsonl").read_text().splitlines()]


# Curves and the scatter.


@pytest.mark.parametrize("kind", ["global", "personal"])
@pytest.mark.parametrize("round", [1, 7])
def test_a_curve_is_the_mean_over_seeds_of_the_last_five_rounds_in_its_band(
    contents: Contents, hostile_runs: Path, kind: str, round: int
) -> None:
    rows = numbers.curve_rows(contents.results)
    (row,) = [r for r in rows if (r["method"], r["round"]) == ("map", round)]
    seeds = [
        [100 * r[f"{kind}_accuracy"] for r in records(hostile_runs, f"map-{seed}")]
        for seed in (0, 1)
    ]
    steady = [mean(one[max(round - 5, 0) : round]) for one in seeds]
    assert row[kind] == pytest.approx(mean(steady))
    assert row[f"{kind}_low"] == pytest.approx(mean(steady) - stdev(steady))
    assert row[f"{kind}_high"] == pytest.approx(mean(steady) + stdev(steady))
    assert row[f"{kind}_single"] == pytest.approx(mean(one[round - 1] for one in seeds))
    assert row["seeds"] == 2


def test_a_method_without_a_global_model_has_no_global_curve(contents: Contents) -> None:
    rows = [row for row in numbers.curve_rows(contents.results) if row["method"] == "local"]
    assert len(rows) == 7
    assert not any("global" in row for row in rows)


def test_a_curve_goes_as_far_as_the_furthest_run() -> None:
    runs = [made([0.1, 0.2, 0.3]), made([0.5])]
    rows = numbers.curve_rows({"map": runs})
    assert [(row["round"], row["seeds"]) for row in rows] == [(1, 2), (2, 1), (3, 1)]
    assert rows[2]["global"] == pytest.approx(20)


def test_long_curves_are_thinned_to_their_first_and_last_rounds_and_some_between() -> None:
    rounds = numbers.thinned(1000)
    assert len(rounds) == len(set(rounds)) == numbers.MOST_POINTS
    assert (rounds[0], rounds[-1]) == (1, 1000)
    assert numbers.thinned(3) == [1, 2, 3]


def test_the_scatter_has_each_run_and_the_means(contents: Contents, hostile_runs: Path) -> None:
    rows = [row for row in numbers.scatter_rows(contents.results) if row["method"] == "fedavg"]
    finals = [final(hostile_runs, f"fedavg-{seed}") for seed in (0, 1)]
    both = [(100 * f["global_accuracy"], 100 * f["personal_accuracy_all_clients"]) for f in finals]
    expected = [*both, tuple(np.mean(both, axis=0))]
    assert [row["seed"] for row in rows] == ["0", "1", "all"]
    assert [(row["global"], row["personal"]) for row in rows] == [
        pytest.approx(pair) for pair in expected
    ]


# Clients.


@pytest.mark.parametrize("baseline", ["local", "fedavg", "global"])
def test_a_gain_is_over_the_same_client_of_the_baseline_in_the_mean_over_seeds(
    hostile_runs: Path, baseline: str
) -> None:
    found = Contents(shown([hostile_runs]), baseline)
    mine = {row["client"]: row["gain"] for row in found.gains if row["method"] == "map"}
    names = final(hostile_runs, "map-0")["client_names"]
    differences = []
    for seed in (0, 1):
        own = final(hostile_runs, f"map-{seed}")
        base = (
            own["global_accuracy_per_client"]
            if baseline == "global"
            else final(hostile_runs, f"{baseline}-{seed}")["personal_accuracy_per_client"]
        )
        differences.append(100 * (np.array(own["personal_accuracy_per_client"]) - base))
    assert mine == pytest.approx(dict(zip(names, np.mean(differences, axis=0), strict=True)))


def test_the_baseline_is_local_then_fedavg_then_the_global_model(contents: Contents) -> None:
    all_three = contents.results
    without = {label: runs for label, runs in all_three.items() if label != "local"}
    assert numbers.chosen_baseline(all_three, None) == "local"
    assert numbers.chosen_baseline(without, None) == "fedavg"
    assert numbers.chosen_baseline({"local": all_three["local"]}, None) == "global"
    assert numbers.chosen_baseline(all_three, "map") == "map"
    with pytest.raises(FedmapError, match="no baseline 'fedavgg'; did you mean 'fedavg'"):
        numbers.chosen_baseline(all_three, "fedavgg")


def test_clients_that_each_seed_draws_anew_are_told_apart(tmp_path: Path) -> None:
    given: Any = {"data": "synthetic", "net": "tiny", "clients": 4, "rounds": 1, "epochs": 0.2}
    found = fedmap.compare(["local", "fedavg"], seeds=(0, 1), out=tmp_path, **given)
    names = [one.client for one in Contents(of_results(found.results)).clients]
    assert names == [f"client {k}, seed {seed}" for seed in (0, 1) for k in range(4)]


def gain(client: str, points: float, method: str = "map") -> dict[str, Any]:
    return {"method": method, "client": client, "gain": points}


def test_of_many_clients_those_with_the_least_and_the_most_gain_are_named() -> None:
    rows = [gain(f"c{k}", k) for k in range(100)]
    names = [row["client"] for row in numbers.extremes(rows)]
    assert names == [f"c{k}" for k in [*range(20), *range(80, 100)]]
    few = [gain("a", 3), gain("b", -1), gain("a", -8, "fedavg"), gain("b", 2, "fedavg")]
    assert [row["client"] for row in numbers.extremes(few)] == ["a", "a", "b", "b"]


def test_ticks_are_thinned_evenly() -> None:
    rows = [gain(f"c{k}", k % 100) for k in range(20_000)]
    some = numbers.thinned_ticks(rows)
    assert len(some) == numbers.MOST_TICKS
    assert mean(row["gain"] for row in some) == pytest.approx(49.5, abs=0.5)


def test_fairness_is_the_worst_client_the_worst_tenth_and_the_spread() -> None:
    clients = [client("map", f"c{k}", 0.5, k / 100) for k in range(40, 60)]
    table = numbers.fairness_table([*clients, client("fedavg", "one", 0.5, 0.6)], "local")
    own = [k / 100 for k in range(40, 60)]
    spread = 100 * float(np.std(own, ddof=1))
    assert table.lines == [
        ["map", f"{100 * mean(own):.1f}", f"{spread:.1f}", "40.0", "40.5", "c40 (-10.0)"],
        ["fedavg", "60.0", "-", "60.0", "60.0", "-"],
    ]
    assert table.head[-1] == "loses the most against local"


# Classes and proxies.


def test_accuracy_of_a_class_is_the_mean_over_seeds(contents: Contents, hostile_runs: Path) -> None:
    (row,) = [
        row
        for row in numbers.class_rows(contents.results)
        if (row["method"], row["kind"], row["class"]) == ("map", "global", "plain | & a")
    ]
    matrices = [np.array(final(hostile_runs, f"map-{s}")["global_confusion"]) for s in (0, 1)]
    shares = [matrix[2, 2] / matrix[2].sum() for matrix in matrices]
    assert row["accuracy"] == pytest.approx(100 * mean(shares))


def test_a_confusion_is_the_sum_over_seeds_in_shares_of_the_class(
    contents: Contents, hostile_runs: Path
) -> None:
    names = contents.classes
    both = [np.array(final(hostile_runs, f"map-{s}")["personal_confusion"]) for s in (0, 1)]
    matrix = both[0] + both[1]
    found = np.zeros_like(matrix)
    for row in numbers.confusion_rows(contents.results, names):
        if (row["method"], row["kind"]) == ("map", "personal"):
            i, j = names.index(row["class"]), names.index(row["answer"])
            found[i, j] = row["count"]
            assert row["share"] == pytest.approx(100 * matrix[i, j] / matrix[i].sum(), abs=0.05)
    assert found.tolist() == matrix.tolist()


def test_too_many_cells_leave_the_largest() -> None:
    matrix = np.array([[9, 1], [2, 8]])
    assert [cell["count"] for cell in numbers.cells(matrix, ["a", "b"], 3)] == [9, 8, 2]


def test_proxies_are_the_rows_of_the_final_classifiers(hostile_runs: Path) -> None:
    found = proxies(Result.read(hostile_runs / "map-0"))
    assert found is not None
    assert found.drift is not None
    shared = load_file(hostile_runs / "map-0/global.safetensors")["classifier.weight"]
    for k, file in enumerate(sorted((hostile_runs / "map-0/personal").iterdir())):
        own = load_file(file)["classifier.weight"]
        assert found.observed[k].tolist() == [c != k for c in range(3)]
        for c in range(3):
            length, away = np.sqrt((own[c] ** 2).sum()), own[c] - shared[c]
            assert found.norms[k, c] == pytest.approx(length, rel=1e-5)
            distance = np.sqrt((away**2).sum() / (shared[c] ** 2).sum())
            assert found.drift[k, c] == pytest.approx(distance, rel=1e-4)


def test_proxies_of_a_class_are_means_over_clients_that_have_it_and_that_miss_it(
    hostile_runs: Path,
) -> None:
    found = proxies(Result.read(hostile_runs / "map-0"))
    assert found is not None
    (_, row, _) = numbers.norm_rows({"map": found}, ["a", "b", "c"])
    assert row["norm_missing"] == pytest.approx(found.norms[1, 1])  # client 1 alone misses it
    assert row["norm_observed"] == pytest.approx(found.norms[[0, 2, 3], 1].mean())
    assert (row["clients_missing"], row["clients_observed"]) == (1, 3)
    observed, missing = numbers.drift_rows({"map": found})
    assert found.drift is not None
    assert missing["drift"] == pytest.approx(np.diag(found.drift).mean())
    rest = (found.drift.sum() - np.diag(found.drift).sum()) / 9
    assert observed["drift"] == pytest.approx(rest)


def test_clients_that_train_alone_have_lengths_and_no_drift(hostile_runs: Path) -> None:
    found = proxies(Result.read(hostile_runs / "local-0"))
    assert found is not None
    assert found.drift is None
    assert found.norms.shape == (4, 3)


def test_a_damaged_model_is_left_out(hostile_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(hostile_runs / "map-0", tmp_path / "map-0")
    (tmp_path / "map-0/personal/00002.safetensors").write_bytes(b"\0" * 99)
    found = proxies(Result.read(tmp_path / "map-0"))
    assert found is not None
    assert len(found.norms) == 3


def test_who_holds_what_is_counted_where_the_data_is_here(tmp_path: Path) -> None:
    federation = fedmap.partition(fedmap.load("synthetic"), 4, seed=3)
    result = fedmap.run("fedavg", federation, net="tiny", rounds=1, epochs=0.2, seed=3)
    found = holdings(result)
    assert found is not None
    assert found.counted
    assert found.held.tolist() == federation.counts.tolist()


def test_who_holds_what_is_in_the_models_where_the_data_is_not(hostile_runs: Path) -> None:
    found = holdings(Result.read(hostile_runs / "map-0"))
    assert found is not None
    assert not found.counted
    assert found.held.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]]


def test_cost_is_the_mean_round(contents: Contents, hostile_runs: Path) -> None:
    (row,) = [row for row in numbers.cost_rows(contents.results) if row["method"] == "map"]
    both = [record for seed in (0, 1) for record in records(hostile_runs, f"map-{seed}")]
    for name, field, unit in (("down", "bytes_down", 1e6), ("up", "bytes_up", 1e6)):
        assert row[name] == pytest.approx(mean(record[field] for record in both) / unit)
    assert row["seconds"] == pytest.approx(mean(record["seconds"] for record in both))
    (line,) = [line for line in numbers.cost_table(contents.results).lines if line[0] == "map"]
    moved = sum(record["bytes_down"] + record["bytes_up"] for record in both) / 2
    assert line[4] == f"{moved / 1e6:.1f}"


# Words.


def made(global_: list[float | None], seed: int = 0, method: str = "fedavg", **more: Any) -> Result:
    """The result of a run with these accuracies by round."""
    rounds = [
        {"round": i + 1, "global_accuracy": g, "personal_accuracy": 0.5, "seconds": 1.0}
        | {"bytes_down": 10, "bytes_up": 10, "clients": []}
        for i, g in enumerate(global_)
    ]
    settings = Settings.of({"method": method, "data": "synthetic", "seed": seed})
    return Result(settings, rounds, summary(rounds) | more, Path("nowhere"), {"classes": ["a"]})


def test_the_best_is_told_from_the_others_only_beyond_the_spread() -> None:
    assert apart("a", {"a": [0.9, 0.8], "b": [0.5, 0.6]}) == "more than the spread over seeds"
    assert apart("a", {"a": [0.9, 0.8], "b": [0.7, 0.9]}) == "within the spread of b"
    assert apart("a", {"a": [0.9], "b": [0.1]}).startswith("one seed only")


def client(method: str, name: str, base: float, own: float) -> Served:
    return Served(method, name, None, base, None, own, None)


def test_the_first_screen_answers_which_is_best_what_it_gives_and_who_loses() -> None:
    results = {
        "local": [made([None], method="local", personal_accuracy_all_clients=0.6)],
        "fedavg": [made([0.5], personal_accuracy_all_clients=0.65)],
        "map": [made([0.4], method="map", personal_accuracy_all_clients=0.7)],
        "central": [made([0.9], method="central", personal_accuracy_all_clients=0.9)],
    }
    clients = [
        client("map", "oslo", 0.5, 0.75),
        client("map", "molde", 0.7, 0.65),
        client("fedavg", "oslo", 0.5, 0.8),
        client("central", "oslo", 0.5, 0.9),
    ]
    chance = "one seed only, so a point or two may be chance"
    assert cards(results, clients, "local") == [
        Card("Best global model", "fedavg", f"50.0 %; {chance}"),
        Card("Best personal models", "map", f"70.0 %; {chance}"),
        Card(
            "Did the federation help?",
            "+10.0 points",
            "1 of 2 clients gain over training alone with map",
        ),
        Card("Who loses?", "1 of 2", "with map: molde (-5.0)"),
    ]


def test_an_early_round_does_not_stand_beside_last_ones() -> None:
    ended: Any = {"personal_accuracy_per_client": [0.5], "personal_accuracy_all_clients": 0.5}
    runs = {
        "map": [made([0.4], **ended), made([0.9], seed=1)],
        "fedavg": [made([0.8], seed=2)],
    }
    (first, *_) = cards(runs, [], "local")
    assert (first.answer, first.detail) == ("40.0 %", "map")
    lines = Contents(of_results(runs), "map").tables["methods"].lines
    assert [line[:2] for line in lines] == [["map", "40.0"], ["fedavg", "80.0"]]


def test_what_is_not_known_is_said() -> None:
    answers = [card.answer for card in cards({"map": [made([0.4])]}, [], "local")]
    assert answers == ["40.0 %", "50.0 %", "not known", "not known"]


# The page.


def test_columns_become_the_same_rows_again() -> None:
    rows = [{"a": "x", "n": 1.234567891}, {"a": "y", "m": 3}, {"a": "x", "n": float("nan")}]
    found = columns(rows)
    assert found["a"] == {"names": ["x", "y"], "at": [0, 1, 0]}
    assert found["n"] == [1.2346, None, None]
    assert found["m"] == [None, 3, None]


def test_no_text_of_the_data_can_end_its_element() -> None:
    hostile = {"a": "</script><!-- & \u2028"}
    assert not set("<>&\u2028") & set(as_text(hostile))
    assert json.loads(as_text(hostile)) == hostile


def test_names_are_text_everywhere(html: str) -> None:
    assert html.count("<script") == 3  # the data, the library, our own
    own = html.partition('<script type="application/json"')[0]
    for hostile in ("<script>document", "</script><h1>x", "<b>bergen", "<img"):
        assert hostile not in own
    assert "&lt;b&gt;bergen&lt;/b&gt;" in own


def test_only_the_pages_own_scripts_may_run_and_nothing_may_be_asked_for(html: str) -> None:
    policy = html.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert re.search(r"script-src 'sha256-\S+' 'sha256-\S+';", policy)


def test_every_part_is_there(html: str) -> None:
    parts = re.findall(r'<section id="([\w-]+)"', html)
    assert parts == [
        *("methods", "rounds", "joint", "clients", "holdings", "classes", "confusion"),
        *("proxies", "cost", "settings", "runs"),
    ]


def test_every_setting_and_every_run_is_on_the_page(html: str, contents: Contents) -> None:
    for name in ("momentum", "weight_decay", "hpm_momentum", "torch", "instructions"):
        assert name in html
    assert html.count("done, 7 of 7 rounds") == 6


def test_an_unfinished_run_is_shown_and_said(stopped_page: str) -> None:
    assert "1 run: stopped (map, seed 0), with curves up to the last round" in stopped_page
    assert "fedmap resume" in stopped_page
    assert "stopped, 2 of 5 rounds" in stopped_page
    assert 'data-chart="curves-global"' in stopped_page


@pytest.fixture(scope="module")
def stopped_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("stopped") / "run"

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    federation = fedmap.partition(fedmap.load("synthetic"), 4)
    with pytest.raises(KeyboardInterrupt):
        fedmap.run("map", federation, net="tiny", rounds=5, out=folder, on_round=stop)
    return page(Contents(shown([folder])))


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    federation = fedmap.partition(fedmap.load("synthetic"), 4)
    with pytest.raises(KeyboardInterrupt):
        fedmap.run("map", federation, net="tiny", rounds=5, out=folder, on_round=stop)
    (folder / "rounds.jsonl").unlink()
    text = page(Contents(shown([folder])))
    assert "stopped, 0 of 5 rounds" in text
    assert "not known" in text
    (folder / "diverged").write_text("not finite")
    assert "diverged, 0 of 5 rounds" in page(Contents(shown([folder])))


def test_what_real_sites_do_not_tell_is_left_out(hostile_runs: Path, tmp_path: Path) -> None:
    run = Result.read(hostile_runs / "map-0")
    unknown = [None] * 4
    told = {
        name: unknown if name.endswith("_per_client") else value
        for name, value in run.final.items()
        if "confusion" not in name and "per_class" not in name
    }
    sites = replace(run, final=told | {"global_confusion": None}, folder=tmp_path)
    (tmp_path / "run.toml").write_text("")
    text = page(Contents(of_results({"map": [sites]})))
    parts = re.findall(r'<section id="([\w-]+)"', text)
    assert parts == ["methods", "rounds", "clients", "holdings", "cost", "settings", "runs"]
    assert "who holds what is not known" in text


def large(seed: int, method: str, number: int) -> Result:
    """A run of 1000 clients, 62 classes and 150 rounds, all numbers different."""
    rng = np.random.default_rng((seed, number))
    classes = [f"class number {c}" for c in range(62)]
    per_client = {
        f"{name}_per_client": rng.random(1000).tolist()
        for name in ("personal_accuracy", "personal_accuracy_observed", "global_accuracy")
    }
    per_class = {
        f"{kind}_accuracy_per_class": dict(zip(classes, rng.random(62).tolist(), strict=True))
        for kind in ("global", "personal")
    }
    confusions = {
        f"{kind}_confusion": rng.integers(1, 99, (62, 62)).tolist()
        for kind in ("global", "personal")
    }
    more = per_client | per_class | confusions | {"personal_accuracy_all_clients": rng.random()}
    names = [f"the client of number {k}" for k in range(1000)]
    result = made(
        rng.random(150).tolist(), seed, method, client_names=names, classes=classes, **more
    )
    result._about["classes"] = classes
    return result


def test_a_page_of_many_methods_and_a_thousand_clients_is_below_two_megabytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    seen, lengths = rng.random((100, 62)) < 0.5, rng.random((100, 62))
    rows = Proxies(seen, lengths, lengths, lengths[0])
    held = Holdings(rng.integers(1, 999, (1000, 62)), counted=True)
    monkeypatch.setattr("fedmap.report.page.build.proxies", lambda run: rows)
    monkeypatch.setattr("fedmap.report.page.build.holdings", lambda run: held)
    monkeypatch.setattr("fedmap.report.page.sections.read_table", lambda path, name: {})
    runs = {f"method {m}": [large(0, "fedavg", m)] for m in range(26)}
    text = page(Contents(of_results(runs), "method 0"))
    assert 1_500_000 < len(text.encode()) < 2_000_000
    assert "drawn are the 24 methods" in text


def test_without_the_extra_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    library.cache_clear()
    with pytest.raises(FedmapError, match=r"install them with: pip install 'fedmap\[report\]'"):
        library()


# The files.


def test_the_tables_lie_beside_the_page(hostile_runs: Path, tmp_path: Path) -> None:
    path = fedmap.write_report(hostile_runs, out=tmp_path / "new/out.html")
    assert path.read_text().startswith("<!doctype html>")
    names = {file.name for file in path.parent.iterdir()} - {"out.html"}
    tables = ("methods", "fairness", "clients", "classes", "proxies", "cost")
    assert names == {f"out-{name}.{end}" for name in tables for end in ("md", "csv", "tex")}
    assert "gain over local" in (path.parent / "out-methods.md").read_text()


def test_a_page_that_cannot_be_written_is_one_sentence(hostile_runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedmapError, match=r"cannot write the report .*file"):
        fedmap.write_report(hostile_runs, out=tmp_path / "file/report.html")


def test_a_comparison_writes_its_report_under_its_own_labels(tmp_path: Path) -> None:
    given: Any = {"data": "synthetic", "net": "tiny", "clients": 4, "rounds": 1, "epochs": 0.2}
    found = fedmap.compare(["fedavg", "map[alpha=0.9]"], out=tmp_path, **given)
    path = found.report(baseline="fedavg")
    assert path == tmp_path / "report.html"
    assert 'data-method="map[alpha=0.9]"' in path.read_text()


def test_the_command_writes_the_page(
    fedmap: Callable[[str], Any], hostile_runs: Path, tmp_path: Path
) -> None:
    done = fedmap(f"report {hostile_runs} --baseline fedavg")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("report.html\n")
    assert "gain over fedavg" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("report nowhere", "there is no folder nowhere"),
        ("report {} --baseline mapp", "there is no baseline 'mapp'; did you mean 'map'?"),
        ("report {} --serve -o x.html", "--serve writes no file"),
        ("report {} --port 80", "--port is for --serve"),
        ("report {} --serve --port 99999", "cannot serve on port 99999"),
    ],
)
def test_nonsense_is_one_sentence(
    words: str, says: str, fedmap: Callable[[str], Any], hostile_runs: Path
) -> None:
    done = fedmap(words.format(hostile_runs))
    assert done.returncode == 1
    assert done.stderr.startswith("fedmap: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("out", [".", "/", ""])
def test_a_page_needs_a_name(out: str, federation: fedmap.Federation, tmp_path: Path) -> None:
    fedmap.run("fedavg", federation, net="tiny", rounds=1, out=tmp_path / "run")
    with pytest.raises(FedmapError, match=r"cannot write the report .*: it is a folder"):
        fedmap.write_report(tmp_path / "run", out=out)
