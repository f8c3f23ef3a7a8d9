"""The socket that a console listens on, and its links."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.console.visiting import Visitor

from collegium.console import serving
from collegium.console.serving import Console, listen
from collegium.errors import ConfigError


def test_only_this_machine_reaches_it_unless_told_otherwise(console):
    assert console._socket.getsockname()[0] == "127.0.0.1"
    assert console.is_local
    everywhere = Console([], "collegium watch", host="0.0.0.0")
    try:
        assert not everywhere.is_local
        assert everywhere.link().startswith(f"http://127.0.0.1:{everywhere.port}/?token=")
    finally:
        everywhere.close()


def test_a_port_in_use_is_said_in_one_line(console):
    with pytest.raises(ConfigError) as caught:
        Console([], "collegium watch", port=console.port)
    where = f"127.0.0.1:{console.port}"
    assert str(caught.value) == (
        f"{where} is in use by another program: choose another port, or leave --port out to get a free one."
    )


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("127.0.0.1", 70000, "There is no port 70000"),
        ("203.0.113.7", 0, "no address '203.0.113.7'"),
        ("", 0, r"no address ''.*leave --host out"),
    ],  # the system would take it for every address
)
def test_an_address_that_cannot_be_had_is_said_in_one_line(host, port, said):
    with pytest.raises(ConfigError, match=said):
        listen(host, port)


def test_every_link_is_another_one(console):
    links = {console.link(role) for role in ("owner", "guest") for _ in range(20)}
    assert len(links) == 40
    assert min(len(link.partition("token=")[2]) for link in links) >= 43


def test_it_answers_under_names_that_were_allowed():
    routes: list[object] = []
    named = Console(routes, "collegium watch", names=["console.example", "proxy.example:8443"])  # type: ignore[arg-type]
    with named.in_background():
        visitor = Visitor.of(named)
        for name in ("console.example", f"console.example:{named.port}", "proxy.example:8443"):
            assert visitor.get("/nowhere", Host=name).status == 404
        for name in ("proxy.example", f"proxy.example:{named.port}", "other.example"):
            assert visitor.get("/nowhere", Host=name).status == 421


def test_a_page_that_never_ends_is_not_waited_for(monkeypatch, caplog):
    monkeypatch.setattr(serving, "_PATIENCE", 0.5)
    reached, over = threading.Event(), threading.Event()

    async def stuck(request: Request) -> Response:
        reached.set()
        over.wait(60)  # and so is everything else that the console does
        return PlainTextResponse("")

    with Console([Route("/", stuck)], "collegium watch").in_background() as console:
        visitor = Visitor.of(console)
        threading.Thread(target=visitor.get, args=("/",), daemon=True).start()
        assert reached.wait(60)
    assert "has not ended after 0.5 s" in caplog.text
    over.set()


def test_without_the_packages_the_extra_is_named():
    code = "import sys; sys.modules['uvicorn'] = None\nimport collegium.console"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "The console needs an optional package: pip install 'collegium[console]'" in done.stderr


@pytest.mark.parametrize(
    ("modules", "light"),
    [("serving, collegium.console.watching", ""), ("site_pages", "numpy")],  # charges are added up with NumPy
    ids=["collegium watch", "collegium site console"],
)
def test_it_imports_nothing_that_trains(modules, light):
    heavy = {"numpy", "pandas", "scipy", "sklearn", "torch", "matplotlib", "pyarrow", "ray", "nvflare"} - {light}
    code = f"import sys, collegium.console.{modules}\nprint([name for name in {sorted(heavy)} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
