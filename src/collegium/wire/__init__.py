"""Formats of what travels: frames, packed labels, tables. Nothing is ever pickled or unpickled."""

from collegium.wire.frames import KnownLabels, Packed, cut, cut_view, join, join_words, pack, unpack
from collegium.wire.limits import MAX_BYTES, Limits

__all__ = ["MAX_BYTES", "KnownLabels", "Limits", "Packed", "cut", "cut_view", "join", "join_words", "pack", "unpack"]
