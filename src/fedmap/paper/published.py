"""The numbers that the paper prints, in per cent."""

from fedmap.paper.federated import COLUMNS

# Table 1: best of three parameter groups, last round; the last number is the paper's own average.
AGGREGATION = """
fedavg    86.2 86.3 66.8 73.0 47.6 24.8 61.5 65.8  64.0
fedprox   86.8 87.4 70.7 74.6 47.0 24.8 64.8 66.5  65.3
fedmmd    87.0 88.2 69.9 74.7 46.8 26.9 64.3 66.1  65.5
scaffold  88.6 89.2 73.9 76.2 52.3 21.3 65.3 66.1  66.6
feddf     86.6 87.5 69.1 72.6 44.0 26.9 65.1 67.2  64.9
fedopt    86.3 87.6 65.7 69.1 43.0 23.6 60.4 61.7  62.2
fednova   86.5 86.8 64.0 68.7 42.5 23.4 61.0 60.4  61.7
fedaws    87.4 87.8 67.9 73.9 47.1 25.5 64.5 65.8  65.0
moon      87.4 87.8 70.6 74.6 47.1 25.1 62.1 65.9  65.1
feddyn    84.9 86.8 62.0 62.4 37.4 23.0 61.1 58.4  59.5
flda      87.4 86.2 59.3 74.2 44.8 28.2 68.2 64.9  64.2
pfedme    87.7 87.8 66.6 58.9 46.5  1.3 61.0 64.5  59.3
perfedavg 87.6 88.2 70.3 67.5 45.5  1.0 64.9 63.6  61.1
ditto     87.5 87.5 68.4 74.2 47.3 25.3 62.8 64.7  64.7
fedrod    88.1 87.9 63.9 73.8 47.6 25.8 67.6 67.4  65.3
fedrs     87.8 88.1 70.7 75.9 48.5 25.4 67.4 69.4  66.6
fedphp    87.7 87.8 70.3 74.3 47.4 26.9 63.2 66.2  65.5
dittors   87.8 88.3 69.7 74.9 47.3 25.0 65.2 66.8  65.6
scars     88.0 89.1 74.2 75.7 54.4 21.0 62.6 66.3  66.4
map       88.1 88.4 71.8 76.4 48.7 25.5 67.9 67.9  66.8
scamap    88.3 89.6 75.6 76.5 52.6 21.9 64.9 66.1  66.9
"""

# Table 2. FedRep and FedProto have no global model, so they are in this table alone.
PERSONALIZATION = """
fedavg    90.5 91.3 73.7 77.5 47.0 25.4 82.0 82.9  71.3
fedprox   90.7 92.0 72.0 77.2 48.4 26.4 81.2 82.1  71.2
fedmmd    89.8 91.2 74.0 76.5 49.4 32.6 80.7 82.9  72.1
scaffold  88.7 90.3 76.1 77.9 51.2 25.7 75.5 77.6  70.4
feddf     90.2 90.9 72.8 76.6 47.2 26.3 83.0 82.6  71.2
fedopt    92.2 91.0 70.7 72.7 51.6 25.8 81.6 84.9  71.3
fednova   89.6 90.5 68.7 71.8 43.9 25.6 79.3 79.5  68.6
fedaws    89.9 90.8 72.0 76.2 51.1 29.7 82.5 81.5  71.7
moon      89.6 90.7 72.6 75.5 49.7 28.1 82.2 82.2  71.3
feddyn    87.2 89.7 63.6 65.5 39.7 23.3 76.7 75.9  65.2
fedrep    90.2 87.5 61.7 67.5 32.0 19.2 81.6 81.0  65.1
flda      89.9 88.3 62.2 73.1 44.2 24.6 80.4 78.1  67.6
pfedme    91.2 91.5 72.5 64.0 48.8  1.7 76.5 76.3  65.3
perfedavg 91.2 92.1 75.0 72.6 46.1  1.2 80.8 82.6  67.7
fedproto  88.0 88.4 59.1 59.9 26.7 21.2 67.7 63.4  59.3
ditto     87.0 88.2 55.3 57.9 26.0 19.0 66.0 57.4  57.1
fedrod    89.1 90.0 63.2 73.3 49.4 22.8 81.6 83.5  69.1
fedrs     90.4 91.7 72.9 77.1 50.5 30.1 81.8 82.9  72.2
fedphp    90.9 92.1 77.3 80.7 50.5 33.2 83.2 83.0  73.9
dittors   87.2 88.8 55.5 57.3 25.8 19.6 67.7 63.9  58.2
scars     88.6 90.5 77.0 78.4 53.2 21.8 75.1 77.7  70.3
map       92.1 91.8 76.9 80.4 52.2 31.7 84.7 81.0  73.9
scamap    90.5 91.9 81.7 81.2 53.3 25.4 82.5 82.5  73.6
"""

# Table 3: complete classes, averaged over fashion-mnist/lenet, cifar-10/tfcnn and
# cifar-100/vgg8-bn.
COMPLETE = {
    "fedavg": (70.93, 72.45),
    "fedprox": (71.34, 72.08),
    "scaffold": (72.85, 73.47),
    "feddyn": (67.20, 67.44),
    "moon": (71.35, 72.79),
    "pfedme": (49.65, 50.78),
    "ditto": (71.31, 55.26),
    "fedrod": (69.19, 68.25),
    "fedrs": (72.15, 71.45),
    "fedphp": (71.52, 74.08),
    "map": (73.03, 75.61),
}

# So many of 100 clients lose from FedAvg to MAP on Fashion-MNIST (text beside the fairness figure).
WORSE_OFF = 16


def table(text: str) -> dict[tuple[str, str], float]:
    """(method, column) -> per cent; the column "average" is the paper's."""
    names = [*(column.name for column in COLUMNS), "average"]
    lines = [line.split() for line in text.strip().splitlines()]
    return {
        (method, name): float(value)
        for method, *values in lines
        for name, value in zip(names, values, strict=True)
    }


PUBLISHED = {"global": table(AGGREGATION), "personal": table(PERSONALIZATION)}
