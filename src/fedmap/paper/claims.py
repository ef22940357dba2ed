"""The paper's claims, gathered from their studies in the order in which they are told."""

from fedmap.paper import STUDIES
from fedmap.paper.study import Claim

# federated runs first, then what single nets and two clients show, then what is not the paper's
ORDER = [
    "table-1-2", "joint", "fairness", "readings", "parameters", "table-3", "femnist",
    "missing-features", "proxy-drift", "partial-classes", "two-client-demo", "federations",
    "robust",
]  # fmt: skip


def gather() -> list[tuple[str, Claim]]:
    """Each claim with the name of its study."""
    return [(name, claim) for name in ORDER for claim in STUDIES[name].claims()]
