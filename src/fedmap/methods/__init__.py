"""The federated methods, one module each."""

from fedmap.methods.base import (
    METHODS,
    Local,
    Method,
    MethodParams,
    Predictor,
    Server,
    Upload,
    Values,
    mean,
    register,
    tensor,
)
from fedmap.methods.ditto import Ditto
from fedmap.methods.dittors import DittoRS
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedaws import FedAwS
from fedmap.methods.feddf import FedDF
from fedmap.methods.feddyn import FedDyn
from fedmap.methods.fedmmd import FedMMD
from fedmap.methods.fednova import FedNova
from fedmap.methods.fedopt import FedOpt
from fedmap.methods.fedphp import FedPHP
from fedmap.methods.fedproto import FedProto
from fedmap.methods.fedprox import FedProx
from fedmap.methods.fedrep import FedRep
from fedmap.methods.fedrod import FedROD
from fedmap.methods.fedrs import FedRS
from fedmap.methods.flda import FLDA
from fedmap.methods.map import MAP
from fedmap.methods.moon import MOON
from fedmap.methods.perfedavg import PerFedAvg
from fedmap.methods.pfedme import pFedMe
from fedmap.methods.resolve import find_method, full_name
from fedmap.methods.scaffold import Scaffold
from fedmap.methods.scamap import ScaMAP
from fedmap.methods.scars import ScaRS

__all__ = [
    "FLDA", "MAP", "METHODS", "MOON", "Ditto", "DittoRS", "FedAvg", "FedAwS", "FedDF", "FedDyn", "FedMMD", "FedNova", "FedOpt",
    "FedPHP", "FedProto", "FedProx", "FedROD", "FedRS", "FedRep", "Local", "Method", "MethodParams", "PerFedAvg",
    "Predictor", "ScaMAP", "ScaRS", "Scaffold", "Server", "Upload", "Values", "find_method", "full_name", "mean", "pFedMe", "register",
    "tensor",
]  # fmt: skip
