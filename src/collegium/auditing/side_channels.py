"""Side channels: does a site show anything beside the answers that it pays for?

Neighboring data sets go through a real gate (noise from the operating system, no simulation) with an algorithm's own
orders. All that leaves is compared: who answers or refuses, with which code, in which order, what an answer is made of
and how large it is, and the charges that are published. Noisy contents are paid for and left out, and so is how short
they can be written; nothing else may be in the bytes. Contents that are said to use no private data must be the same,
and hashes of ledger rows must cover a secret. How long an answer takes is not compared.

Neighbors with one record more or less are left out where a claim says that it does not cover them: that the number of
records is public, or that it is about replacing a record.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium import wire
from collegium.core.algorithm import Algorithm
from collegium.core.federation import Federation
from collegium.core.labels import Labels, encode_labels
from collegium.core.link import Answer
from collegium.core.public_set import PublicSet
from collegium.core.site import Site
from collegium.core.workbench import Workbench
from collegium.errors import CollegiumError, ConfigError
from collegium.links.hosting import threads_per_site
from collegium.privacy.budget import read_charges
from collegium.privacy.learners.classifier import KNOWN_SIZE
from collegium.protocols.keyring import Keyring
from collegium.site.agent import Agent
from collegium.site.exposure import NO_PRIVATE_DATA
from collegium.site.factory import open_site
from collegium.site.ledger import row_hash
from collegium.wire import tables
from collegium.wire.limits import REPLY_HEADER
from collegium.wire.replies import Refusal, read_reply


@dataclass(frozen=True)
class Leak:
    """Something that differs between neighboring data sets and is not paid for."""

    where: str
    what: str


@dataclass(frozen=True)
class _Transcript:
    """What a site has shown in one run."""

    replies: Sequence[Mapping[str, Any]]
    """Each reply, without contents that are paid for."""
    hashes: frozenset[str] = frozenset()
    """Those of its ledger's rows, which travel."""
    searchable: frozenset[str] = frozenset()
    """Those that cover nothing but what a row says: whoever guesses the row knows it."""


@dataclass(frozen=True)
class _Setting:
    """All that does not change between neighbors."""

    algorithm: Algorithm
    others: tuple[Site, ...]
    classes: NDArray[Any]
    public: PublicSet | None
    public_labels: Labels | None
    seed: int


class _Tapped:
    """A link to real sites in this process that notes what one of them answers."""

    def __init__(self, agents: Mapping[str, Agent], party: str) -> None:
        self.parties = tuple(agents)
        self.replies: list[dict[str, Any]] = []
        self._agents, self._party = agents, party
        self._known = wire.KnownLabels()

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party, one after the other."""
        for party, frame in orders.items():
            agent = self._agents[party]
            if party == self._party:
                for labels in (labels for request in agent.requests_in(frame) for labels in request.labels):
                    self._known.remember(labels)
            answer = agent.serve(frame)
            if party == self._party:
                self.replies.append(_reply(answer, self._known))
            yield Answer(party, answer)


def compare(
    algorithm: Algorithm,
    site: Site,
    public: Any,
    *,
    neighbours: Mapping[str, Site] | None = None,
    others: Sequence[Site] = (),
    classes: Any = None,
    controls: int = 2,
    seed: int = 0,
) -> list[Leak]:
    """What a site shows of single records, beside what it pays for; nothing, if all is well.

    Args:
        algorithm: Its orders are given to the site, as a coordinator would.
        site: The site, with its policy, budget and learner.
        public: The public rows, or ``(X, y)`` where the method learns from their labels.
        neighbours: The data sets that are compared with the site's own, by name (default: `neighbours_of`).
        others: The other sites of the federation. They stay the same.
        classes: All classes of the study (default: those of the sites).
        controls: How often the site's own data is run. What differs between those runs is noise, not data.
        seed: The study's. Noise does not depend on it.
    """
    if controls < 2:
        raise ConfigError(f"compare: controls must be at least 2, to tell noise from data, not {controls}.")
    X, y = public if isinstance(public, tuple) else (public, None)
    known = np.unique(np.concatenate([each.y for each in (site, *others)]) if classes is None else np.asarray(classes))
    labels = None if y is None else Labels(encode_labels(np.asarray(y), known, "public"), len(known))
    shared = None if X is None else PublicSet(X)
    setting = _Setting(algorithm, tuple(others), known, shared, labels, seed)
    run = os.urandom(16).hex()
    own = [_transcript(setting, site, run) for _ in range(controls)]
    leaks = _open_hashes(own)
    for name, other in (neighbours_of(site, known) if neighbours is None else neighbours).items():
        # A record of an unknown class is left out, but still counts: that it is one must not show.
        if len(other) == len(site) or not _size_is_public(own[0]):
            leaks += _differences(name, [each.replies for each in own], _transcript(setting, other, run).replies)
    return leaks


def neighbours_of(site: Site, classes: NDArray[Any]) -> dict[str, Site]:
    """Data sets that differ from a site's by its last record: gone, twice, of another class, or with odd values."""
    if len(site) < 2:
        raise ConfigError(f"Site {site.name!r} needs at least two records to have neighbors that can be compared.")
    every = np.arange(len(site))
    rarest = min(classes.tolist(), key=lambda label: int(np.count_nonzero(site.y == label)))
    labels = {"of the rarest class": rarest, "of a class that the study does not know": _unknown(classes)}
    found = {
        "one record fewer": replace(site, X=tables.take(site.X, every[:-1]), y=site.y[:-1]),
        "one record more": replace(site, X=tables.take(site.X, np.r_[every, every[-1]]), y=np.r_[site.y, site.y[-1:]]),
        "a copy of another record": replace(site, X=tables.take(site.X, np.r_[every[:-1], 0]), y=site.y),
    }
    found |= {what: replace(site, y=np.array([*site.y[:-1].tolist(), label])) for what, label in labels.items()}
    values = {"a missing value": np.nan, "an infinite value": np.inf, "a huge value": 1e300, "a flag": 1e3}
    odd = {what: _with_value(site.X, value) for what, value in values.items()}
    return found | {what: replace(site, X=X) for what, X in odd.items() if X is not None}


