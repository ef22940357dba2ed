"""Every setting of a run, as one flat, checked record: what the command line, a TOML file and
`run.toml` have in common."""

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import Field, PositiveInt, PrivateAttr, field_serializer, field_validator

from fedmap import devices, kernels, own_code
from fedmap.client import Training
from fedmap.data import Dataset, Defaults, defaults_of, full_data_name
from fedmap.data.registry import FORMATS, load_any, spoken
from fedmap.errors import FedmapError
from fedmap.federation import AnyFederation, Federation, partition
from fedmap.methods import AnyMethod, find_method, method_name
from fedmap.methods.parts.average import Kind
from fedmap.nets import AnyNet, net_name
from fedmap.params import checked
from fedmap.simulate.attacks import Attack

# what the reader of own data is told
READER = ("size", "label_column", "client_column", "categories", "scale")
# the settings that say what the federation is
FEDERATION = {
    "data",
    "data_dir",
    *READER,
    "samples",
    "partition",
    "partition_params",
    "clients",
    "partition_seed",
}
# how a run is carried out; they change no number
NO_NUMBERS = {"workers", "engine", "ray_address", "data_dir", "keep_states", "client_timeout"}
# settings that came later: at their defaults they are no part of a run's name, so that older runs
# are found again
LATER = {"aggregate", "assumed_attackers", "dp_delta", "attack", "attackers"}
LATER_PARAMS = {"fedrs": {"factors": False}}  # the same of parameters, each with its default
# the tables of run.toml that are no settings
ADDED = {"code", "federation", "versions", "processor"}


