"""Formats of what travels: frames, packed labels, tables. Nothing is ever pickled or unpickled."""

from collegium.wire.frames import MAX_BYTES, KnownLabels, Packed, cut, join, pack, unpack

__all__ = ["MAX_BYTES", "KnownLabels", "Packed", "cut", "join", "pack", "unpack"]
