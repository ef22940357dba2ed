"""Everything that reads what others wrote, as targets of fuzzing: given any bytes, each ends in a
value or a FedmapError. `tests/fuzz/test_targets.py` tries some damaged files, `make fuzz` many."""

import gzip
import io
import json
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import click
import numpy as np
import torch
import typer
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from PIL import Image
from pydantic import BaseModel
from tests.data.writers import CIFAR, leaf_shard, python2
from torch import nn

import fedmap
from fedmap import kernels
from fedmap.cli import main, train
from fedmap.data import read_csv, read_folder, read_npz, read_parquet, synthetic
from fedmap.data.files import archive, idx, images
from fedmap.data.official import femnist
from fedmap.errors import FedmapError
from fedmap.federation import Federation, partition
from fedmap.flower import records, site
from fedmap.flower.sites import Members
from fedmap.flower.terms import Answer, Hello, Offer, Order, Terms, agree, common_dataset, fit
from fedmap.flower.terms import unfit as offer_unfit
from fedmap.nets import NETS, Net
from fedmap.report.page import numbers
from fedmap.report.page.build import Contents
from fedmap.report.page.found import shown
from fedmap.report.page.verdict import cards
from fedmap.simulate.result import Result
from fedmap.simulate.run import Run
from fedmap.simulate.settings import Settings, read_federation, read_toml
from fedmap.simulate.tasks import Reply
from fedmap.use.card import card
from fedmap.use.model import Notes, UsableModel
from fedmap.use.samples import read_samples

Feed = Callable[[Path], object]
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(256, size=(4, 3072), dtype=np.uint8)
NET = "fuzz"
# Pieces that are put into files, beside what a fuzzer thinks of itself.
TOKENS = [
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"99999999", b"1e400", b"NaN",
    b"-1", b"null", b"true", b"[]", b"{}", b'""', b'"\\ud800"', b"\xf0\x9f\x98\x80", b"\x1b[2J",
    b"..",
]  # fmt: skip


class Target(NamedTuple):
    """What reads, in which file of an empty folder it finds the bytes, and some that are right. A
    refusal names the file where there is one that the user knows of."""

    feed: Feed
    file: str
    seeds: Callable[[], list[bytes]]
    names_file: bool


TARGETS: dict[str, Target] = {}


def target(
    file: str, seeds: Callable[[], list[bytes]], names_file: bool = True
) -> Callable[[Feed], Feed]:
    """Decorator: register a function as the target of its name."""

    def register(feed: Feed) -> Feed:
        name = feed.__name__.replace("_", " ")
        TARGETS[name] = Target(feed, file, seeds, names_file)
        return feed

    return register


def survives(name: str, content: bytes) -> None:
    """The target ends in a value, or in a sentence that names the file."""
    chosen = TARGETS[name]
    with new_folder() as folder:
        path = folder / chosen.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            chosen.feed(path)
        except FedmapError as refused:
            if chosen.names_file and path.name not in str(refused):
                raise AssertionError(f"a sentence without {path.name}: {refused}") from refused


@contextmanager
def new_folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has one there; the cache is in it too."""
    shared = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as made,
        mock.patch.dict(os.environ, {"XDG_CACHE_HOME": f"{made}/cache"}),
        mock.patch.object(kernels, "available", return_value=False),  # they would be compiled
        mock.patch.object(kernels, "why_not", return_value="not wanted here"),
    ):
        yield Path(made)


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    """What a function writes into a file."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


# Own data


def _pictures() -> list[bytes]:
    image = Image.fromarray(PIXELS[0].reshape(32, 32, 3)).resize((9, 7))
    kinds = ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm")
    return [saved(partial(image.save, format=kind)) for kind in kinds]


@target("image.png", _pictures)
def image(path: Path) -> object:
    return images.pixels(images.read(path), (8, 8), path)


@target("a/b/image.png", _pictures)
def folder(path: Path) -> object:
    return read_folder(path.parents[2], size=(8, 8))


def _lists() -> list[bytes]:
    return [b"path,client,label\na.png,oslo,cat\na.png,test,dog\na.png,2,dog\n"]


@target("images/clients.csv", _lists, names_file=False)
def clients_csv(path: Path) -> object:
    (path.parent / "a.png").write_bytes(_pictures()[0])
    return read_folder(path.parent, size=(8, 8))


def _tables() -> list[bytes]:
    return [
        b"a,b,y,who\n1,0.5,cat,oslo\n-2e3,7,dog,bergen\n3,4,dog,oslo\n",
        "\ufeffa;b;y;who\n1;2;0;x\n3;4;1;é\n".encode(),
        b'a\tb\ty\twho\n"1"\t2\t0\t"x""y"\n',
    ]


