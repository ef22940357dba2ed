"""The federation as one of its members sees it: the server knows the sites' names, a site knows its
own data."""

import json
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmap.data.dataset import Dataset
from fedmap.errors import FedmapError
from fedmap.federation import PART, ClientData, Samples
from fedmap.flower.terms import Terms, common_dataset
from fedmap.simulate.folder import write_atomically


class Sites:
    """A federation of which this process has the data of some clients: of none at the server, of
    one at a site."""

    def __init__(
        self,
        terms: Terms,
        names: list[str],
        own: Mapping[int, ClientData] | None = None,
        test: Dataset | None = None,
        server_has_test: bool = False,
    ) -> None:
        self.terms = terms
        self.client_names = names  # it grows when a site joins
        self.dataset = common_dataset(terms, test)
        self.server_has_test = server_has_test or test is not None
        self._own = own or {}

    @property
    def origin(self) -> dict[str, Any]:
        """How many sites there are is no setting: they come and go."""
        return {"data": "sites", "clients": None}

    @property
    def sizes(self) -> list[int]:
        """Training samples, of those whose data is here."""
        return [len(self._own[k].train[1]) if k in self._own else 0 for k in range(len(self))]

    @property
    def marks(self) -> dict[str, Any]:
        """A checksum of what is common."""
        return {"fingerprint": zlib.crc32(self.terms.model_dump_json().encode())}

    @property
    def test_parts(self) -> range:
        """Parts of the server's own test set, or the sites, each with its own test samples."""
        samples = len(self.dataset.test_y)
        return range(-(-samples // PART)) if self.server_has_test else range(len(self))

    def __len__(self) -> int:
        return len(self.client_names)

    def client(self, number: int) -> ClientData:
        """A site's own data, where it is here."""
        if number not in self._own:
            raise FedmapError(f"the data of site {number} is not here")
        return self._own[number]

    def test_part(self, key: int) -> Samples:
        """A part of the server's test set, or a site's own test samples."""
        if not self.server_has_test:
            return self.client(key).test
        here = slice(key * PART, (key + 1) * PART)
        return self.dataset.test_x[here], self.dataset.test_y[here]


@dataclass
class Members:
    """The server's list of sites in `sites.json`: a site's number is its place. It is kept through
    every start of the run."""

    path: Path
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    start: int = 0
    names: list[str] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)  # the node that each site was last seen at
    terms: Terms | None = None

    @classmethod
    def of(cls, folder: Path) -> "Members":
        """The list of a run's folder, or a new one; one more start is counted."""
        path = folder / "sites.json"
        members = cls(path)
        if path.exists():
            try:
                kept = json.loads(path.read_text())
                members.run, members.start = kept["run"], kept["start"]
                members.names = [site["name"] for site in kept["sites"]]
                members.nodes = [site["node"] for site in kept["sites"]]
                members.terms = Terms.model_validate(kept["terms"]) if kept["terms"] else None
            except (ValueError, KeyError, TypeError) as wrong:
                raise FedmapError(f"{path} is damaged ({wrong}); the run cannot go on") from None
        members.start += 1
        members.save()
        return members

    def save(self) -> None:
        """Keep the list, on the disk too."""
        sites = [
            {"name": name, "node": node} for name, node in zip(self.names, self.nodes, strict=True)
        ]
        kept = {
            "run": self.run,
            "start": self.start,
            "sites": sites,
            "terms": self.terms.model_dump() if self.terms else None,
        }
        os.makedirs(self.path.parent, exist_ok=True)
        write_atomically(self.path, (json.dumps(kept, indent=1) + "\n").encode())

    def admit(self, name: str, node: int) -> None:
        """A site that is new, or that is back at another node."""
        if name in self.names:
            self.nodes[self.names.index(name)] = node
        else:
            self.names.append(name)
            self.nodes.append(node)
        self.save()
