"""Messages that are not as they should be: changed bytes, changed words, changed values."""

from __future__ import annotations

import hashlib
import json
import random
import struct
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


BOMBS = (
    "[" * 700 + "]" * 700, "[" * 90 + "]" * 90, "[" + "[]," * 50_000 + "[]]", "[" + '{"a":0},' * 30_000 + "0]",
    '{"$labels":[1,0,[67108863,1]]}', "[" + '{"$labels":[1,0,[67108863,1]]},' * 50 + "0]",
    '{"$labels":[2,0,[30,2,0,0]]}',
    '{"$array":["|u1",[2147483647,0]]}', '{"$array":["<f8",[1000000000]]}', '{"$array":["<U99999999",[1]]}',
    '{"$array":["|O",[1]]}', '{"$array":["<f8",[0,2147483647,2147483647]]}', "9" * 4000, "-1", "1e999", "1e-400",
    "9223372036854775808", '{"$float":"nan"}', '"' + "A" * 2_000_000 + '"', '"' + "A" * 100_000 + '\U0001f600"',
    '"\\u001b[2J"',
)  # fmt: skip
"""What grows when it is built, and what a careless reader trips over, as JSON."""
_NUMBERS = (0, 1, 2, 11, 1 << 16, 1 << 24, (1 << 31) - 1, (1 << 32) - 1)


def mutated(message: bytes, rng: random.Random) -> bytes:
    """One message changed at one place, with a sense of what it is made of; what depends on that place is put right."""
    how = rng.random()
    if how < 0.3:
        return mutated_bytes(message, rng)
    parts = _parts(message)
    place = rng.randrange(len(parts))
    head, body = parts[place]
    if how < 0.4:  # its sizes say something else
        sizes = [len(head), len(body)]
        sizes[rng.randrange(2)] = rng.choice(_NUMBERS)
        start = b"".join(_part(*part) for part in parts[:place])
        return (
            start + b"CLG2" + struct.pack(">II", *sizes) + head + body + b"".join(_part(*p) for p in parts[place + 1 :])
        )
    if how < 0.5:  # its contents do
        body = rng.choice([b"", body + rng.randbytes(9), mutated_bytes(body or b"x", rng)])
    elif how < 0.6:  # it comes twice, or never
        parts[place:place] = rng.choice([[parts[place]], [parts[place]] * 5])
    else:  # one value of its structure becomes another
        head = _mutated_json(head, rng)
    parts[place] = (head, body)
    return _rehashed(parts)


def _parts(message: bytes) -> list[tuple[bytes, bytes]]:
    """Heads and bodies of the frames that a message consists of: headers first, then what they are headers of."""
    parts, at = [], 0
    while at < len(message):
        head, body = struct.unpack_from(">II", message, at + 4) if message[at : at + 4] == b"CLG2" else (0, 0)
        if not head:  # a piece of something
            return [*parts[:-1], (parts[-1][0], parts[-1][1] + message[at:])]
        parts.append((message[at + 12 : at + 12 + head], message[at + 12 + head : at + 12 + head + body]))
        at += 12 + head + body
    return parts


def _part(head: bytes, body: bytes) -> bytes:
    return b"CLG2" + struct.pack(">II", len(head), len(body)) + head + body


def _mutated_json(head: bytes, rng: random.Random) -> bytes:
    """The structure with one value exchanged for an odd one or for a bomb, one name for another, or one missing."""
    tree = json.loads(head)
    place, key = None, None
    node: Any = tree
    while isinstance(node, dict | list) and node and (place is None or rng.random() < 0.8):
        place, key = node, rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        node = place[key]
    if place is None or rng.random() < 0.05:
        return rng.choice(BOMBS).encode()
    if rng.random() < 0.15:
        del place[key]
    elif isinstance(place, dict) and rng.random() < 0.15:
        place[rng.choice(["$array", "$labels", "$float", "x" * 300, "", "run", "number"])] = place.pop(key)
    else:
        place[key] = "MARK"
    value = rng.choice([*BOMBS, *(json.dumps(odd) for odd in ODD)])
    return json.dumps(tree, separators=(",", ":")).encode().replace(b'"MARK"', value.encode(), 1)


def _rehashed(parts: list[tuple[bytes, bytes]]) -> bytes:
    """The whole message. Where a row says what the payload's hash is, it is right, so that the payload is read."""
    message = b""
    for head, body in reversed(parts):
        try:
            tree = json.loads(head)
            tree["row"]["sha256"] = hashlib.sha256(message).hexdigest()
            head = json.dumps(tree, separators=(",", ":")).encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        message = _part(head, body) + message
    return message
