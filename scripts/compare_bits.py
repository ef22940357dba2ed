"""The bits of every method on a small set-up, written to a file or compared with one: the proof
that a change of the code changes no number.

python scripts/compare_bits.py write FILE      # on the code as it was
python scripts/compare_bits.py compare FILE    # on the code as it is; exit 1 if anything differs

Names of methods after FILE are the only ones to run."""

import hashlib
import json
import sys
import tempfile
from itertools import product
from pathlib import Path

import fedmap
from fedmap import values
from fedmap.methods import METHODS

CLIENTS, ROUNDS, PERSONAL = 10, 3, (0, 9)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def bits(out: Path) -> dict[str, str]:
    """A run's models and records as checksums, the records entry by entry, so that a new one makes
    no difference to the others; seconds are the only thing that may differ."""
    records = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"]
        clients = record.pop("clients")
        record |= {f"clients {name}": [one[name] for one in clients] for name in clients[0]}
    files = [
        out / "global.safetensors",
        *(out / f"personal/{client:05d}.safetensors" for client in PERSONAL),
    ]
    # The tensors alone: what a file says about them may change.
    found = {f.name: digest(values.save(values.load(f))) for f in files if f.exists()}
    by_entry = {name: [record[name] for record in records] for name in records[0]}
    return found | {name: digest(json.dumps(of).encode()) for name, of in by_entry.items()}


def all_bits(methods: list[str]) -> dict[str, dict[str, str]]:
    """Every one of the methods with both nets, seeds, numbers of workers and kinds of kernels."""
    found = {}
    for method, net, seed, workers, kernels in product(
        methods, ("lenet", "mlp"), (0, 1), (1, 2), ("native", "torch")
    ):
        federation = fedmap.partition(fedmap.load("fashion-mini"), clients=CLIENTS, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            fedmap.run(
                method,
                federation,
                net=net,
                rounds=ROUNDS,
                epochs=1,
                seed=seed,
                workers=workers,
                kernels=kernels,
                out=out,
            )
            found[f"{method} {net} seed {seed} workers {workers} {kernels}"] = bits(out)
    return found


def main() -> None:
    todo, file = sys.argv[1], Path(sys.argv[2])
    found = all_bits(sys.argv[3:] or sorted(METHODS))
    if todo == "write":
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} runs, {sum(map(len, found.values()))} checksums written to {file}")
        return
    before = json.loads(file.read_text())
    different = [
        f"{run}: {name}"
        for run in before
        for name in before[run]
        if found.get(run, {}).get(name) != before[run][name]
    ]
    print("\n".join(different))
    print(
        f"{len(before)} runs, {sum(map(len, before.values()))} checksums: {len(different)} differ"
    )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
