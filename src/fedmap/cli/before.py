"""What a person reads before training starts: what was understood of the data and the settings, and
what it will cost."""

from fedmap.cli.show import duration
from fedmap.client import local_steps
from fedmap.diagnosis.words import MOST_NAMES, extent, missing_classes
from fedmap.experiment.measure import peak_memory, seconds_of_run
from fedmap.federation import Federation, kept_for_choosing
from fedmap.nets import size
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import clients_per_round


def summary(settings: Settings, federation: Federation) -> list[str]:
    """The resolved settings in a few lines. Time and memory are measured on a few training steps
    now."""
    before = peak_memory()
    seconds = seconds_of_run(settings, federation)
    after = peak_memory()
    return [
        f"data: {settings.data}: {clients_of(settings, federation)}",
        f"samples: {samples_of(settings, federation)}",
        *missing_classes(federation),
        f"net: {net_of(settings, federation)}",
        f"training: {settings.label}, {training_of(settings, federation)}",
        f"cost: about {duration(seconds)}{memory_of(settings, before, after)} on this machine "
        f"as it is now, with {several(settings.workers, 'worker')}",
    ]


def memory_of(settings: Settings, before: int, after: int) -> str:
    """What a run needs, from the most that this process had before and after a few steps of it;
    nothing where the system does not tell."""
    others = 0 if settings.engine_name == "local" else settings.workers
    memory = after + others * (after - before)
    return f" and {memory / 1e9:.1f} GB of memory" if memory else ""


def several(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def clients_of(settings: Settings, federation: Federation) -> str:
    """Who the clients are, and what they have."""
    trained, tested = trained_on(settings, federation), [len(index) for index in federation.test]
    held_out = sum(federation.sizes) - sum(trained)
    kept = f"{held_out:,} kept for choosing, " if held_out else ""
    names = ", ".join(federation.client_names)
    who = f" ({names})" if federation.named and len(federation) <= MOST_NAMES else ""
    drawn = "" if federation.named else f", drawn by partition {settings.partition}"
    has_test = federation.server_has_test
    shared = f", {len(federation.test_y):,} in the global test set" if has_test else ""
    return (
        f"{several(len(federation), 'client')}{who}{drawn}, {sum(trained):,} training samples, "
        f"{kept}{sum(tested):,} in the clients' own test sets{shared}"
    )


def trained_on(settings: Settings, federation: Federation) -> list[int]:
    """How many samples each client trains on."""
    return [n - kept_for_choosing(n, settings.validation) for n in federation.sizes]


def samples_of(settings: Settings, federation: Federation) -> str:
    """What a sample looks like to the net."""
    dataset, shape = federation.dataset, federation.dataset.shape
    if len(shape) == 1:
        scaled = ", scaled to mean 0 and deviation 1" if dataset.mean else ", as they are"
        return f"vectors of {several(shape[0], 'feature')}{scaled}"
    color = {1: "gray ", 3: "color "}.get(shape[0], f"{shape[0]}-channel ")
    scaled = "scaled to" if settings.data.startswith("folder:") else "of"
    return f"{color}images {scaled} {shape[1]}x{shape[2]}"


def net_of(settings: Settings, federation: Federation) -> str:
    """The net and how large it is."""
    count = size(settings.any_net, federation.dataset.shape, len(federation.dataset.classes))
    return f"{settings.net}" + ("" if count is None else f", {count:,} parameters")


def training_of(settings: Settings, federation: Federation) -> str:
    """Rounds, clients a round and local steps."""
    chosen = clients_per_round(settings.fraction, len(federation))
    steps = extent([local_steps(n, settings) for n in trained_on(settings, federation)])
    part = "all" if chosen == len(federation) else f"{chosen} of {len(federation)}"
    return (
        f"{several(settings.rounds, 'round')} of {part} clients, {steps} steps of batch "
        f"{settings.batch} for each, lr {settings.lr:g}"
    )
