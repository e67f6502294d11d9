"""Numbers as columns of text have them."""

from __future__ import annotations

import polars as pl


def whole(text: pl.Expr) -> pl.Expr:
    """Whole numbers, also those that are written as fractions (`4.0`, `1e3`); null where it is none."""
    number = text.cast(pl.Float64, strict=False)
    as_fraction = pl.when(number == number.floor()).then(number).cast(pl.Int64, strict=False)
    return pl.coalesce(text.cast(pl.Int64, strict=False), as_fraction)
