"""Hypothesis strategies that several test files share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def histograms(draw, max_length: int = 24, largest: int = 40):
    """(counts (L+1,) int64, L): at least one sequence, some lengths missing."""
    length = draw(st.integers(1, max_length))
    counts = draw(
        st.lists(
            st.one_of(st.just(0), st.integers(0, largest)), min_size=length, max_size=length
        ).filter(any)
    )
    return np.array([0, *counts], dtype=np.int64), length
