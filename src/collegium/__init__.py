"""Collegium: federated learning by sharing opinions on public cases.

Sites keep their data and their models; they share labels of a public, unlabeled set and learn from the consensus::

    import collegium as cg

    split = cg.split(X, y, sites=5, public=370, test=114, seed=0)
    sites = [cg.Site(f"site{i}", Xi, yi, learner=clf) for i, (Xi, yi) in enumerate(split.sites)]
    run = cg.run(cg.FedCT(rounds=5), sites=sites, public=split.public, test=split.test)
    print(run.summary())

Public names are listed in the stub beside this file and imported when first used, so that `import collegium` is quick.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
