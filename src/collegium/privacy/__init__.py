"""Differential privacy: what releases cost, how costs compose, and what may be claimed.

Names are listed in the stub beside this file and imported when first used, so that `import collegium` stays fast and
the core can use `collegium.privacy.claims`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
