"""A plan applied to real sequences: which sequence goes into which pack.

Shape letters: N packs, n sequences, S strategies, D sequences per pack, L tokens per pack.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from packing.files import whole_file
from packing.histogram import Counts, count_lengths
from packing.lengths import Lengths, check_lengths, shown

if TYPE_CHECKING:
    from packing.plan import PackingPlan

BLOCK = 1 << 16  # lengths sorted, or packs dealt, at once: they stay in the processor's cache

PAGED = 1 << 22  # bytes, from which on numpy would take huge pages

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Assignment:
    """Packs as rows of a CSR table: pack p holds sequences ids[offsets[p]:offsets[p + 1]].

    offsets  (N+1,) int64
    ids      (n,) int64, each of 0..n-1 exactly once, longest first within a pack. Where sequences were
             dropped theirs are missing; where they were split, an id recurs, once for each piece
    plan     the plan that was applied
    report   counts, lower bound and gap, and what was done to sequences over L; plain JSON values
    dropped  ids of the sequences left out for being over L
    starts   (n,) int64, only where the policy is "split": first token of the piece within its sequence
    lengths  (n,) integers, only where the policy is "split": tokens of the piece
    """

    offsets: Ids
    ids: Ids
    plan: PackingPlan
    report: Dict[str, Any]
    dropped: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    starts: Optional[Ids] = None
    lengths: Optional[Lengths] = None

    def __repr__(self) -> str:
        return f"Assignment({self.ids.size} sequences in {self.num_packs} packs, {self.plan!r})"

    @property
    def num_packs(self) -> int:
        return self.offsets.size - 1

    def pack(self, index: int) -> Ids:
        """Ids of the sequences in one pack. Raises IndexError where there is none of this number."""
        index = range(self.num_packs)[index]
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def save(self, path: Union[str, Path]) -> None:
        """Writes a .npz file for `numpy.load`: the arrays, and `report` as JSON text.

        Raises ValueError where the name does not end in .npz.
        """
        if Path(path).suffix != ".npz":
            raise ValueError(f"{path}: expected a file name that ends in .npz")
        arrays: Dict[str, Any] = {
            "offsets": self.offsets,
            "ids": self.ids,
            "dropped": self.dropped,
            "report": np.array(json.dumps(self.report)),
        }
        if self.starts is not None and self.lengths is not None:
            arrays.update(starts=self.starts, lengths=self.lengths)
        with whole_file(Path(path)) as partial:
            with open(partial, "wb") as stream:
                np.savez(stream, **arrays)


def assign(plan: PackingPlan, lengths: Any, seed: int = 0) -> Assignment:
    """Deals sequences to the slots of a plan: at random among those of one length, packs shuffled.

    lengths (n,) tokens in 1..L; they must have exactly the plan's histogram
    The same seed gives the same assignment. Raises ValueError naming the first length whose count
    differs. Cost: a few passes over n integers; at most 24 bytes for each sequence.
    """
    check_seed(seed)
    values = check_lengths(lengths, plan.max_length)
    return assign_counted(plan, values, count_lengths(values, plan.max_length), seed)


def assign_counted(plan: PackingPlan, values: Lengths, counts: Counts, seed: int) -> Assignment:
    """What `assign` does, with checked lengths (n,) and their counts (L+1,)."""
    planned = plan.histogram()
    wrong = np.flatnonzero(planned != counts)
    if wrong.size:
        raise ValueError(
            f"lengths: the plan has {planned[wrong[0]]} sequences of {wrong[0]} tokens, "
            f"found {counts[wrong[0]]}"
        )
    rng = np.random.default_rng(seed)
    by_length = _sort_by_length(values, counts)
    ends = np.cumsum(counts)
    # A pack holds at most one sequence over L/2. Where all of that length have the same company, they
    # may stay in order: the others are at random, and so are the places of the packs.
    shared = np.bincount(plan.slots, minlength=counts.size) > 1
    shared[: plan.max_length // 2 + 1] = True
    for length in np.flatnonzero(shared & (counts > 1)).tolist():
        rng.shuffle(by_length[ends[length] - counts[length] : ends[length]])
    offsets, ids = _deal(plan, by_length, ends - counts, rng)
    return Assignment(offsets, ids, plan, {**plan.summary(), "seed": int(seed)})


def _new_array(size: int, kind: Any) -> npt.NDArray[Any]:
    """Like numpy.empty, in ordinary memory pages where it is large.

    numpy asks for huge pages, which a virtual machine may take milliseconds each to provide.
    """
    number = size * np.dtype(kind).itemsize
    if number < PAGED or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(size, dtype=kind)
    return np.frombuffer(mmap.mmap(-1, number, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=kind)


def check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed: expected a whole number >= 0, found {shown(seed)}")


def _deal(
    plan: PackingPlan, by_length: npt.NDArray[np.integer], first: Ids, rng: np.random.Generator
) -> Tuple[Ids, Ids]:
    """Offsets (N+1,) and ids (n,) of shuffled packs; sequences of length l begin at first[l].

    The packs are numbered strategy by strategy. Block b takes every B-th of them from b on, an even
    sample of all, and shuffles it: as random as one shuffle of all to whoever reads a few blocks, and
    quicker, since a block stays in the cache.
    """
    order = np.argsort(-plan.sizes, kind="stable")  # strategies with more slots come first
    sizes, repeats = plan.sizes[order], plan.repeats[order]
    ends = np.cumsum(repeats)
    columns = _columns(plan, order, ends - repeats, first)
    offsets = _new_array(plan.num_packs + 1, np.int64)
    offsets[0] = 0
    ids = _new_array(by_length.size, np.int64)
    blocks = -(-plan.num_packs // BLOCK)
    begin = 0
    for block in rng.permutation(blocks).tolist():
        taken = np.arange(block, plan.num_packs, blocks)
        numbers = np.diff(np.searchsorted(taken, ends), prepend=0)  # packs of each strategy
        place = rng.permutation(taken.size)
        block_offsets = offsets[begin : begin + taken.size + 1]
        block_offsets[1:][place] = np.repeat(sizes, numbers)
        np.cumsum(block_offsets, out=block_offsets)
        starts = block_offsets[place]
        for slot, column in enumerate(columns):
            sources = np.repeat(column, numbers[: column.size])
            sources += taken[: sources.size]
            ids[starts[: sources.size] + slot] = by_length[sources]
        begin += taken.size
    return offsets, ids


def _columns(plan: PackingPlan, order: Ids, first_pack: Ids, first: Ids) -> List[Ids]:
    """For each slot number: where in the order of lengths pack p of a strategy finds its id, less p.

    order (S,) strategies, most slots first; first_pack (S,) number of the first pack of each;
    first (L+1,) where sequences of each length begin. One array for each of D slots, over the strategies
    that have it. The sequences of one length go to the strategies that hold it one after another.
    """
    sizes = plan.sizes[order]
    slot = np.arange(plan.slots.size) - np.repeat(plan.offsets[:-1], plan.sizes)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    strategy = np.repeat(rank, plan.sizes)
    by_slot = np.lexsort(
        (strategy, slot)
    )  # slot 0 of all strategies, slot 1 of those that have it...
    lengths, strategy = plan.slots[by_slot], strategy[by_slot]
    numbers = plan.repeats[order][strategy]
    by_length = np.argsort(lengths, kind="stable")
    before = np.cumsum(numbers[by_length]) - numbers[by_length]
    new = np.flatnonzero(np.diff(lengths[by_length], prepend=-1))
    before -= np.repeat(before[new], np.diff(np.append(new, lengths.size)))
    source = np.empty_like(before)
    source[by_length] = first[lengths[by_length]] + before
    source -= first_pack[strategy]
    having = np.searchsorted(-sizes, -np.arange(plan.depth))
    return np.split(source, np.cumsum(having)[:-1])


def _sort_by_length(values: Lengths, counts: Ids) -> npt.NDArray[np.integer]:
    """Ids in order of length, those of one length ascending: a stable sort (n,).

    Counting sort by blocks: numpy sorts 16-bit integers by radix, and a block fits the cache.
    """
    present = np.flatnonzero(counts)
    if present.size > 2**16:
        return np.argsort(values, kind="stable")
    rank = np.zeros(counts.size, dtype=np.uint16)
    rank[present] = np.arange(present.size)
    step = max(BLOCK, 16 * present.size)
    used = np.cumsum(counts[present]) - counts[present]  # places taken of each length
    ids = _new_array(values.size, np.int32 if values.size < 2**31 else np.int64)
    for start in range(0, values.size, step):
        keys = rank[values[start : start + step]]
        number = np.bincount(keys, minlength=present.size)
        order = np.argsort(keys, kind="stable")
        places = np.arange(order.size)
        places += np.repeat(used - (np.cumsum(number) - number), number)
        order += start
        ids[places] = order
        used += number
    return ids
