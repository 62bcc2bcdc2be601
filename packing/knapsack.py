"""The most valuable packs: a knapsack over sequence lengths, exact in whole numbers.

Column generation (`packing.optimal`) asks it for packs that are worth more than they cost.
Shape letters: M distinct lengths, L tokens per pack, D sequences per pack, K packs found.
"""

from __future__ import annotations

import time
from typing import List, Tuple

import numpy as np
import numpy.typing as npt

BLOCK = 1 << 14  # table entries compared at once: they stay in the processor's nearest cache

Values = npt.NDArray[np.int64]
Packs = Tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # offsets (K+1,), items
MOST_ENTRIES = 1 << 27  # of all tables together: 1 GiB


class OutOfTime(Exception):
    """A search that ends before its end: what was found so far still holds. Says why."""


class Knapsack:
    """For given values of the lengths: the best pack of at most D sequences in every room up to L.

    lengths   (M,) int64 tokens, ascending, each in 1..L
    depth     D >= 1
    deadline  time.monotonic() after which `solve` raises OutOfTime
    """

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        max_length: int,
        depth: int,
        deadline: float = float("inf"),
    ):
        self.lengths = lengths
        self.max_length = max_length
        self.unlimited = depth >= max_length // int(lengths[0])
        self.depth = depth
        self.deadline = deadline
        self.values: Values = np.zeros(0, dtype=np.int64)
        self.tables: List[Values] = []

    def solve(self, values: Values) -> Values:
        """Value of the best pack that holds length i, for each i: (M,) int64.

        values (M,) int64 >= 0, whole so that the result is exact; L of them must add up to less than 2^62.
        Cost: D x M x L additions, or M x L where D does not bind.
        """
        self.values = values
        # a length worth no more than a shorter one is never needed as a companion
        below = np.maximum.accumulate(np.concatenate([[0], values[:-1]]))
        self.useful = np.flatnonzero(values > below)
        if self.unlimited:
            self.tables = [self._any_number()]
        else:
            self.tables = [np.zeros(self.max_length + 1, dtype=np.int64)]
            for _ in range(self.depth - 1):
                if (len(self.tables) + 1) * (self.max_length + 1) > MOST_ENTRIES:
                    raise OutOfTime("its tables would not fit memory")
                self.tables.append(self._one_more(self.tables[-1]))
                if np.array_equal(self.tables[-1], self.tables[-2]):
                    self.tables.pop()  # one more sequence helps nowhere, nor do two
                    break
        return values + self.tables[-1][self.max_length - self.lengths]

    def _check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise OutOfTime("the time limit")

    def _any_number(self) -> Values:
        """(L+1,): the best value in each room, any number of sequences."""
        lengths, values = self.lengths[self.useful], self.values[self.useful]
        best = np.zeros(self.max_length + 1, dtype=np.int64)
        fitting = np.searchsorted(lengths, np.arange(self.max_length + 1), side="right")
        for room in range(1, self.max_length + 1):
            n = fitting[room]
            if n:
                best[room] = max(best[room - 1], (values[:n] + best[room - lengths[:n]]).max())
            if room % 1024 == 0:
                self._check_time()
        return best

    def _one_more(self, table: Values) -> Values:
        """(L+1,): the best value in each room with at most one sequence more than in `table`."""
        lengths, values = self.lengths[self.useful], self.values[self.useful]
        size = self.max_length + 1
        padded = np.concatenate([np.full(self.max_length, -(1 << 62)), table])
        windows = np.lib.stride_tricks.sliding_window_view(padded, size)
        best = table.copy()
        step = max(1, BLOCK // size)
        for start in range(0, lengths.size, step):
            block = slice(start, start + step)
            candidates = windows[self.max_length - lengths[block]] + values[block, None]
            np.maximum(best, candidates.max(axis=0), out=best)
            self._check_time()
        return best

    def packs_with(self, items: npt.NDArray[np.int64]) -> Packs:
        """The best pack that holds each of `items` (indices into `lengths`), longest sequence first.

        `solve` must have been called. Returns offsets (K+1,) and indices into `lengths`.
        """
        rooms = self.max_length - self.lengths[items]
        rows = np.arange(items.size)
        found_rows, found_items = [rows], [items]
        level = len(self.tables) - 1
        while True:
            worth = self.tables[level][rooms] > 0
            rows, rooms = rows[worth], rooms[worth]
            if not rows.size:
                break
            if self.unlimited:
                chosen = self._companion(self.tables[0], self.tables[0], rooms)
            else:
                chosen = self._companion(self.tables[level], self.tables[level - 1], rooms)
                level -= 1
            kept = chosen >= 0
            found_rows.append(rows[kept])
            found_items.append(chosen[kept])
            rooms = rooms - np.where(kept, self.lengths[chosen], 0)
        row, item = np.concatenate(found_rows), np.concatenate(found_items)
        order = np.lexsort((-item, row))
        offsets = np.zeros(items.size + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=items.size), out=offsets[1:])
        return offsets, item[order]

    def _companion(
        self, table: Values, before: Values, rooms: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """For each room the item that leads from `before` to the best value, -1 where none is needed."""
        lengths, values = self.lengths[self.useful], self.values[self.useful]
        different, place = np.unique(rooms, return_inverse=True)
        chosen = np.empty(different.size, dtype=np.int64)
        step = max(1, BLOCK // lengths.size)
        for start in range(0, different.size, step):
            room = different[start : start + step, None]
            left = room - lengths
            value = np.where(left >= 0, values + before[np.maximum(left, 0)], -1)
            found = value == table[room]
            # the longest such item: its pack needs the fewest sequences
            last = lengths.size - 1 - found[:, ::-1].argmax(axis=1)
            chosen[start : start + step] = np.where(found.any(axis=1), self.useful[last], -1)
            self._check_time()
        return chosen[place]
