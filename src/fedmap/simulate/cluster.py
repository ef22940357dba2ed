"""A Ray cluster, as fedmap uses it: the connection, what is asked of its nodes, and how tensors
travel. Ray is imported when it is needed."""

import os
import pickle
import platform
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.values import ALIGNMENT

Packed = tuple[bytes, list[NDArray[np.uint8]]]
SECONDS_TO_ANSWER = 5.0  # until an address counts as silent
MOST_DEATHS = 5  # without any work done in between
FOR_A_LOCAL_ONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # with it the loopback address is not replaced
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",  # until all ends after a kill of the driver
}
ON_ONE_CORE = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}  # of whichever node


def the_ray() -> ModuleType:
    """The package ray."""
    try:
        import ray
    except ImportError:
        raise FedmapError(
            "the engine ray needs the package ray; install it with: pip install 'fedmap[ray]'"
        ) from None
    return ray


@contextmanager
def connected(address: str | None, cores: int) -> Iterator[ModuleType]:
    """Ray, connected with the cluster at the address, or with a local one that has so many cores
    and goes with this process. Inside another `connected`, or where the caller has called
    `ray.init`, it is that connection."""
    if address is None:  # Ray reads these when it is imported
        for name, value in FOR_A_LOCAL_ONE.items():
            os.environ.setdefault(name, value)
    ray = the_ray()
    if ray.is_initialized():
        yield ray
        return
    try:
        if address is None:
            _start(ray, address="local", num_cpus=cores, _node_ip_address="127.0.0.1")
        else:
            _require_an_answer(address)
            _start(ray, address=address)
        yield ray
    finally:
        ray.shutdown()


def places(ray: ModuleType, address: str | None, workers: int, device: str | None = None) -> int:
    """How many can work at a time: as many as a local Ray is to have cores, or as a cluster has
    cores, or GPUs where they are the device."""
    what, kind = ("cores", "CPU") if device is None else ("GPUs", "GPU")
    found = workers if address is None else int(ray.cluster_resources().get(kind, 0))
    if not found:
        raise FedmapError(f"the Ray cluster at {address} has no {what}")
    return found


def share_of_gpus(ray: ModuleType, device: str | None, workers: int) -> dict[str, float]:
    """What each worker asks for beside its core. (Not tested on a cluster with GPUs.)"""
    if device is None:
        return {}
    found = ray.cluster_resources().get("GPU", 0)
    if not found:
        raise FedmapError(f"device is {device!r}, but Ray has found no GPU")
    return {"num_gpus": min(found / workers, 1.0)}


def _start(ray: ModuleType, **options: Any) -> None:
    if options["address"] == "local":
        options["include_dashboard"] = False
    try:
        with warnings.catch_warnings():
            # of how Ray's next version will count GPUs, and of files that its own start leaves open
            warnings.simplefilter("ignore")
            ray.init(**options, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as wrong:
        raise FedmapError(
            f"cannot connect with Ray at {options['address']}: {_line(wrong)}; this machine must "
            "be a node of the cluster: ray start --address=HOST:PORT"
        ) from wrong


def _require_an_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "/" in address or not colon or not host or not port.isdigit():
        raise FedmapError(
            f"ray_address is {address!r}; give HOST:PORT as `ray start --head` names it, or auto"
        )
    try:
        with socket.create_connection((host, int(port)), SECONDS_TO_ANSWER) as connection:
            if not os.environ.get("RAY_USE_TLS") and not _speaks_http2(connection):
                raise OSError("what answers is not Ray")
    except (OSError, OverflowError) as wrong:
        raise FedmapError(
            f"no Ray cluster answers at {address}: {_line(wrong)}; start one there with: "
            f"ray start --head --port={port}"
        ) from None


def _speaks_http2(connection: socket.socket) -> bool:
    """Ray's head is a gRPC server: it answers a greeting with its settings (a frame of type 4)."""
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    return connection.recv(9, socket.MSG_WAITALL)[3:4] == b"\x04"


def _line(wrong: Exception) -> str:
    return " ".join(str(wrong).split()) or type(wrong).__name__


def versions() -> dict[str, str]:
    """What must be the same on every node, for the same bits."""
    found = {name: version(name) for name in ("fedmap", "torch", "numpy", "ray")}
    return {"python": platform.python_version()} | found


def require_versions(driver: dict[str, str]) -> None:
    """Refuse to work on a node that differs from the driver."""
    for name, here in versions().items():
        if here != driver[name]:
            raise FedmapError(
                f"{name} is {here} there and {driver[name]} at the driver; install the same "
                "versions on all nodes"
            )


@contextmanager
def named_node() -> Iterator[None]:
    """A sentence about a node names the node."""
    try:
        yield
    except FedmapError as sentence:
        here = the_ray().util.get_node_ip_address()
        raise FedmapError(f"Ray node {here}: {sentence}") from sentence


class Deaths:
    """Counts the workers that Ray loses. Their work is done again, unless that never ends."""

    def __init__(self) -> None:
        self._count = 0

    def progress(self) -> None:
        """Some work was done."""
        self._count = 0

    def one_more(self, reason: Exception) -> None:
        """A worker was lost."""
        self._count += 1
        if self._count == MOST_DEATHS:
            raise FedmapError(
                f"Ray lost {MOST_DEATHS} workers one after the other, and nothing was done in "
                f"between; the last one: {_line(reason)}"
            )


class _Packer(pickle.Pickler):
    """Tensors travel as bytes beside the pickle, which Ray shares within a node."""

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, Tensor):
            return NotImplemented
        flat = thing.detach().contiguous().reshape(-1).view(torch.uint8)
        return _tensor, (pickle.PickleBuffer(flat.numpy().data), thing.dtype, tuple(thing.shape))


def pack(thing: Any) -> Packed:
    """Anything with tensors in it, as a short pickle and numpy arrays."""
    buffers: list[pickle.PickleBuffer] = []
    file = BytesIO()
    _Packer(file, protocol=5, buffer_callback=buffers.append).dump(thing)
    return file.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]


def unpack(packed: Packed) -> Any:
    """The thing again. Its large tensors are views of Ray's memory, to be read and not changed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return pickle.loads(packed[0], buffers=packed[1])


def _tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=torch.uint8)
    if flat.data_ptr() % ALIGNMENT:  # as the allocator does it: no sum may depend on it
        flat = flat.clone()
    return flat.view(dtype).reshape(shape)
