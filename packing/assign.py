"""A plan applied to real sequences: which sequence goes into which pack.

Shape letters: N packs, n sequences, S strategies, D sequences per pack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.histogram import check_lengths


@dataclass(frozen=True, eq=False)
class Assignment:
    """Packs as rows of a CSR table: pack p holds sequences ids[offsets[p]:offsets[p + 1]].

    offsets (N+1,) int64; ids (n,) int64, each of 0..n-1 exactly once, longest first within a pack.
    """

    offsets: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]

    @property
    def num_packs(self) -> int:
        return self.offsets.size - 1

    def pack(self, index: int) -> npt.NDArray[np.int64]:
        """Ids of the sequences in one pack."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]


def assign(
    strategies: npt.NDArray[np.int32],
    repeats: npt.NDArray[np.int64],
    lengths: Any,
    max_length: int,
    seed: int,
) -> Assignment:
    """Deals sequences to the slots of a plan: at random among those of one length, packs shuffled.

    strategies (S, D) tokens, 0-padded; repeats (S,) packs; lengths (n,) tokens, 1..max_length
    The lengths must have exactly the plan's histogram. The same seed gives the same assignment.
    Raises ValueError naming the first length whose count differs. Cost: a few sorts of n integers.
    """
    values = check_lengths(lengths, max_length)
    planned = np.zeros(max_length + 1, dtype=np.int64)
    np.add.at(planned, strategies, repeats[:, None])
    planned[0] = 0
    found = np.bincount(values, minlength=max_length + 1)
    wrong = np.flatnonzero(planned != found)
    if wrong.size:
        raise ValueError(
            f"lengths: the plan has {planned[wrong[0]]} sequences of {wrong[0]} tokens, "
            f"found {found[wrong[0]]}"
        )
    rng = np.random.default_rng(seed)
    key_type = np.uint16 if max_length < 2**16 else np.int64  # numpy sorts uint16 by radix
    order = rng.permutation(values.size)  # random among equal lengths
    by_length = order[np.argsort(values[order].astype(key_type), kind="stable")]

    strategy_of_pack = rng.permutation(np.repeat(np.arange(repeats.size), repeats))
    sizes = (strategies > 0).sum(axis=1)
    offsets = np.zeros(strategy_of_pack.size + 1, dtype=np.int64)
    np.cumsum(sizes[strategy_of_pack], out=offsets[1:])
    slots = strategies.astype(key_type)[strategy_of_pack]
    slot_lengths = slots[slots > 0]
    ids = np.empty(values.size, dtype=np.int64)
    ids[np.argsort(slot_lengths, kind="stable")] = by_length
    return Assignment(offsets, ids)
