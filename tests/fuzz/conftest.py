"""Makes the targets importable, for these tests as for `scripts/fuzz.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
