"""The paper's tables and figures, each one declared in a module of its own."""

# Each of these modules registers its study.
from fedmap.paper.figures import fairness as fairness
from fedmap.paper.figures import federations as federations
from fedmap.paper.figures import femnist as femnist
from fedmap.paper.figures import joint as joint
from fedmap.paper.figures import missing_features as missing_features
from fedmap.paper.figures import parameters as parameters
from fedmap.paper.figures import partial_classes as partial_classes
from fedmap.paper.figures import proxy_drift as proxy_drift
from fedmap.paper.figures import readings as readings
from fedmap.paper.figures import robust as robust
from fedmap.paper.figures import two_client_demo as two_client_demo
from fedmap.paper.study import STUDIES, Choice, Report, Study
from fedmap.paper.tables import table_1_2 as table_1_2
from fedmap.paper.tables import table_3 as table_3

__all__ = ["STUDIES", "Choice", "Report", "Study"]
