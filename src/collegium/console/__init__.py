"""Live pages in a browser: `collegium watch` for whoever runs a study, `collegium site console` for a hospital.

A page is served by a process of its own on this machine. It reads what a run or a site has written, and imports
nothing that trains: it stays small beside the run that it shows.
"""

from __future__ import annotations

from collegium.errors import MissingExtra

try:
    import starlette as starlette
    import uvicorn as uvicorn
except ImportError:
    raise MissingExtra("console", "The console") from None