@target("a.csv", _tables)
def csv_of_one_client(path: Path) -> object:
    return read_csv(path.parent, categories=("who",))


@target("a.csv", _tables, names_file=False)  # some sentences name a client
def csv_of_all_clients(path: Path) -> object:
    return read_csv(path, client_column="who")


def _classes() -> list[bytes]:
    return [b"client,class\n0,class 0\n0,1\n1,2\n1,1\n2,class 3\n"]


@target("classes.csv", _classes)
def classes_of_clients(path: Path) -> object:
    return partition(synthetic(classes=4, train=40, test=8), kind="classes", file=str(path))


def _npz() -> list[bytes]:
    return [
        saved(lambda buffer: np.savez(buffer, x=PIXELS[:, :9], y=[1, 2, 3, 4])),
        saved(lambda buffer: np.savez_compressed(buffer, x=PIXELS[:, :9] / 2, y=[*"pqrs"])),
    ]


@target("a.npz", _npz)
def npz(path: Path) -> object:
    return read_npz(path.parent)


def _parquet() -> list[bytes]:
    pyarrow, files = import_module("pyarrow"), import_module("pyarrow.parquet")
    tables = [{"a": [1.0, 2.0], "b": [3, 4], "y": ["p", "q"]}, {"x": [[1, 2], [3, 4]], "y": [0, 1]}]
    return [saved(partial(files.write_table, pyarrow.table(table))) for table in tables]


@target("a.parquet", _parquet)
def parquet(path: Path) -> object:
    return read_parquet(path.parent)


# Official formats


def _idx() -> list[bytes]:
    plain = idx.encode(PIXELS[:, :12].reshape(-1, 4, 3))
    return [plain, gzip.compress(plain)]


@target("images", _idx)
def idx_file(path: Path) -> object:
    return idx.read(path, 3)


@target("test.bin", lambda: [np.concatenate([np.zeros((2, 2), np.uint8), PIXELS[:2]], 1).tobytes()])
def cifar_binary(path: Path) -> object:
    return CIFAR["cifar-100"].read_file(path)


def _pickles() -> list[bytes]:
    new = pickle.dumps({"data": PIXELS[:2], "labels": [1, 2]}, 4)
    return [new, python2(PIXELS[:2], [1, 2])]


@target("test", _pickles)
def cifar_pickle(path: Path) -> object:
    return CIFAR["cifar-10"].read_file(path)


@target("a.json", lambda: [json.dumps(leaf_shard({"w": [(1, 2)], "v": [(3, 4)]})).encode()])
def leaf_json(path: Path) -> object:
    return femnist.read_file(path)


def _tar(buffer: io.BytesIO) -> None:
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        info = tarfile.TarInfo("set/a.bin")
        info.size = 300
        file.addfile(info, io.BytesIO(PIXELS.tobytes()))


@target("a.tar.gz", lambda: [saved(_tar)])
def tar_gz(path: Path) -> None:
    archive.unpack(path, path.parent / "out", 100_000)


