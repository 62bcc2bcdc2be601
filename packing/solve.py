"""Solvers by name, behind one call."""

from __future__ import annotations

import numbers
import time
from dataclasses import replace
from typing import Any, Optional

import numpy as np

from packing.greedy import pack_greedy, pack_lpfhp, pack_spfhp
from packing.histogram import Counts, check_at_least_one, check_counts, check_max_length
from packing.lengths import shown
from packing.nnlshp import pack_nnlshp
from packing.optimal import TIME_LIMIT, improve, pack_optimal
from packing.plan import PackingPlan

MOST_SECONDS = 1e9  # as a time limit; inf is none
LARGE_KNAPSACK = 10**7  # lengths x tokens; one then takes a second or more
LARGE_GAP = 1e-4  # of the packs; what large problems with less are left at


def pack_auto(
    counts: Counts,
    *,
    max_length: int,
    max_per_pack: Optional[int],
    time_limit: float = TIME_LIMIT,
) -> PackingPlan:
    """The best of the heuristics, improved by column generation where that can gain something.

    Arguments as for `pack_optimal`. The plan's algorithm names the solver that won. Where L is so long
    that one step takes seconds and the gap is under LARGE_GAP of the packs already, the heuristic's
    plan is returned, with a note.
    """
    deadline = time.monotonic() + time_limit
    known = pack_greedy(counts, max_length=max_length, max_per_pack=max_per_pack)
    size = int(np.count_nonzero(counts)) * max_length
    if known.gap and size > LARGE_KNAPSACK and known.gap <= LARGE_GAP * known.num_packs:
        note = f"auto: {known.gap} packs above the bound; optimal, which takes long here, not tried"
        return replace(known, notes=(*known.notes, note))
    return improve(known, counts, deadline)


SOLVERS = {
    "auto": pack_auto,
    "optimal": pack_optimal,
    "lpfhp": pack_lpfhp,
    "spfhp": pack_spfhp,
    "nnlshp": pack_nnlshp,
}
TIMED = ("auto", "optimal")  # those that take a time limit


def solve(
    counts: Any,
    max_length: Optional[int] = None,
    max_per_pack: Optional[int] = None,
    algorithm: str = "auto",
    time_limit: float = TIME_LIMIT,
) -> PackingPlan:
    """Finds a plan that packs a histogram of sequence lengths into few packs.

    counts        (L+1,) whole numbers: counts[n] sequences have n tokens, counts[0] == 0
    max_length    L, tokens per pack; None: the longest length counted
    max_per_pack  D, sequences per pack; None: no limit
    algorithm     "spfhp" | "lpfhp": the paper's heuristics (arXiv:2107.02027); "optimal": column
                  generation, with a lower bound; "auto": the best of these; "nnlshp": the paper's
                  non-negative least squares
    time_limit    seconds for "auto" and "optimal", > 0; the others end by themselves. What is found
                  when it strikes depends on the speed of the machine; the plan's notes say so
    Returns a plan that places every sequence exactly once; `plan.gap` says how many packs it may be
    above the best possible. Raises ValueError on bad input.

    >>> plan = solve([0, 0, 4, 0, 2], max_length=6, max_per_pack=2)
    >>> plan.num_packs, plan.lower_bound, plan.gap, plan.packing_factor
    (3, 3, 0, 2.0)
    """
    check_solver(max_per_pack, algorithm, time_limit)
    if max_length is not None:
        max_length = check_max_length(max_length)
    checked = check_counts(counts, max_length)
    options = {"time_limit": float(time_limit)} if algorithm in TIMED else {}
    plan = SOLVERS[algorithm](
        checked,
        max_length=checked.size - 1,
        max_per_pack=None if max_per_pack is None else int(max_per_pack),
        **options,
    )
    plan.check(checked)
    return plan


def check_solver(max_per_pack: Any, algorithm: Any, time_limit: Any) -> None:
    """Raises ValueError naming the argument of `solve` that is none."""
    if not isinstance(algorithm, str) or algorithm not in SOLVERS:
        expected = ", ".join(SOLVERS)
        raise ValueError(f"algorithm: expected one of {expected}, found {shown(algorithm)}")
    if max_per_pack is not None:
        check_at_least_one("max_per_pack", max_per_pack)
    number: bool = isinstance(time_limit, numbers.Real) and not isinstance(time_limit, bool)
    seconds: Any = time_limit
    if not number or not 0 < seconds <= float("inf"):
        raise ValueError(f"time_limit: expected seconds > 0, found {shown(time_limit)}")
    if float("inf") > seconds > MOST_SECONDS:
        raise ValueError(
            f"time_limit: expected at most {MOST_SECONDS:g}, found {shown(time_limit)}"
        )
