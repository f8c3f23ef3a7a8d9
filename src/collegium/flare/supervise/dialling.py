"""Why a site cannot reach its server, in one line with the remedy. NVFlare itself only retries, without a reason."""

from __future__ import annotations

import contextlib
import socket
import ssl

from collegium.errors import ConfigError
from collegium.flare.kits.kit import Kit

_TIMEOUT_SECONDS = 3.0
_ALERT_SECONDS = 0.5


def why_unreachable(kit: Kit) -> str | None:
    """Dial the server as the kit's holder; None if it answers and takes the certificate."""
    try:
        with socket.create_connection((kit.host, kit.port), timeout=_TIMEOUT_SECONDS) as plain:
            return _why_refused(kit, plain)
    except socket.gaierror:
        return f"cannot resolve {kit.host}: check DNS, or the server's host in the kit"
    except ConnectionRefusedError:
        return f"cannot reach {kit.address}: connection refused; no server listens there"
    except TimeoutError:
        return f"cannot reach {kit.address}: no answer; a firewall must allow outbound TCP to port {kit.port}"
    except OSError as error:
        return f"cannot reach {kit.address}: {error.strerror or 'network error'}"


def _why_refused(kit: Kit, plain: socket.socket) -> str | None:
    context = ssl.create_default_context(cafile=str(kit.root))
    context.load_cert_chain(kit.certificate, kit.key)
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(plain, server_hostname=kit.host) as secure:
            secure.settimeout(_ALERT_SECONDS)
            with contextlib.suppress(TimeoutError):  # silence is consent: a refusal comes at once
                return None if secure.recv(1) else _closed(kit)
    except ssl.SSLCertVerificationError as error:
        return (
            f"{kit.address} presented a certificate that this federation's authority did not sign "
            f"({error.verify_message}): the server runs another federation's kit, or the connection is intercepted"
        )
    except ssl.SSLEOFError:
        return _closed(kit)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):  # said by the other end, and what it says is about this certificate
            return (
                f"{kit.address} rejected this kit's certificate: the kit belongs to another federation, or has expired"
            )
        return f"{kit.address} does not speak TLS: another program listens there, or a proxy answers in its place"
    except ConnectionError:
        return _closed(kit)
    return None


def _closed(kit: Kit) -> str:
    return (
        f"{kit.address} closed the connection: the server is being restarted, "
        "or a firewall or proxy on the way does not let TLS through"
    )


def check_port(kit: Kit) -> None:
    """An error if the server's port is taken on this machine."""
    family = socket.AF_INET6 if ":" in kit.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", kit.port))
        except PermissionError:
            raise ConfigError(f"No permission to listen on port {kit.port}: choose a port above 1023.") from None
        except OSError:
            raise ConfigError(
                f"Port {kit.port} is in use on this machine: stop what listens there, or provision with another port."
            ) from None
