"""Dynamic masking: which tokens of a pack are hidden, drawn by a counter-based generator [1].

Every draw is a hash of (seed, epoch, example id, position, purpose). So it does not depend on workers,
on order, on the batch, or on which pack an example lies in. Pure numpy; one pass over the batch.
Shape letters: B packs, L tokens, D sequences per pack, P prediction slots, V vocabulary, M masked tokens.
[1] the mixing function is splitmix64's: Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packing.shards import IGNORE_LABEL, KIND_CONTINUATION, KIND_ORDINARY, Arrays, ShardInfo

KEEP_BELOW, RANDOM_BELOW = (
    0.1,
    0.2,
)  # share of masked tokens left as they are, then replaced at random
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def num_masked(
    lengths: npt.NDArray[Any], mask_fraction: float, special_tokens: int
) -> npt.NDArray[np.int64]:
    """k(length) = max(1, round(mask_fraction x (length - special tokens))); 0 for an empty slot.

    lengths        any shape, tokens, 0 = empty slot
    special_tokens 3 for pairs, 2 for single segments
    """
    text = lengths.astype(np.int64) - special_tokens
    masked = np.maximum(1, np.rint(mask_fraction * text).astype(np.int64))
    return np.where(text > 0, masked, 0)


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scrambles 64-bit integers so that neighbours become unrelated; arithmetic modulo 2^64."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _chain(*parts: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One hash of several integer arrays that broadcast against each other."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = mix(state ^ np.asarray(part).astype(np.int64).view(np.uint64))
    return state


def ordinary_tokens(token_kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Ids that a masked token may be replaced by: no special and no unused ones."""
    return np.flatnonzero((token_kinds == KIND_ORDINARY) | (token_kinds == KIND_CONTINUATION))


def mask_tokens(
    arrays: Arrays,
    derived: Arrays,
    *,
    epochs: npt.NDArray[np.int64],
    seed: int,
    mask_fraction: float,
    num_slots: int,
    token_kinds: npt.NDArray[np.uint8],
    info: ShardInfo,
) -> Arrays:
    """Draws a masking for a batch of packs: exactly k(length) tokens of every sequence.

    arrays     of a shard, `derived` what follows from them; epochs (B,) key the draw beside the seed
    num_slots  P, at least the largest sum of k(length) in a pack
    [CLS] and [SEP] are never masked, [UNK] only where ordinary tokens do not suffice. Of the masked, 80 %
    become [MASK], 10 % a random ordinary token, 10 % stay.
    Returns `input_ids` (B, L) int64 masked, `mlm_positions`, `mlm_labels` (B, P) int64 (0 and
    IGNORE_LABEL in slots not used), `num_masked` (B, D) int64.
    """
    tokens = arrays["input_ids"].astype(np.int64)
    num_packs, max_length = tokens.shape
    lengths = arrays["lengths"].astype(np.int64)
    wanted = num_masked(lengths, mask_fraction, 3 if info.nsp else 2)

    row, column, sequence = _candidates(arrays, derived)
    position = derived["position_ids"][row, column]
    example = arrays["example_ids"][row, sequence]
    place = _chain(np.full(1, seed), epochs[row], example, position)
    kinds = token_kinds[tokens[row, column]]
    last_resort = (kinds != KIND_ORDINARY) & (kinds != KIND_CONTINUATION)
    group = row * lengths.shape[1] + sequence
    order = np.lexsort((place, last_resort, group))
    # rank of a candidate within its sequence, in the drawn order
    sorted_group = group[order]
    starts = np.flatnonzero(np.r_[True, sorted_group[1:] != sorted_group[:-1]])
    sizes = np.diff(np.r_[starts, order.size])
    rank = np.arange(order.size) - np.repeat(starts, sizes)
    chosen = np.sort(order[rank < wanted.ravel()[sorted_group]])

    row, column, place = row[chosen], column[chosen], place[chosen]
    labels = tokens[row, column]
    per_row = np.bincount(row, minlength=num_packs)
    if per_row.max(initial=0) > num_slots:
        raise ValueError(f"a pack has {per_row.max()} masked tokens, expected at most {num_slots}")
    slot = np.arange(row.size) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    mlm_positions = np.zeros((num_packs, num_slots), dtype=np.int64)
    mlm_labels = np.full((num_packs, num_slots), IGNORE_LABEL, dtype=np.int64)
    mlm_positions[row, slot] = column
    mlm_labels[row, slot] = labels

    share = _chain(place, np.full(1, 1)).astype(np.float64) / 2.0**64
    ordinary = ordinary_tokens(token_kinds)
    drawn = _chain(place, np.full(1, 2)) >> np.uint64(32)
    random = ordinary[(drawn * np.uint64(ordinary.size)) >> np.uint64(32)]
    tokens[row, column] = np.where(
        share < KEEP_BELOW,
        labels,
        np.where(share < RANDOM_BELOW, random, info.special_token_ids["mask"]),
    )
    return {
        "input_ids": tokens,
        "mlm_positions": mlm_positions,
        "mlm_labels": mlm_labels,
        "num_masked": wanted,
    }


def _candidates(arrays: Arrays, derived: Arrays) -> Any:
    """(row, column, slot) of every token that may be masked: all but [CLS] and [SEP], by their places."""
    sequence_ids, position_ids = derived["sequence_ids"], derived["position_ids"]
    slot = np.maximum(sequence_ids - 1, 0)
    last = np.take_along_axis(arrays["lengths"].astype(np.int64), slot, axis=1) - 1
    middle = np.take_along_axis(arrays["first_lengths"].astype(np.int64), slot, axis=1) - 1
    maskable = (sequence_ids > 0) & (position_ids > 0)
    maskable &= (position_ids != last) & (position_ids != middle)
    row, column = np.nonzero(maskable)
    return row, column, slot[row, column]
