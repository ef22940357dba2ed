"""The paper's tables and figures, each one declared in a module of its own."""

from fedmap.study import fairness, femnist, joint, parameters, readings, table_1_2, table_3
from fedmap.study.base import STUDIES, Choice, Report, Study

__all__ = ["STUDIES", "Choice", "Report", "Study"]
__all__ += [module.__name__ for module in (table_1_2, table_3, joint, fairness, parameters, femnist, readings)]