@target("a.tar", lambda: [gzip.decompress(saved(_tar))], names_file=False)
def tar_in_gz(path: Path) -> None:
    """Below the compression, which a fuzzer does not see through."""
    packed = path.with_suffix(".tar.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    archive.unpack(packed, path.parent / "out", 100_000)


# Settings and the command line

SETTINGS = b"""\
method = "map"
data = "csv:tables"
rounds = 3
lr = 0.1
size = [8, 8]
categories = ["a", "b"]
engine = "fork"

[params]
alpha = 0.5

[federation]
classes = ["a"]
"""


@target("settings.toml", lambda: [SETTINGS], names_file=False)
def settings_toml(path: Path) -> object:
    read_federation(path)
    settings = Settings.of(read_toml(path))
    return settings.name, settings.engine_name


COMMANDS = (
    "run --method map --data synthetic --net mlp --rounds 2 -p alpha=0.5 --lr 0.1 --workers 2",
    "run --data csv:tables --label y --categories a,b --size 8 --partition-param alpha=1",
    "compare --methods fedavg,map --seeds 0,1 --clients 4 --fraction 0.5 --quiet",
    "sweep --method map -g alpha=0.1,0.5 -g lr=0.1 --seeds 0 --out here",
    "resume here --rounds 3 --engine local --json",
    "methods map",
    "predict here photos --client 7",
    "flower keys keys --sites oslo,bergen",
    "data check mnist --data-dir there",
    "study table-1-2 --scale smoke --columns a;b --plan",
)
CARRIED_OUT = ("run", "resume", "compare", "sweep", "methods")  # the others are only parsed


@cache
def parser() -> click.Command:
    """The commands, of which most do nothing once they are parsed."""
    group = typer.main.get_command(main.app)
    for name, command in _commands(group):
        if name not in CARRIED_OUT:
            command.callback = lambda **_: None
    return group


def _commands(group: click.Command, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in getattr(group, "commands", {}).items():
        yield prefix + name, command
        yield from _commands(command, f"{prefix}{name} ")


@target("words", lambda: [line.replace(" ", "\n").encode() for line in COMMANDS], names_file=False)
def command_line(path: Path) -> object:
    """One word a line. Nothing is trained, downloaded or started."""
    words = path.read_bytes().replace(b"\0", b"").decode(errors="surrogateescape").split("\n")
    unseen = io.StringIO()
    with (
        redirect_stdout(unseen),
        redirect_stderr(unseen),
        mock.patch.object(train, "one_run"),
        mock.patch.object(train, "many_runs"),
    ):
        try:
            return parser().main(words, "fedmap", standalone_mode=False)
        except (click.ClickException, click.Abort) as usage:
            return usage  # a sentence too


# What a run leaves


def _net(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Net(nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 3)), 3, classes)


@cache
def small_federation() -> Federation:
    """Three clients with a few vectors."""
    return partition(synthetic(classes=3, train=60, test=12, shape=(4,)), 3)


HOW: dict[str, Any] = {"net": NET, "rounds": 3, "fraction": 0.7, "epochs": 1, "kernels": "torch"}


class StoppedError(Exception):
    """The end of what a target is about."""


def stop(*_: object) -> NoReturn:
    """In place of the next step."""
    raise StoppedError


def _files(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _run(folder: Path, **more: Any) -> None:
    with NETS.lent(NET, _net):
        fedmap.run("map", small_federation(), out=folder, **HOW, **more)


@cache
def stopped_files() -> dict[str, bytes]:
    """The files of a run that was stopped after its second round."""

    def on_round(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise StoppedError

    with new_folder() as folder:
        try:
            _run(folder / "run", on_round=on_round)
        except StoppedError:
            return _files(folder / "run")
    raise AssertionError("the run was not stopped")


@cache
def finished_files() -> dict[str, bytes]:
    """The files of a finished run."""
    with new_folder() as folder:
        _run(folder / "run")
        return _files(folder / "run")


def _one_of(files: dict[str, bytes]) -> list[bytes]:
    """For each file of a run its number, then its content."""
    return [bytes([number]) + content for number, content in enumerate(files.values())]


def _with_one_changed(path: Path, files: dict[str, bytes]) -> Path:
    """A run's folder, in which one file, by its number, has other content."""
    number, content = path.read_bytes()[:1], path.read_bytes()[1:]
    changed = list(files)[number[0] % len(files)] if number else ""
    folder = path.with_name("run")
    for name, as_it_was in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if name == changed else as_it_was)
    return folder


@target("content", lambda: _one_of(stopped_files()), names_file=False)
def stopped_run(path: Path) -> object:
    """Resumed, up to where the next round would begin."""
    folder = _with_one_changed(path, stopped_files())
    with NETS.lent(NET, _net):
        settings = Settings.of(read_toml(folder / "run.toml"))
        if settings.rounds > 100 or settings.workers > 2:
            return None  # as the user wishes
        try:
            return Run(settings, small_federation(), folder, start_engine=stop).go(resume=True)
        except StoppedError:
            return None


@target("content", lambda: _one_of(finished_files()), names_file=False)
def finished_run(path: Path) -> object:
    """Its result, its models, its card."""
    folder = _with_one_changed(path, finished_files())
    with NETS.lent(NET, _net):
        result = Result.read(folder)
        models = result.global_model, result.personal_model(0)
        return result.global_accuracy, result.personal_accuracy, models, card(folder)


@target("content", lambda: _one_of(stopped_files()), names_file=False)
def reported_run(path: Path) -> object:
    """What a report says of a run that is not finished."""
    contents = Contents(shown([_with_one_changed(path, stopped_files())]))
    said = cards(contents.results, contents.clients, contents.baseline)
    return contents.tables, said, contents.holdings, numbers.curve_rows(contents.results)


@target("model.safetensors", lambda: [finished_files()["global.safetensors"]])
def global_model(path: Path) -> object:
    return _asked(path)


@target("model.safetensors", lambda: [finished_files()["personal/00000.safetensors"]])
def personal_model(path: Path) -> object:
    return _asked(path)


def _asked(path: Path) -> object:
    with NETS.lent(NET, _net):
        model = UsableModel.read(path)
        return model.probabilities(torch.zeros(2, *model.notes.shape))


def _notes(shape: tuple[int, ...], pixels: bool) -> Notes:
    nothing: dict[str, Any] = {"params": {}, "mean": (), "std": (), "observed": None}
    return Notes(
        version="0", method="map", net=NET, shape=shape, pixels=pixels, classes=("a",), **nothing
    )


@target("a.csv", lambda: [b"a,b\n1,2\n3,-4e5\n", "\ufeffa,b\n1,2\n".encode()])
def rows_to_ask_csv(path: Path) -> object:
    return list(read_samples([path], _notes((2,), False)))


@target("a.npz", _npz)
def rows_to_ask_npz(path: Path) -> object:
    return list(read_samples([path], _notes((9,), False)))


@target("image.png", _pictures)
def image_to_ask(path: Path) -> object:
    return list(read_samples([path], _notes((1, 8, 8), True)))


# Flower's messages


@cache
def _terms() -> Terms:
    return agree([_offer()])


def _offer() -> Offer:
    return Offer(
        site="oslo", classes=("a", "b"), shape=(9,), kind="float32", mean=(), std=(), native=False
    )


def _said(words: bytes) -> RecordDict:
    """A message with these words, whatever they are."""
    text = words.decode(errors="replace")
    return RecordDict({records.WORDS: ConfigRecord({"json": text}), records.ARRAYS: ArrayRecord()})


def _json(*said: BaseModel) -> list[bytes]:
    return [one.model_dump_json().encode() for one in said]


@target("words", lambda: _json(_offer(), Offer(**vars(_offer()) | {"shape": (3, 8, 8)})), False)
def flower_offer(path: Path) -> object:
    offer = records.words(_said(path.read_bytes()), Offer)
    return offer_unfit(offer, _terms()), common_dataset(agree([_offer(), offer]))


@target("words", lambda: _json(Hello(), Hello(classes=("a", "b"))), names_file=False)
def flower_hello(path: Path) -> object:
    hello = records.words(_said(path.read_bytes()), Hello)
    return _site(path).hello(hello)


@target("words", lambda: _json(_terms()), names_file=False)
def flower_terms(path: Path) -> object:
    terms = records.words(_said(path.read_bytes()), Terms)
    return fit(_site(path).dataset(), terms, "site oslo"), common_dataset(terms)


def _site(path: Path) -> site.Site:
    """A site beside the message."""
    data = path.with_name("data")
    data.mkdir(exist_ok=True)
    np.savez(data / "all.npz", x=PIXELS[:, :9] / 2, y=[*"abab"])
    config = {"site": "oslo", "data": f"npz:{data}", "states": str(path.with_name("states"))}
    return site.Site(config)


def _order() -> Order:
    settings = Settings.of({"method": "map", "data": "sites", "net": NET, "kernels": "torch"})
    return Order(
        run="0123456789abcdef", start=1, task="train", round=1, number=0, sites=2, counted=0,
        server_has_test=False, terms=_terms(), settings=settings.model_dump(),
    )  # fmt: skip


@target("words", lambda: _json(_order()), names_file=False)
def flower_order(path: Path) -> object:
    """All but the training itself."""

    def trained(setup: Any, task: Any, round: int, number: int, down: Any, state: Any) -> Reply:
        return Reply(number, {"accuracy": 0.0}, state=state, result=setup.initial.named(down))

    order = records.words(_said(path.read_bytes()), Order)
    with NETS.lent(NET, _net), mock.patch.object(site, "do", trained):
        down = torch.zeros(39)
        if order.task != "train":
            return _site(path)._setup(order)
        return _site(path).answer(order, {"model": down})


@target("words", lambda: _json(Answer(numbers={"loss": 1.0}, note="a")), names_file=False)
def flower_answer(path: Path) -> object:
    return records.words(_said(path.read_bytes()), Answer)


@target("array", lambda: [saved(lambda buffer: np.save(buffer, PIXELS[0, :6]))], names_file=False)
def flower_values(path: Path) -> object:
    array = Array(dtype="uint8", shape=(6,), stype="numpy.ndarray", data=path.read_bytes())
    return records.values(RecordDict({records.ARRAYS: ArrayRecord({"model": array})}))


def _members() -> list[bytes]:
    with new_folder() as folder:
        members = Members(folder / "sites.json", terms=_terms())
        members.admit("oslo", 7)
        return [members.path.read_bytes()]


@target("run/sites.json", _members)
def flower_sites_json(path: Path) -> object:
    return Members.of(path.parent)
