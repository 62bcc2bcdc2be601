"""From strategies that nearly cover a histogram to packs that hold the sequences that exist.

Shape letters: S strategies, T slots of all strategies together, L tokens per pack.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np
import numpy.typing as npt

from packing.histogram import Counts

Rows = List[Tuple[Tuple[int, ...], int]]  # the lengths in a pack, and how many packs are like it
Runs = List[Tuple[int, int]]  # a length (0 = none), and how many slots one after another hold it


def fit_to_histogram(
    slots: npt.NDArray[np.integer],
    offsets: npt.NDArray[np.int64],
    repeats: npt.NDArray[np.int64],
    counts: Counts,
) -> Tuple[Rows, Counts]:
    """Gives the slots of strategies to sequences: each takes one of its own length, else the tightest.

    slots (T,) tokens and offsets (S+1,) as in a plan; repeats (S,) packs, >= 0; counts (L+1,)
    Longest sequences choose first, so as many as possible get a slot, and those left are short.
    Returns packs that hold only real sequences, and the counts (L+1,) left without a slot.
    Cost: one step for each slot of a strategy, however often it is repeated.
    """
    repeat_of_slot = np.repeat(repeats, np.diff(offsets))
    used = np.flatnonzero(repeat_of_slot)
    used = used[np.argsort(-slots[used].astype(np.int64), kind="stable")]
    waiting = [(int(slots[t]), int(t), int(repeat_of_slot[t])) for t in used][::-1]
    held: Dict[int, Runs] = {int(t): [] for t in used}
    left = counts.copy()
    free: List[
        List[int]
    ] = []  # slots longer than any sequence that is still to come, tightest last
    for length in np.flatnonzero(counts)[::-1].tolist():
        demand = int(counts[length])
        while waiting and waiting[-1][0] >= length:
            _, slot, number = waiting.pop()
            free.append([slot, number])
        while demand and free:
            slot, number = free[-1]
            taken = min(number, demand)
            held[slot].append((length, taken))
            demand -= taken
            free[-1][1] -= taken
            if not free[-1][1]:
                free.pop()
        left[length] = demand
    rows: Rows = []
    for s in np.flatnonzero(repeats).tolist():
        runs = [held[t] for t in range(int(offsets[s]), int(offsets[s + 1]))]
        rows += _split(runs, int(repeats[s]))
    return rows, left


def _split(runs: List[Runs], repeats: int) -> Rows:
    """Packs of one strategy: `runs` says for each slot which lengths it holds in how many packs."""
    if all(len(run) == 1 and run[0][1] == repeats for run in runs):
        return [(tuple(run[0][0] for run in runs), repeats)]
    ends = [np.cumsum([number for _, number in run], dtype=np.int64) for run in runs]
    borders = np.unique(np.concatenate([*ends, [repeats]])).tolist()
    rows: Rows = []
    start = 0
    for end in borders:
        pack = []
        for run, run_ends in zip(runs, ends):
            place = int(np.searchsorted(run_ends, start, side="right"))
            if place < len(run):
                pack.append(run[place][0])
        if pack:
            rows.append((tuple(pack), end - start))
        start = end
    return rows
