"""A browser without a screen or scripts: it keeps its cookie, and sends whatever a test asks it to."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from collegium.console.serving import Console


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def line(self) -> str:
        """The only line of an answer that refuses."""
        (line,) = self.text.splitlines()
        return line


@dataclass
class Visitor:
    """One browser at a console."""

    console: Console
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, console: Console, role: str = "owner") -> Visitor:
        """One that has opened a link."""
        visitor = cls(console)
        assert visitor.open(console.link(role)).status == 200
        return visitor

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.console.port}"

    def send(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        """Send a request; headers with ``_`` for ``-``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.console.port, timeout=60)
        given = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return Answer(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode("utf-8", "replace")
            )
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def open(self, link: str, **headers: str) -> Answer:
        """Open a link, and keep the cookie that comes with it."""
        parts = urlsplit(link)
        answer = self.get(f"{parts.path}?{parts.query}", **headers)
        if "set-cookie" in answer.headers:
            self.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def csrf(self, path: str = "/") -> str:
        """What this visit's forms carry."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(path).text)
        assert found, "the page has no form"
        return found[1]

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        """Send a form as a browser does."""
        usual = {"Origin": self.origin, "Content_Type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, urlencode(fields), **usual | headers)
