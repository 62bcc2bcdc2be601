"""Plan and assignment: stored and read again, applied to sequences, each id once."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing import PackingPlan, solve
from packing.files import fingerprint
from packing.histogram import count_lengths


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=200),
    depth=st.integers(1, 4),
    seed=st.integers(0, 3),
    dtype=st.sampled_from([np.uint16, np.int32, np.int64, np.uint64]),
)
def test_assignment_holds_each_sequence_once_and_within_the_pack(lengths, depth, seed, dtype):
    plan = solve(count_lengths(lengths, 30), 30, depth)
    values = np.array(lengths, dtype=dtype)
    assignment = plan.assign(values, seed)
    assert sorted(assignment.ids.tolist()) == list(range(len(lengths)))
    assert assignment.offsets[0] == 0
    assert assignment.offsets[-1] == len(lengths)
    assert assignment.num_packs == plan.num_packs
    for pack in range(assignment.num_packs):
        members = assignment.pack(pack)
        assert 1 <= members.size <= depth
        assert int(values[members].sum()) <= 30
    again = plan.assign(lengths, seed)
    assert np.array_equal(assignment.ids, again.ids)
    assert np.array_equal(assignment.offsets, again.offsets)


def test_packs_show_no_trend_and_seeds_differ():
    lengths = np.sort(np.random.default_rng(0).integers(1, 129, 20_000))
    plan = solve(count_lengths(lengths, 128), 128, 4)
    assignment = plan.assign(lengths, seed=1)
    first = assignment.ids[assignment.offsets[:-1]]
    place = np.arange(first.size)
    assert abs(np.corrcoef(place, first)[0, 1]) < 0.03
    assert abs(np.corrcoef(place, np.diff(assignment.offsets))[0, 1]) < 0.03
    same = lengths[assignment.ids] == 64
    assert abs(np.corrcoef(np.flatnonzero(same), assignment.ids[same])[0, 1]) < 0.3
    assert not np.array_equal(assignment.ids, plan.assign(lengths, seed=2).ids)


def test_lengths_that_are_not_the_plans():
    plan = solve([0, 2, 1], 2)
    with pytest.raises(ValueError, match="2 sequences of 1 tokens, found 1"):
        plan.assign([1, 2])
    with pytest.raises(ValueError, match=r"lengths\[1\]: expected 1..2 tokens, found 3"):
        plan.assign([1, 3, 1])
    with pytest.raises(ValueError, match=r"lengths\[0\]: expected 1..2 tokens, found 0"):
        plan.assign([0, 1, 1])


def test_saved_plan_is_read_again(tmp_path):
    plan = solve([0, 5, 3, 0, 2, 9], 5, 3)
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = PackingPlan.load(path)
    assert np.array_equal(loaded.strategies, plan.strategies)
    assert np.array_equal(loaded.repeats, plan.repeats)
    assert loaded.fingerprint == plan.fingerprint
    assert (loaded.max_length, loaded.max_per_pack, loaded.algorithm) == (5, 3, "lpfhp")
    before = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == before


def signed(plan):
    """The plan as text, with the checksum of what it says now."""
    contents = {key: value for key, value in plan.items() if key != "checksum"}
    return json.dumps({**contents, "checksum": fingerprint(contents)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: "", "not JSON"),
        (lambda plan: "[]", "not a packing plan"),
        (lambda plan: json.dumps({**plan, "format": "other"}), "not a packing plan"),
        (lambda plan: json.dumps({**plan, "version": 99}), "plan version 99, expected 2"),
        (lambda plan: json.dumps({**plan, "repeats": [7] * len(plan["repeats"])}), "checksum"),
        (lambda plan: json.dumps({**plan, "lower_bound": plan["packs"] + 1}), "checksum"),
        (lambda plan: json.dumps({**plan, "max_per_pack": 9}), "checksum"),
        (lambda plan: json.dumps(plan)[:50], "may be truncated"),
        (lambda plan: "[" * 100_000, "not JSON"),
        (lambda plan: json.dumps({"format": "packing-plan", "version": 2}), "without 'checksum'"),
        (lambda plan: signed({**plan, "repeats": [1.5, *plan["repeats"][1:]]}), "other kinds"),
        (lambda plan: signed({**plan, "repeats": [True, *plan["repeats"][1:]]}), "other kinds"),
        (lambda plan: signed({**plan, "repeats": plan["repeats"][1:]}), "other kinds"),
        (lambda plan: signed({**plan, "strategies": [[], [2]]}), "other kinds"),
        (lambda plan: signed({**plan, "strategies": [[3, 2], [-2]]}), "other kinds"),
        (lambda plan: signed({**plan, "max_length": 2**40}), "other kinds"),
        (lambda plan: signed({**plan, "lower_bound": None}), "other kinds"),
        (lambda plan: signed({**plan, "lower_bound": 0.5}), "other kinds"),
        (lambda plan: signed({**plan, "max_per_pack": float("nan")}), "other kinds"),
        (lambda plan: signed({**plan, "algorithm": 3}), "other kinds"),
        (lambda plan: signed({**plan, "packs": 1}), "fingerprint"),
        (lambda plan: signed({**plan, "strategies": [[3, 2], [2, 1]]}), "fingerprint"),
        (lambda plan: signed({**plan, "lower_bound": plan["packs"] + 1}), "lower_bound: expected"),
        (lambda plan: signed({**plan, "lower_bound": 1}), "lower_bound: expected"),
        (lambda plan: signed({k: v for k, v in plan.items() if k != "notes"}), "without 'notes'"),
    ],
)
def test_damaged_plan_is_named(tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text(change(solve([0, 0, 5, 3], 5).to_json()), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        PackingPlan.load(path)
    assert str(path) in str(caught.value)


def test_check_finds_what_is_wrong():
    counts = np.array([0, 2, 1])
    plan = solve(counts, 2, 2)
    with pytest.raises(ValueError, match="length 1: the plan places 2 sequences, expected 3"):
        plan.check(np.array([0, 3, 1]))
    with pytest.raises(ValueError, match="longer than 1 tokens"):
        replace(plan, max_length=1).check(counts)
    with pytest.raises(ValueError, match="holds 2 sequences, limit 1"):
        replace(plan, max_per_pack=1).check(counts)
