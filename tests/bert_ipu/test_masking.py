"""Masking: exact counts, the right tokens, 80/10/10, independent of batch, pack and order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_ipu.masking import mask_tokens, mix, num_masked, ordinary_tokens
from packing.shards import IGNORE_LABEL, derive
from tests.shards import CLS, INFO, KINDS, MASK, SEP, UNK, UNUSED, random_arrays


def mask(arrays, *, epoch=0, seed=0, info=INFO, num_slots=12, fraction=0.15):
    return mask_tokens(
        arrays,
        derive(arrays),
        epochs=np.full(len(arrays["input_ids"]), epoch),
        seed=seed,
        mask_fraction=fraction,
        num_slots=num_slots,
        token_kinds=KINDS,
        info=info,
    )


@given(seed=st.integers(0, 500), fraction=st.sampled_from([0.01, 0.15, 0.4]))
def test_every_sequence_has_exactly_k_masked_tokens(seed, fraction):
    arrays = random_arrays(4, seed)
    masked = mask(arrays, seed=seed, num_slots=40, fraction=fraction)
    derived = derive(arrays)
    original = arrays["input_ids"].astype(np.int64)
    for row in range(4):
        used = masked["mlm_labels"][row] != IGNORE_LABEL
        places = masked["mlm_positions"][row][used]
        assert (np.diff(places) > 0).all()
        assert np.array_equal(original[row][places], masked["mlm_labels"][row][used])
        assert not {CLS, SEP} & set(masked["mlm_labels"][row][used])
        slots = derived["sequence_ids"][row][places]
        for slot, length in enumerate(arrays["lengths"][row].tolist()):
            expected = max(1, round(fraction * (length - 3))) if length else 0
            assert (slots == slot + 1).sum() == expected == masked["num_masked"][row, slot]
        untouched = np.ones(INFO.max_length, dtype=bool)
        untouched[places] = False
        assert np.array_equal(masked["input_ids"][row][untouched], original[row][untouched])


@given(seed=st.integers(0, 100))
def test_a_draw_depends_on_the_example_and_nothing_else(seed):
    arrays = random_arrays(6, seed)
    together = mask(arrays)
    rows = np.array([4, 1, 5])
    apart = mask({name: values[rows] for name, values in arrays.items()})
    assert np.array_equal(apart["input_ids"], together["input_ids"][rows])
    # the same examples, one a pack
    lengths = arrays["lengths"].astype(int)
    ends = np.cumsum(lengths, axis=1)
    for row, slot in zip(*np.nonzero(lengths)):
        start, end = ends[row, slot] - lengths[row, slot], ends[row, slot]
        alone = {
            "input_ids": np.zeros((1, INFO.max_length), np.uint16),
            **{
                name: np.full((1, 4), empty, arrays[name].dtype)
                for name, empty in (
                    ("lengths", 0),
                    ("first_lengths", 0),
                    ("next_sentence_labels", -1),
                    ("example_ids", -1),
                )
            },
        }
        alone["input_ids"][0, : end - start] = arrays["input_ids"][row, start:end]
        for name in ("lengths", "first_lengths", "next_sentence_labels", "example_ids"):
            alone[name][0, 0] = arrays[name][row, slot]
        unpacked = mask(alone)["input_ids"][0, : end - start]
        assert np.array_equal(unpacked, together["input_ids"][row, start:end])


def test_seed_epoch_and_static():
    arrays = random_arrays(8, 1)
    base = mask(arrays)
    assert np.array_equal(base["input_ids"], mask(arrays)["input_ids"])
    for other in (mask(arrays, seed=1), mask(arrays, epoch=1)):
        assert not np.array_equal(base["mlm_positions"], other["mlm_positions"])


@pytest.fixture(scope="module")
def many():
    """About 100,000 tokens in long sequences, masked once."""
    info = replace(INFO, max_length=512, vocab_size=64)
    arrays = random_arrays(220, 5, info)
    return arrays, mask(arrays, info=info, num_slots=80)


def test_fractions(many):
    arrays, masked = many
    used = masked["mlm_labels"] != IGNORE_LABEL
    labels = masked["mlm_labels"][used]
    rows = np.nonzero(used)[0]
    inputs = masked["input_ids"][rows, masked["mlm_positions"][used]]
    ordinary = (arrays["input_ids"] > UNUSED).sum()
    assert ordinary > 90_000
    assert abs(used.sum() / ordinary - 0.15) < 0.003
    number = labels.size
    tolerance = 4 * np.sqrt(0.8 * 0.2 / number)
    kept_by_chance = 0.1 / 58  # a random token may be the label
    assert abs((inputs == MASK).mean() - 0.8) < tolerance
    assert abs((inputs == labels).mean() - 0.1 - kept_by_chance) < tolerance
    drawn = inputs[(inputs != MASK) & (inputs != labels)]
    assert abs(drawn.size / number - 0.1 + kept_by_chance) < tolerance
    assert set(drawn) <= set(ordinary_tokens(KINDS))
    counts = np.bincount(drawn, minlength=64)[ordinary_tokens(KINDS)]
    expected = drawn.size / counts.size
    assert ((counts - expected) ** 2 / expected).sum() < 2 * counts.size  # chi-squared


def test_positions_are_drawn_evenly(many):
    arrays, masked = many
    derived = derive(arrays)
    used = masked["mlm_labels"] != IGNORE_LABEL
    rows = np.nonzero(used)[0]
    columns = masked["mlm_positions"][used]
    slots = derived["sequence_ids"][rows, columns] - 1
    lengths = arrays["lengths"].astype(float)[rows, slots]
    share = derived["position_ids"][rows, columns] / (lengths - 1)
    assert abs(share.mean() - 0.5) < 4 * np.sqrt(1 / 12 / share.size)
    assert abs(share.std() - np.sqrt(1 / 12)) < 0.01


def test_unknown_tokens_are_masked_only_where_others_do_not_suffice():
    arrays = random_arrays(1, 2)
    arrays["lengths"][0] = [20, 0, 0, 0]
    arrays["first_lengths"][0] = [10, 0, 0, 0]
    arrays["input_ids"][0] = 0
    arrays["input_ids"][0, :20] = [CLS, *[UNK] * 8, SEP, *[UNK] * 8, 30, SEP]
    masked = mask(arrays)  # k = round(0.15 * 17) = 3
    labels = masked["mlm_labels"][0]
    assert sorted(labels[labels != IGNORE_LABEL].tolist()) == [UNK, UNK, 30]
    assert masked["num_masked"][0, 0] == 3


def test_k_follows_the_formula():
    lengths = np.arange(4, 600)
    expected = [max(1, round(0.15 * (n - 3))) for n in lengths.tolist()]
    assert num_masked(lengths, 0.15, 3).tolist() == expected
    assert num_masked(np.array([0, 3, 4]), 0.15, 3).tolist() == [0, 0, 1]


def test_too_few_slots_are_refused():
    with pytest.raises(ValueError, match="expected at most 1"):
        mask(random_arrays(4), num_slots=1, fraction=0.5)


def test_mixing_matches_the_published_generator():
    # splitmix64 seeded with 1234567: the first two values of its reference implementation
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = np.array([1234567], dtype=np.uint64)
    assert mix(state)[0] == 6457827717110365317
    assert mix(state + golden)[0] == 3203168211198807973
