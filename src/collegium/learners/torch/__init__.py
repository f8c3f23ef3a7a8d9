"""Neural networks with the scikit-learn interface, and how they are trained.

From top to bottom: `classifier` is what users see, `training` a net and its training state, `descent` one mini-batch
step, `losses` (with `siamese` and `disjoint`) what local terms add to a step, `batches` the rows of a step, `views` and
`images` random views of them; `weights` names a net's arrays; `devices`, `cuda_graphs` and `rows_on_gpu` deal with
hardware. Names are listed in the stub beside this file and imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
