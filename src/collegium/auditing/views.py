"""Who attacks: what each attacker sees of a run, and which claim is about that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from collegium.auditing.evidence import Evidence, Targets
from collegium.core.observations import Disclosure
from collegium.core.releases import Release, VoteSum
from collegium.core.weights import Weights
from collegium.runs.callbacks import Callback
from collegium.secure.secret_counts import NoisySum

ViewName = Literal["observer", "member", "coordinator", "glance", "secret", "model", "weights"]
VIEWS: Final[tuple[str, ...]] = get_args(ViewName)


@dataclass(frozen=True)
class View:
    """One attacker."""

    in_words: str
    sees: Callable[[Disclosure, str], bool]
    """Whether it sees something, given the name of the site under attack."""
    sees_releases: bool
    """Whether that includes what leaves the site: the site's own claim is then about it."""
    forges: bool = False
    """Whether it chooses the public set."""
    model: Literal["site", "member"] | None = None
    """Whose model it has in the end."""
    once: bool = False
    """Whether it sees the last communication alone."""


def _of_site(seen: Disclosure, site: str) -> bool:
    return seen.party == site and isinstance(seen.value, Release)


def _told(seen: Disclosure, site: str) -> bool:
    return seen.to == "sites"


def _sums(seen: Disclosure, site: str) -> bool:
    return isinstance(seen.value, VoteSum | NoisySum)


def _of_site_or_counts(seen: Disclosure, site: str) -> bool:
    """What the site sends; where that are masked counts, their sum is what a coordinator can read."""
    return _of_site(seen, site) or isinstance(seen.value, NoisySum)


def _weights(seen: Disclosure, site: str) -> bool:
    return (_of_site(seen, site) and isinstance(seen.value, Weights)) or (
        _told(seen, site) and isinstance(seen.value, dict)
    )


_KNOWN: Final[dict[str, View]] = {
    "observer": View(
        "sees what the site sends and the consensus, in all rounds",
        lambda seen, site: _of_site(seen, site) or _told(seen, site),
        sees_releases=True,
    ),
    "member": View("another site: sees what all sites are told, and its own model", _told, False, model="member"),
    "coordinator": View(
        "sees what the site sends, in all rounds, and chooses the public set where forged",
        _of_site_or_counts,
        True,
        forges=True,
    ),
    "glance": View(
        "sees what the site sends in the last communication alone, and chooses the public set where forged",
        _of_site_or_counts,
        True,
        forges=True,
        once=True,
    ),
    "secret": View("a coordinator of secret votes: sees sums over sites, in all rounds", _sums, True, forges=True),
    "model": View("has the site's model at the end of the run", lambda seen, site: False, False, model="site"),
    "weights": View("has all weights that the site sent and was sent, of all rounds", _weights, True),
}


def find_view(name: str) -> View:
    """The view of this name."""
    return _KNOWN[name]


class Witness(Callback):
    """Reads what an attacker sees as soon as it becomes known, and keeps nothing else."""

    def __init__(self, view: View, site: str, targets: Targets) -> None:
        self._view, self._site, self._targets = view, site, targets
        self._round = 0
        self.evidence = Evidence()

    def on_disclosure(self, disclosure: Disclosure) -> None:
        """Read it, if this attacker sees it."""
        if not self._view.sees(disclosure, self._site):
            return
        if self._view.once and disclosure.round > self._round:
            self._round, self.evidence = disclosure.round, Evidence()  # what was seen before is forgotten
        args: dict[str, Any] = {**disclosure.args, "like": disclosure.step if disclosure.to == "sites" else self._site}
        reading = self._targets.look(disclosure.value, args)
        source = "the sum" if disclosure.party == "sum" else disclosure.party
        self.evidence.add(f"{source}/{disclosure.step}/{disclosure.round}", disclosure.value, reading)
