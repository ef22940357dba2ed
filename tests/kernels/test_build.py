"""Building, caching and choosing: nothing happens on import, two builders do not disturb each
other, and no compiler is no disaster."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fedmap import kernels
from fedmap.errors import FedmapError
from fedmap.kernels import Block, build

X, BLOCKS = torch.randn(2, 1, 8, 8), [Block(torch.randn(3, 1, 3, 3), None, 0, True)]


@pytest.fixture
def no_compiler(forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_check_processor", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def compiler() -> list[str]:
    try:
        return build._compiler()
    except build.UnavailableError as reason:
        pytest.skip(str(reason))


def test_importing_builds_nothing_and_leaves_pytorch_in_force() -> None:
    script = "import sys, fedmap.kernels as k; assert 'fedmap.kernels.build' not in sys.modules; assert k._in_force is None"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_auto_is_pytorch_and_says_so_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert kernels.use("auto") == "torch"
    assert kernels.use("auto") == "torch"
    assert not kernels.available()
    assert "no C++ compiler found" in kernels.why_not()
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1
    assert "PyTorch" in said[0]
    assert kernels.why_not() in said[0]
    assert torch.equal(kernels.conv_blocks(X, BLOCKS), kernels.chain.plain(X, BLOCKS))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_native_is_an_error_with_the_reason() -> None:
    with pytest.raises(FedmapError, match=r"no C\+\+ compiler found"):
        kernels.use("native")


@pytest.mark.usefixtures("forgotten")
def test_without_avx2_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build.torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert not kernels.available()
    assert "AVX2" in kernels.why_not()


@pytest.mark.usefixtures("no_compiler")
def test_a_compiler_named_but_missing_is_named_in_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -v")
    assert "no-such-compiler" in kernels.why_not()


def test_an_unknown_choice_is_an_error_that_names_the_known() -> None:
    with pytest.raises(FedmapError, match="auto, native or torch"):
        kernels.use("cuda")  # type: ignore[arg-type]


@pytest.mark.usefixtures("native")
def test_auto_is_native_where_it_can_be_built() -> None:
    assert kernels.use("auto") == "native"
    assert kernels.why_not() == ""
    assert kernels.use("torch") == "torch"


def test_two_builders_at_once_both_succeed(
    compiler: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "tiny.cpp"
    source.write_text('extern "C" int seven() { return 7; }')
    monkeypatch.setattr(build, "SOURCES", (source,))
    made = tmp_path / "cache" / "tiny.so"
    made.parent.mkdir()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: build._compile(compiler, made), range(4)))
    assert [path.name for path in made.parent.iterdir()] == ["tiny.so"]
    assert build.ctypes.CDLL(str(made)).seven() == 7


def test_source_that_does_not_compile_is_a_reason_of_one_line(
    compiler: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int seven() { return }")
    monkeypatch.setattr(build, "SOURCES", (source,))
    with pytest.raises(build.UnavailableError, match="error") as wrong:
        build._compile(compiler, tmp_path / "wrong.so")
    assert "\n" not in str(wrong.value)
    assert list(tmp_path.iterdir()) == [source]


def test_another_source_or_compiler_has_another_key(
    compiler: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "other.cpp"
    source.write_text("")
    before = build._key(compiler)
    assert build._key([*compiler, "-O1"]) != before
    monkeypatch.setattr(build, "SOURCES", (source,))
    assert build._key(compiler) != before


@pytest.mark.usefixtures("forgotten")
def test_a_cache_that_cannot_be_written_is_a_reason(
    compiler: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "_check_processor", lambda: None)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "XDG_CACHE_HOME" in kernels.why_not()
