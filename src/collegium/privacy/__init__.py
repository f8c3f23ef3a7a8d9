"""Differential privacy: what releases cost, what they add up to and what may be claimed.

Names are listed in the stub beside this file and imported when first used: `import collegium` stays quick, and the core
can use `collegium.privacy.claims`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
