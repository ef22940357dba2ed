"""Reader of CIFAR's python files: a pickle may hold numbers, text, plain containers and arrays of
numbers, and can run nothing."""

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedmap.data.files.regular import require_regular
from fedmap.errors import FedmapError

CAP = 1 << 28  # 256 MiB; the largest official file has 155 MB


class _DType:
    """Stands for numpy.dtype: keeps the type's code and byte order."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[|<>=]?[biuf][1248]", code):
            raise pickle.UnpicklingError(f"an array of type {code!r}; only numbers are allowed")
        self.code, self.order = code, ""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type as numpy has it."""
        return np.dtype(self.order + self.code.lstrip("|<>="))


class _Array:
    """Stands for numpy.ndarray: takes bytes only if they are exactly as many as the shape needs."""

    def __init__(self, *_: object) -> None:
        self.array: npt.NDArray[Any] = np.empty(0)  # all content is in the state that follows

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        raw = data.encode("latin1") if isinstance(data, str) else data  # Python 2 wrote text
        if not isinstance(raw, bytes) or not isinstance(kind, _DType):
            raise pickle.UnpicklingError("an array without bytes or without a type")
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise pickle.UnpicklingError(f"an array of shape {shape} does not fit its bytes")
        order: Literal["F", "C"] = "F" if fortran else "C"
        self.array = np.frombuffer(raw, kind.dtype).reshape(shape, order=order).copy()


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
}


class _Unpickler(pickle._Unpickler):
    """The implementation in Python, because the one in C fills memory up to any index that a file
    names for its memo."""

    def find_class(self, module: str, name: str) -> Any:
        """One of the allowed stand-ins."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}; only arrays and plain containers are allowed"
            )
        return _ALLOWED[module, name]


def read(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle file, with arrays as numpy arrays."""
    require_regular(path)
    try:
        if path.stat().st_size > CAP:
            raise FedmapError(
                f"{path}: {path.stat().st_size:,} bytes, more than the {CAP:,} that are allowed"
            )
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except FedmapError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise FedmapError(
            f"{path}: not a pickle that fedmap reads: {error or type(error).__name__}"
        ) from error
    if not isinstance(content, dict):
        raise FedmapError(f"{path}: holds a {type(content).__name__}, not a dictionary")
    names = (key.decode("latin1") if isinstance(key, bytes) else str(key) for key in content)
    return {
        name: value.array if isinstance(value, _Array) else value
        for name, value in zip(names, content.values(), strict=True)
    }
