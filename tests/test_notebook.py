"""What a notebook shows of results, and the bar that moves."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import fedmap
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.notebook import html_table, in_notebook, progress_bar

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 0.5, "epochs": 1}


def test_every_cell_of_a_table_is_text() -> None:
    text = html_table("<b>", ["<i>"], [["<script>alert(1)</script>", 3]])
    assert text == (
        "<table><caption>&lt;b&gt;</caption><thead><tr><th>&lt;i&gt;</th></tr></thead><tbody><tr>"
        "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td><td>3</td></tr></tbody></table>"
    )


def test_a_result_is_a_table_and_a_data_frame_of_its_rounds(federation: Federation) -> None:
    result = fedmap.run("fedavg", federation, **SMALL)
    assert f"<td>{100 * result.personal_accuracy:4.1f}%</td>" in result._repr_html_()
    rounds = result.to_pandas()
    assert rounds["round"].tolist() == [1, 2]
    losses = [record["train_loss"] for record in result.rounds]
    assert rounds["train_loss"].tolist() == losses
    assert "clients" not in rounds.columns


def test_a_comparison_is_a_table_and_a_data_frame_of_its_runs(tmp_path: Any) -> None:
    given: dict[str, Any] = {"data": "synthetic", "clients": 3} | SMALL
    compared = fedmap.compare(["fedavg", "fedrs"], out=tmp_path, **given)
    assert compared._repr_html_().count("<tr>") == 3
    assert compared.to_pandas()["method"].tolist() == ["fedavg", "fedrs"]


def test_without_pandas_there_is_a_sentence(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fedmap.run("fedavg", federation, **SMALL)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedmapError, match="pip install pandas"):
        result.to_pandas()


@pytest.mark.parametrize(
    ("shell", "is_one"),
    [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)],
)
def test_a_shell_with_a_kernel_is_a_notebook(
    shell: Any, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook() is is_one


@pytest.mark.parametrize("progress", [True, False, None])
def test_a_bar_is_shown_where_it_is_asked_for(
    progress: bool | None, federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not in_notebook()
    seen: list[int] = []
    fedmap.run(
        "fedavg",
        federation,
        progress=progress,
        on_round=lambda record: seen.append(record["round"]),
        **SMALL,
    )
    assert seen == [1, 2]
    shown = capsys.readouterr()
    assert ("fedavg" in shown.err) is bool(progress)
    assert shown.out == ""


def test_a_notebook_has_a_bar_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedmap.notebook.in_notebook", lambda: True)
    with progress_bar("quiet", 1, False) as move:
        move(1, "done")
    with progress_bar("[red]shown", 1, None) as move:
        move(1, "done")
    shown = capsys.readouterr().err
    assert "[red]shown" in shown
    assert "quiet" not in shown
