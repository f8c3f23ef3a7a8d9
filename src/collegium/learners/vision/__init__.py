"""Images with a pre-trained net, the backbone, that turns each of them into features.

From top to bottom: `classifier` (VisionClassifier), `transformer` (ImageFeatures) and `pretrained` (Pretrained) are
what users see; `features` computes features once and keeps them; `backbones` finds a backbone, in a folder
of ours or of Hugging Face's or timm's (`folders`, `foreign`) or in an installed package (`packages`); `weight_files`
reads weights, and never code; `pictures` reads images.
"""

from collegium.errors import MissingExtra

try:
    import torch  # noqa: F401 - all of it needs torch: say so once
except ModuleNotFoundError as missing:
    raise MissingExtra("vision", "A pre-trained backbone") from missing
