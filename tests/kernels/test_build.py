"""Building, caching and choosing: nothing happens on import, two builders do not disturb each
other, a damaged library is built again, and no compiler is no disaster."""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from fedmap import kernels
from fedmap.errors import FedmapError
from fedmap.kernels import Block, build

X, BLOCKS = torch.randn(2, 1, 8, 8), [Block(torch.randn(3, 1, 3, 3), None, 0, True)]
TINY = 'extern "C" int seven() { return 7; }'


@pytest.fixture
def any_processor(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_check_processor", lambda: None)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "fedmap" / "kernels"


def remove_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def no_compiler(
    any_processor: None, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remove_compiler(monkeypatch, tmp_path)


@pytest.fixture
def compiler() -> list[str]:
    try:
        return build._compiler()
    except build.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def tiny(
    any_processor: None, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """A library of one function, which is built at once, instead of the kernels; the folder that
    it is cached in."""
    source = tmp_path / "tiny.cpp"
    source.write_text(TINY)
    monkeypatch.setattr(build, "SOURCES", (source,))
    monkeypatch.setattr(build, "_opened", opened_tiny)
    empty_cache.mkdir(parents=True)
    return empty_cache


def opened_tiny(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.seven.restype = ctypes.c_int
    return library


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The libraries that were built while a test works."""
    paths: list[Path] = []
    compile_into = build._compile

    def noted(compiler: list[str], folder: Path) -> Path:
        paths.append(compile_into(compiler, folder))
        return paths[-1]

    monkeypatch.setattr(build, "_compile", noted)
    return paths


def test_importing_builds_nothing_and_leaves_pytorch_in_force() -> None:
    script = """
import sys, fedmap.kernels as kernels
assert 'fedmap.kernels.build' not in sys.modules
assert kernels._library is None
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_auto_is_pytorch_and_says_so_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert kernels.resolve("auto") == "torch"
    assert kernels.resolve("auto") == "torch"
    assert not kernels.available()
    assert "no C++ compiler found" in kernels.why_not()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "PyTorch" in lines[0]
    assert kernels.why_not() in lines[0]


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_native_is_an_error_with_the_reason() -> None:
    with pytest.raises(FedmapError, match=r"no C\+\+ compiler found"):
        kernels.resolve("native")
    with pytest.raises(FedmapError, match=r"no C\+\+ compiler found"), kernels.in_force("native"):
        pass


@pytest.mark.usefixtures("forgotten")
def test_without_avx2_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    assert not kernels.available()
    assert "AVX2" in kernels.why_not()


def test_wide_registers_are_compiled_for_where_pytorch_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = []
    for instructions, wide in (("AVX512", True), ("AVX2", False)):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda it=instructions: it)
        assert ("-mavx512f" in build._flags()) == wide
        keys.append(build._key())
    assert keys[0] != keys[1]  # a home folder may serve machines of both kinds


@pytest.mark.usefixtures("no_compiler")
def test_a_compiler_named_but_missing_is_named_in_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -v")
    assert "no-such-compiler" in kernels.why_not()


def test_an_unknown_choice_is_an_error_that_names_the_known() -> None:
    unknown: Any = "cuda"
    with pytest.raises(FedmapError, match="'cuda' is unknown: choose auto, native or torch"):
        kernels.resolve(unknown)


def runs_native() -> bool:
    return kernels.takes(X)


@pytest.mark.usefixtures("native")
def test_resolving_says_what_a_choice_comes_to_and_puts_nothing_in_force() -> None:
    assert kernels.resolve("torch") == "torch"
    assert runs_native()
    with kernels.in_force("torch"):
        assert kernels.resolve("auto") == "native"
        assert kernels.resolve("native") == "native"
        assert kernels.why_not() == ""
        assert not runs_native()


@pytest.mark.usefixtures("native")
def test_what_was_in_force_is_so_again_afterwards_also_after_an_error() -> None:
    with suppress(KeyError), kernels.in_force("torch"):
        with kernels.in_force("native"):
            assert runs_native()
        assert not runs_native()
        raise KeyError
    assert runs_native()


def test_two_builders_at_once_both_succeed(compiler: list[str], tiny: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: build._compile(compiler, tiny), range(4)))
    assert set(paths) == set(tiny.iterdir())  # nothing half built is left
    assert all(opened_tiny(path).seven() == 7 for path in paths)


def test_source_that_does_not_compile_is_a_reason_of_one_line(
    compiler: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int seven() { return }")
    monkeypatch.setattr(build, "SOURCES", (source,))
    with pytest.raises(build.UnavailableError, match="error") as wrong:
        build._compile(compiler, tmp_path)
    assert "\n" not in str(wrong.value)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("part", ["SOURCES", "HEADERS"])
def test_another_source_has_another_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str
) -> None:
    (tmp_path / "other").write_text("")
    before = build._key()
    monkeypatch.setattr(build, part, (tmp_path / "other",))
    assert build._key() != before


def test_another_named_compiler_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++")
    before = build._key()
    monkeypatch.setenv("CXX", "clang++")
    assert build._key() != before


def test_a_library_is_built_once(compiler: list[str], tiny: Path, builds: list[Path]) -> None:
    assert build.load().seven() == 7
    assert build.load().seven() == 7
    assert len(builds) == 1


def test_a_cached_library_is_used_where_there_is_no_compiler(
    compiler: list[str], tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    build.load()
    remove_compiler(monkeypatch, tmp_path)
    assert build.load().seven() == 7


def first_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def one_byte_changed(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def nothing(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [first_half, one_byte_changed, nothing])
def test_a_damaged_library_is_built_again(
    compiler: list[str], tiny: Path, builds: list[Path], damage: Callable[[bytes], bytes]
) -> None:
    first = build._compile(compiler, tiny)
    first.write_bytes(damage(first.read_bytes()))
    assert build.load().seven() == 7
    assert len(builds) == 2
    assert list(tiny.iterdir()) == [builds[1]]


def test_a_file_that_is_no_library_for_this_machine_is_built_again(
    compiler: list[str], tiny: Path, builds: list[Path]
) -> None:
    """As complete as it was written, so the checksum is right, but nothing that can be loaded."""
    content = b"for another machine"
    (tiny / build._name(content)).write_bytes(content)
    assert build.load().seven() == 7
    assert len(builds) == 1


def test_a_library_without_our_functions_is_built_again(
    compiler: list[str],
    tiny: Path,
    builds: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "eight.cpp").write_text(TINY.replace("seven", "eight"))
    eight = tmp_path / "eight.so"
    command = [*compiler, "-shared", "-fPIC", str(tmp_path / "eight.cpp"), "-o", str(eight)]
    subprocess.run(command, check=True)
    (tiny / build._name(eight.read_bytes())).write_bytes(eight.read_bytes())
    assert build.load().seven() == 7
    assert len(builds) == 1


@pytest.mark.usefixtures("any_processor")
def test_a_cache_that_cannot_be_written_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "XDG_CACHE_HOME" in kernels.why_not()
