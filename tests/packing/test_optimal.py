"""Column generation: against linear and whole-number programmes over all strategies, and its bound."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from packing import solve
from packing.greedy import pack_greedy
from packing.histogram import packs_bound, read_histogram
from packing.knapsack import Knapsack, OutOfTime
from packing.optimal import _Search, pack_optimal
from packing.programme import Programme
from packing.rounding import fit_to_histogram
from tests.resources import ROOT
from tests.strategies import histograms


def all_strategies(lengths, max_length, depth):
    """Every multiset of `lengths` that fits, as rows of copies: the plain way."""
    rows = [[0] * len(lengths)]
    for place, length in enumerate(lengths):
        for row in list(rows):
            room = max_length - sum(n * size for n, size in zip(row, lengths))
            slots = depth - sum(row)
            for copies in range(1, min(room // length, slots) + 1):
                rows.append([*row[:place], copies, *row[place + 1 :]])
    return np.array([row for row in rows if any(row)])


@given(histogram=histograms(max_length=12, largest=15), depth=st.integers(1, 5))
def test_bound_and_packs_are_those_of_the_programmes_over_all_strategies(histogram, depth):
    counts, max_length = histogram
    lengths = np.flatnonzero(counts)
    table = all_strategies(lengths.tolist(), max_length, depth)
    ones = np.ones(len(table))
    relaxed = linprog(ones, A_ub=-table.T, b_ub=-counts[lengths], method="highs").fun
    whole = milp(
        ones,
        constraints=LinearConstraint(table.T, counts[lengths], np.inf),
        integrality=ones,
        bounds=Bounds(0, np.inf),
    )
    plan = solve(counts, max_length, depth, "optimal")
    assert packs_bound(counts, max_length, depth) <= math.ceil(relaxed - 1e-6)
    assert plan.lower_bound == math.ceil(relaxed - 1e-6)
    assert plan.num_packs == round(whole.fun)


@given(histogram=histograms(), depth=st.one_of(st.none(), st.integers(1, 6)))
def test_never_more_packs_than_any_other_solver(histogram, depth):
    counts, max_length = histogram
    plan = solve(counts, max_length, depth, "optimal")
    others = ["spfhp", "lpfhp"] + ["nnlshp"] * (depth is not None)
    for other in others:
        compared = solve(counts, max_length, depth, other)
        assert plan.lower_bound <= plan.num_packs <= compared.num_packs
        assert compared.gap >= 0
    auto = solve(counts, max_length, depth)
    assert (auto.num_packs, auto.lower_bound) == (plan.num_packs, plan.lower_bound)
    assert auto.algorithm in ("spfhp", "lpfhp", "optimal")


@pytest.mark.parametrize("unit", [1 << 40, 1 << 62])  # the second would overflow if it were used
@given(histogram=histograms(max_length=14, largest=12), depth=st.integers(1, 4), data=st.data())
def test_any_prices_give_a_bound(unit, histogram, depth, data):
    counts, max_length = histogram
    best = solve(counts, max_length, depth, "optimal").num_packs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packing.optimal.PRICE_UNIT", unit)
        search = _Search(counts, max_length, depth, math.inf)
    size = search.lengths.size
    prices = data.draw(st.lists(st.floats(0, 2), min_size=size, max_size=size))
    search._price(np.array(prices))
    assert 1 <= search.bound <= best


@pytest.mark.parametrize(
    ("depth", "packs", "bound"),
    [
        (1, 16_279_552, 16_279_552),
        (2, 10_099_081, 10_099_081),
        (3, 8_143_860, 8_143_829),
        (4, 8_135_760, 8_135_727),
        (8, 8_135_740, 8_135_727),
        (None, 8_135_730, 8_135_727),
    ],
)
def test_published_wikipedia_histogram(depth, packs, bound, published):
    counts = read_histogram(published("histograms/wikipedia_512.csv"))
    plan = solve(counts, 512, depth, "optimal")
    assert plan.lower_bound == bound
    assert plan.num_packs <= packs
    assert plan.gap <= 2
    assert plan.notes == ()
    if depth in (2, None):
        again = solve(counts, 512, depth)
        assert again.num_packs == plan.num_packs


def test_published_squad_histogram(published):
    counts = read_histogram(published("histograms/squad_384.csv"))
    plan = solve(counts, 384, 3, "optimal")
    assert plan.lower_bound == 40_195
    assert plan.num_packs <= 40_198


def test_same_bytes_again_and_nothing_printed(capfd):
    counts = np.r_[0, np.random.default_rng(0).integers(0, 1000, 64)]
    plans = [solve(counts, 64, 3, "optimal") for _ in range(2)]
    assert plans[0].algorithm == "optimal"
    assert plans[0].to_json() == plans[1].to_json()
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize("scale", [10**6, 10**9, 2**40])
def test_large_counts(scale):
    small = np.r_[0, np.random.default_rng(1).integers(1, 500, 48)]
    plan = solve(small * scale, 48, 3, "optimal")
    assert plan.gap <= max(50, 1e-6 * plan.num_packs)


def test_out_of_time_gives_the_best_so_far():
    counts = np.r_[0, np.random.default_rng(2).integers(1, 10_000, 256)]
    plan = solve(counts, 256, 3, "optimal", time_limit=1e-9)
    greedy = pack_greedy(counts, max_length=256, max_per_pack=3)
    assert plan.num_packs == greedy.num_packs
    assert plan.token_bound <= plan.lower_bound
    assert "time limit" in plan.notes[0]
    assert np.array_equal(plan.histogram(), counts)
    knapsack = Knapsack(np.arange(1, 257), 256, 3, deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTime):
        knapsack.solve(np.arange(1, 257))


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_out_of_time_at_any_step(calls, monkeypatch):
    counts = np.r_[0, np.random.default_rng(2).integers(1, 10_000, 256)]
    run = Programme.run
    left = [calls]

    def runs_out(self, demand=None):
        left[0] -= 1
        if left[0] < 0:
            raise OutOfTime("the time limit")
        return run(self, demand)

    monkeypatch.setattr(Programme, "run", runs_out)
    plan = solve(counts, 256, 3, "optimal")
    assert "time limit" in plan.notes[0]
    assert plan.num_packs <= pack_greedy(counts, max_length=256, max_per_pack=3).num_packs
    assert np.array_equal(plan.histogram(), counts)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_beside_other_users_of_highs(first):
    """HiGHS has one pool of threads for a process; a solver set to another number would fail."""
    script = """
