"""Batches: shapes, exact weights, schedule, workers; packs read once an epoch for any cut."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from bert_ipu.config import MaskingConfig
from bert_ipu.dataset import (
    MicroBatches,
    PackedDataset,
    Schedule,
    prediction_slots,
    steps_of_micro_batches,
    whole_split,
)
from bert_ipu.masking import num_masked
from bert_ipu.metrics import unigram_entropy
from packing.shards import IGNORE_LABEL
from tests.shards import INFO, KINDS, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_folder(path, [7, 6], splits=("train", "validation"))
    return path


def test_batch_has_the_documented_tensors(folder):
    dataset = PackedDataset(folder)
    batch = dataset[[3, 0, 12]]
    length, depth, slots = INFO.max_length, INFO.max_per_pack, dataset.num_slots
    expected = {
        "input_ids": ((3, length), torch.int64),
        "sequence_ids": ((3, length), torch.int64),
        "position_ids": ((3, length), torch.int64),
        "token_type_ids": ((3, length), torch.int64),
        "cls_positions": ((3, depth), torch.int64),
        "nsp_labels": ((3, depth), torch.int64),
        "nsp_weights": ((3, depth), torch.float32),
        "mlm_positions": ((3, slots), torch.int64),
        "mlm_labels": ((3, slots), torch.int64),
        "mlm_weights": ((3, slots), torch.float32),
    }
    assert {name: (tuple(t.shape), t.dtype) for name, t in batch.items()} == expected
    assert len(dataset) == 13
    assert dataset[4]["input_ids"].shape == (1, length)


def test_number_of_slots_is_the_largest_sum_of_both_splits(folder):
    sums = [
        num_masked(PackedDataset(folder, split).packed.lengths, 0.15, 3).sum(axis=1).max()
        for split in ("train", "validation")
    ]
    for split in ("train", "validation"):
        dataset = PackedDataset(folder, split)
        assert dataset.num_slots == max(sums)
        assert prediction_slots(folder, 0.15, dataset.packed) == max(sums)


@pytest.mark.parametrize("normalization", ["per_sequence", "per_token"])
def test_weights_are_the_exact_mean(folder, normalization):
    dataset = PackedDataset(folder, loss_normalization=normalization)
    batch = dataset[list(range(13))]
    weights = batch["mlm_weights"].double()
    used = batch["mlm_labels"] != IGNORE_LABEL
    assert (weights[~used] == 0).all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-6)
    assert batch["nsp_weights"].double().sum().item() == pytest.approx(1, abs=1e-6)
    sequences = int((dataset.packed.lengths > 0).sum())
    labelled = batch["nsp_labels"] != IGNORE_LABEL
    assert torch.allclose(batch["nsp_weights"][labelled], torch.tensor(1 / sequences))
    if normalization == "per_token":
        assert torch.allclose(weights[used], (1 / used.sum()).double())
        return
    for row in range(13):  # every sequence weighs the same, whatever its length
        sequence = batch["sequence_ids"][row][batch["mlm_positions"][row]]
        for slot in range(1, int(batch["sequence_ids"][row].max()) + 1):
            mine = used[row] & (sequence == slot)
            assert weights[row][mine].sum().item() == pytest.approx(1 / sequences, rel=1e-5)


@given(packs=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 3), steps=st.just(30))
def test_schedule_reads_every_pack_once_an_epoch(packs, size, seed, steps):
    schedule = Schedule(packs, size, seed)
    seen = Counter()
    for step in range(steps):
        rows, epochs = schedule.step(step)
        assert rows.size == epochs.size == size
        seen.update(zip(epochs.tolist(), rows.tolist()))
    assert set(seen.values()) == {1}
    whole_epochs = steps * size // packs
    for epoch in range(whole_epochs):
        assert {row for e, row in seen if e == epoch} == set(range(packs))
    again = Schedule(packs, size, seed)
    for step in (steps - 1, 0, steps // 2):  # any step at once, in any order
        assert np.array_equal(again.step(step)[0], schedule.step(step)[0])


def test_epochs_have_orders_of_their_own():
    schedule = Schedule(100, 10, 0)
    assert not np.array_equal(schedule.order(0), schedule.order(1))
    assert not np.array_equal(schedule.order(0), Schedule(100, 10, 1).order(0))


def concatenate(batches):
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


@pytest.mark.parametrize("micro", [1, 3, 5, 8, 100])
def test_the_cut_into_micro_batches_changes_nothing(folder, micro):
    dataset = PackedDataset(folder)
    schedule = Schedule(13, 8, 0)
    whole = list(steps_of_micro_batches(MicroBatches(dataset, schedule, 8, 4), 0, 0))
    cut = list(steps_of_micro_batches(MicroBatches(dataset, schedule, micro, 4), 0, 0))
    assert len(whole) == len(cut) == 4
    for one, other in zip(whole, cut):
        for name, tensor in concatenate(other).items():
            assert torch.equal(tensor, one[0][name]), name


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_and_start_change_nothing(folder, workers):
    dataset = PackedDataset(folder)
    micro_batches = MicroBatches(dataset, Schedule(13, 8, 0), 4, 5)
    plain = list(steps_of_micro_batches(micro_batches, 0, 0))
    read_ahead = list(steps_of_micro_batches(micro_batches, 2, workers))
    assert len(read_ahead) == 3
    for one, other in zip(plain[2:], read_ahead):
        for left, right in zip(one, other):
            assert all(torch.equal(left[name], right[name]) for name in left)


def test_masks_change_from_epoch_to_epoch_unless_static(folder):
    for mode, same in (("dynamic", False), ("static", True)):
        dataset = PackedDataset(folder, masking=MaskingConfig(mode=mode))
        first = dataset[[2]]["mlm_positions"]
        dataset.epoch = 1
        assert torch.equal(first, dataset[[2]]["mlm_positions"]) == same


def test_anybodys_own_loop(folder):
    dataset = PackedDataset(folder)
    sampler = BatchSampler(RandomSampler(dataset), batch_size=4, drop_last=False)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    batches = list(loader)
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4, 4, 1]
    for batch in batches:
        assert batch["mlm_weights"].sum().item() == pytest.approx(1, abs=1e-5)
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[[5]]["input_ids"], dataset[[5]]["input_ids"])


def test_whole_split_weights_sum_to_one(folder):
    batches = list(whole_split(PackedDataset(folder, "validation"), 4))
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4, 4, 1]
    total = sum(float(batch["mlm_weights"].double().sum()) for batch in batches)
    assert total == pytest.approx(1, abs=1e-6)


def test_unigram_entropy_counts_ordinary_tokens(folder):
    dataset = PackedDataset(folder)
    arrays = dataset.packed.read(np.arange(13))
    tokens = arrays["input_ids"][arrays["input_ids"] > 5]
    assert KINDS[6] == 0
    shares = np.unique(tokens, return_counts=True)[1] / tokens.size
    assert unigram_entropy(dataset) == pytest.approx(-(shares * np.log(shares)).sum())
