"""The app folder that `flwr run` takes: a pyproject.toml that names the modules of the installed
fedmap and the run's settings, and a page with the commands. There is no code in it."""

import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from fedmap.data import DATASETS, FORMATS
from fedmap.errors import FedmapError
from fedmap.flower.server_app import read
from fedmap.nets import NETS

SERVER_APP = "fedmap.flower.server_app:app"
CLIENT_APP = "fedmap.flower.client_app:app"
PORT = 9093  # of the SuperLink, in the page with the commands


def write_app(folder: Path, given: dict[str, Any]) -> None:
    """Write the folder, with the settings of a run and the server's options that were given. What
    is wrong is said now and not at the sites."""
    file = folder / "pyproject.toml"
    if file.exists() and SERVER_APP not in file.read_text():
        raise FedmapError(f"{file} is another project's; choose a new folder")
    method = str(given.get("method", "map"))
    refuse_file("method", method)
    refuse_file("net", str(given.get("net", "")))
    places = {
        "out": str(Path(given.get("out", folder / "run")).expanduser().absolute()),
        "test_data": located(given.get("test_data", "")),
    }
    given = {"method": method} | given | places
    options, settings = read(flat(given))
    if settings.net:
        NETS[settings.net]
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(project(given | options.model_dump()))
    (folder / "README.md").write_text(page(folder, options.out))


def refuse_file(kind: str, name: str) -> None:
    """A site does not load code because a server says so."""
    if ":" in name or name.endswith(".py"):
        raise FedmapError(
            f"{kind} {name} is a file; sites run only {kind}s that are installed with them, "
            "because a server must not choose their code: register it by the entry point "
            f"fedmap.{kind}s of a package that every site installs"
        )


def located(name: str) -> str:
    """A dataset's name, or FORMAT:PATH with the whole path; the files need not be there yet."""
    kind, colon, path = name.partition(":")
    if not colon:
        return DATASETS[name].name if name else ""
    if not path:
        raise FedmapError(f"test data {name!r} has no path; write for example {kind}:/data/test")
    return f"{FORMATS[kind].name}:{Path(path).expanduser().absolute()}"


def project(config: dict[str, Any]) -> str:
    """The pyproject.toml. All of the server's options are there, so that `flwr run -c` can change
    them for one run."""
    app = {
        "publisher": "fedmap",
        "fab-include": ["/README.md"],  # nothing of the run's folder goes to the sites
        "components": {"serverapp": SERVER_APP, "clientapp": CLIENT_APP},
        "config": {name.replace("_", "-"): value for name, value in config.items()},
    }
    about = {
        "name": "fedmap-federation",
        "version": version("fedmap"),
        "description": "A run of fedmap on the sites of a Flower federation",
        "license": "MIT",
        "dependencies": ["fedmap[flower]"],
    }
    return tomli_w.dumps({"project": about, "tool": {"flwr": {"app": app}}})


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """As Flower gives it to the apps: names of tables are joined with dots."""
    params = {f"params.{name}": value for name, value in config.get("params", {}).items()}
    config = {name: value for name, value in config.items() if name != "params"} | params
    for name, value in config.items():
        if not isinstance(value, bool | int | float | str):
            raise FedmapError(
                f"{name} is {value!r}; Flower carries numbers, texts, true and false only"
            )
    return config


def page(folder: Path, out: str) -> str:
    """README.md: the commands, in their order."""
    return PAGE.format(folder=shlex.quote(str(folder.absolute())), out=out, port=PORT)


PAGE = """\
# A run on the sites of a federation

Every machine has fedmap: `pip install 'fedmap[flower]'`. In every shell first:

```sh
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
SERVER=fl.example.org   # the server's name or address, as the sites reach it
```

## 1. Keys, once, at the server

```sh
fedmap flower keys keys --sites oslo,bergen --host $SERVER
```

It says which file goes where: each site gets `ca.crt` and its own key, nobody else's. A site that
comes later: `fedmap flower keys keys --sites trondheim`.

## 2. The server

```sh
flower-superlink --host 0.0.0.0 --port {port} --database superlink.db \\
  --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt --ssl-keyfile keys/server.key \\
  --enable-supernode-auth --disable-runtime-dependency-installation
```

Tell the `flwr` commands where it is, in `~/.flwr/config.toml`:

```toml
[superlink.federation]
address = "127.0.0.1:{port}"
root-certificates = "/absolute/path/to/keys/ca.crt"
```

Then tell it the sites' public keys; a site that it does not know is refused:

```sh
flwr supernode register keys/sites/oslo.pub federation --name oslo
flwr supernode register keys/sites/bergen.pub federation --name bergen
```

Whoever reaches this port and has `ca.crt` can start runs and register sites: let only the sites
and yourself reach it (a VPN, a firewall).

## 3. Each site, here oslo

```sh
flower-supernode --superlink $SERVER:{port} --root-certificates ca.crt \\
  --auth-supernode-private-key oslo.key \\
  --node-config 'site="oslo" data="folder:/data/xray" states="/var/lib/fedmap"'
```

`data` is where the site's samples are (FORMAT:PATH, see `fedmap datasets`), `states` is a folder
for what never leaves the site. `flwr supernode ls federation` shows who is online.

## 4. The run

```sh
flwr run {folder} federation
flwr ls federation                    # its number and whether it is finished or failed
flwr log RUN federation               # what it says, with its number for RUN
flwr stop RUN federation
```

Rounds, accuracies and the global model are in `{out}` at the server. A run that was stopped goes
on from its last whole round with the same `flwr run`.

To stop a site or the server, end its process with Ctrl-C. A site that lost its power is taken back
about a minute later.
"""
