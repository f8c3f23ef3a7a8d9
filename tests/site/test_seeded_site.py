"""Noise that follows from a number in a site's file can be removed by whoever knows the file."""

from __future__ import annotations

import pytest
from tests.site.real_sites import open_really, rows

import collegium as cg
from collegium.errors import SiteError


@pytest.mark.parametrize("learner", [cg.PrivateVoting(random_state=0), cg.PrivateTorch(random_state=7)])
def test_a_real_site_has_no_seeded_noise(learner) -> None:
    with pytest.raises(SiteError, match="Remove random_state"):
        open_really(cg.Site("ukb", *rows(), learner=learner))
