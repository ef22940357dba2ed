"""How good are the tests? Changes the code in small ways, one at a time, and counts how many of the
changes a test notices. Works on temporary copies: the working tree stays as it is."""

import argparse
import ast
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MODULES = ["client.py", "losses.py", "vector.py", "methods", "simulate", "report", "paper"]
# Tests that run for each method by its name.
BY_NAME = [
    "tests/test_check.py::test_a_registered_method_holds_the_battery",
    "tests/test_house.py::test_the_page_states_the_default_of_every_parameter",
    "tests/test_house.py::test_the_page_states_the_range_of_every_parameter",
    "tests/test_house.py::test_the_page_states_the_groups_of_the_paper",
]
# Tests that run for each study of the paper by its name.
BY_STUDY = [
    "tests/paper/test_smoke.py::test_a_study_goes_from_plan_to_report_and_is_not_done_twice",
    "tests/paper/test_study.py::test_a_scale_has_its_number_of_columns",
]
# Tests of what has no test of the same name.
INSTEAD = {
    "methods/base.py": ["tests/test_own_method.py", "tests/methods/test_fedavg.py"],
    "methods/resolve.py": ["tests/test_own_method.py"],
    "paper/groups.py": ["tests/paper/test_published.py"],
    "paper/report.py": ["tests/paper/test_smoke.py"],
}
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
PAIRS = "min max, any all, mean sum, add_ sub_, mul_ div_, argmax argmin, floor ceil, zeros ones"
NAMES = {a: b for pair in PAIRS.split(", ") for a, b in [pair.split(), pair.split()[::-1]]}
LEFT_OUT = {"abs", "clone", "detach", "sqrt", "square"}  # x.clone() becomes x
# Of a picture, what only looks different: no number depends on it.
LOOKS = (
    "alpha arrowprops aspect box color dpi figsize fontsize frameon layout linewidth markersize "
    "ncols pad s squeeze weight width_ratios xytext zorder"
)
# The same in a dictionary, where alpha and weight may be a method's parameters.
LOOKS_BY_NAME = [look for look in [*LOOKS.split(), "rotation"] if look not in ("alpha", "weight")]
DECORATIONS = "annotate axhline axvline bare grid legend margins remove set_ text tick_params"


class Mutant(NamedTuple):
    """One change of a module: the bytes from `start` to `end` become `after`."""

    module: str  # e.g. methods/map.py
    line: int
    start: int
    end: int
    before: str
    after: str


def changes(node: ast.AST) -> Iterator[str]:
    """What may stand in a node's place."""
    match node:
        case ast.Compare(ops=[operator]) | ast.BinOp(op=operator) | ast.BoolOp(op=operator):
            if type(operator) in OPERATORS:
                other = OPERATORS[type(operator)]()
                field, value = ("ops", [other]) if isinstance(node, ast.Compare) else ("op", other)
                yield f"({ast.unparse(type(node)(**{**vars(node), field: value}))})"
        case ast.UnaryOp(operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.IfExp(test=test, body=body, orelse=other):
            yield f"({ast.unparse(ast.IfExp(test, other, body))})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield str(value + 1)
        case ast.Call(func=ast.Attribute(value, name), args=[], keywords=[]) if name in LEFT_OUT:
            yield f"({ast.unparse(value)})"
        case ast.Attribute(value, name) if name in NAMES:
            yield f"({ast.unparse(value)}).{NAMES[name]}"
        case ast.Name(name, ast.Load()) if name in NAMES:
            yield NAMES[name]
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise():
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"


def only_looks(node: ast.AST) -> bool:
    """Does the node change nothing but how a picture looks?"""
    match node:
        case ast.keyword(arg=name):
            return name in LOOKS.split()
        case ast.Expr(ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name))):
            return name.startswith(tuple(DECORATIONS.split()))
    return False


def makes_no_difference(node: ast.AST) -> bool:
    """What no test needs to notice: looks, a study's sizes at the scale of seconds, where any small
    number would do, and the error of a method that every subclass replaces."""
    match node:
        case ast.Assign(targets=[ast.Name("SMOKE")]) | ast.Raise(ast.Name("NotImplementedError")):
            return True
    return only_looks(node)


def entry_makes_no_difference(key: ast.AST | None, value: ast.AST) -> bool:
    """The same of a dictionary's entry."""
    match key, value:
        case ast.Constant("smoke"), ast.Dict() | ast.Tuple():
            return True
        case ast.Constant(name), _:
            return name in LOOKS_BY_NAME
    return False


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """What is directly in a node, without types, decorators and texts."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        found = value if isinstance(value, list) else [value]
        if isinstance(node, ast.Dict) and name == "values":
            entries = zip(node.keys, node.values, strict=True)
            found = [value for key, value in entries if not entry_makes_no_difference(key, value)]
        for child in found:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield child


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all that is in it, without what makes no difference."""
    if not makes_no_difference(node):
        yield node
        for child in inside(node):
            yield from parts(child)


