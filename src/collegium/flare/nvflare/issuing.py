"""Keys and certificates, issued by NVFlare's own provisioner."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from collegium.errors import ConfigError, MissingExtra
from collegium.flare.kits.federation_file import FederationFile, SiteSection
from collegium.flare.kits.kit import Kind

ROOT_DAYS: Final = 3600


def issue(
    federation: FederationFile, sites: Iterable[SiteSection], work: Path, authority: dict[str, str] | None
) -> tuple[Path, dict[str, str]]:
    """Let NVFlare make start-up folders; returns where they are, and the authority that signed them."""
    try:
        from nvflare.lighter.entity import participant_from_dict
        from nvflare.lighter.impl.cert import CertBuilder
        from nvflare.lighter.impl.static_file import StaticFileBuilder
        from nvflare.lighter.impl.workspace import WorkspaceBuilder
        from nvflare.lighter.provisioner import Provisioner
        from nvflare.lighter.spec import Project
    except ImportError:
        raise MissingExtra("flare", "A federation") from None
    project = Project(name=federation.name, description="", props={"api_version": 3})
    server, leads = federation.server, federation.leads
    members = [{"name": server.host, "type": "server", "org": server.organisation, "fed_learn_port": server.port}]
    members += [{"name": site.name, "type": "client", "org": site.organisation} for site in sites]
    members += [{"name": lead.name, "type": "admin", "org": lead.organisation, "role": "lead"} for lead in leads]
    for member in members:  # NVFlare allows no hyphen in an organisation's name
        project.add_participant(participant_from_dict(member | {"org": str(member["org"]).replace("-", "_")}))
    state = work / federation.name / "state"
    if authority is not None:
        state.mkdir(parents=True)
        (state / "cert.json").write_text(json.dumps(authority))
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="grpc", require_signed_jobs=True),
        CertBuilder(root_valid_days=_root_days(authority)),
    ]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        outcome = Provisioner(str(work), builders).provision(project)
    if outcome.get("__build_error__"):
        why = said.getvalue().strip().splitlines() or ["no reason given"]
        raise ConfigError(f"NVFlare could not make the kits: {why[-1].strip()}")
    kept = json.loads((state / "cert.json").read_text())
    return work / federation.name / "prod_00", {key: kept[key] for key in ("root_cert", "root_pri_key")}


def certify(
    federation: FederationFile,
    name: str,
    kind: Kind,
    organisation: str,
    public: Any,
    authority: dict[str, str],
) -> bytes:
    """A certificate for a member's key, as NVFlare's provisioner would make it."""
    try:
        from nvflare.lighter.impl.cert import DEFAULT_CERT_VALID_DAYS
        from nvflare.lighter.utils import Identity, generate_cert, serialize_cert
    except ImportError:
        raise MissingExtra("flare", "A federation") from None
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    root = load_pem_x509_certificate(authority["root_cert"].encode())
    now = datetime.now(UTC)
    if root.not_valid_after_utc <= now:
        raise ConfigError(
            f"The authority expired on {root.not_valid_after_utc:%Y-%m-%d}: provision a new federation (--force)."
        )
    made = generate_cert(
        subject=Identity(name, organisation.replace("-", "_"), "lead" if kind == "lead" else None),
        issuer=Identity(federation.name),
        signing_pri_key=load_pem_private_key(authority["root_pri_key"].encode(), password=None),
        subject_pub_key=public,
        server_default_host=federation.server.host if kind == "server" else None,
        not_valid_before=now,
        not_valid_after=min(root.not_valid_after_utc, now + timedelta(days=DEFAULT_CERT_VALID_DAYS)),
    )
    pem: bytes = serialize_cert(made)
    return pem


def _root_days(authority: dict[str, str] | None) -> int:
    """NVFlare must be told how long an authority lasts, even one that it is given."""
    if authority is None:
        return ROOT_DAYS
    from cryptography.x509 import load_pem_x509_certificate

    root = load_pem_x509_certificate(authority["root_cert"].encode())
    return (root.not_valid_after_utc - root.not_valid_before_utc).days
