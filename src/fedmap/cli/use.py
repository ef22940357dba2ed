"""Commands for the models of finished runs. The work is done in `fedmap.use`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmap.cli.options import DataDir
from fedmap.cli.parsing import listed, printable

if TYPE_CHECKING:
    from fedmap.report.table import Table
    from fedmap.use.model import UsableModel


def option(*names: str, help: str) -> Any:
    """An option without its default in the help."""
    return typer.Option(*names, help=help, show_default=False)


RunOrModel = Annotated[
    Path, typer.Argument(help="A run's folder, or a model's file.", show_default=False)
]
Run = Annotated[Path, typer.Argument(help="A finished run's folder.", show_default=False)]
Client = Annotated[
    str | None, option("--client", help="The personal model of this client: its name or number.")
]
Global = Annotated[bool, option("--global", help="The global model (which is the default).")]
Method = Annotated[
    str | None,
    option("--method", help="FILE.py:CLASS, where the model is of a method in a file of your own."),
]
Net = Annotated[
    str | None,
    option("--net", help="FILE.py:CLASS, where the model is of a net in a file of your own."),
]
Trust = Annotated[
    bool, option("--trust", help="Run the Python files that the run or the model names.")
]


def predict(
    model: RunOrModel,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Images, .npz, .csv or .parquet files, or folders.", show_default=False
        ),
    ],
    client: Client = None,
    of_all: Global = False,
    csv: Annotated[
        Path | None,
        option("--csv", help="Write the probabilities of all classes to this file."),
    ] = None,
    method: Method = None,
    net: Net = None,
    trust: Trust = False,
) -> None:
    """Ask a trained model: the class of each image or row, with its probability.

    Nothing but the model's file is needed. Images may have any size and color. A .csv file has a
    head; of tables, the columns that the model was trained on are found by their names, whatever
    stands beside them. Array x of an .npz file has the values as they were. For example:
    fedmap predict runs/mine photos/ --client oslo --csv answers.csv"""
    from fedmap.use.files import write
    from fedmap.use.predict import predict

    answers = predict(usable(model, client, of_all, method, net, trust), files)
    if csv is not None:
        write(csv, answers.all_classes().csv())
    shown(answers.table())


def export(
    model: RunOrModel,
    out: Annotated[Path, option("--out", "-o", help="The file to write.")],
    format: Annotated[
        str | None,
        option("--format", help="onnx, torch-export or safetensors (what the ending says)."),
    ] = None,
    client: Client = None,
    of_all: Global = False,
    method: Method = None,
    net: Net = None,
    trust: Trust = False,
) -> None:
    """Write a trained model for programs that do not know fedmap.

    An onnx or torch-export file takes raw samples in 32-bit floats (pixels from 0 to 255, or values
    as they are in your files; the scaling is part of it), any number at a time, and gives logits,
    whose softmax are the probabilities. A safetensors file has the weights under the net's own
    names. A model of a run gets its card beside it. For example: fedmap export runs/mine --client
    oslo -o oslo.onnx"""
    from fedmap.use.card import card
    from fedmap.use.export import export, format_of, signature
    from fedmap.use.files import write

    found = usable(model, client, of_all, method, net, trust)
    export(found, format, out)
    print(out)
    if format_of(out, format) != "safetensors":
        print(signature(found))
    if model.is_dir():
        beside = out.with_name(f"{out.name}.md")
        write(beside, card(model, found.path))
        print(f"model card: {beside}")


def card(
    run: Run,
    client: Client = None,
    of_all: Annotated[bool, option("--global", help="The card of the global model alone.")] = False,
    out: Annotated[
        Path | None, option("--out", "-o", help="Write it to this file instead.")
    ] = None,
) -> None:
    """Show a run's model card in Markdown: data, classes, accuracies, settings, limits."""
    from fedmap.use.card import card
    from fedmap.use.files import write
    from fedmap.use.find import model_file

    file = model_file(run, client, of_all) if client is not None or of_all else None
    text = card(run, file)
    if out is None:
        print(text, end="")
    else:
        write(out, text)


def adapt(
    run: Run,
    data: Annotated[
        str, option("--data", help="The newcomer's own data: FORMAT:PATH, as for `fedmap run`.")
    ],
    out: Annotated[Path, option("--out", "-o", help="The folder for the newcomer's model.")],
    data_dir: DataDir = None,
    label: Annotated[
        str | None, option("--label", help="Column of the labels in a table (the run's).")
    ] = None,
    categories: Annotated[
        str | None,
        option("--categories", help="Columns of text, with commas, in a table (the run's)."),
    ] = None,
    method: Method = None,
    net: Net = None,
    trust: Trust = False,
) -> None:
    """Make a personal model for a client that never took part.

    The run's final download is personalized on the newcomer's samples by the method's own rule,
    and both models are tested on those of its samples that were not trained on. Classes are
    matched by their names. For example: fedmap adapt runs/mine --data folder:bergen -o bergen"""
    from fedmap.report.table import percent
    from fedmap.use.adapt import adapt

    place = Path(data_dir) if data_dir else None
    reader: dict[str, Any] = {} if label is None else {"label_column": label}
    if categories is not None:
        reader["categories"] = listed(categories, "--categories")
    found = adapt(run, data, out, place, method=method, net=net, trust=trust, **reader)
    print(
        f"on the newcomer's own {found.test_samples} test samples: "
        f"global model {percent([found.global_accuracy])} %, "
        f"personal model {percent([found.personal_accuracy])} % "
        f"(trained on {found.training_samples} samples)\npersonal model: {found.file}"
    )


COMMANDS = (predict, export, card, adapt)


def usable(
    path: Path, client: str | None, of_all: bool, method: str | None, net: str | None, trust: bool
) -> "UsableModel":
    """The model that is meant."""
    from fedmap.use.find import model_file
    from fedmap.use.model import UsableModel

    return UsableModel.read(model_file(path, client, of_all), method, net, trust)


def shown(table: "Table") -> None:
    """A table for people, Markdown where it is piped."""
    from rich.markup import escape

    from fedmap.cli import lists

    screen = lists.console()
    if not screen.is_terminal:
        print(table.markdown(), end="")
        return
    grid = lists.table(*table.head)
    for line in table.lines:
        grid.add_row(*(escape(printable(cell)) for cell in line))
    screen.print(grid)
