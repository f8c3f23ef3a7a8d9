"""Tables that a terminal of 80 columns shows whole."""

from __future__ import annotations

from typing import Final

import pandas as pd

COLUMNS: Final = 80


class Narrow(pd.DataFrame):  # type: ignore[misc,unused-ignore]
    """A table that is printed with all its columns, in several blocks where 80 columns do not take them.

    pandas would leave out those in the middle. What is made of it is an ordinary table again.
    """

    def __repr__(self) -> str:
        rows = pd.get_option("display.max_rows")
        return self.to_string(line_width=COLUMNS, max_rows=rows or None)
