"""The three groups of parameters that the paper tries for each method and reports the best of. The
paper does not print them; these are the ones of the authors' release."""

from typing import Any

# FedAvg, FedRep and FLDA have nothing to vary.
GROUPS: dict[str, list[dict[str, Any]]] = {
    "fedprox": [{"mu": 1e-4}, {"mu": 1e-3}, {"mu": 1e-2}],
    "fedmmd": [{"weight": 1e-3}, {"weight": 1e-2}, {"weight": 1e-1}],
    "scaffold": [{"server_lr": 0.5}, {"server_lr": 0.75}, {"server_lr": 0.9}],
    "feddf": [
        {"distill_lr": 1e-2, "distill_steps": 200},
        {"distill_lr": 1e-3, "distill_steps": 300},
        {"distill_lr": 1e-4, "distill_steps": 500},
    ],
    "fedopt": [{"server_lr": 1.0}, {"server_lr": 0.1}, {"server_lr": 0.05}],
    "fednova": [
        {"server_momentum": 0.9, "mu": 1e-4},
        {"server_momentum": 0.5, "mu": 1e-3},
        {"server_momentum": 0.3, "mu": 1e-2},
    ],
    "fedaws": [
        {"margin": 0.9, "spread_steps": 20, "spread_lr": 1.0},
        {"margin": 0.8, "spread_steps": 30, "spread_lr": 0.1},
        {"margin": 0.5, "spread_steps": 50, "spread_lr": 0.01},
    ],
    "moon": [{"weight": 1e-3}, {"weight": 1e-2}, {"weight": 1e-1}],
    "feddyn": [{"alpha": 1e-3}, {"alpha": 1e-2}, {"alpha": 1e-1}],
    "pfedme": [
        {"weight": 0.1, "alpha": 0.9, "inner_steps": 5, "beta": 1.0},
        {"weight": 0.01, "alpha": 0.75, "inner_steps": 10, "beta": 1.0},
        {"weight": 0.001, "alpha": 0.5, "inner_steps": 15, "beta": 1.0},
    ],
    # The release takes the trial step with the run's own learning rate: inner 1.
    "perfedavg": [
        {"inner": 1.0, "beta": 0.1},
        {"inner": 1.0, "beta": 0.05},
        {"inner": 1.0, "beta": 0.01},
    ],
    "fedproto": [{"weight": 0.1}, {"weight": 0.01}, {"weight": 0.001}],
    "ditto": [{"weight": 0.1}, {"weight": 0.01}, {"weight": 0.001}],
    "fedrod": [{"gamma": 1.0}, {"gamma": 0.5}, {"gamma": 0.25}],
    "fedrs": [{"alpha": 0.9}, {"alpha": 0.5}, {"alpha": 0.1}],
    "fedphp": [
        {"transfer": "kd", "weight": 0.1},
        {"transfer": "mmd", "weight": 0.1},
        {"transfer": "mmd", "weight": 0.01},
    ],
    "dittors": [
        {"alpha": 0.1, "weight": 0.1},
        {"alpha": 0.9, "weight": 0.01},
        {"alpha": 0.5, "weight": 0.001},
    ],
    "scars": [
        {"alpha": 0.1, "server_lr": 0.5},
        {"alpha": 0.9, "server_lr": 0.75},
        {"alpha": 0.5, "server_lr": 0.9},
    ],
    "map": [
        {"transfer": "kd", "weight": 0.1, "alpha": 0.5},
        {"transfer": "kd", "weight": 0.01, "alpha": 0.9},
        {"transfer": "mmd", "weight": 0.01, "alpha": 0.5},
    ],
    "scamap": [
        {"transfer": "kd", "weight": 0.1, "alpha": 0.5, "server_lr": 0.5},
        {"transfer": "kd", "weight": 0.01, "alpha": 0.9, "server_lr": 0.9},
        {"transfer": "mmd", "weight": 0.01, "alpha": 0.5, "server_lr": 0.5},
    ],
}
