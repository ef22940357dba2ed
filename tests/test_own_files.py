"""From image files in folders to a trained federation, as somebody with data of their own would do
it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import fedmap

SCRIPT = Path(__file__).parent.parent / "scripts/make_folders.py"


def test_folders_of_real_images_are_trained_end_to_end(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "shops", "--clients", "3", "--samples", "30"],
        check=True,
        capture_output=True,
    )
    federation = fedmap.partition(fedmap.load(f"folder:{tmp_path / 'shops'}"))
    assert len(federation) == 3
    assert federation.client_names == ("client0", "client1", "client2")
    fedmap.run(
        "map",
        federation,
        net="lenet",
        rounds=2,
        fraction=1.0,
        batch=8,
        epochs=1,
        out=tmp_path / "run",
    )
    classes = tomllib.loads((tmp_path / "run/run.toml").read_text())["federation"]["classes"]
    assert "Ankle boot" in classes
    final = json.loads((tmp_path / "run/final.json").read_text())
    assert set(final["global_accuracy_per_class"]) == set(classes)
    assert len(final["personal_accuracy_per_client"]) == 3
    assert final["client_names"] == ["client0", "client1", "client2"]
    assert {path.stem for path in (tmp_path / "run/personal").iterdir()} == {
        *federation.client_names
    }


def test_tables_of_vectors_are_trained_with_the_mlp_by_default(tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    for name, labels in (("north", ["flu", "cold"]), ("south", ["cold", "ache"])):
        y = np.array(labels * 20)
        x = (
            rng.standard_normal((40, 5), np.float32)
            + np.array([{"flu": 0, "cold": 2, "ache": 4}[label] for label in y], np.float32)[
                :, None
            ]
        )
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    federation = fedmap.partition(fedmap.load(f"npz:{tmp_path}"))
    result = fedmap.run("map", federation, rounds=3, fraction=1.0, epochs=2, batch=8)
    assert result.settings.net == "mlp"
    assert set(result.final["global_accuracy_per_class"]) == {"flu", "cold", "ache"}
    assert result.personal_accuracy > 0.6
