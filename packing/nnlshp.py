"""NNLSHP: the paper's non-negative least squares over strategies that fill a pack exactly [1].

Shape letters: L tokens, D sequences per pack, S strategies.
[1] Krell et al., arXiv:2107.02027, section 3.3
"""

from __future__ import annotations

from math import comb
from typing import Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from packing.greedy import pack_lpfhp
from packing.histogram import Counts
from packing.plan import PackingPlan, plan_from_rows

SHORT_LENGTH = 8  # tokens; leaving such sequences over costs little, see SHORT_WEIGHT
SHORT_WEIGHT = 0.09  # weight of their residual, the paper's
GRADIENT_TOLERANCE = 1e-7  # of the squared residual, counts scaled to at most 1
MAX_STRATEGIES = 2_000_000  # rows of D int32; more would not fit a laptop


def pack_nnlshp(counts: Counts, *, max_length: int, max_per_pack: Optional[int]) -> PackingPlan:
    """Packs by non-negative least squares, then rounds and repairs to an exact cover.

    counts (L+1,) int64, checked; max_per_pack D sequences, needed: S grows as L^(D-1) / (D! (D-1)!).
    The optimum is found on a growing set of columns; the gradient of all others is checked, so it
    is the same as on the full matrix. Where `nnls` fails, `lpfhp` is used and the plan's notes say so.
    Raises ValueError when there are more than MAX_STRATEGIES strategies.
    """
    if max_per_pack is None:
        raise ValueError("max_per_pack: nnlshp needs a limit; without one, use lpfhp")
    depth = min(max_per_pack, max_length)
    strategies = full_strategies(max_length, depth)
    try:
        mix = solve_mix(strategies, counts)
    except RuntimeError as error:
        plan = pack_lpfhp(counts, max_length=max_length, max_per_pack=max_per_pack)
        note = f"nnls did not converge ({error}); this is the lpfhp plan"
        return plan_from_rows(
            _rows(plan.strategies, plan.repeats),
            max_length=max_length,
            max_per_pack=max_per_pack,
            algorithm="lpfhp",
            notes=(note,),
        )
    used = np.rint(mix).astype(np.int64)
    rows, left = fit_to_histogram(strategies[used > 0], used[used > 0], counts)
    if left.any():
        rest = pack_lpfhp(left, max_length=max_length, max_per_pack=max_per_pack)
        rows += _rows(rest.strategies, rest.repeats)
    return plan_from_rows(
        rows, max_length=max_length, max_per_pack=max_per_pack, algorithm="nnlshp"
    )


def _rows(strategies: npt.NDArray[np.int32], repeats: npt.NDArray[np.int64]) -> List:
    return [(tuple(row), int(n)) for row, n in zip(strategies.tolist(), repeats)]


def count_strategies(max_length: int, depth: int) -> int:
    """How many multisets of at most `depth` lengths add up to exactly L: partitions of L."""
    ways = [0] * (max_length + 1)
    ways[0] = 1
    for part in range(1, depth + 1):  # partitions with parts <= D equal those with <= D parts
        for total in range(part, max_length + 1):
            ways[total] += ways[total - part]
    return ways[max_length]


