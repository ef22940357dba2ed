"""A model for programs that do not know fedmap. What is exported takes raw samples in 32-bit
floats, pixels from 0 to 255 or values (the scaling is part of it), any number at a time, and gives
logits."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from fedmap.errors import FedmapError
from fedmap.registry import nearest
from fedmap.use.files import write
from fedmap.use.model import UsableModel, features_in_words

INPUT, OUTPUT = "samples", "logits"
NOTE = "fedmap"  # under this name classes, shape and all else of the note are in the file


def format_of(out: Path, wanted: str | None = None) -> str:
    """The format that a file's ending says, or the one that is wanted where that is no other."""
    said = ENDINGS.get(out.suffix.lower())
    if wanted is not None and wanted not in FORMATS:
        raise FedmapError(f"there is no format {wanted!r}; {nearest(wanted, FORMATS)}")
    if wanted and said and wanted != said:
        raise FedmapError(f"{out}: the ending is that of {said}, but the format is {wanted}")
    if found := wanted or said:
        return found
    raise FedmapError(f"{out}: the ending says no format; {', '.join(ENDINGS)} do, or --format")


def export(model: UsableModel, format: str | None, out: Path) -> None:
    """Write the model to a file, in one of FORMATS or in that of its ending."""
    write(out, FORMATS[format_of(out, format)](model))


def as_onnx(model: UsableModel) -> bytes:
    """One ONNX file; input `samples`, output `logits`."""
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise FedmapError(
            f"the format onnx needs {' and '.join(missing)}; install with "
            "`pip install 'fedmap[onnx]'`"
        )
    program = exported_program(model)
    with quiet_exporter():
        converted = torch.onnx.export(
            program, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
    assert converted is not None  # it is None only for the exporter of old
    proto = converted.model_proto
    proto.metadata_props.add(key=NOTE, value=model.notes.model_dump_json())
    content: bytes = proto.SerializeToString()
    return content


def as_torch_export(model: UsableModel) -> bytes:
    """What `torch.export.load` reads: a program without fedmap's code."""
    content = io.BytesIO()
    notes = {f"{NOTE}.json": model.notes.model_dump_json()}
    torch.export.save(exported_program(model), content, extra_files=notes)
    return content.getvalue()


def as_safetensors(model: UsableModel) -> bytes:
    """The model's own file: weights under the net's own names, and the note."""
    return model.path.read_bytes()


FORMATS: dict[str, Callable[[UsableModel], bytes]] = {
    "onnx": as_onnx,
    "torch-export": as_torch_export,
    "safetensors": as_safetensors,
}


ENDINGS = {".onnx": "onnx", ".pt2": "torch-export", ".safetensors": "safetensors"}


def exported_program(model: UsableModel) -> torch.export.ExportedProgram:
    """The operations from raw samples to logits, for any number of samples."""
    if not isinstance(model.module.predictor, nn.Module):
        raise FedmapError(
            f"method {model.notes.method} answers with a function; only what is an nn.Module can "
            "be exported"
        )
    samples = torch.zeros(2, *model.notes.shape)  # one would be taken for a fixed number
    batch = torch.export.Dim("batch")
    with torch.no_grad():
        return torch.export.export(model.module, (samples,), dynamic_shapes=({0: batch},))


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Inside, PyTorch does not report on its own parts: what it will rename, and what it would do
    with torchvision."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def signature(model: UsableModel) -> str:
    """What an exported model takes and gives, for who calls it."""
    notes = model.notes
    takes = ", ".join(map(str, notes.shape))
    what = "pixels from 0 to 255" if notes.pixels else "values as they are"
    if notes.features:
        what += f" of {features_in_words(notes.features)}"
    return (
        f"{INPUT}: float32 (any number, {takes}), {what}; they are scaled inside\n"
        f"{OUTPUT}: float32 (any number, {len(notes.classes)}): {', '.join(notes.classes)}"
    )