import highspy, numpy as np, sys
from packing import solve
def ours():
    counts = np.r_[0, np.random.default_rng(0).integers(1, 1000, 64)]
    assert solve(counts, 64, 3, "optimal").notes == ()
def theirs():
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)
    other.addVar(0, 10)
    other.changeColCost(0, -1.0)
    other.run()
    assert other.getModelStatus() == highspy.HighsModelStatus.kOptimal
for name in (sys.argv[1], "theirs", "ours"):
    dict(ours=ours, theirs=theirs)[name]()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, first], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr


def test_depth_beyond_listing_needs_no_list():
    counts = np.r_[0, np.random.default_rng(3).integers(0, 100, 512)]
    plan = pack_optimal(counts, max_length=512, max_per_pack=40)
    assert plan.gap <= 1
    assert plan.depth <= 40


def test_auto_leaves_large_nearly_perfect_problems_alone():
    lengths = np.clip(np.exp(np.random.default_rng(0).normal(6, 1, 200_000)), 1, 8192)
    counts = np.bincount(lengths.astype(int), minlength=8193)
    plan = solve(counts, 8192)
    assert plan.algorithm in ("spfhp", "lpfhp")
    assert plan.gap <= 1e-4 * plan.num_packs
    assert plan.gap == 0 or "not tried" in plan.notes[0]


@given(
    histogram=histograms(max_length=10, largest=20),
    depth=st.integers(1, 5),
    data=st.data(),
)
def test_knapsack_finds_what_trying_all_finds(histogram, depth, data):
    counts, max_length = histogram
    lengths = np.flatnonzero(counts)
    values = np.array(
        data.draw(st.lists(st.integers(0, 9), min_size=lengths.size, max_size=lengths.size))
    )
    table = all_strategies(lengths.tolist(), max_length, depth)
    knapsack = Knapsack(lengths, max_length, depth)
    found = knapsack.solve(values)
    for item in range(lengths.size):
        assert found[item] == (table[table[:, item] > 0] @ values).max()
    offsets, items = knapsack.packs_with(np.arange(lengths.size))
    for item in range(lengths.size):
        pack = items[offsets[item] : offsets[item + 1]]
        assert item in pack
        assert values[pack].sum() == found[item]
        assert lengths[pack].sum() <= max_length
        assert pack.size <= depth
        assert (np.diff(pack) <= 0).all()


@given(histogram=histograms(max_length=12, largest=8), data=st.data())
def test_slots_go_to_sequences_that_fit(histogram, data):
    counts, max_length = histogram
    packs = data.draw(
        st.lists(
            st.tuples(
                st.lists(st.integers(1, max_length), min_size=1, max_size=4), st.integers(0, 5)
            ),
            max_size=6,
        )
    )
    slots = np.array([n for lengths, _ in packs for n in lengths], dtype=np.int64)
    offsets = np.cumsum([0] + [len(lengths) for lengths, _ in packs])
    repeats = np.array([number for _, number in packs], dtype=np.int64)
    rows, left = fit_to_histogram(slots, offsets, repeats, counts)
    placed = np.zeros_like(counts)
    for lengths, number in rows:
        assert number > 0
        assert lengths
        np.add.at(placed, list(lengths), number)
    assert np.array_equal(placed + left, counts)
    assert sum(number for _, number in rows) <= repeats.sum()
    # as many sequences of at least any length as there are slots for, counted from the longest
    expected, free = 0, 0
    total_slots = np.bincount(slots, np.repeat(repeats, np.diff(offsets)), max_length + 1)
    for length in range(max_length, 0, -1):
        free += int(total_slots[length])
        taken = min(free, int(counts[length]))
        expected, free = expected + taken, free - taken
        assert placed[length] == taken
    assert placed.sum() == expected
