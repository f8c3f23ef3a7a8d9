"""A coordinator that subtracts secret sums from each other, against the gates of real sites."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from tests.flare.offices import open_office, write_data, write_site
from tests.flare.talk import RUN, frame, open_run, say

from collegium import wire
from collegium.algorithms import fedct
from collegium.core.steps import Order
from collegium.flare.agreement.planning import plan_of
from collegium.flare.kits.identity import read_keys
from collegium.protocols.masked_sum import Submission, SumServer
from collegium.secure.acquaintance import greet, meet
from collegium.secure.secret_votes import open_masks
from collegium.study.study import Study

NAMES = ["s1", "s2", "s3", "s4"]
CLASSES = np.array(["benign", "malignant"])


class Attacker:
    """The coordinator of four sites that have approved a plan with secret votes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers, self._public = folder, itertools.count(1), write_data(folder, NAMES, rows=60)
        for name in NAMES:
            write_site(folder / name, name, learner="logistic_regression")
        known = "".join(f'{name} = "{read_keys(folder / name / "agent", name).identity}"\n' for name in NAMES)
        for name in NAMES:
            file = folder / name / "site.toml"
            file.write_text(f"{file.read_text()}[identities]\n{known}")
        algorithm = {"name": "fedct", "rounds": 3, "votes": "secret"}
        study = {"name": "t", "data": {"source": "public.csv"}, "algorithm": algorithm}
        study |= {"federation": {"classes": CLASSES.tolist()}}
        self._plan = plan_of(Study.from_dict(study), self._public, CLASSES, NAMES)
        self._offices = {name: open_office(folder / name) for name in NAMES}
        self.open()
        self.begin("circle")
        self.train()

    def open(self) -> None:
        for name in NAMES:
            assert open_run(self._offices[name], self._plan, self._public) == "open"

    def ask(self, name: str, *orders: Order[Any], mask: dict[str, Any] | None = None) -> Any:
        """A site's release as plain data, or the code of its refusal."""
        number = next(self._numbers)
        sent = frame(number, *orders, sha256=self._plan.public_sha256, mask=mask)
        words = {"do": "order", "run": RUN, "order": str(number), "wait": 30.0}
        header, payload = say(self._offices[name], sent, **words)
        if header["state"] != "done":
            return header["code"]
        header, packed = wire.cut(payload)
        return header.get("refused") or (wire.unpack(packed, wire.KnownLabels()) if packed else None)

    def begin(self, circle: str) -> None:
        hellos = {name: self.ask(name, greet(circle)) for name in NAMES}
        for name in NAMES:
            assert self.ask(name, meet(circle, hellos)) == {"faults": []}

    def train(self) -> None:
        for name in NAMES:
            self.ask(name, fedct.train(None, None, None))

    def total(self, parties: Sequence[str], name: str, circle: str = "circle", again: str | None = None) -> Any:
        """The sum of these sites' votes, or the code of the first refusal."""
        server = SumServer(parties, (2, len(self._public)))
        mask = {"protocol": "secret_votes", "circle": circle, "round": name, "participants": list(parties)}
        for party in parties:
            sent = self.ask(party, fedct.label(), mask=mask | ({} if again is None else {"again": again}))
            if isinstance(sent, str):
                return sent
            server.add(party, Submission(sent["counts"], sent["letters"], sent["digests"], sent["key_digest"]))
        for party in parties:
            server.opened(party, self.ask(party, open_masks(circle, name, server.letters_for(party)))["shares"])
        return server.total().astype(int)

    def restart(self) -> None:
        """New agents at all sites, which open the run again."""
        self._offices = {name: open_office(self._folder / name) for name in NAMES}
        self.open()

    def close(self) -> None:
        for name in NAMES:
            say(self._offices[name], do="close", run=RUN)

    def votes_of(self, name: str) -> Any:
        """The truth, from the site's own folder: what the attacker is after."""
        self.close()
        model = cloudpickle.loads((self._folder / name / "agent" / "runs" / RUN / "model.pkl").read_bytes())
        return model.predict_codes(self._public) == np.arange(2)[:, None]


@pytest.fixture
def attacker(tmp_path: Path) -> Attacker:
    return Attacker(tmp_path)


def test_all_sites_and_then_all_but_one(attacker: Attacker) -> None:
    assert attacker.total(NAMES, "r1").sum() == 4 * 150
    assert attacker.total(NAMES[:3], "r2") == "mask-denied"


def test_all_but_one_and_then_all(attacker: Attacker) -> None:
    assert attacker.total(NAMES[:3], "r1").sum() == 3 * 150
    assert attacker.total(NAMES, "r2") == "mask-denied"


def test_two_sites(attacker: Attacker) -> None:
    assert attacker.total(NAMES[:2], "r1") == "mask-denied"


def test_opened_votes_once_more_without_one(attacker: Attacker) -> None:
    attacker.total(NAMES, "r1")
    assert attacker.total(NAMES[:3], "r2", again="r1") == "mask-denied"


def test_the_same_votes_after_a_restart_and_in_another_circle(attacker: Attacker) -> None:
    attacker.total(NAMES, "r1")
    attacker.restart()
    assert attacker.total(NAMES[:3], "r2") == "mask-denied"
    attacker.begin("another")
    assert attacker.total(NAMES[:3], "r3", circle="another") == "mask-denied"


def test_the_same_votes_after_the_run_was_ended_and_opened_again(attacker: Attacker) -> None:
    attacker.total(NAMES, "r1")
    attacker.close()
    attacker.restart()
    attacker.begin("another")
    assert attacker.total(NAMES[:3], "r2", circle="another") == "mask-denied"


def test_what_remains_is_the_difference_between_rounds_as_often_as_the_plan_says(attacker: Attacker) -> None:
    """As the docs say: trained to the same votes again, the others reveal the site that was left out."""
    with_it = attacker.total(NAMES, "r1")
    attacker.train()
    without = attacker.total(NAMES[:3], "r2")
    attacker.train()
    assert attacker.total(NAMES, "r3").sum() == 4 * 150
    attacker.train()
    assert attacker.total(NAMES, "r4") == "approval-spent"
    assert np.array_equal(with_it - without, attacker.votes_of("s4"))
