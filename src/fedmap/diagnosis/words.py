"""The numbers of a diagnosis in sentences, and which clients miss which classes."""

from fedmap.diagnosis.numbers import Numbers
from fedmap.federation import Federation

MOST_NAMES = 10  # clients that are named, with the classes that they miss
MOST_CLASSES = 8  # that are named for a client
ALIKE = 0.9  # a cosine from which on two moves have one direction


def sentences(numbers: Numbers) -> dict[str, str]:
    """What the federation suffers from, by subject."""
    told = {
        "missing classes": missing(numbers),
        "imbalance": imbalance(numbers),
        "sizes": sizes(numbers),
        "proxies": proxies(numbers),
        "after a download": download(numbers),
    }
    return told | ({"the run": run(numbers)} if numbers.run else {})


def missing(n: Numbers) -> str:
    """Who lacks what, in numbers."""
    if not n.clients_that_miss:
        return f"every client has all {n.classes} classes"
    return (
        f"{n.clients_that_miss} of {n.clients} clients miss at least one of {n.classes} classes, "
        f"{n.missing_mean:.1f} on average, {n.missing_most} at most; {n.rarest_class} is the "
        f"rarest class: {n.holders} of {n.clients} clients hold it{few(n)}"
    )


def few(n: Numbers) -> str:
    """What counts as missing, where that is more than nothing at all."""
    if n.observed_from == 1:
        return ""
    return f" (a class counts as missing below {n.observed_from} training samples)"


def imbalance(n: Numbers) -> str:
    """Between the classes of a client, and of all."""
    return (
        f"the largest class of the median client is {n.within:.1f} times the smallest that it has; "
        f"of all clients together {n.between:.1f} times"
    )


def sizes(n: Numbers) -> str:
    """How much a client trains on, and what one answer counts."""
    return (
        f"a client trains on {n.samples_least:,} to {n.samples_most:,} samples, the median one on "
        f"{n.samples_median:,.0f}; one of its {n.tests_median:,.0f} test samples is "
        f"{100 / n.tests_median:.1f} points"
    )


def proxies(n: Numbers) -> str:
    """How far classes move that a client has no sample of."""
    how = f"in one local round of FedAvg from {n.start} ({n.trained} clients)"
    if n.moved is None:
        return f"{how} no proxy is pushed without samples of its class: none is missing"
    without = ", without one sample of theirs" if n.observed_from == 1 else ""
    return (
        f"{how} proxies of missing classes move {n.moved:.2f} times as far as those of observed "
        f"ones{without}{direction(n.together)}"
    )


def direction(together: float | None) -> str:
    """How alike the moves of missing classes are."""
    if together is None:
        return ""
    one = ", and in one direction" if together >= ALIKE else ""
    return f"{one}; the cosine between two of their moves is {together:.2f}"


def download(n: Numbers) -> str:
    """What the average knows of a client's own classes."""
    change = f"a drop of {100 * n.drop:.1f}" if n.drop >= 0 else f"a gain of {-100 * n.drop:.1f}"
    return (
        f"after that round a client's model has {n.accuracy:.1%} of its own test samples right, "
        f"the average of these models, which it would download next, {n.download:.1%}: {change} "
        f"points ({n.download_own:.1%} where it chooses among the client's own classes)"
    )


def run(n: Numbers) -> str:
    """What the run's own last rounds say."""
    assert n.run is not None
    kinds = {"global": "the global model", "download": "downloads", "personal": "personal models"}
    known = [f"{kinds[k]} {n.run[k]:.1%}" for k in kinds if n.run.get(k) is not None]
    last = min(n.run["rounds"], n.run["last"])
    return (
        f"{n.run['method']}, {n.run['rounds']} rounds; mean of the last {last}: {', '.join(known)}"
    )


def missing_classes(federation: Federation) -> list[str]:
    """How many classes there are, and who has none of which."""
    classes = federation.dataset.classes
    missing = [
        [name for name, held in zip(classes, row, strict=True) if not held]
        for row in federation.observed.tolist()
    ]
    counts = [len(names) for names in missing]
    if not any(counts):
        return [f"classes: {len(classes)}, and every client has all"]
    line = f"classes: {len(classes)}, of which a client misses {extent(counts)}"
    if not federation.named or len(federation) > MOST_NAMES:
        return [line]
    named = zip(federation.client_names, missing, strict=True)
    return [line, *(f"  {client} misses {some(names)}" for client, names in named if names)]


def extent(numbers: list[int]) -> str:
    """From the least to the most."""
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


def some(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - MOST_CLASSES
    return ", ".join(names[:MOST_CLASSES]) + (f" and {more} more" if more > 0 else "")
