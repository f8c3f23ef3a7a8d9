"""`Audit`: what an attack on a site found, beside what is claimed."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from collegium.errors import ConfigError, StorageError
from collegium.privacy.claims import PrivacyClaim
from collegium.site.ledger import storage_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["consistent", "contradicts the claim", "no claim"]
CONSISTENT: Final = "consistent"
CONTRADICTS: Final = "contradicts the claim"
NO_CLAIM: Final = "no claim"
FORMAT: Final = 1
_Rate = Annotated[float, Field(ge=0, le=1)]
_Interval = tuple[_Rate, _Rate]


@dataclass(frozen=True)
class Part:
    """The same attack on the canaries of one kind."""

    canaries: int
    auc: _Rate
    auc_interval: _Interval
    tpr: dict[float, _Rate]


@dataclass(frozen=True)
class Audit:
    """What one attacker found out about the records of one site.

    Intervals and the bound on epsilon hold with probability 1 - `alpha` each. No record is part of it: canaries are
    described, not listed.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    algorithm: str
    site: str
    view: str
    attack: str
    forged: str | None
    """How the attacker chose the public set: static, adaptive, or None for the honest one."""
    canaries: int
    kinds: dict[str, int]
    """How many canaries of each kind."""
    shadows: int
    alpha: float
    seed: int
    auc: _Rate
    auc_interval: _Interval
    tpr: dict[float, _Rate]
    """The share of members found, by the share of others that are wrongly taken for members."""
    tpr_interval: dict[float, _Interval]
    guesses: int
    right: int
    epsilon_lower: Annotated[float, Field(ge=0)]
    """No mechanism with a smaller epsilon, at the claim's delta, would let this many guesses be right."""
    claim: PrivacyClaim | None
    """What is claimed about all that this attacker sees; None where nothing is."""
    verdict: Verdict
    relation: str
    """What a coin decided: whether a canary is added, or replaces another record."""
    roc: tuple[list[_Rate], list[_Rate]]
    """False and true positive rates."""
    by_kind: dict[str, Part] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    """What the attacker saw and could not read, by kind: the audit says nothing about it."""
    together: int = 0
    """How many of the shadow runs had nets that were trained together with those of others."""
    seconds: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """As plain data: what `schema()` describes."""
        plain = asdict(self)
        plain["claim"] = None if self.claim is None else self.claim.to_plain()
        return {"format": FORMAT, **json.loads(json.dumps(plain))}

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON, also into a file if a path is given."""
        text = json.dumps(self.to_plain(), indent=1)
        if path is not None:
            with storage_errors(Path(path), StorageError):
                Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> Audit:
        """From what `to_json` wrote; anything else is an error."""
        try:
            plain = json.loads(text)
            if plain.pop("format") != FORMAT:
                raise ConfigError("This audit was written by another version of Collegium.")
            if plain["claim"] is not None and plain["claim"]["epsilon"] is None:
                plain["claim"]["epsilon"] = math.inf
            return _ADAPTER.validate_python(plain)
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError("This is not an audit: expected what `Audit.to_json` writes.") from None

    @property
    def contradicts(self) -> bool:
        """Whether the attack contradicts what is claimed."""
        return self.verdict == CONTRADICTS

    @property
    def name(self) -> str:
        """For files: site, view, and how the public set was forged, if it was."""
        words = (self.site, self.view, *(() if self.forged is None else ("forged", self.forged)), self.attack)
        return re.sub(r"[^\w.-]", "_", "-".join(words))

    def in_words(self) -> str:
        """What it means, in a sentence or two."""
        low, high = self.auc_interval
        found = (
            f"An attacker who {_WORDS[self.view]} tells members from others with AUC {self.auc:.3f} ({low:.3f} to "
            f"{high:.3f}), and shows epsilon >= {self.epsilon_lower:.2f} at confidence {1 - self.alpha:.0%}."
        )
        if self.claim is None:
            return f"{found} Nothing is claimed about what this attacker sees."
        beside = f"The claim is epsilon {self.claim.epsilon:.4g} at delta {self.claim.delta:.2g}"
        if self.contradicts:
            return f"{found} {beside}: the attack contradicts it."
        return f"{found} {beside}: the attack does not contradict it, which proves nothing beyond this attack."

    def plot(self, path: str | Path | None = None) -> Figure:
        """The ROC curve with both axes logarithmic, as the literature draws it; saved if a path is given."""
        from collegium.reports.audits import plot_audits

        figure = plot_audits([self])
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def report(self, path: str | Path) -> Path:
        """Write a page about it: one self-contained HTML file."""
        from collegium.reports.audits import write_page

        return write_page([self], Path(path))


def read_audits(folder: Path) -> tuple[Audit, ...]:
    """All audits in a folder, in the order of their names."""
    with storage_errors(folder, StorageError):
        return tuple(Audit.from_json(file.read_bytes()) for file in sorted(folder.glob("*.json")))


def schema() -> dict[str, Any]:
    """The JSON schema of an audit."""
    described = _ADAPTER.json_schema()
    described["properties"]["format"] = {"const": FORMAT}
    described["required"] = ["format", *described["required"]]
    # JSON knows no infinity: a claim without a finite epsilon has null there.
    claim = described["$defs"]["PrivacyClaim"]["properties"]
    claim["epsilon"] = {"anyOf": [claim["epsilon"], {"type": "null"}]}
    return described


_ADAPTER: Final = TypeAdapter(Audit)
_WORDS: Final = {
    "observer": "reads what the site sends, and the consensus,",
    "member": "is another site",
    "coordinator": "coordinates the run",
    "glance": "coordinates the run and looks once, at the end,",
    "secret": "coordinates secret votes and sees their sums",
    "model": "has the site's final model",
    "weights": "has all weights that were sent",
}
