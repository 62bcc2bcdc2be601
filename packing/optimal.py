"""Near-optimal packing with a proof: the cutting-stock linear programme by column generation [1, 2].

The programme chooses how often each strategy is used, so that every sequence has a slot at least as
long as itself and the packs are fewest. Strategies (columns) enter when a knapsack at the current dual
prices finds one that is worth more than a pack. Any prices give a lower bound [3], computed here in
whole numbers, so it holds whatever the rounding errors of the programme.

Shape letters: M distinct lengths, S strategies, L tokens per pack, D sequences per pack.
[1] Gilmore and Gomory, Operations Research 9 (1961) and 11 (1963)
[2] Krell et al., arXiv:2107.02027, the packing problem of section 3
[3] Farley, Operations Research 38 (1990)
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional

import numpy as np
import numpy.typing as npt

from packing.greedy import pack_greedy, pack_lpfhp
from packing.histogram import Counts, packs_bound
from packing.knapsack import Knapsack, OutOfTime, Packs
from packing.plan import PackingPlan, plan_from_rows
from packing.programme import Programme
from packing.rounding import Rows, fit_to_histogram

TIME_LIMIT = 30.0  # seconds
PRICE_UNIT = 1 << 40  # a pack's price in the whole-number prices of the knapsack, at most
LARGEST_PRICE = 1.5  # packs; the programme's are 1 at most, give or take its tolerance
SEEDS = 2  # perturbed price lists that give the first strategies
SEED_NOISE = 1e-2  # of a price
SMOOTHING = 0.5  # share of the smooth prices in those that are asked for new strategies
ROUNDED_SHARE = 0.5  # of the packs that are left, in each step of rounding
SMALLEST_GAP = 2.5e-7  # of the packs: a smaller gap is not worth another programme,
MOST_GAP = 2  # packs, unless it is larger than this
MOST_COLUMNS = 500  # that are worth trying in whole numbers
LARGEST_DEMAND = 1e6  # of one length in the programme; larger ones are scaled to this


def pack_optimal(
    counts: Counts,
    *,
    max_length: int,
    max_per_pack: Optional[int],
    time_limit: float = TIME_LIMIT,
) -> PackingPlan:
    """Packs by column generation; the plan's `lower_bound` says how near it is to the best possible.

    counts      (L+1,) int64, checked; max_per_pack D sequences, None = no limit
    time_limit  seconds; when they are over, the best plan and bound so far are returned, with a note
    Never more packs than SPFHP and LPFHP. Where the time suffices the bound is that of the linear
    programme, and the plan is rarely more than a few packs above it.
    Cost: for each round a linear programme with M rows, and a knapsack of D x M x L additions.
    """
    deadline = time.monotonic() + time_limit
    known = pack_greedy(counts, max_length=max_length, max_per_pack=max_per_pack)
    return replace(improve(known, counts, deadline), algorithm="optimal")


def improve(known: PackingPlan, counts: Counts, deadline: float) -> PackingPlan:
    """A plan with fewer packs than `known` and the bound that shows it, or `known` with its bound.

    counts (L+1,) int64, those of `known`; deadline: value of time.monotonic() at which to stop.
    """
    search = _Search(counts, known.max_length, known.max_per_pack, deadline)
    notes = known.notes
    if known.num_packs > search.bound:
        try:
            search.seed(known)
            search.solve(known.num_packs)
        except OutOfTime as reason:
            notes += (f"optimal: stopped early ({reason}), the lower bound may be higher",)
    best = known
    if search.mix is not None and known.num_packs > search.bound:
        best = plan_from_rows(
            search.whole_packs(known.rows()),
            max_length=known.max_length,
            max_per_pack=known.max_per_pack,
            algorithm="optimal",
        )
    if best.num_packs == known.num_packs:
        best = known
    return replace(best, lower_bound=search.bound, notes=notes)


class _Search:
    """What is known of one histogram so far: strategies, their use, and the best lower bound."""

    def __init__(
        self, counts: Counts, max_length: int, max_per_pack: Optional[int], deadline: float
    ):
        self.counts = counts
        self.max_length = max_length
        self.max_per_pack = max_per_pack
        self.deadline = deadline
        self.lengths = np.flatnonzero(counts)
        self.demand = [int(n) for n in counts[self.lengths]]
        depth = max_length if max_per_pack is None else max_per_pack
        self.bound = packs_bound(counts, max_length, max_per_pack)
        self.knapsack = Knapsack(self.lengths, max_length, depth, deadline)
        self.scale = max(1.0, max(self.demand) / LARGEST_DEMAND)
        self.programme = Programme(counts[self.lengths] / self.scale, deadline)
        self.unit = min(PRICE_UNIT, 2**61 // max_length)  # so that no pack's value passes 2^62
        self.mix: Optional[npt.NDArray[np.float64]] = None  # (S,) packs

    def seed(self, known: PackingPlan) -> None:
        """First strategies: those of a plan, and the best with each length at nearly even prices."""
        place = np.zeros(self.max_length + 1, dtype=np.int64)
        place[self.lengths] = np.arange(self.lengths.size)
        self.programme.add((known.offsets, place[known.slots]))
        rng = np.random.default_rng(0)
        even = self.lengths / self.max_length
        for _ in range(SEEDS):
            self._price(even * (1.0 + SEED_NOISE * rng.random(even.size)))
            self.programme.add(self.knapsack.packs_with(np.arange(even.size)))

    def _whole(self, prices: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        return np.floor(np.minimum(prices, LARGEST_PRICE) * self.unit).astype(np.int64)

    def _price(self, prices: npt.NDArray[np.float64]) -> None:
        """Solves the knapsack at these prices of the lengths and raises the lower bound to Farley's."""
        whole = self._whole(prices)
        values = self.knapsack.solve(whole)
        worth = sum(price * number for price, number in zip(whole.tolist(), self.demand))
        self.bound = max(self.bound, -(-worth // max(1, int(values.max()))))

    def solve(self, known: int) -> None:
        """Solves the programme; stops when the bound reaches its value or `known` packs."""
        even = self.lengths / self.max_length
        while True:
            mix, prices, packs = self.programme.run()
            self.mix = mix * self.scale
            fewest = np.ceil(packs * self.scale * (1 - 1e-10) - 1e-6)
            for share in (SMOOTHING, 0.0):
                self._price(share * even + (1 - share) * prices)
                if self.bound >= min(fewest, known):
                    return
                found = self.knapsack.packs_with(np.arange(even.size))
                if self.programme.add(_worth_more(found, self._whole(prices), self.unit)):
                    break
            else:
                return  # no strategy outside would help: this is the optimum

    def whole_packs(self, known: Rows) -> Rows:
        """Rounds the use of strategies down, then solves what is left again, until all is placed.

        Where no strategy is used once in full, the fullest half of what is left is rounded up. Small
        problems that are not at the bound then are solved in whole numbers. Never worse than `known`.
        """
        assert self.mix is not None
        offsets, items = self.programme.strategies()
        slots = self.lengths[items]
        use = np.zeros(self.programme.num_columns, dtype=np.int64)
        use[: self.mix.size] = np.floor(self.mix + 1e-6)  # later columns came when time was over
        left, placed, best = self.counts, [], known
        while True:
            rows, left = fit_to_histogram(slots, offsets, use, left)
            placed = placed + rows
            rest = self._greedy(left).rows() if left.any() else []
            if _num_packs(placed + rest) < _num_packs(best):
                best = placed + rest
            if self._near_enough(best) or not left.any():
                break
            try:
                mix, _, packs = self.programme.run(left[self.lengths].astype(np.float64))
            except OutOfTime:
                return best
            use = np.floor(mix + 1e-6).astype(np.int64)
            missing = int(packs * ROUNDED_SHARE) - int(use.sum())
            top = np.argsort(use - mix, kind="stable")[: max(missing, 0 if use.any() else 1)]
            use[top[mix[top] > use[top]]] += 1
        if not self._near_enough(best) and self.programme.num_columns <= MOST_COLUMNS:
            try:
                use = self.programme.run_whole(self.counts[self.lengths])
                rows, left = fit_to_histogram(slots, offsets, use, self.counts)
                if not left.any() and _num_packs(rows) < _num_packs(best):
                    best = rows
            except OutOfTime:
                pass  # the rounded packs are as good as it gets
        return best

    def _near_enough(self, rows: Rows) -> bool:
        gap = _num_packs(rows) - self.bound
        return not gap or (
            self.programme.num_columns > MOST_COLUMNS
            and gap <= min(MOST_GAP, SMALLEST_GAP * self.bound)
        )

    def _greedy(self, counts: Counts) -> PackingPlan:
        return pack_lpfhp(counts, max_length=self.max_length, max_per_pack=self.max_per_pack)


def _worth_more(packs: Packs, prices: npt.NDArray[np.int64], unit: int) -> Packs:
    """Those of the packs (at least one) whose sequences cost more than a pack, `unit`."""
    offsets, items = packs
    worth = np.add.reduceat(prices[items], offsets[:-1]) > unit + unit // 10**9
    sizes = np.diff(offsets)
    return np.concatenate([[0], np.cumsum(sizes[worth])]), items[np.repeat(worth, sizes)]


def _num_packs(rows: Rows) -> int:
    return sum(number for _, number in rows)
