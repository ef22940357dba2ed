"""Datasets: readers of official files and of the user's own data. Each gives one `Dataset`; who
gets which sample is decided later."""

from fedmap.data import official
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.own.arrays import from_clients
from fedmap.data.own.csv_files import read_csv
from fedmap.data.own.folder import read_folder
from fedmap.data.own.huggingface import from_huggingface
from fedmap.data.own.npz import read_npz
from fedmap.data.own.parquet import read_parquet
from fedmap.data.registry import (
    DATASETS,
    FORMATS,
    Format,
    Source,
    defaults_of,
    full_data_name,
    load,
    register_dataset,
    register_format,
)
from fedmap.data.synthetic import synthetic

__all__ = [
    "DATASETS",
    "FORMATS",
    "Dataset",
    "Defaults",
    "Format",
    "Source",
    "defaults_of",
    "from_clients",
    "from_huggingface",
    "full_data_name",
    "load",
    "read_csv",
    "read_folder",
    "read_npz",
    "read_parquet",
    "register_dataset",
    "register_format",
    "synthetic",
]

official.import_all()
