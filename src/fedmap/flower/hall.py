"""Who is there: the server greets new nodes, refuses those that do not fit, and knows which site is
at which node."""

import time

from fedmap.errors import FedmapError
from fedmap.flower import records
from fedmap.flower.keys import check_site_name
from fedmap.flower.link import Link
from fedmap.flower.sites import Members
from fedmap.flower.terms import Hello, Offer, unfit

WAIT = 0.5  # seconds between two looks for sites


class Hall:
    """The nodes that are online, and the sites that they are."""

    def __init__(
        self,
        link: Link,
        members: Members,
        classes: tuple[str, ...] = (),
        min_sites: int = 1,
        moved: tuple[str, ...] = (),
        pinned: bool = True,
    ) -> None:
        self.link = link
        self.members = members
        self.classes = classes
        self.min_sites = min_sites
        self.moved = moved  # sites that may come back at another node
        self.pinned = pinned
        self.names = members.names  # the federation's own list: it grows with it
        self._refused: set[int] = set()
        self._greeted: set[int] = set()
        self._later: dict[int, float] = {}  # nodes that did not answer, and when to try again

    def say(self, line: str) -> None:
        """A line in the run's log."""
        print(f"fedmap: {line}", flush=True)

    def online(self) -> dict[int, int]:
        """The node of each site that is online."""
        nodes = self.link.nodes()
        return {k: node for k, node in enumerate(self.members.nodes) if node in nodes}

    def ready(self) -> list[int]:
        """The sites that are online; waits for `min_sites` of them."""
        deadline = time.monotonic() + self.link.timeout
        while True:
            self.admit()
            online = sorted(self.online())
            if len(online) >= self.min_sites:
                return online
            if time.monotonic() > deadline:
                there = ", ".join(self.names[k] for k in online) or "none"
                raise FedmapError(
                    f"{len(online)} sites are online ({there}), {self.min_sites} are needed "
                    f"(min-sites); waited {self.link.timeout:g} s"
                )
            time.sleep(WAIT)

    def gather(self) -> list[Offer]:
        """The offers of the first sites, in the order of their names; waits for `min_sites`."""
        deadline = time.monotonic() + self.link.timeout
        offers: dict[str, tuple[int, Offer]] = {}
        while len(offers) < self.min_sites:
            for node, offer in self._greet():
                if offer.site in offers:
                    self._refuse(node, f"site {offer.site} is there already, at another node")
                else:
                    offers[offer.site] = (node, offer)
            if len(offers) < self.min_sites and time.monotonic() > deadline:
                raise FedmapError(
                    f"{len(offers)} sites have answered ({', '.join(offers) or 'none'}), "
                    f"{self.min_sites} are needed (min-sites); waited {self.link.timeout:g} s"
                )
            time.sleep(WAIT if len(offers) < self.min_sites else 0)
        for name in sorted(offers):
            self.members.admit(name, offers[name][0])
        return [offers[name][1] for name in sorted(offers)]

    def admit(self) -> None:
        """Greet new nodes. A site that was known at another node is taken back if it may be, a new
        one if it fits the terms."""
        for node, offer in self._greet():
            fault = self._fault(node, offer)
            if fault:
                self._refuse(node, fault)
            else:
                new = offer.site not in self.names
                self.members.admit(offer.site, node)
                if new:
                    self.say(f"site {offer.site} has joined as number {len(self.names) - 1}")

    def _greet(self) -> list[tuple[int, Offer]]:
        now = time.monotonic()
        later = {node for node, moment in self._later.items() if now < moment}
        known = {*self.members.nodes, *self._refused, *self._greeted, *later}
        new = self.link.nodes() - known
        terms = self.members.terms
        hello = records.message(Hello(classes=terms.classes if terms else self.classes))
        offers = []
        for node, content in self.link.ask(dict.fromkeys(new, hello), "query") if new else ():
            try:
                if isinstance(content, str):
                    self._later[node] = time.monotonic() + self.link.timeout
                    self.say(f"node {node} does not answer: {content}")
                    continue
                offer = records.words(content, Offer)
                if offer.reason:
                    raise FedmapError(offer.reason)
                check_site_name(offer.site)
            except FedmapError as wrong:
                self._refuse(node, str(wrong))
            else:
                self._greeted.add(node)
                offers.append((node, offer))
        return sorted(offers, key=lambda pair: pair[1].site)

    def _fault(self, node: int, offer: Offer) -> str:
        """Why a node cannot be the site that it says it is."""
        name, terms = offer.site, self.members.terms
        if name in self.names:
            at = self.members.nodes[self.names.index(name)]
            if self.pinned and name not in self.moved:
                return (
                    f"site {name} is node {at} in this run; if its key was replaced, start again "
                    f'with moved="{name}"'
                )
        return unfit(offer, terms) if terms else ""

    def _refuse(self, node: int, reason: str) -> None:
        self._refused.add(node)
        self.say(f"node {node} is refused: {reason}")
