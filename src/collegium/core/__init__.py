"""All that an algorithm may import: the seam between coordinator and sites.

Names are listed in the stub beside this file and imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
