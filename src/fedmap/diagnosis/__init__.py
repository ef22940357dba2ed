"""What a federation suffers from, in numbers, words and a picture, and what to try first."""

from fedmap.diagnosis.diagnose import Diagnosis, inspect

__all__ = ["Diagnosis", "inspect"]
