"""Familiar: a site votes only where a public sample looks like its own data.

Ours, not in the papers. Under pathological label skew a site that knows two classes votes for them everywhere, and the
majority is wrong. Here, in the first communication, a site votes for class c only where its model says c and a
classifier "my rows of class c against public rows" finds the sample familiar. Only labels and abstentions leave the
site. Afterwards every site has learned all classes from the consensus, and all vote.

The classifiers are trained on private data: where a privacy claim is made, they are further private fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, StandardScaler

from collegium.consensus.base import Voters
from collegium.core import ActiveSite, HardLabels, Labels, Order, Steps, step
from collegium.core.settings import FiniteFloat, PositiveInt
from collegium.wire import tables

Matrix = NDArray[np.float64]

# What was found to work on images, digits and tables alike; the results are flat around these.
FOLDS: Final = 3
MIN_ROWS: Final = 5
COMPONENTS: Final = 60
LANDMARKS: Final = 300
VIEW_ROWS: Final = 4000
HASHED_WORDS: Final = 2**16


@step
def vote_where_familiar(site: ActiveSite, threshold: float) -> HardLabels:
    """L_i <- h_i(U) where U looks like D_i, else an abstention."""
    predicted = site.predict(site.public).codes
    if len(predicted) < MIN_ROWS:  # too few to tell what is familiar
        return HardLabels(Labels(predicted, site.n_classes))
    view, seen = site.public.derived("familiar", _view_of)
    own = view.transform(_flat(site.data.X))
    votes = np.full_like(predicted, -1)
    for code in np.unique(site.data.codes):
        rows, candidates = own[site.data.codes == code], predicted == code
        if len(rows) >= MIN_ROWS and candidates.any():
            familiar = familiarity(rows, seen, threshold, site.rng)
            votes[candidates & familiar] = code
    return HardLabels(Labels(votes, site.n_classes))


@dataclass(frozen=True)
class Familiar(Voters):
    """Vote for a class where the log odds that a sample is one's own of that class, not a public one, are high."""

    asks_for: ClassVar[Steps] = (vote_where_familiar,)
    threshold: FiniteFloat = 1.0
    """How high: log p(x | my rows of class c) / p(x | public)."""
    communications: PositiveInt = 1
    """In how many communications sites may abstain; afterwards all vote. More than 1 for nets that take only a few
    steps from one to the next."""

    def order(self, communication: int) -> Order[HardLabels] | None:
        return vote_where_familiar(self.threshold) if communication < self.communications else None


def familiarity(own: Matrix, public: Matrix, threshold: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which public rows look like one's own (of one class), by logits of classifiers that did not see the row."""
    from sklearn.linear_model import LogisticRegression  # 15 MB, here and below, for sites that are asked this

    mine, theirs = np.empty(len(own)), np.empty(len(public))
    own_fold, public_fold = rng.permutation(len(own)) % FOLDS, rng.permutation(len(public)) % FOLDS
    for fold in range(FOLDS):
        a, b = own_fold != fold, public_fold != fold
        rows = np.concatenate([own[a], public[b]])
        is_own = np.concatenate([np.ones(int(a.sum())), np.zeros(int(b.sum()))])
        head = LogisticRegression(C=30.0, max_iter=300, class_weight="balanced").fit(rows, is_own)
        mine[~a], theirs[~b] = head.decision_function(own[~a]), head.decision_function(public[~b])
    # A class that fills much of the public set cannot reach a high ratio: half of what one's own rows reach will do.
    return np.asarray(theirs > min(threshold, 0.5 * float(np.quantile(mine, 0.9))))


def _view_of(U: Any) -> tuple[Pipeline, Matrix]:
    """Features in which rows are compared, fitted on public rows only; and all public rows in them."""
    from sklearn.kernel_approximation import Nystroem

    U = _flat(U)
    rng = np.random.default_rng(0)
    some = tables.take(U, np.sort(rng.permutation(tables.n_rows(U))[:VIEW_ROWS]))
    numbers = _to_numbers(some)
    Z = numbers.fit_transform(some)
    reducer = _reducer(Z)
    Z = reducer.fit_transform(Z)
    few = Z[:500]
    distances = ((few[:, None] - few[None]) ** 2).sum(-1)[np.triu_indices(len(few), 1)]
    gamma = 0.5 / max(float(np.median(distances)) if len(distances) else 1.0, 1e-12)
    kernel = Nystroem(gamma=gamma, n_components=min(LANDMARKS, len(Z)), random_state=0).fit(Z)
    view = make_pipeline(numbers, reducer, kernel)
    return view, view.transform(U)


def _to_numbers(U: Any) -> Any:
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer

    if sparse.issparse(U):
        return MaxAbsScaler()
    numeric = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True),
        StandardScaler(),
        FunctionTransformer(np.clip, kw_args={"a_min": -5, "a_max": 5}),
    )
    if not isinstance(U, pd.DataFrame):
        return numeric
    words = make_pipeline(
        FunctionTransformer(_as_words), OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50)
    )
    texts = [place for place in range(U.shape[1]) if tables.holds_texts(U.iloc[:, place])]
    return make_column_transformer(
        (numeric, make_column_selector(dtype_include="number")),
        *((_by_words(len(U)), place) for place in texts),
        remainder=words,
        sparse_threshold=0,
    )


def _by_words(rows: int) -> Pipeline:
    """Texts by what they are about (latent semantic analysis): hardly any two of them are the same."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    hashed = HashingVectorizer(n_features=HASHED_WORDS, alternate_sign=False)
    topics = TruncatedSVD(max(1, min(COMPONENTS, rows - 1)), random_state=0)
    return make_pipeline(FunctionTransformer(_as_texts), hashed, TfidfTransformer(), topics)


def _reducer(Z: Any) -> Any:
    from sklearn.decomposition import PCA, TruncatedSVD

    components = min(COMPONENTS, min(Z.shape) - 1)
    if sparse.issparse(Z):
        return TruncatedSVD(max(1, components), random_state=0)
    return PCA(components, random_state=0) if components >= 2 else FunctionTransformer()


def _as_words(columns: pd.DataFrame) -> pd.DataFrame:
    return columns.astype(object).where(columns.notna(), "?").astype(str)


def _as_texts(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), "").astype(str)


def _flat(X: Any) -> Any:
    """Images as rows of numbers, arrays of words as a table of words."""
    if not isinstance(X, np.ndarray):
        return X
    X = X.reshape(len(X), -1)
    return pd.DataFrame(X).infer_objects() if X.dtype.kind in "OUS" else X
