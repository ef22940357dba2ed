"""Every setting of a run, as one flat, checked record: what the command line, a TOML file and
`run.toml` have in common."""

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from fedmap import kernels
from fedmap.client import Training
from fedmap.data import Defaults, defaults_of, full_data_name, load
from fedmap.errors import FedmapError
from fedmap.federation import AnyFederation, Federation, partition
from fedmap.methods import find_method, full_name
from fedmap.methods.parts.average import Kind
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
NO_NUMBERS = {"workers", "engine", "ray_address", "data_dir", "keep_states"}


class Settings(Training):
    """One method on one federation with one seed."""

    method: str = Field(
        "map", description="one of `fedmap methods`, or a class of your own: FILE.py:CLASS"
    )
    params: dict[str, Any] = Field({}, description="the method's parameters")
    data: str = Field("fashion-mini", description="one of `fedmap datasets`")
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
        None, description="one of `fedmap nets`; the paper's for the dataset if not given"
    )
    partition: str | None = Field(
        None,
        description="one of `fedmap partitions`; natural where data has owners, else incomplete",
    )
    partition_params: dict[str, Any] = Field({}, description="the partition's parameters")
    clients: int | None = Field(None, ge=1, description="clients in the federation")
    server_weights: Literal["uniform", "samples"] = Field(
        "uniform", description="how the server weighs uploads"
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
        None, gt=0, description="length that a client's change of the model is shortened to"
    )
    dp_noise: float | None = Field(
        None,
        gt=0,
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
    engine: str = Field(
        "auto",
        description="what runs the clients: local, fork, ray, or auto for what the workers need",
    )
    ray_address: str | None = Field(
        None,
        description="address of a Ray cluster, e.g. 10.0.0.1:6379 or auto, of which all cores are "
        "used; a local one with as many cores as workers is started if not given",
    )
    workers: int = Field(1, ge=1, description="processes; any number gives the same result")
    keep_states: bool = Field(
        False, description="keep the clients' states of a finished run, for more rounds later"
    )

    @classmethod
    def of(cls, given: dict[str, Any], defaults: Defaults | None = None) -> "Settings":
        """Checked settings; what is not given is the method's own default, or the dataset's: the
        paper's value, and for own data its reader's. Data that is there already says its own."""
        data = str(given.get("data") or cls.model_fields["data"].default)
        known = vars(defaults or defaults_of(data))
        rates = {name: known[name] for name in ("rounds", "fraction", "epochs", "batch", "lr")}
        chosen = {name: value for name, value in given.items() if value is not None}
        chosen["data"] = full_data_name(data)
        method_class = find_method(str(chosen.get("method", cls.model_fields["method"].default)))
        settings = checked(cls, rates | method_class.wants | chosen, "the run")
        method = method_class(**settings.params)
        seed = settings.seed if settings.partition_seed is None else settings.partition_seed
        found = {"params": method.params.model_dump(), "partition_seed": seed}
        return settings.model_copy(update={"method": full_name(settings.method)} | found)

    @property
    def label(self) -> str:
        """The method as tables and plots call it: of a class in a file, the class alone."""
        return self.method.rpartition(":")[2]

    @property
    def name(self) -> str:
        """A folder name from the settings: readable, and different for every different run."""
        what = json.dumps(self.model_dump(exclude=NO_NUMBERS, exclude_none=True), sort_keys=True)
        digest = hashlib.sha256(what.encode()).hexdigest()[:8]
        kind, colon, path = self.data.partition(":")
        data = f"{kind}{colon}{Path(path).name}"
        return re.sub(r"[^\w.-]", "_", f"{self.label}-{data}-{self.net}-seed{self.seed}-{digest}")

    @property
    def engine_name(self) -> str:
        """The engine; `auto` is what the address and the workers need."""
        if self.engine != "auto":
            return self.engine
        return "ray" if self.ray_address else "local" if self.workers == 1 else "fork"

    def federation(self) -> Federation:
        """The federation that these settings describe."""
        told = {name: getattr(self, name) for name in READER}
        options = {name: value for name, value in told.items() if value is not None}
        dataset = load(self.data, Path(self.data_dir) if self.data_dir else None, **options)
        if self.samples:
            dataset = dataset.smaller(self.samples)
        return partition(
            dataset,
            self.clients,
            seed=self.partition_seed or 0,
            kind=self.partition,
            **self.partition_params,
        )

    def resolved(self, federation: AnyFederation) -> "Settings":
        """With what only the data and the machine can say: who the clients are, which net fits
        where none was chosen, and whether there are native kernels."""
        known: dict[str, Any] = {"clients": len(federation)}
        known |= {name: value for name, value in federation.origin.items() if name != "data"}
        known |= {
            "net": self.net or federation.dataset.defaults.net,
            "kernels": kernels.resolve(self.kernels),
        }
        return self.model_copy(update=known)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Tables other than params and partition_params (what a finished
    run adds) are left out."""
    found = _parsed(path)
    return {name: value for name, value in found.items() if name not in ("versions", "federation")}


def read_federation(path: Path) -> dict[str, Any]:
    """What a run's run.toml says of the federation; nothing where the file is no run's."""
    return dict(_parsed(path).get("federation", {}))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise FedmapError(f"there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise FedmapError(f"{path} is not a TOML file: {wrong}") from None


def to_toml(tables: dict[str, Any]) -> str:
    """A TOML text of plain values, with one level of tables at the end."""
    plain = [
        f"{name} = {json.dumps(value)}"
        for name, value in tables.items()
        if not isinstance(value, dict) and value is not None
    ]
    nested = [
        f"\n[{name}]\n{to_toml(table)}" for name, table in tables.items() if isinstance(table, dict)
    ]
    return "\n".join([*plain, *nested])