class Settings(Training):
    """One method on one federation with one seed."""

    method: str = Field(
        "map", description="one of `fedmap methods`, or a class of your own: FILE.py:CLASS"
    )
    params: dict[str, Any] = Field({}, description="the method's parameters")
    data: str = Field(
        "fashion-mini", description="one of `fedmap datasets`, or code of your own: FILE.py:NAME"
    )
    data_dir: str | None = Field(None, description="folder of the datasets' files")
    samples: int | None = Field(
        None,
        ge=1,
        description="training samples to use, and the same share of the test set; all if not given",
    )
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="height and width in pixels that own images are scaled to; 32 for files"
    )
    label_column: str | None = Field(None, description="column of the labels in own tables; y")
    client_column: str | None = Field(
        None, description="column that names the client of each row, in one table of all clients"
    )
    categories: tuple[str, ...] | None = Field(
        None, description="columns of text in own tables, each value of which becomes a feature"
    )
    scale: Literal["standard", "none"] | None = Field(
        None,
        description="standard, the default: features of own vectors get mean 0 and deviation 1",
    )
    net: str | None = Field(
        None,
        description="one of `fedmap nets`, or code of your own: FILE.py:CLASS; the paper's for the "
        "dataset if not given",
    )
    partition: str | None = Field(
        None,
        description="one of `fedmap partitions`, or code of your own: FILE.py:NAME; natural where "
        "data has owners, else incomplete",
    )
    partition_params: dict[str, Any] = Field({}, description="the partition's parameters")
    clients: int | None = Field(None, ge=1, description="clients in the federation")
    server_weights: Literal["uniform", "samples"] = Field(
        "uniform", description="how the server weighs uploads"
    )
    validation: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of each client's training samples that is kept for choosing the best "
        "round; none if not given",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="rounds without a better one on those samples after which a run ends early",
    )
    aggregate: Kind = Field(
        "mean",
        description="how the server averages uploads; all but the mean withstand some bad ones",
    )
    assumed_attackers: float = Field(
        0.3,
        ge=0,
        lt=0.5,
        description="share of a round's uploads that trimmed, krum and multi-krum take to be bad",
    )
    dp_clip: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="length that a client's change of the model is shortened to",
    )
    dp_noise: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="deviation of the noise on the sum of a round's changes, in units of dp_clip",
    )
    dp_delta: float = Field(
        1e-5, gt=0, lt=1, description="delta of the differential privacy whose epsilon is recorded"
    )
    attack: Attack = Field(
        "none", description="what attackers do: flip labels, flip signs of the change, send noise"
    )
    attackers: float = Field(0.0, ge=0, lt=1, description="share of all clients that attack")
    on_bad_upload: Literal["stop", "skip"] = Field(
        "stop", description="what an upload that is not finite or far too long does to the run"
    )
    norm_bound: float = Field(
        100.0, gt=1, description="how many times as far as usual an upload may move"
    )
    min_clients: int = Field(
        1,
        ge=1,
        description="uploads that a round needs to count, or as many as were asked for",
    )
    seed: int = Field(0, ge=0, description="seed of initial weights, selection and batches")
    partition_seed: int | None = Field(
        None, ge=0, description="seed of the partition; the same as `seed` if not given"
    )
    kernels: Literal["auto", "native", "torch"] = Field(
        "auto", description="small convolutions by native code or by PyTorch"
    )
    device: str | None = Field(
        None,
        description="where models are trained: cpu, cuda (all of them), cuda:1, mps, or auto for "
        "the best that is there; the CPU if not given",
    )
    engine: str = Field(
        "auto",
        description="what runs the clients: local, fork, spawn, ray, or auto for what the workers "
        "need",
    )
    ray_address: str | None = Field(
        None,
        description="address of a Ray cluster, e.g. 10.0.0.1:6379 or auto, of which all cores are "
        "used; a local one with as many cores as workers is started if not given",
    )
    workers: int = Field(1, ge=1, description="processes; any number gives the same result")
    client_timeout: float | None = Field(
        None,
        gt=0,
        description="seconds that a client may take in a round, else the run ends; no limit if not "
        "given",
    )
    keep_states: bool = Field(
        False, description="keep the clients' states of a finished run, for more rounds later"
    )

    @field_validator("device")
    @classmethod
    def _chosen(cls, device: str | None) -> str | None:
        return devices.chosen(device)

    @field_serializer("device")
    def _kind(self, device: str | None) -> str | None:
        return devices.kind(device)

    # A method or net that was given, where the setting is only a mark, or a file's word.
    _own: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(cls, given: dict[str, Any], defaults: Defaults | None = None) -> "Settings":
        """Checked settings; what is not given is the method's own default, or the dataset's: the
        paper's value, and for own data its reader's. Data that is there already says its own."""
        named = given.get("data")
        data = str(cls.model_fields["data"].default if named is None else named)
        known = vars(defaults or defaults_of(data))
        rates = {name: known[name] for name in ("rounds", "fraction", "epochs", "batch", "lr")}
        chosen = {name: value for name, value in given.items() if value is not None}
        if not chosen.get("validation"):
            chosen.pop("validation", None)  # 0 is none
            if "patience" in chosen:
                raise FedmapError(
                    f"patience is {chosen['patience']}, but no samples are kept for choosing; "
                    "give validation too, e.g. 0.1"
                )
        chosen["data"] = full_data_name(data)
        own = {n: chosen[n] for n in ("method", "net") if not isinstance(chosen.get(n, ""), str)}
        method_class = find_method(chosen.setdefault("method", cls.model_fields["method"].default))
        for setting, name in (
            ("method", method_name),
            ("net", net_name),
            ("partition", own_code.full_name),
        ):
            if setting in chosen:
                chosen[setting] = name(chosen[setting])
        settings = checked(cls, rates | method_class.wants | chosen, "the run")
        method = method_class(**settings.params)
        seed = settings.seed if settings.partition_seed is None else settings.partition_seed
        found = {"params": method.params.model_dump(), "partition_seed": seed}
        settings = settings.model_copy(update=found)
        settings._own = own
        return settings

    @classmethod
    def kept(cls, found: dict[str, Any], given: dict[str, Any]) -> "Settings":
        """Settings as a finished run has them in its run.toml, every one of them said: nothing
        that they name is run. A method or net that is given takes the place of theirs."""
        settings = checked(cls, found, "run.toml")
        settings._own = {name: value for name, value in given.items() if value is not None}
        return settings

    @property
    def own(self) -> dict[str, Any]:
        """The method and net that were given beside what the settings say."""
        return dict(self._own)

    @property
    def code(self) -> dict[str, Any]:
        """What names code, as the user gave it: names, or what was given in Python."""
        names = {name: getattr(self, name) for name in own_code.KINDS}
        return {name: value for name, value in (names | self._own).items() if value is not None}

    @property
    def method_class(self) -> type[AnyMethod]:
        """The method."""
        return find_method(self.code["method"])

    @property
    def any_net(self) -> AnyNet:
        """The net: its name, or what was given in Python."""
        net: AnyNet = self.code.get("net", "")
        return net

    @property
    def label(self) -> str:
        """The method as tables and plots call it: of a class in a file, the class alone."""
        return own_code.short_name(self.method)

    @property
    def name(self) -> str:
        """A folder name from the settings: readable, and different for every different run."""
        fields = type(self).model_fields
        unchanged = {name for name in LATER if getattr(self, name) == fields[name].default}
        known = self.model_dump(exclude=NO_NUMBERS | unchanged, exclude_none=True)
        for param, default in LATER_PARAMS.get(self.method, {}).items():
            if known["params"].get(param) == default:
                del known["params"][param]
        what = json.dumps(known, sort_keys=True)
        digest = hashlib.sha256(what.encode()).hexdigest()[:8]
        kind, colon, path = self.data.partition(":")
        data = f"{kind}{colon}{Path(path).name}" if kind in FORMATS else Path(self.data).name
        net = own_code.short_name(str(self.net))
        return re.sub(r"[^\w.-]", "_", f"{self.label}-{data}-{net}-seed{self.seed}-{digest}")

    @property
    def engine_name(self) -> str:
        """The engine; `auto` is what the address and the workers need. A client's time can be
        watched only from another process."""
        if self.engine != "auto":
            return self.engine
        alone = self.workers == 1 and self.client_timeout is None
        if self.ray_address or alone:
            return "ray" if self.ray_address else "local"
        # Elsewhere system libraries, and CUDA anywhere, do not work in a forked process.
        return "fork" if sys.platform == "linux" and self.device is None else "spawn"

    def federation(self) -> Federation:
        """The federation that these settings describe."""
        told = {name: getattr(self, name) for name in READER}
        options = {name: value for name, value in told.items() if value is not None}
        dataset = load_any(self.data, Path(self.data_dir) if self.data_dir else None, **options)
        if isinstance(dataset, Federation):
            return self._as_given(dataset)
        if not isinstance(dataset, Dataset):
            raise FedmapError(
                f"data {self.data} gives a {type(dataset).__name__}; a fedmap Dataset or "
                "Federation is allowed"
            )
        if self.samples:
            dataset = dataset.smaller(self.samples)
        return partition(
            dataset,
            self.clients,
            seed=self.partition_seed or 0,
            kind=self.partition,
            **self.partition_params,
        )

    def _as_given(self, federation: Federation) -> Federation:
        """A federation that the user's own code gave; nothing is left to be chosen of it."""
        federation.origin = {"data": self.data}
        chosen = [name for name in ("samples", "partition") if getattr(self, name) is not None]
        if self.clients not in (None, len(federation)):
            chosen.append("clients")
        if chosen:
            raise FedmapError(
                f"data {self.data} gives a whole federation of {len(federation)} clients, so "
                f"{spoken(chosen[0])} cannot be chosen"
            )
        return federation

    def resolved(self, federation: AnyFederation) -> "Settings":
        """With what only the data and the machine can say: who the clients are, which net fits
        where none was chosen, and whether there are native kernels and the device."""
        devices.require(self.device)
        known: dict[str, Any] = {"clients": len(federation)}
        known |= {name: value for name, value in federation.origin.items() if name != "data"}
        known |= {
            "net": federation.dataset.defaults.net if self.net is None else self.net,
            "kernels": kernels.resolve(self.kernels),
        }
        return self.model_copy(update=known)


