"""Tell a site's owner that something waits: a line on the console, and where the owner wants it a program or a mail."""

from __future__ import annotations

import json
import smtplib
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final

from collegium.flare import NOTICE
from collegium.flare.site.file import SiteNotify

_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Notices:
    """Says what has happened; whatever goes wrong with that is a line in the log."""

    site: str
    kit: Path
    settings: SiteNotify
    log: Callable[[str], None]

    def plan_waits(self, digest: str) -> None:
        """A plan was proposed."""
        self.tell("plan-waits", f"plan {digest[:12]} waits for approval: {self._approve(digest[:12])}", plan=digest)

    def order_waits(self, run: str, number: int) -> None:
        """An order came that a person must sign."""
        name = f"{run}:{number}"
        self.tell("order-waits", f"order {name} waits for approval: {self._approve(f'--order {name}')}", order=name)

    def agent_says(self, text: str) -> None:
        """The agent cannot work as it should, or can again."""
        self.tell("agent", f"the agent {text}")

    def door_says(self, text: str) -> None:
        """Somebody was turned away, or another installation answers in this site's name."""
        self.tell("door", text)

    def certificate_ends(self, text: str) -> None:
        """The certificate ends soon, or has ended."""
        self.tell("certificate", text)

    def tell(self, event: str, text: str, **facts: Any) -> None:
        """Print the line now, and pass it on without keeping anybody waiting."""
        print(f"{NOTICE}{text}", flush=True)  # noqa: T201 - the agent is a program
        if self.settings.command or self.settings.mail:
            about = {"event": event, "site": self.site, "kit": str(self.kit), "message": text, **facts}
            threading.Thread(target=self._pass_on, args=(about,), daemon=True).start()

    def _approve(self, what: str) -> str:
        return f"collegium site approve {self.kit} {what}"

    def _pass_on(self, about: dict[str, Any]) -> None:
        for send in (self._run, self._mail):
            try:
                send(about)
            except (OSError, subprocess.SubprocessError, smtplib.SMTPException) as error:
                self.log(f"cannot notify the owner of {about['event']}: {type(error).__name__}: {error}")

    def _run(self, about: dict[str, Any]) -> None:
        if not self.settings.command:
            return
        # On standard input: nothing that comes from elsewhere is ever part of a command line.
        done = subprocess.run(
            self.settings.command, input=json.dumps(about), text=True, cwd=self.kit, timeout=_SECONDS, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace",
        )  # fmt: skip
        if done.returncode:
            raise subprocess.SubprocessError(f"notify.command ended with {done.returncode}: {done.stderr[-500:]}")

    def _mail(self, about: dict[str, Any]) -> None:
        if self.settings.mail is None:
            return
        mail = EmailMessage()
        mail["From"], mail["To"] = self.settings.sender or self.settings.mail, self.settings.mail
        mail["Subject"] = f"{self.site}: {about['event']}"
        mail.set_content(f"{about['message']}\n")
        host, _, port = self.settings.smtp.rpartition(":")
        with smtplib.SMTP(host, int(port), timeout=_SECONDS) as server:
            server.send_message(mail)
