"""NNLSHP: the paper's non-negative least squares over strategies that fill a pack exactly [1].

Shape letters: L tokens, D sequences per pack, S strategies.
[1] Krell et al., arXiv:2107.02027, section 3.3
[2] Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23
[3] scipy issue 25389: `nnls` returns a point that is not the optimum, and a residual that is not its own
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Tuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import get_blas_funcs
from scipy.optimize import lsq_linear, nnls

from packing.greedy import pack_lpfhp
from packing.histogram import Counts
from packing.plan import PackingPlan, plan_from_rows
from packing.rounding import Rows, fit_to_histogram

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.integer]

SHORT_LENGTH = 8  # tokens; leaving such sequences over costs little, see SHORT_WEIGHT
SHORT_WEIGHT = 0.09  # weight of their residual, the paper's
GRADIENT_TOLERANCE = 1e-12  # counts scaled to at most 1; rounding errors are about 1e-15
NNLS_TOLERANCE = 1e-10  # the same where scipy solves, which has tolerances of its own
MAX_STRATEGIES = 2_000_000  # rows of D int32; more would not fit a laptop
MAX_ENTERING = 50  # strategies that may enter, for each length; published histograms take 2
POOL = 1000  # strategies with the steepest gradients, out of which several enter
POOL_SHARE = 0.7  # of the steepest gradient; below this, all are priced again
INDEPENDENT = 1e-10  # squared length of a column outside the span of those in use
_add_outer: Any = get_blas_funcs("ger", dtype=np.float64)  # in place, where overwrite_a


def pack_nnlshp(counts: Counts, *, max_length: int, max_per_pack: Optional[int]) -> PackingPlan:
    """Packs by non-negative least squares, then rounds and repairs to an exact cover.

    counts (L+1,) int64, checked; max_per_pack D sequences, needed: S grows as L^(D-1) / (D! (D-1)!).
    Repair: slots that are too many take shorter sequences or none; the sequences left over are packed
    by `lpfhp`, together with those of the packs that are not full where that needs fewer packs.
    Where the least squares fail, `lpfhp` is used and the plan's notes say so.
    Raises ValueError when there are more than MAX_STRATEGIES strategies. Cost: see `solve_mix`.
    """
    if max_per_pack is None:
        raise ValueError("max_per_pack: nnlshp needs a limit; without one, use lpfhp or optimal")
    strategies = full_strategies(max_length, min(max_per_pack, max_length))
    try:
        mix = solve_mix(strategies, counts)
    except (RuntimeError, np.linalg.LinAlgError) as error:
        plan = pack_lpfhp(counts, max_length=max_length, max_per_pack=max_per_pack)
        note = f"nnls did not converge ({error}); this is the lpfhp plan"
        return replace(plan, notes=(*plan.notes, note))
    packs = np.rint(mix).astype(np.int64)
    order = np.argsort(-packs, kind="stable")[: np.count_nonzero(packs)]  # the first stay full
    used = strategies[order]
    offsets = np.concatenate([[0], np.cumsum(np.count_nonzero(used, axis=1))])
    fitted, _ = fit_to_histogram(used[used > 0], offsets, packs[order], counts)
    full = [(lengths, number) for lengths, number in fitted if sum(lengths) == max_length]
    covers = [_cover(rows, counts, max_length, max_per_pack) for rows in (fitted, full)]
    return plan_from_rows(
        min(covers, key=lambda rows: sum(number for _, number in rows)),
        max_length=max_length,
        max_per_pack=max_per_pack,
        algorithm="nnlshp",
    )


def _cover(rows: Rows, counts: Counts, max_length: int, max_per_pack: int) -> Rows:
    """These packs, and the LPFHP plan of the sequences that they do not hold."""
    left = counts.copy()
    for lengths, number in rows:
        for length in lengths:
            left[length] -= int(number)
    if not left.any():
        return rows
    return rows + pack_lpfhp(left, max_length=max_length, max_per_pack=max_per_pack).rows()


def count_strategies(max_length: int, depth: int, limit: Optional[int] = None) -> int:
    """How many multisets of at most `depth` lengths add up to exactly L: partitions of L.

    limit: where there are more, counting stops early and some number above it is returned.
    """
    ways = np.ones(max_length + 1, dtype=object if limit is None else np.int64)
    for part in range(2, depth + 1):  # partitions with parts <= D equal those with <= D parts
        if limit is not None and ways[-1] > limit:
            break
        rows = -(-ways.size // part)
        padded = np.zeros(rows * part, dtype=ways.dtype)
        padded[: ways.size] = ways
        ways = padded.reshape(rows, part).cumsum(axis=0).ravel()[: ways.size]
    return int(ways[-1])


def full_strategies(max_length: int, depth: int) -> npt.NDArray[np.int32]:
    """All strategies that fill L exactly with at most D sequences: (S, D) int32, longest first.

    Raises ValueError when S is over MAX_STRATEGIES.
    """
    if count_strategies(max_length, depth, MAX_STRATEGIES) > MAX_STRATEGIES:
        raise ValueError(
            f"max_per_pack: nnlshp has more than {MAX_STRATEGIES} strategies at {max_length} tokens "
            f"and depth {depth}; use lpfhp or optimal"
        )
    blocks = [np.full((1, 1), max_length, dtype=np.int32)]
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


def solve_mix(strategies: npt.NDArray[np.int32], counts: Counts) -> Floats:
    """Weighted non-negative least squares: x >= 0 minimizing |W (A x - counts)|, A[l, s] copies of l in s.

    strategies (S, D) int32, all different, independent of each other where D <= 2.
    The algorithm of `scipy.optimize.nnls` [2], made for columns with at most D entries. The result is
    checked against the conditions of Karush, Kuhn and Tucker on all S columns; scipy solves what fails.
    Lengths with less than some 1e-12 of the sequences of the most frequent one may be left out.
    Returns (S,) float64, packs. Raises RuntimeError when scipy does not converge.
    Cost: about 2 L strategies enter, each L^2 operations; all are priced some 100 times, S D operations;
    memory 8 L^2 bytes.
    """
    weights, target = _weighted(counts)
    scale = float(counts.max())
    parts = np.ascontiguousarray(strategies.T)
    if len(parts) <= 2:  # no two strategies share a length: each has an optimum of its own
        squares = _sums(parts, weights**2)
        squares[parts[0] == parts[-1]] *= len(parts)  # one length twice: (2 w)^2, not 2 w^2
        return scale * _sums(parts, weights * target) / squares
    mix = _lawson_hanson(parts, weights, target)
    if not optimality_error(strategies, counts, scale * mix) <= GRADIENT_TOLERANCE:
        mix = _nnls_of_some(parts, weights, target)
        if not optimality_error(strategies, counts, scale * mix) <= NNLS_TOLERANCE:
            raise RuntimeError("scipy's solution is not the optimum")
    return scale * mix


def optimality_error(strategies: npt.NDArray[np.int32], counts: Counts, mix: Floats) -> float:
    """How far a mix (S,) is from the conditions of Karush, Kuhn and Tucker; about 1e-15 at the optimum.

    The steepest gradient that would lower the residual, be it of a strategy that could be used more or
    of one in use that could be used less; counts scaled to at most 1. Infinite where mix < 0.
    """
    weights, target = _weighted(counts)
    parts = strategies.T
    scaled = mix / float(counts.max())
    gradient = _sums(parts, weights * (target - weights * _slots(parts, scaled, counts.size)))
    gradient[mix > 0] = np.abs(gradient[mix > 0])
    return float(gradient.max()) if mix.min() >= 0 else np.inf


def _weighted(counts: Counts) -> Tuple[Floats, Floats]:
    """Weight of each length (L+1,), 0 for the padding; counts scaled to at most 1, times weight."""
    weights = np.ones(counts.size)
    weights[:SHORT_LENGTH] = SHORT_WEIGHT
    weights[0] = 0.0
    return weights, weights * counts / float(counts.max())


def _sums(parts: Indices, values: Floats) -> Floats:
    """Of strategies as columns (D, S): the sum of the values (L+1,) of their lengths, (S,)."""
    total = values[parts[0]]
    for part in parts[1:]:
        total += values[part]
    return total


def _slots(parts: Indices, use: Floats, size: int) -> Floats:
    """How many slots of each length the strategies (D, S) have when used so often: (L+1,)."""
    total = np.zeros(size)
    for part in parts:
        total += np.bincount(part, weights=use, minlength=size)
    return total


def _lawson_hanson(parts: Indices, weights: Floats, target: Floats) -> Floats:
    """Use (S,) of strategies (D, S), by the active-set algorithm of [2]; not checked."""
    depth, number = parts.shape
    active = _ActiveSet(weights, target, depth, min(number, weights.size - 1))
    entered = 0
    while True:
        active.polish()
        gradient = _sums(parts, weights * active.residual())
        pool = np.argpartition(-gradient, min(POOL, number) - 1)[:POOL]
        pool_parts, pool_gradient = parts[:, pool].astype(np.intp), gradient[pool]
        best = int(pool_gradient.argmax())
        if not pool_gradient[best] > GRADIENT_TOLERANCE:
            return active.mix(number)
        lowest = max(GRADIENT_TOLERANCE, POOL_SHARE * pool_gradient[best])
        while pool_gradient[best] > lowest:
            entered += 1
            if entered > MAX_ENTERING * weights.size or not active.enter(
                pool_parts[:, best], int(pool[best]), float(pool_gradient[best])
            ):
                return active.mix(number)
            pool_gradient = _sums(pool_parts, weights * active.residual())
            best = int(pool_gradient.argmax())


class _ActiveSet:
    """The strategies in use and the inverse of their normal matrix; slots that are free are all zeros."""

    def __init__(self, weights: Floats, target: Floats, depth: int, size: int):
        self.weights = weights
        self.target = target
        self.parts = np.zeros((depth, size), dtype=np.intp)  # lengths; 0 has weight 0
        self.numbers = np.full(size, -1)  # which strategies they are; -1 = slot is free
        self.use = np.zeros(size)
        self.inverse = np.zeros((size, size), order="F")

    def mix(self, number: int) -> Floats:
        taken = self.numbers >= 0
        mix = np.zeros(number)
        mix[self.numbers[taken]] = self.use[taken]
        return mix

    def residual(self) -> Floats:
        return self.target - self.weights * _slots(self.parts, self.use, self.weights.size)

    def polish(self) -> None:
        """One step of iterative refinement: takes out what rounding errors have added up to."""
        step = self.inverse @ _sums(self.parts, self.weights * self.residual())
        self.use = np.maximum(self.use + step, 0.0)

    def enter(self, strategy: Indices, number: int, gradient: float) -> bool:
        """Uses a strategy more and more until its gradient is 0, the gradients of the others staying 0.

        Those whose use reaches 0 on the way leave. False: it depends on the others, rounding errors won.
        """
        column = self.weights * np.bincount(strategy, minlength=self.weights.size)
        products = _sums(self.parts, self.weights * column)
        trade = self.inverse @ products  # how much less the others are used for one more of it
        outside = float(column @ column - products @ trade)
        use = 0.0
        while True:
            step = gradient / max(outside, INDEPENDENT)
            out = np.flatnonzero((trade > 0) & (self.use <= step * trade))
            if not out.size:
                break
            steps = self.use[out] / trade[out]
            step = float(steps.min())
            self.use -= step * trade
            use += step
            gradient -= step * outside
            for slot in out[steps <= step]:
                row = self.inverse[slot].copy()
                share = trade[slot] / row[slot]
                outside += share * trade[slot]
                trade -= share * row
                trade[slot] = 0.0
                self.leave(slot, row)
        free = int(self.numbers.argmin())
        if outside <= INDEPENDENT or self.numbers[free] >= 0:
            return False
        self.use -= step * trade
        self.use[free] = use + step
        self.parts[:, free] = strategy
        self.numbers[free] = number
        trade[free] = -1.0
        self.inverse = _add_outer(1.0 / outside, trade, trade, a=self.inverse, overwrite_a=True)
        return True

    def leave(self, slot: int, row: Floats) -> None:
        self.inverse = _add_outer(-1.0 / row[slot], row, row, a=self.inverse, overwrite_a=True)
        self.inverse[slot] = 0.0
        self.inverse[:, slot] = 0.0
        self.parts[:, slot] = 0
        self.numbers[slot] = -1
        self.use[slot] = 0.0


def _nnls_of_some(parts: Indices, weights: Floats, target: Floats) -> Floats:
    """Use (S,) of strategies (D, S), by scipy on a set of columns that grows until no other would help.

    For each length, the strategy with it that has the steepest gradient joins. Slow, and not checked.
    Raises RuntimeError when `nnls` does not converge.
    """
    mix = np.zeros(parts.shape[1])
    residual = target
    for _ in range(1000):
        gradient = _sums(parts, weights * residual)
        gradient[mix > 0] = 0.0
        best = np.zeros(weights.size)
        for part in parts:
            np.maximum.at(best, part, gradient)
        steepest = (gradient == best[parts]).any(axis=0) & (gradient > NNLS_TOLERANCE)
        if not steepest.any():
            return mix
        chosen = np.flatnonzero(steepest | (mix > 0))
        matrix = np.zeros((weights.size, chosen.size))
        np.add.at(matrix, (parts[:, chosen], np.arange(chosen.size)), 1.0)
        matrix *= weights[:, None]
        solution = _dense_nnls(matrix, target)
        mix[chosen] = solution
        residual = target - matrix @ solution
    raise RuntimeError("columns still entered after 1000 rounds")


def _dense_nnls(matrix: Floats, target: Floats) -> Floats:
    """Least squares x >= 0 by `nnls`, which scipy 1.15 to 1.17 gets wrong at times [3], or then by bvls."""
    solution, _ = nnls(matrix, target, maxiter=50 * matrix.shape[1])
    gradient = matrix.T @ (target - matrix @ solution)
    gradient[solution > 0] = np.abs(gradient[solution > 0])
    if gradient.max() <= NNLS_TOLERANCE:
        return solution
    found = lsq_linear(matrix, target, (0, np.inf), method="bvls", tol=1e-14)
    return np.maximum(found.x, 0.0)