def mutants(module: str) -> Iterator[Mutant]:
    """Every change of one module."""
    text = (ROOT / "src/fedmap" / module).read_bytes()
    lines = text.splitlines(keepends=True)

    def place(line: int | None, column: int | None) -> int:
        return sum(map(len, lines[: (line or 1) - 1])) + (column or 0)

    for node in parts(ast.parse(text)):
        if isinstance(node, ast.expr | ast.stmt):
            start = place(node.lineno, node.col_offset)
            end = place(node.end_lineno, node.end_col_offset)
            for after in changes(node):
                yield Mutant(module, node.lineno, start, end, ast.unparse(node), after)


def tests_of(module: str) -> list[str]:
    """The tests that concern a module: those of its name, or else those of its folder."""
    *folders, name = Path(module).with_suffix("").parts
    if folders == ["methods", "parts"]:  # the tests of the methods that use it
        users = sorted((ROOT / "src/fedmap/methods").glob("*.py"))
        using = [user.name for user in users if f"parts.{name}" in user.read_text()]
        return [test for user in using for test in tests_of(f"methods/{user}")]
    home = Path("tests", *folders[:1])
    found = (ROOT / home).glob(f"**/test_{name}.py" if folders else f"test_{name}.py")
    tests = [str(test.relative_to(ROOT)) for test in sorted(found)]
    if folders == ["methods"] and tests:
        tests += [f"{test}[{name}]" for test in BY_NAME]
    if folders[1:] in (["figures"], ["tables"]):
        tests += [f"{test}[{name.replace('_', '-')}]" for test in BY_STUDY]
    return tests or INSTEAD.get(module) or [str(home)]


def prepare(home: str) -> None:
    """A worker's own copy of the code and the tests, and what every test run would import first."""
    copy = tempfile.mkdtemp(dir=home)
    without = shutil.ignore_patterns(".*", "__pycache__", "runs")
    shutil.copytree(ROOT, copy, ignore=without, dirs_exist_ok=True)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = f"{copy}/src"
    sys.path.insert(0, f"{copy}/src")
    sys.dont_write_bytecode = True  # a change may leave the file's size and second as they were
    for name in ("pytest", "torch"):
        import_module(name)


def run_tests(tests: list[str]) -> None:
    """In a process of its own: ends with the exit code of pytest."""
    os.setsid()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    sys.exit(import_module("pytest").main([*options, *tests]))


def passes(module: str, seconds: float) -> bool:
    """Do the module's tests pass within this time?"""
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=[tests_of(module)])
    process.start()
    process.join(seconds)
    if process.is_alive() and process.pid:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode == 0


@cache
def seconds_unchanged(module: str) -> float:
    begin = time.monotonic()
    if not passes(module, 600):
        raise RuntimeError(f"without any change, a test of {module} fails: {tests_of(module)}")
    return time.monotonic() - begin


def survives(mutant: Mutant, end: float) -> bool | None:
    """Does no test notice the change? None where the time is up. A test that hangs has noticed."""
    if time.time() > end:
        return None
    file = Path("src/fedmap", mutant.module)
    seconds, text = seconds_unchanged(mutant.module), file.read_bytes()
    file.write_bytes(text[: mutant.start] + mutant.after.encode() + text[mutant.end :])
    try:
        return passes(mutant.module, 10 + 5 * seconds)
    finally:
        file.write_bytes(text)


def main() -> None:
    """Try a sample of all changes; print those that no test notices, and the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES, help="e.g. losses.py methods")
    parser.add_argument("--number", type=int, default=300, help="how many changes are tried")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--minutes", type=float, default=18, help="no change is begun later")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    source = ROOT / "src/fedmap"
    files = [f for m in args.modules for f in sorted((source / m).rglob("*.py")) or [source / m]]
    every = [mutant for file in files for mutant in mutants(str(file.relative_to(source)))]
    sample = random.Random(args.seed).sample(every, min(args.number, len(every)))
    end = time.time() + 60 * args.minutes
    tried = survived = 0
    with (
        tempfile.TemporaryDirectory() as home,
        ProcessPoolExecutor(
            args.workers, multiprocessing.get_context("fork"), prepare, (home,)
        ) as pool,
    ):
        for mutant, alive in zip(sample, pool.map(survives, sample, repeat(end)), strict=True):
            tried, survived = tried + (alive is not None), survived + bool(alive)
            if alive:
                print(f"{mutant.module}:{mutant.line}: {mutant.before}  ->  {mutant.after}")
    score = 100 * (tried - survived) / max(tried, 1)
    print(f"{tried} of {len(every)} changes tried, {survived} unnoticed: score {score:.0f} %")


if __name__ == "__main__":
    main()
