"""The one exception that fedmap raises for something a person can put right."""


class FedmapError(Exception):
    """A sentence that names the thing, its value and what is allowed. The command line prints it
    and exits with 1."""


class DivergenceError(FedmapError):
    """Training left the finite numbers, or all that others do."""
