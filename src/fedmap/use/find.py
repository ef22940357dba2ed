"""Which file is meant: the global model of a run, a client's by name or number, or a file as it
is."""

from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.registry import nearest
from fedmap.simulate.folder import RunFolder
from fedmap.simulate.result import personal_files
from fedmap.simulate.settings import read_federation

MOST_NAMES = 20  # that a sentence lists


def model_file(path: Path, client: str | None = None, of_all: bool = False) -> Path:
    """The file of a model: `path` itself, or of a run's folder the client's or the global one."""
    if client is not None and of_all:
        raise FedmapError("--client and --global exclude each other: give one of them")
    if not path.is_dir():
        if client is not None or of_all:
            raise FedmapError(
                f"{path} is not a run folder; --client and --global choose a model of one"
            )
        return path
    adapted = path / "personal.safetensors"  # what `fedmap adapt` leaves in a folder of its own
    if client is None and not of_all and adapted.exists():
        return adapted
    run = RunFolder.finished(path)
    if client is not None:
        return run.intact(_of_client(path, client).relative_to(path).as_posix())
    if not (path / "global.safetensors").exists():
        raise FedmapError(
            f"the run in {path} has no global model; choose a personal one with --client: "
            f"{_choice(path)}"
        )
    return run.intact("global.safetensors")


def client_names(folder: Path) -> list[str]:
    """The clients' names in their order; none where they have only numbers."""
    return [str(name) for name in read_federation(folder / "run.toml").get("clients", ())]


def _of_client(folder: Path, client: str) -> Path:
    """A client's file, by its name or else its number."""
    names, files = client_names(folder), _files(folder)
    number = int(client) if client.isdecimal() else len(files)
    number = names.index(client) if client in names else number
    if number < len(files) and files[number].exists():
        return files[number]
    raise FedmapError(f"the run in {folder} has no client {client!r}; {_choice(folder, client)}")


def client_of(folder: Path, file: Path) -> int:
    """The number of the client whose personal model a file of a run has."""
    return [one.name for one in _files(folder)].index(file.name)


def _files(folder: Path) -> list[Path]:
    """Where every client's personal model is, or would be, in the order of the clients."""
    count = len(RunFolder(folder).final()["personal_accuracy_per_client"])
    return [folder / name for name in personal_files(client_names(folder), count)]


def _choice(folder: Path, client: str = "") -> str:
    """The clients that have a personal model here."""
    stems = sorted(file.stem for file in (folder / "personal").glob("*.safetensors"))
    if not stems:
        return "it has no personal models (those of a Flower run stay at the sites)"
    if all(stem.isdecimal() for stem in stems):
        return f"there are: {', '.join(client_names(folder)) or f'0 to {int(stems[-1])}'}"
    return nearest(client, stems[:MOST_NAMES])
