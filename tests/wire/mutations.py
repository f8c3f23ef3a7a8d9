"""Messages that are not as they should be: changed bytes, changed words, changed values."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from collegium import wire

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1 << 70, 1e308, float("nan"), "", "x", "many", "0" * 64, "[/nonsense]", [], ["x"], {},
    {"a": 1}, {"notes": 5}, [[[]]],
)  # fmt: skip


def mutated_bytes(frame: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut off, put in, doubled, or all of them made up."""
    message = bytearray(frame)
    match rng.randrange(5):
        case 0:
            for _ in range(rng.randrange(1, 8)):
                message[rng.randrange(len(message))] = rng.randrange(256)
        case 1:
            del message[rng.randrange(len(message)) :]
        case 2:
            place = rng.randrange(len(message))
            message[place:place] = rng.randbytes(rng.randrange(1, 40))
        case 3:
            message += message[rng.randrange(len(message)) :]
        case _:
            message = bytearray(rng.randbytes(rng.randrange(200)))
    return bytes(message)


def mutated_words(frame: bytes, rng: random.Random) -> bytes:
    """The header with a word less, one more, or one that says something else; or the payload, with the right hash."""
    header, payload = wire.cut(frame)
    place = header["row"] if isinstance(header.get("row"), dict) and rng.random() < 0.6 else header
    match rng.randrange(5):
        case 0:
            place.pop(rng.choice(sorted(place)))
        case 1:
            place[rng.choice(sorted(place))] = rng.choice(ODD)
        case 2:
            place[rng.choice(["notes", "bytes", "entry", "refused", "step", "number", "row", "kind"])] = rng.choice(ODD)
        case 3:
            return wire.join({"notes": rng.choice(ODD)}, frame)
        case _:
            payload = rng.choice([wire.pack(value).data for value in ODD] + [mutated_bytes(payload or b"x", rng)])
            if isinstance(header.get("row"), dict):
                header["row"] |= {"sha256": hashlib.sha256(payload).hexdigest(), "bytes": 0}
    return wire.join(header, payload)
