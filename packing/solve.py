"""Solvers by name, behind one call."""

from __future__ import annotations

from typing import Any, Optional

from packing.greedy import pack_lpfhp, pack_spfhp
from packing.histogram import check_at_least_one, check_counts
from packing.nnlshp import pack_nnlshp
from packing.plan import PackingPlan

SOLVERS = {"spfhp": pack_spfhp, "lpfhp": pack_lpfhp, "nnlshp": pack_nnlshp}


def solve(
    counts: Any,
    max_length: Optional[int] = None,
    max_per_pack: Optional[int] = None,
    algorithm: str = "lpfhp",
) -> PackingPlan:
    """Finds a plan that packs a histogram of sequence lengths into few packs.

    counts        (L+1,) whole numbers: counts[n] sequences have n tokens, counts[0] == 0
    max_length    L, tokens per pack; None: the longest length counted
    max_per_pack  D, sequences per pack; None: no limit
    algorithm     "spfhp" | "lpfhp" | "nnlshp" (arXiv:2107.02027)
    Returns a plan that places every sequence exactly once. Raises ValueError on bad input.

    >>> plan = solve([0, 0, 4, 0, 2], max_length=6, max_per_pack=2)
    >>> plan.num_packs, plan.packing_factor, plan.token_bound
    (3, 2.0, 3)
    """
    if algorithm not in SOLVERS:
        raise ValueError(f"algorithm: expected one of {', '.join(SOLVERS)}, found {algorithm!r}")
    if max_length is not None:
        max_length = check_at_least_one("max_length", max_length)
    if max_per_pack is not None:
        max_per_pack = check_at_least_one("max_per_pack", max_per_pack)
    checked = check_counts(counts, max_length)
    plan = SOLVERS[algorithm](checked, max_length=checked.size - 1, max_per_pack=max_per_pack)
    plan.check(checked)
    return plan
