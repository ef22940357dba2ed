"""The federated methods, one module each."""

from fedmap.methods.base import METHODS, Local, Method, MethodParams, Predictor, Server, Upload, Values, mean, register, tensor
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedphp import FedPHP
from fedmap.methods.fedrs import FedRS
from fedmap.methods.map import MAP

__all__ = [
    "MAP", "METHODS", "FedAvg", "FedPHP", "FedRS",
    "Local", "Method", "MethodParams", "Predictor", "Server", "Upload", "Values", "mean", "register", "tensor",
]  # fmt: skip
