"""The paper's tables and figures, each one declared in a module of its own."""

from fedmap.study.base import STUDIES, Choice, Report, Study

__all__ = ["STUDIES", "Choice", "Report", "Study"]
