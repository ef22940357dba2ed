"""FedAvg. McMahan et al., Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017."""

from fedmap.methods.base import Method, MethodParams, register


@register
class FedAvg(Method[MethodParams]):
    """Each client trains the downloaded model on its own data; the server averages the results.

    This is the frame that the base class has: psi <- sum_k psi_k / |S| (paper, Sect. 3.1)."""
