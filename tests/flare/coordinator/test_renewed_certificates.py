"""Certificates that are renewed in the middle of a run: it goes on, and the old ones can be revoked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flare.conftest import NAMES
from tests.flare.coordinator.test_link import At, carry_out, study
from tests.flare.doors import LEADS, SignedHost, make_kits, ready_kits

from collegium.flare.kits.federation_file import FederationFile, LeadSection, ServerSection, SiteSection
from collegium.flare.kits.kit import read_certificate, read_kit
from collegium.flare.kits.renewal import install_renewal, request_renewal, sign_renewal
from collegium.flare.kits.revoked import Revoked

pytest.importorskip("nvflare")
pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("doors"),
]
SITE = "site-2"
FEDERATION = FederationFile(
    name="test",
    server=ServerSection(host="localhost", port=8002, organisation="university"),
    sites=[SiteSection(name=name, organisation=f"owner-of-{name}") for name in NAMES],
    leads=[LeadSection(name=name, organisation="university") for name in LEADS],
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kits(tmp_path_factory.mktemp("federation") / "kits", NAMES)


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    return ready_kits(made, tmp_path / "kits", NAMES)


@pytest.fixture
def host(kits: Path) -> SignedHost:
    return SignedHost({name: kits / name for name in NAMES}, kits / "server", kits / LEADS[0])


def serial(kit: Path) -> str:
    return f"{read_certificate(read_kit(kit).certificate).serial_number:x}"


def renew(kits: Path, name: str) -> tuple[str, str]:
    """The whole way of a new certificate; the old serial number and the new one."""
    kit = kits / name
    old = serial(kit)
    install_renewal(kit, sign_renewal(FEDERATION, request_renewal(kit), kits))
    return old, serial(kit)


@pytest.mark.parametrize("who", [SITE, LEADS[0]], ids=["a site", "the lead"])
def test_a_run_goes_on_over_a_renewal_and_the_old_certificate_can_be_revoked(
    host: SignedHost, kits: Path, who: str
) -> None:
    def renew_and_revoke() -> None:
        old, _ = renew(kits, who)
        Revoked(kits / "server").add(old)
        for name in NAMES:
            Revoked(kits / name).add(old)

    run = carry_out(
        host, kits, "out", study=study(algorithm__rounds=3, federation__metrics=False),
        callbacks=[At(1, renew_and_revoke)],
    )  # fmt: skip
    assert run.refusals.empty
    assert set(run.releases.query("party == @SITE")["round"]) == {0, 1, 2}


def test_the_new_certificate_can_be_revoked_too(host: SignedHost, kits: Path) -> None:
    def renew_and_revoke() -> None:
        for each in renew(kits, SITE):
            Revoked(kits / "server").add(each)

    run = carry_out(
        host, kits, "out", study=study(algorithm__rounds=3, federation__metrics=False),
        callbacks=[At(1, renew_and_revoke)],
    )  # fmt: skip
    assert set(run.refusals.query("party == @SITE")["code"]) == {"revoked"}
    assert set(run.releases.query("party == @SITE")["round"]) == {0, 1}


def test_what_was_said_before_a_renewal_does_not_count_after_it(host: SignedHost, kits: Path) -> None:
    session, door = host.begin(frozenset(NAMES)), host.doors[SITE].door
    recorded: list[bytes] = []
    host.before_request = lambda party, message: recorded.append(message)  # type: ignore[method-assign]
    session.request(SITE, b"", 10.0)
    before = door._challenge
    renew(kits, SITE)
    door.answer(recorded[-1])
    assert door._challenge != before
    assert not door._callers
