"""The federation between organisations, on NVFlare: relay, orders, agent, provisioning.

    coordinator --unix socket--> relay (server's job process) --mTLS--> NVFlare's process at the site (thin)
        --unix socket--> agent (the site's own process: data, learner, gate, ledger, state)

NVFlare carries opaque bytes and knows nothing of what they mean; coordinator and agent sign them, so that nothing in
between can put in words of its own. A job of NVFlare's at the server is a disposable session: when one dies, the next
is started and what was not answered is asked again, which sites recognize.
"""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = 3
"""What coordinator and site say to each other; both must mean the same."""
NOTICE: Final = "notice: "
"""Begins a line of a site's agent that its owner should see at once, on the console of `collegium site join`."""