def full_strategies(max_length: int, depth: int) -> npt.NDArray[np.int32]:
    """All strategies that fill L exactly with at most D sequences: (S, D) int32, longest first.

    Raises ValueError when S is over MAX_STRATEGIES.
    """
    if comb(max_length + depth - 1, depth - 1) > MAX_STRATEGIES:  # cheap upper bound first
        number = count_strategies(max_length, depth)
        if number > MAX_STRATEGIES:
            raise ValueError(
                f"max_per_pack: nnlshp has {number} strategies at {max_length} tokens and depth "
                f"{depth}, limit {MAX_STRATEGIES}; use lpfhp"
            )
    blocks = [np.full((1, 1), max_length, dtype=np.int32)]
    room = max_length
    heads = np.zeros((1, 0), dtype=np.int32)  # the parts chosen so far, smallest first
    for taken in range(1, depth):
        smallest = heads[:, -1] if taken > 1 else np.ones(1, dtype=np.int32)
        room = max_length - heads.sum(axis=1)
        # the next part p needs p >= the last one and room for at least one more part >= p
        choices = np.maximum(room // 2 - smallest + 1, 0)
        heads = np.repeat(heads, choices, axis=0)
        steps = np.arange(choices.sum()) - np.repeat(np.cumsum(choices) - choices, choices)
        parts = (np.repeat(smallest, choices) + steps).astype(np.int32)
        heads = np.concatenate([heads, parts[:, None]], axis=1)
        last = (max_length - heads.sum(axis=1)).astype(np.int32)
        blocks.append(np.concatenate([last[:, None], heads[:, ::-1]], axis=1))
    table = np.zeros((sum(len(block) for block in blocks), depth), dtype=np.int32)
    at = 0
    for block in blocks:
        table[at : at + len(block), : block.shape[1]] = block
        at += len(block)
    return table


def solve_mix(strategies: npt.NDArray[np.int32], counts: Counts) -> npt.NDArray[np.float64]:
    """Weighted non-negative least squares: x >= 0 minimizing |W (A x - counts)|, A[l, s] copies of l in s.

    For each length, the strategy with it that has the steepest gradient joins a small problem, until
    no column outside would lower the residual: the conditions of Karush, Kuhn and Tucker then hold
    for the full matrix.
    Returns (S,) float64, packs. Raises RuntimeError when `nnls` does not converge.
    """
    weights = np.ones(counts.size)
    weights[:SHORT_LENGTH] = SHORT_WEIGHT
    weights[0] = 0.0
    scale = float(counts.max())
    target = weights * counts / scale
    mix = np.zeros(len(strategies))
    chosen = np.zeros(0, dtype=np.int64)
    residual = target
    for _ in range(1000):
        gradient = (weights * residual)[strategies].sum(axis=1)
        gradient[chosen] = -np.inf
        best = np.full(counts.size, -np.inf)
        np.maximum.at(best, strategies, gradient[:, None])
        steepest = (gradient[:, None] == best[strategies]).any(axis=1)
        new = np.flatnonzero(steepest & (gradient > GRADIENT_TOLERANCE))
        if not new.size:
            return mix * scale
        kept = chosen[mix[chosen] > 0]
        chosen = np.concatenate([kept, new])
        matrix = np.zeros((counts.size, chosen.size))
        np.add.at(matrix, (strategies[chosen], np.arange(chosen.size)[:, None]), 1.0)
        matrix *= weights[:, None]
        solution, _ = nnls(matrix, target, maxiter=50 * chosen.size)
        mix = np.zeros(len(strategies))
        mix[chosen] = solution
        residual = target - matrix @ solution
    raise RuntimeError("columns still entered after 1000 rounds")


def fit_to_histogram(
    strategies: npt.NDArray[np.int32], repeats: npt.NDArray[np.int64], counts: Counts
) -> Tuple[List[Tuple[Tuple[int, ...], int]], Counts]:
    """Makes strategies hold the sequences that exist: slots that are too many take shorter ones or none.

    Longest first, a slot of length l that has no sequence of l takes the longest sequence below l
    that has no slot. Returns (lengths, repeats) of packs that hold only real sequences, and the
    counts (L+1,) left without a slot.
    """
    slots = np.zeros(counts.size, dtype=np.int64)
    np.add.at(slots, strategies, repeats[:, None])
    slots[0] = 0
    surplus = np.maximum(slots - counts, 0)
    left = np.maximum(counts - slots, 0)
    packs: Dict[Tuple[int, ...], int] = dict(_rows(strategies, repeats))
    for length in np.flatnonzero(surplus)[::-1].tolist():
        while surplus[length]:
            shorter = np.flatnonzero(left[:length])
            filler = int(shorter[-1]) if shorter.size else 0
            wanted = int(surplus[length])
            if filler:
                wanted = min(wanted, int(left[filler]))
                left[filler] -= wanted
            surplus[length] -= wanted
            _replace(packs, length, filler, wanted)
    return [(key, number) for key, number in packs.items() if any(key)], left


def _replace(packs: Dict[Tuple[int, ...], int], old: int, new: int, times: int) -> None:
    """In `times` slots of length `old`, puts `new` instead (0 = leaves the slot empty)."""
    for key in [key for key in packs if old in key]:
        if not times:
            return
        number = min(packs[key], times)
        changed = list(key)
        changed[changed.index(old)] = new
        changed_key = tuple(sorted(changed, reverse=True))
        packs[key] -= number
        if not packs[key]:
            del packs[key]
        packs[changed_key] = packs.get(changed_key, 0) + number
        times -= number
    if times:  # strategies that held `old` twice are in `packs` again, with one less
        _replace(packs, old, new, times)