def read_toml(
    path: Path, given: dict[str, Any] | None = None, trust: bool = False
) -> dict[str, Any]:
    """The settings in a TOML file; what the user gives wins. Code that only the file names is
    refused, unless the user trusts it."""
    given = given or {}
    settings = described(path) | given
    own_code.require_named(path, settings, given.values(), trust)
    return settings


def described(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, for who runs nothing that they name. Tables other than params
    and partition_params (what a finished run adds) are left out."""
    found = _parsed(path)
    return {name: value for name, value in found.items() if name not in ADDED}


def read_federation(path: Path) -> dict[str, Any]:
    """What a run's run.toml says of the federation; nothing where the file is no run's."""
    return read_table(path, "federation")


def read_table(path: Path, name: str) -> dict[str, Any]:
    """One of the tables that a run adds to its settings; empty where the file is no run's."""
    found = _parsed(path).get(name, {})
    if not isinstance(found, dict):
        raise FedmapError(f"{path}: {name} is no table, but {found!r}")
    return found


def read_code(path: Path) -> dict[str, str]:
    """The checksums of the run's own code in its run.toml; nothing where there are none."""
    return read_table(path, "code")


def _parsed(path: Path) -> dict[str, Any]:
    if not path.is_file():  # nor is a pipe one, or a device
        raise FedmapError(f"there is no file {path}")
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as wrong:
        raise FedmapError(f"cannot read {path}: {wrong.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise FedmapError(f"{path} is not a TOML file: {wrong}") from None


def to_toml(tables: dict[str, Any]) -> str:
    """A TOML text of plain values and tables; what is None is left out, at any depth."""
    return tomli_w.dumps(_known(tables))


def _known(table: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _known(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }
