"""The paper's tables and figures, each one declared in a module of its own."""

from fedmap.paper.figures import (
    fairness,
    femnist,
    joint,
    missing_features,
    parameters,
    partial_classes,
    proxy_drift,
    readings,
    two_client_demo,
)
from fedmap.paper.study import STUDIES, Choice, Report, Study
from fedmap.paper.tables import table_1_2, table_3

__all__ = ["STUDIES", "Choice", "Report", "Study"]
__all__ += [
    module.__name__
    for module in (
        table_1_2,
        table_3,
        missing_features,
        proxy_drift,
        partial_classes,
        two_client_demo,
    )
]
__all__ += [module.__name__ for module in (joint, fairness, parameters, femnist, readings)]
