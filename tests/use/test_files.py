"""Files that commands write where a person says."""

from pathlib import Path

import pytest

from fedmap.errors import FedmapError
from fedmap.use.files import write


@pytest.mark.parametrize("path", [".", "/", ""])
def test_a_folder_without_a_name_is_no_file_to_write(path: str) -> None:
    with pytest.raises(FedmapError, match=r"cannot write [./]: it is a folder"):
        write(Path(path), "text")