def _unknown(classes: NDArray[Any]) -> Any:
    """A label that no class has."""
    return classes.max() + 1 if classes.dtype.kind in "iuf" else f"not {classes[-1]}"


def _with_value(X: Any, value: float) -> Any:
    """The rows, with this value in the last one; None where they hold no numbers to change."""
    if isinstance(X, pd.DataFrame):
        numbers = list(X.select_dtypes("number").columns)
        if not numbers:
            return None
        return X.assign(**{str(numbers[0]): np.r_[X[numbers[0]].to_numpy(dtype=np.float64)[:-1], value]})
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        return None
    rows = np.array(X, dtype=np.float64)
    rows[-1].flat[0] = value
    return rows


def _transcript(setting: _Setting, site: Site, run: str) -> _Transcript:
    """What one site shows in a run of real sites. How the run ends is the coordinator's doing."""
    sites = (site, *setting.others)
    names = tuple(each.name for each in sites)
    try:
        agents = {each.name: _opened(setting, each, run, names) for each in sites}
    except CollegiumError as error:  # a site that does not take part shows that
        return _Transcript([{"answer": f"does not take part ({type(error).__name__})"}])
    link = _Tapped(agents, site.name)
    fed = Federation(
        link,
        run=run,
        n_classes=len(setting.classes),
        seed=setting.seed,
        public=setting.public,
        public_labels=setting.public_labels,
        workbench=Workbench(sites, setting.classes, setting.public, None, setting.seed),
        secret=hashlib.sha256(run.encode()).digest(),  # the coordinator draws the same each time
    )
    fed.may_ask = setting.algorithm.all_steps()
    with threads_per_site(), suppress(CollegiumError):  # nobody answers, a budget is spent: compare what was said
        setting.algorithm.coordinate(fed)
        fed.flush()
    rows = agents[site.name].gate.ledger.rows()
    for agent in agents.values():
        agent.gate.ledger.close()
    searchable = frozenset(row["hash"] for row in rows if row["hash"] == row_hash(row, row["prev"]))
    return _Transcript(link.replies, frozenset(row["hash"] for row in rows), searchable)


def _opened(setting: _Setting, site: Site, run: str, parties: tuple[str, ...]) -> Agent:
    """A site with a real gate; its ledger is in memory, so that no budget is spent."""
    return open_site(
        site,
        setting.classes,
        setting.public,
        setting.seed,
        run,
        simulation=False,
        keyring=lambda: Keyring.simulated(run, site.name, parties),
        ledger=None,
        folder=None,
    )


def _reply(frame: bytes, known: wire.KnownLabels) -> dict[str, Any]:
    """What a reply shows, without contents that are paid for."""
    header, payload = wire.cut(frame, REPLY_HEADER)
    reply = read_reply(frame)
    row = reply.row
    seen: dict[str, Any] = {"fields": sorted(header), "number": reply.number}
    if row is not None:
        seen |= {"answer": row.kind, "charges": row.privacy, "bytes": len(payload), "content bytes": row.bytes}
    if isinstance(reply, Refusal):
        return seen | {"answer": f"refused: {reply.code}", "step": reply.step}
    contents = wire.unpack(payload, known)
    charges = read_charges(reply.row.privacy)[0]
    if charges and all(NO_PRIVATE_DATA in charge.assumptions for charge in charges):
        return seen | {"contents": hashlib.sha256(payload).hexdigest()}
    if charges:  # how short they can be written is a function of what is paid for
        packed = wire.pack(contents, known.latest)
        seen |= {"bytes": len(payload) - len(packed.data), "content bytes": reply.row.bytes - packed.content_bytes}
    return seen | {"contents": _shape(contents)}


def _shape(value: Any) -> Any:
    """What contents are made of, without the values."""
    if isinstance(value, Mapping):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shape(each) for each in value]
    if isinstance(value, Labels):
        return ("labels", len(value), value.n_classes)
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape)
    return type(value).__name__


def _size_is_public(own: _Transcript) -> bool:
    """Does a claim say that it does not cover one record more or less?"""
    charges = [charge for reply in own.replies for charge in read_charges(reply.get("charges"))[0]]
    return any(
        KNOWN_SIZE in each.assumptions or (each.unit == "record" and each.relation == "replace") for each in charges
    )


def _open_hashes(controls: Sequence[_Transcript]) -> list[Leak]:
    """Hashes of ledger rows that are not random: they can be searched for what the rows say."""
    again = frozenset.intersection(*(each.hashes for each in controls))
    found = again.union(*(each.searchable for each in controls))
    return [Leak("hashes of ledger rows", f"{len(found)} cover no secret, and can be searched")] if found else []


def _differences(
    name: str, controls: Sequence[Sequence[Mapping[str, Any]]], other: Sequence[Mapping[str, Any]]
) -> Iterator[Leak]:
    lengths = {len(each) for each in controls}
    if len(other) not in lengths:
        yield Leak(name, f"{len(other)} replies instead of {max(lengths)}")
    for place, (reply, *own) in enumerate(zip(other, *controls, strict=False), start=1):
        for field in sorted({*reply, *own[0]}):
            usual, value = [each.get(field) for each in own], reply.get(field)
            if all(each == usual[0] for each in usual) and value != usual[0]:
                yield Leak(f"{name}: reply {place}", f"{field}: {value} instead of {usual[0]}")
