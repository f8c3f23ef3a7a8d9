"""Cryptographic protocols between sites, as plain logic: every message is plain data that a step can carry.

- `keys`: sites' identities, and circles of sites that talk through the coordinator without it listening
- `seed`: a secret seed that all sites share, and the sketches that they draw from it
- `masked_sum`: sums whose summands nobody sees
- `hamming`: distances between the sketches of two sites that only the server sees

Nobody here opens a connection or keeps a file. All protocols are for parties that follow them but are curious
("honest but curious"); what a peer sends is nevertheless checked, and `ProtocolError` names the party at fault. The
arithmetic is not constant-time: who can measure a site's computer closely is not kept out.
Party objects can be pickled between messages, so that a site can be stopped and started again.
"""

from collegium.protocols.errors import ProtocolError, Reused

__all__ = ["ProtocolError", "Reused"]
