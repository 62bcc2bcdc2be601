"""packing.pack: lengths in, packs out; sequences that are too long; bad lengths."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing import SOLVERS, PackingPlan, pack
from packing.lengths import OVERLONG

lists_of_lengths = st.lists(st.integers(1, 30), min_size=1, max_size=120)


@pytest.mark.parametrize("algorithm", sorted(SOLVERS))
@given(lengths=lists_of_lengths, depth=st.integers(1, 4), seed=st.integers(0, 3))
def test_each_sequence_once_within_tokens_and_depth(algorithm, lengths, depth, seed):
    packed = pack(lengths, 30, depth, algorithm, seed)
    values = np.array(lengths)
    assert packed.ids.dtype == packed.offsets.dtype == np.int64
    assert sorted(packed.ids.tolist()) == list(range(len(lengths)))
    assert packed.offsets[0] == 0
    assert packed.offsets[-1] == len(lengths)
    members = [packed.pack(p) for p in range(packed.num_packs)]
    assert all(1 <= ids.size <= depth and values[ids].sum() <= 30 for ids in members)
    report = packed.report
    assert report["packs"] == packed.num_packs == packed.plan.num_packs
    assert report["gap"] == packed.num_packs - report["lower_bound"] >= 0
    assert report["tokens"] == values.sum()
    assert json.loads(json.dumps(report)) == report


@given(lengths=lists_of_lengths, order=st.randoms(use_true_random=False))
def test_count_depends_on_neither_type_nor_order(lengths, order):
    expected = pack(lengths, 30, 3).num_packs
    shuffled = list(lengths)
    order.shuffle(shuffled)
    for dtype in (np.uint8, np.uint16, np.int32, np.int64, np.uint64):
        assert pack(np.array(shuffled, dtype=dtype), 30, 3).num_packs == expected
    assert pack(tuple(shuffled), 30, 3).num_packs == expected


def test_same_seed_same_bytes(tmp_path):
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    files = []
    for run, seed in enumerate((7, 7, 8)):
        path = tmp_path / f"{run}.npz"
        pack(lengths, 256, seed=seed).save(path)
        files.append(path.read_bytes())
    assert files[0] == files[1] != files[2]
    stored = np.load(tmp_path / "0.npz")
    assert sorted(stored["ids"].tolist()) == list(range(5000))
    assert json.loads(str(stored["report"]))["packs"] == stored["offsets"].size - 1


@pytest.mark.parametrize("number", [1, 2, 5000, 300_000])
def test_order_shows_no_trend_in_length_or_input_order(number):
    lengths = np.sort(np.random.default_rng(1).integers(1, 513, number))
    packed = pack(lengths, 512, algorithm="lpfhp")
    assert sorted(packed.ids.tolist()) == list(range(number))
    if number < 5000:
        return
    place = np.arange(packed.num_packs)
    for other in (
        packed.ids[packed.offsets[:-1]],  # the longest of each pack, and its id
        lengths[packed.ids[packed.offsets[:-1]]],
        np.diff(packed.offsets),
        np.add.reduceat(lengths[packed.ids], packed.offsets[:-1]),
    ):
        if np.std(other):
            assert abs(np.corrcoef(place, other)[0, 1]) < 5 / np.sqrt(packed.num_packs)


def test_who_shares_a_pack_does_not_follow_input_order():
    lengths = np.random.default_rng(2).integers(200, 257, 100_000)
    packed = pack(lengths, 512, 2)
    pairs = packed.ids[packed.offsets[:-1][np.diff(packed.offsets) == 2][:, None] + [0, 1]]
    assert len(pairs) > 40_000
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.03


def test_which_pack_a_sequence_joins_does_not_follow_input_order():
    lengths = np.random.default_rng(5).choice([300, 212, 100], 100_000)
    packed = pack(lengths, 512, 3)
    size_of = np.empty(lengths.size)
    size_of[packed.ids] = np.repeat(np.diff(packed.offsets), np.diff(packed.offsets))
    for length in (300, 212, 100):
        ids = np.flatnonzero(lengths == length)
        if np.std(size_of[ids]):
            assert abs(np.corrcoef(ids, size_of[ids])[0, 1]) < 5 / np.sqrt(ids.size)


def test_paths_may_be_text(tmp_path):
    packed = pack([3, 4, 5], 8)
    packed.save(str(tmp_path / "p.npz"))
    packed.plan.save(str(tmp_path / "plan.json"))
    assert PackingPlan.load(str(tmp_path / "plan.json")).fingerprint == packed.plan.fingerprint
    with pytest.raises(ValueError, match="packs: expected a file name that ends in .npz"):
        packed.save(str(tmp_path / "packs"))
    assert repr(packed).startswith("Assignment(3 sequences in 2 packs, PackingPlan(")
    assert packed.pack(-1).tolist() == packed.pack(packed.num_packs - 1).tolist()
    with pytest.raises(IndexError):
        packed.pack(packed.num_packs)


@pytest.mark.parametrize("dtype", [">u8", ">i2", np.float16, np.float32, np.longdouble, object])
def test_other_types_of_numbers(dtype):
    assert pack(np.array([3, 4, 5], dtype=dtype), 8).num_packs == 2


def test_memory_is_bounded_by_the_sequences(monkeypatch):
    monkeypatch.setattr("packing.assign.PAGED", float("inf"))  # mapped memory is not traced
    lengths = np.random.default_rng(4).integers(1, 513, 1_000_000).astype(np.uint16)
    tracemalloc.start()
    try:
        pack(lengths, 512, algorithm="lpfhp")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * lengths.size


@pytest.mark.parametrize("most", [70_000, 100_000])
def test_more_lengths_than_16_bits_hold(most):
    lengths = np.random.default_rng(3).permutation(np.arange(1, most + 1))
    packed = pack(lengths, 100_000, algorithm="lpfhp")
    assert np.array_equal(np.sort(packed.ids), np.arange(most))
    assert np.add.reduceat(lengths[packed.ids], packed.offsets[:-1]).max() <= 100_000


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60).filter(lambda n: min(n) <= 10),
    overlong=st.sampled_from([policy for policy in OVERLONG if policy != "error"]),
    depth=st.one_of(st.none(), st.integers(1, 3)),
)
def test_sequences_that_are_too_long(lengths, overlong, depth):
    packed = pack(lengths, 10, depth, overlong=overlong)
    values = np.array(lengths)
    over = values > 10
    touched = packed.report["overlong"]
    assert touched["policy"] == overlong
    assert touched["sequences"] == over.sum()
    assert touched["tokens"] == values[over].sum()
    if overlong == "split":
        assert touched["tokens_lost"] == 0
        covered = [np.zeros(n, dtype=int) for n in lengths]
        for which, start, size in zip(packed.ids, packed.starts, packed.lengths):
            assert 1 <= size <= 10
            assert start + size <= lengths[which]
            covered[which][start : start + size] += 1
        assert all((tokens == 1).all() for tokens in covered)
        assert packed.report["tokens"] == values.sum()
    else:
        kept = np.flatnonzero(~over) if overlong == "drop" else np.arange(values.size)
        assert sorted(packed.ids.tolist()) == kept.tolist()
        assert packed.starts is None
        assert touched["tokens_lost"] == values.sum() - packed.report["tokens"]
    expected = np.flatnonzero(over).tolist() if overlong == "drop" else []
    assert packed.dropped.tolist() == expected


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([], {}, "lengths: expected a 1-D array that is not empty"),
        (np.ones((1, 2)), {}, r"lengths: expected a 1-D array .* found shape \(1, 2\)"),
        (7, {}, "lengths: expected a 1-D array or a list of whole numbers, found int 7"),
        ([3, 0], {}, r"lengths\[1\]: expected at least 1 token, found 0"),
        ([3, -1], {"overlong": "drop"}, r"lengths\[1\]: expected at least 1 token, found -1"),
        ([3, 9], {}, r"lengths\[1\]: expected 1..8 tokens, found 9; overlong='drop'"),
        ([9, 9], {"overlong": "drop"}, "all 2 sequences are over 8 tokens"),
        ([3, 2.5], {}, r"lengths\[1\]: expected a whole number, found 2.5"),
        ([3, float("nan")], {}, r"lengths\[1\]: expected a whole number, found nan"),
        ([3.0, float("inf")], {"overlong": "split"}, r"lengths\[1\]: expected a whole number"),
        ([3, None], {}, r"lengths\[1\]: expected a whole number, found None"),
        (["3"], {}, r"lengths\[0\]: expected a whole number, found '3'"),
        ([3, True], {}, r"lengths\[1\]: expected a whole number, found True"),
        (np.ma.array([3, 4], mask=[0, 1]), {}, r"lengths\[1\]: .*masked"),
        (np.array([3, 4], dtype="m8[s]"), {}, "lengths: expected whole numbers, found timedelta64"),
        (np.array([3, 4j]), {}, "lengths: expected whole numbers, found complex128"),
        (np.array([3, np.inf], dtype=np.float16), {}, r"lengths\[1\]: .* found inf"),
        ({3, 4}, {}, "lengths: expected a 1-D array"),
        (iter([3, 4]), {}, "lengths: expected a 1-D array"),
        ({"max": 3}, {}, "lengths: expected a 1-D array"),
        ([10**12], {"overlong": "split"}, "overlong: expected at most 2147483648 pieces"),
        ([3], {"overlong": ["drop"]}, "overlong: expected one of"),
        ([3], {"max_length": 2**40}, "max_length: expected at most 16777216 tokens"),
        (["x" * 10**5], {}, r"lengths\[0\]: expected a whole number, found 'x{79}$"),
        ([True], {}, r"lengths\[0\]: expected a whole number, found True"),
        ([3, 2**70], {}, r"lengths\[1\]: expected a number below 2\^63"),
        ([[1], [1, 2]], {}, r"lengths\[0\]: .* found a list; .* pass \[len\(tokens\)"),
        ("lengths.npy", {}, "lengths: .* found 'lengths.npy'; read the file first"),
        (Path("lengths.npy"), {}, "lengths: .* found .*Path.* read the file first"),
        ([2**63], {}, r"lengths\[0\]"),
        ([3], {"max_length": 0}, "max_length: expected a whole number >= 1, found 0"),
        ([3], {"max_length": 8.5}, "max_length"),
        ([3], {"max_per_pack": 0}, "max_per_pack: expected a whole number >= 1, found 0"),
        ([3], {"overlong": "keep"}, "overlong: expected one of error, drop, truncate, split"),
        ([3], {"algorithm": "magic"}, "algorithm: expected one of"),
        ([3], {"seed": -1}, "seed: expected a whole number >= 0, found -1"),
        ([3], {"seed": 0.5}, "seed"),
        ([3], {"time_limit": 0}, "time_limit: expected seconds > 0, found 0"),
        ([3], {"time_limit": float("nan")}, "time_limit"),
    ],
)
def test_bad_input_is_named(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        pack(lengths, **{"max_length": 8, **options})
