"""NNLSHP: the same optimum as scipy on the full matrix, certificates, fallbacks, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, nnls

from packing import nnlshp
from packing.histogram import read_histogram
from packing.nnlshp import (
    GRADIENT_TOLERANCE,
    count_strategies,
    full_strategies,
    optimality_error,
    pack_nnlshp,
    solve_mix,
)
from tests.strategies import histograms


def dense_problem(strategies, counts):
    """(W A, W counts) of the paper, in float64, counts scaled to at most 1."""
    lengths = np.arange(counts.size)
    weights = np.where(lengths < 8, 0.09, 1.0) * (lengths > 0)
    matrix = np.zeros((counts.size, len(strategies)))
    np.add.at(matrix, (strategies, np.arange(len(strategies))[:, None]), 1.0)
    return weights[:, None] * matrix, weights * (counts / counts.max())


def least_residual(matrix, target):
    """By two dense solvers of scipy, since `nnls` of 1.15 to 1.17 at times is not at the optimum."""
    by_nnls, _ = nnls(matrix, target, maxiter=10_000)
    by_bvls = lsq_linear(matrix, target, (0, np.inf), method="bvls", tol=1e-14).x
    return min(np.linalg.norm(matrix @ np.maximum(x, 0) - target) for x in (by_nnls, by_bvls))


def assert_optimal(strategies, counts):
    matrix, target = dense_problem(strategies, counts)
    best = least_residual(matrix, target)
    mix = solve_mix(strategies, counts)
    assert mix.shape == (len(strategies),)
    assert mix.min() >= 0
    found = np.linalg.norm(matrix @ (mix / counts.max()) - target)
    assert found == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert optimality_error(strategies, counts, mix) <= GRADIENT_TOLERANCE


def assert_exact(counts, depth, algorithm="nnlshp"):
    plan = pack_nnlshp(counts, max_length=counts.size - 1, max_per_pack=depth)
    plan.check(counts)
    assert plan.algorithm == algorithm
    return plan


@given(histogram=histograms(max_length=20), depth=st.integers(1, 6))
def test_same_optimum_as_scipy_on_the_full_matrix(histogram, depth):
    counts, max_length = histogram
    assert_optimal(full_strategies(max_length, min(depth, max_length)), counts)


@given(
    counts=st.lists(st.one_of(st.just(0), st.integers(1, 2**53)), min_size=1, max_size=12),
    depth=st.integers(1, 5),
)
def test_counts_of_any_size(counts, depth):
    counts = np.array([0, *counts[:-1], max(1, counts[-1])])
    assert_optimal(full_strategies(counts.size - 1, min(depth, counts.size - 1)), counts)
    assert_exact(counts, depth)


@given(data=st.data(), max_length=st.integers(1, 16), depth=st.integers(1, 4))
def test_histograms_that_strategies_cover_exactly_have_no_waste(data, max_length, depth):
    strategies = full_strategies(max_length, min(depth, max_length))
    repeats = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=len(strategies)))
    counts = np.zeros(max_length + 1, dtype=np.int64)
    np.add.at(counts, strategies[: len(repeats)], np.array(repeats)[:, None])
    counts[0] = 0
    if counts.any():
        assert_optimal(strategies, counts)
        matrix, target = dense_problem(strategies, counts)
        assert matrix @ solve_mix(strategies, counts) / counts.max() == pytest.approx(target)


@pytest.mark.parametrize("max_length", [1, 2, 3, 5, 8, 64])
@pytest.mark.parametrize("depth", [1, 2, 3, 100])
def test_single_lengths(max_length, depth):
    for length in {1, (max_length + 1) // 2, max_length}:
        for number in (1, 7, 10**6):
            if max_length < 64 or depth < 100:
                counts = np.zeros(max_length + 1, dtype=np.int64)
                counts[length] = number
                plan = assert_exact(counts, depth)
                assert plan.num_packs == -(-number // min(depth, max_length // length))


@pytest.mark.parametrize(("max_length", "depth"), [(100, 3), (128, 4), (30, 30)])
@pytest.mark.parametrize("power", [0, 1, 8])
def test_larger_histograms_meet_the_conditions_of_the_optimum(max_length, depth, power):
    rng = np.random.default_rng(max_length)
    counts = np.r_[0, 1 + (1e6 * rng.random(max_length) ** power).astype(np.int64)]
    strategies = full_strategies(max_length, depth)
    mix = solve_mix(strategies, counts)
    assert optimality_error(strategies, counts, mix) <= GRADIENT_TOLERANCE
    assert np.count_nonzero(mix) <= max_length  # an active set: its columns are independent
    assert_exact(counts, depth)


def test_the_certificate_sees_what_is_wrong():
    strategies, counts = full_strategies(9, 3), np.array([0, 3, 0, 5, 2, 0, 8, 1, 4, 6])
    mix = solve_mix(strategies, counts)
    used, unused = np.flatnonzero(mix > 0)[0], np.flatnonzero(mix == 0)[0]
    assert optimality_error(strategies, counts, mix) <= GRADIENT_TOLERANCE
    for place, change in ((used, 0.01), (used, -0.01), (unused, 0.01)):
        changed = mix.copy()
        changed[place] += change
        assert optimality_error(strategies, counts, changed) > 1e-5
    assert optimality_error(strategies, counts, 0 * mix) > 0.1
    assert optimality_error(strategies, counts, -mix) == np.inf


@pytest.mark.parametrize(("limit", "value"), [("MAX_ENTERING", 0), ("INDEPENDENT", 2.0)])
@given(histogram=histograms(max_length=14), depth=st.integers(1, 4))
def test_scipy_takes_over_where_the_active_set_stops_early(limit, value, histogram, depth):
    counts, max_length = histogram
    strategies = full_strategies(max_length, min(depth, max_length))
    matrix, target = dense_problem(strategies, counts)
    best = least_residual(matrix, target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nnlshp, limit, value)
        mix = solve_mix(strategies, counts)
    found = np.linalg.norm(matrix @ (mix / counts.max()) - target)
    assert found == pytest.approx(best, abs=1e-8)


def test_a_wrong_solution_of_scipy_is_seen(monkeypatch):
    counts = np.array([0, 0, 0, 0, 0, 25, 5, 0, 0, 0, 0, 0, 1, 0, 0])  # scipy 1.17.1 fails on it
    strategies = full_strategies(14, 4)
    best = least_residual(*dense_problem(strategies, counts))
    monkeypatch.setattr(nnlshp, "MAX_ENTERING", 0)
    for scipys in (nnls, lambda matrix, target, maxiter: (np.ones(matrix.shape[1]), 0.0)):
        monkeypatch.setattr(nnlshp, "nnls", scipys)
        mix = solve_mix(strategies, counts) / counts.max()
        matrix, target = dense_problem(strategies, counts)
        assert np.linalg.norm(matrix @ mix - target) == pytest.approx(best, abs=1e-9)
    monkeypatch.setattr(nnlshp, "_nnls_of_some", lambda parts, *_: np.ones(parts.shape[1]))
    assert "not the optimum" in assert_exact(counts, 4, "lpfhp").notes[0]


@pytest.mark.parametrize("error", [RuntimeError, np.linalg.LinAlgError])
def test_lpfhp_takes_over_where_scipy_fails_too(error, monkeypatch):
    def fails(*_, **__):
        raise error("too many iterations")

    monkeypatch.setattr(nnlshp, "MAX_ENTERING", 0)
    monkeypatch.setattr(nnlshp, "nnls", fails)
    plan = assert_exact(np.array([0, 3, 2, 5, 1]), 3, "lpfhp")
    assert plan.notes == ("nnls did not converge (too many iterations); this is the lpfhp plan",)


@pytest.mark.parametrize("max_length", range(1, 14))
def test_full_strategies_are_all_partitions(max_length):
    for depth in range(1, max_length + 1):
        table = full_strategies(max_length, depth)
        assert table.shape == (count_strategies(max_length, depth), depth)
        assert table.dtype == np.int32
        assert (table.sum(axis=1) == max_length).all()
        assert (np.diff(table, axis=1) <= 0).all()
        assert len({tuple(row) for row in table.tolist()}) == len(table)


def test_number_of_strategies():
    assert len(full_strategies(512, 3)) == count_strategies(512, 3) == 22_102
    assert count_strategies(512, 3, limit=22_102) == 22_102
    assert count_strategies(512, 3, limit=22_101) > 22_101
    assert count_strategies(100, 100) == 190_569_292
    assert count_strategies(1000, 1000) == 24061467864032622473692149727991
    assert count_strategies(2**24, 200, limit=10**6) > 10**6


@pytest.mark.parametrize(("max_length", "depth"), [(8192, 4), (131_072, 200), (2**24, 2)])
def test_refuses_more_strategies_than_fit(max_length, depth):
    counts = np.zeros(max_length + 1, dtype=np.int64)
    counts[-1] = 1
    with pytest.raises(ValueError, match=r"more than 2000000 strategies .* use lpfhp or optimal"):
        pack_nnlshp(counts, max_length=max_length, max_per_pack=depth)


def test_refuses_no_limit():
    with pytest.raises(ValueError, match="needs a limit; without one, use lpfhp or optimal"):
        pack_nnlshp(np.array([0, 1]), max_length=1, max_per_pack=None)


@pytest.mark.parametrize(
    ("name", "depth", "residual", "packs"),
    [
        ("wikipedia_512", 2, 353_281.617019, 10_099_081),
        ("wikipedia_512", 3, 5_269.740_170_38, 8_144_400),
        ("squad_384", 2, 2_864.867_336_12, 45_335),
        ("squad_384", 3, 305.970_285_372, 40_350),
    ],
)
def test_published_histograms(name, depth, residual, packs, published):
    counts = read_histogram(published(f"histograms/{name}.csv"))
    strategies = full_strategies(counts.size - 1, depth)
    mix = solve_mix(strategies, counts)
    matrix, target = dense_problem(strategies, counts)
    found = np.linalg.norm(matrix @ mix - target * counts.max())
    assert found == pytest.approx(residual, rel=1e-10)  # of scipy's nnls on the full matrix
    assert optimality_error(strategies, counts, mix) <= GRADIENT_TOLERANCE
    plan = assert_exact(counts, depth)
    assert plan.num_packs <= packs  # the paper's: 8,155,059 for Wikipedia at depth 3
