"""A model card in Markdown: what was trained on what, how good it is, and what is not known."""

from pathlib import Path
from statistics import mean
from typing import Any

from fedmap.own_code import short_name
from fedmap.report.table import Table, percent
from fedmap.simulate.folder import RunFolder
from fedmap.simulate.result import STEADY
from fedmap.simulate.settings import described
from fedmap.use.find import client_names, client_of
from fedmap.use.model import Notes, features_in_words

TRAINING = (
    "net", "rounds", "fraction", "epochs", "batch", "lr", "momentum", "weight_decay", "clip", "seed"
)  # fmt: skip
MOST_CLIENTS = 30  # in the table; of more, only the extremes


def card(path: Path, file: Path | None = None) -> str:
    """The card of a finished run, or of one of its models."""
    run = RunFolder.finished(path)
    folder, settings, final = run.path, described(path / "run.toml"), run.final()
    notes = Notes.read(file or run.intact("server.safetensors"))
    # A path is its machine's own affair; the class alone says which method it is.
    for name in ("method", "data", "net", "partition"):
        if name in settings:
            settings[name] = short_name(str(settings[name]).rpartition("/")[2])
    method, data = settings["method"], settings["data"]
    parts = [
        f"# {method} on {data}\n",
        _which(folder, notes, file, final),
        "## Data\n",
        _data(settings, notes, data),
        "## Accuracy\n",
        _accuracy(folder, final),
        "## Training\n",
        _training(settings, notes, method),
        "## Limits\n",
        LIMITS,
    ]
    return "\n".join(parts)


def _which(folder: Path, notes: Notes, file: Path | None, final: dict[str, Any]) -> str:
    if file is None:
        return "Models of a federated training: one for all, and one for each client.\n"
    if notes.observed is None:
        return "The global model of a federated training, made for every class.\n"
    number = client_of(folder, file)
    accuracy = percent([final["personal_accuracy_per_client"][number]])
    known = ", ".join(notes.classes[c] for c in notes.observed)
    return (
        f"The personal model of client {_names(folder, number + 1)[number]}: {accuracy} % correct "
        f"on this client's own test samples. Its client has training samples of: {known}.\n"
    )


def _data(settings: dict[str, Any], notes: Notes, data: str) -> str:
    shape = " x ".join(map(str, notes.shape))
    if len(notes.shape) == 3:
        shape += " (channels, height, width)"
    kind = f"pixels from 0 to 255, {shape}" if notes.pixels else f"values, {shape}"
    scaled = "; scaled by the mean and deviation in the model's file" if notes.mean else ""
    clients = settings.get("clients")
    shared = f", partition {settings['partition']}" if settings.get("partition") else ""
    lines = [
        f"- Data: {data}" + (f", {clients} clients{shared}" if clients else ""),
        f"- A sample: {kind}{scaled}",
        *([f"- In this order: {features_in_words(notes.features)}"] if notes.features else []),
        f"- Classes ({len(notes.classes)}): {', '.join(notes.classes)}",
    ]
    return "\n".join(lines) + "\n"


def _accuracy(folder: Path, final: dict[str, Any]) -> str:
    """Both accuracies, then each class and each client."""
    own = final["personal_accuracy_per_client"]
    known = [accuracy for accuracy in own if accuracy is not None]
    lines = []
    if final["global_accuracy"] is not None:
        steady = percent([final[f"global_accuracy_last_{STEADY}"]])
        rounds = min(final["rounds"], STEADY)
        lines.append(
            f"- Global model, on the global test set: {percent([final['global_accuracy']])} % "
            f"(mean of the last {rounds} rounds: {steady} %)"
        )
    if known:
        lines.append(
            "- Personal models, each on its client's own test samples: "
            f"{percent([mean(known)])} % in the mean over {len(known)} clients, "
            f"{percent([min(known)])} % to {percent([max(known)])} %"
        )
    text = "\n".join(lines) + "\n"
    per_class = final["global_accuracy_per_class"]
    if per_class:
        cells = [[name, percent([accuracy])] for name, accuracy in per_class.items()]
        text += "\n" + Table("", ["class", "global model, %"], cells).markdown()
    if known and len(own) <= MOST_CLIENTS:
        cells = [[n, percent([a])] for n, a in zip(_names(folder, len(own)), own, strict=True)]
        text += "\n" + Table("", ["client", "its personal model, %"], cells).markdown()
    return text


def _names(folder: Path, count: int) -> list[str]:
    """The clients' names, or their numbers."""
    return client_names(folder) or [str(number) for number in range(count)]


def _training(settings: dict[str, Any], notes: Notes, method: str) -> str:
    def pairs(values: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in values.items())

    params = pairs(notes.params)
    known = {name: settings[name] for name in TRAINING if settings.get(name) is not None}
    return (
        f"- Method: {method}{f' ({params})' if params else ''}\n"
        f"- Settings: {pairs(known)}\n"
        f"- Made with fedmap {notes.version}; `run.toml` of the run has all settings\n"
    )


LIMITS = """\
- The accuracies are of one run with one seed. Another seed gives other numbers.
- Test samples are of the same kind as the training samples. How good the models are on samples from
  elsewhere was not measured.
- A personal model was tested on its own client's samples only. On classes that its client does not
  have it can be wrong each time.
- Probabilities are what the model's softmax gives. Whether they are as often right as they say was
  not measured.
- Not measured either: differences between groups of people, robustness against changed samples, and
  what the weights reveal of the training samples.
"""
