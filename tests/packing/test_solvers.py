"""Solvers: what every plan must satisfy, the published counts, brute force on tiny inputs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing import SOLVERS, solve
from packing.histogram import count_lengths, num_tokens, packs_bound, read_histogram
from tests.strategies import histograms


@pytest.mark.parametrize("algorithm", sorted(SOLVERS))
@given(histogram=histograms(), depth=st.integers(1, 5))
def test_every_sequence_is_placed_exactly_once(algorithm, histogram, depth):
    counts, max_length = histogram
    plan = solve(counts, max_length, depth, algorithm)
    assert np.array_equal(plan.histogram(), counts)
    assert (plan.strategies.sum(axis=1) <= max_length).all()
    assert plan.depth <= depth
    assert (plan.repeats > 0).all()
    assert plan.num_sequences == counts.sum()
    assert plan.num_tokens == num_tokens(counts)
    assert plan.token_bound <= plan.num_packs <= plan.num_sequences
    assert plan.efficiency == pytest.approx(plan.num_tokens / plan.num_packs / max_length)


@given(histogram=histograms(), depth=st.one_of(st.none(), st.integers(1, 5)))
def test_bound_from_sums_is_that_of_single_sequences(histogram, depth):
    counts, max_length = histogram
    lengths = np.repeat(np.arange(max_length + 1), counts)
    bounds = [0 if depth is None else math.ceil(lengths.size / depth)]
    for small in range(max_length // 2 + 1):
        alone = (lengths > max_length - small).sum()
        others = lengths[(lengths >= small) & (lengths <= max_length - small)]
        bounds.append(alone + math.ceil(others.sum() / max_length))
    for most in range(1, max_length + 1 if depth is None else depth + 1):
        bounds.append(math.ceil((lengths * (most + 1) > max_length).sum() / most))
    bound = packs_bound(counts, max_length, depth)
    assert bound == max(bounds)
    for algorithm in SOLVERS:
        if algorithm != "nnlshp" or depth is not None:
            plan = solve(counts, max_length, depth, algorithm)
            assert plan.token_bound <= bound <= plan.lower_bound <= plan.num_packs


@pytest.mark.parametrize("algorithm", sorted(SOLVERS))
@pytest.mark.parametrize(
    ("length", "depth", "packs"), [(10, 3, 10_000), (171, 4, 15_000), (257, 4, 30_000)]
)
def test_one_length_is_known_to_be_packed_at_best(algorithm, length, depth, packs):
    counts = np.zeros(513, dtype=np.int64)
    counts[length] = 30_000
    plan = solve(counts, 512, depth, algorithm)
    assert (plan.num_packs, plan.gap) == (packs, 0)
    assert repr(plan).startswith(
        f"PackingPlan({plan.algorithm}, L = 512, D = {depth}: {packs} packs, gap 0"
    )


@pytest.mark.parametrize("algorithm", ["spfhp", "lpfhp"])
@given(histogram=histograms())
def test_no_depth_limit(algorithm, histogram):
    counts, max_length = histogram
    plan = solve(counts, max_length, None, algorithm)
    assert np.array_equal(plan.histogram(), counts)
    assert plan.num_packs <= solve(counts, max_length, 3, algorithm).num_packs


def item_level(counts, max_length, depth, fullest):
    """The heuristics on single sequences, in the plainest words: the reference of the fast ones."""
    packs = []
    for length in range(max_length, 0, -1):
        for _ in range(counts[length]):
            rooms = [
                (max_length - sum(pack), i)
                for i, pack in enumerate(packs)
                if len(pack) < depth and max_length - sum(pack) >= length
            ]
            if rooms:
                packs[(min if fullest else max)(rooms)[1]].append(length)
            else:
                packs.append([length])
    return len(packs)


@pytest.mark.parametrize("algorithm", ["spfhp", "lpfhp"])
@given(histogram=histograms(max_length=16, largest=6))
def test_heuristics_match_the_plain_algorithm_without_depth_limit(algorithm, histogram):
    counts, max_length = histogram
    plain = item_level(counts, max_length, max_length, algorithm == "lpfhp")
    assert solve(counts, max_length, None, algorithm).num_packs == plain


@given(
    histogram=histograms(max_length=16, largest=30), depth=st.one_of(st.none(), st.integers(1, 5))
)
def test_spfhp_adds_many_at_once_as_it_would_one_by_one(histogram, depth):
    counts, max_length = histogram
    slow = solve(counts, max_length, depth, "spfhp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packing.greedy.MUCH", 0)
        patch.setattr("packing.greedy.MANY", 0)
        quick = solve(counts, max_length, depth, "spfhp")
    assert quick.num_packs == slow.num_packs
    tokens = [np.repeat(p.strategies.sum(axis=1), p.repeats) for p in (quick, slow)]
    assert sorted(tokens[0].tolist()) == sorted(tokens[1].tolist())


@pytest.mark.parametrize("algorithm", ["spfhp", "lpfhp"])
def test_heuristics_do_not_depend_on_the_number_of_sequences(algorithm):
    counts = np.zeros(4097, dtype=np.int64)
    counts[3001:3201] = 1
    counts[[1, 3]] = 2**50, 2**45 + 1
    plan = solve(counts, 4096, None, algorithm)
    assert plan.num_packs == plan.token_bound


@lru_cache(maxsize=None)
def fewest_packs(lengths, max_length, depth):
    """Brute force: the fewest packs for a tuple of lengths."""
    if not lengths:
        return 0
    first, rest = lengths[0], lengths[1:]
    best = len(lengths)

    def fill(room, slots, left, start):
        nonlocal best
        best = min(best, 1 + fewest_packs(left, max_length, depth))
        if slots:
            for i in range(start, len(left)):
                if left[i] <= room:
                    fill(room - left[i], slots - 1, left[:i] + left[i + 1 :], i)

    fill(max_length - first, depth - 1, rest, 0)
    return best


@pytest.mark.parametrize("algorithm", sorted(SOLVERS))
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=6), depth=st.integers(1, 3))
def test_never_below_brute_force(algorithm, lengths, depth):
    optimum = fewest_packs(tuple(sorted(lengths, reverse=True)), 8, depth)
    plan = solve(count_lengths(lengths, 8), 8, depth, algorithm)
    assert optimum <= plan.num_packs <= 2 * optimum


@pytest.mark.parametrize("max_length", [1, 2, 7, 127, 384, 511, 512, 513])
@pytest.mark.parametrize("depth", [1, 2, 3, 1000, None])
@pytest.mark.parametrize("algorithm", sorted(SOLVERS))
def test_lengths_of_all_kinds(algorithm, max_length, depth):
    counts = np.r_[0, np.random.default_rng(max_length).integers(0, 50, max_length - 1), 3]
    if algorithm == "nnlshp" and (depth is None or (depth > 3 and max_length > 50)):
        with pytest.raises(ValueError, match="use lpfhp or optimal"):
            solve(counts, max_length, depth, algorithm)
        return
    plan = solve(counts, max_length, depth, algorithm)
    assert np.array_equal(plan.histogram(), counts)
    assert plan.lower_bound <= plan.num_packs


@pytest.mark.parametrize(
    ("algorithm", "depth", "packs"),
    [
        ("spfhp", 3, 9_094_695),
        ("lpfhp", 3, 9_090_154),
        ("spfhp", 12, 8_166_708),
        ("lpfhp", 12, 8_149_619),
        ("spfhp", None, 8_166_708),
        ("lpfhp", None, 8_138_483),
    ],
)
def test_published_wikipedia_histogram(algorithm, depth, packs, published):
    counts = read_histogram(published("histograms/wikipedia_512.csv"))
    plan = solve(counts, 512, depth, algorithm)
    assert plan.num_sequences == 16_279_552
    assert plan.num_tokens == 4_164_796_173
    assert plan.num_packs <= packs


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        ([0, 0, 0], {}, "counts: the histogram is empty"),
        ([0, 1, -2], {}, r"counts\[2\]: expected a count >= 0, found -2"),
        ([0, 1.5], {}, r"counts\[1\]: expected a whole number, found 1.5"),
        ([0, float("nan")], {}, r"counts\[1\]: expected a whole number, found nan"),
        ([1, 2], {}, r"counts\[0\]: expected 0"),
        ([[0, 1]], {}, r"counts\[0\]: .* found a list"),
        (np.ones((2, 2)), {}, r"counts: expected a 1-D array .* found shape \(2, 2\)"),
        (["a", "b"], {}, r"counts\[0\]: expected a whole number, found 'a'"),
        ([], {}, "1-D"),
        ([0, None], {}, r"counts\[1\]: expected a whole number, found None"),
        ([0, "3"], {}, r"counts\[1\]: expected a whole number, found"),
        ([0, 1], {"time_limit": -1}, "time_limit: expected seconds > 0, found -1"),
        (
            [0, 0, 5],
            {"max_length": 1},
            r"counts\[2\]: expected none over max_length 1, found 5 sequences of up",
        ),
        ([0, 1], {"max_length": 0}, "max_length: expected a whole number >= 1, found 0"),
        ([0, 1], {"max_per_pack": 0}, "max_per_pack: expected a whole number >= 1, found 0"),
        ([0, 1], {"max_per_pack": 2.5}, "max_per_pack"),
        ([0, 1], {"algorithm": "magic"}, "expected one of"),
        ([0, 1], {"algorithm": ["lpfhp"]}, "algorithm: expected one of"),
        ([0, 1], {"time_limit": True}, "time_limit"),
        ([0, 1], {"time_limit": 10**400}, "time_limit: expected at most"),
        ([0, 1], {"time_limit": "30"}, "time_limit: expected seconds > 0, found '30'"),
        ([0, 1], {"max_length": 2**24 + 1}, "max_length: expected at most 16777216 tokens"),
    ],
)
def test_bad_input_is_named(counts, options, message):
    with pytest.raises(ValueError, match=message):
        solve(counts, **options)
