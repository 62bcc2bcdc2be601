"""The weighted sums of the loss against a plain numpy sum, and what empty slots add: nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bert_ipu.losses import pretraining_loss
from packing.shards import IGNORE_LABEL

VOCAB = 11


def random_slots(rng: np.random.Generator, slots: int, classes: int, dtype=torch.float64):
    """logits, labels, weights; about a third of the slots is empty."""
    labels = rng.integers(0, classes, size=slots)
    empty = rng.random(slots) < 0.3
    logits = torch.from_numpy(rng.normal(size=(slots, classes)) * 3).to(dtype)
    return (
        logits,
        torch.from_numpy(np.where(empty, IGNORE_LABEL, labels)),
        torch.from_numpy(np.where(empty, 0.0, rng.random(slots) + 0.1)).to(torch.float32),
    )


def numpy_sum(logits, labels, weights) -> float:
    total = 0.0
    for row, label, weight in zip(logits.tolist(), labels.tolist(), weights.tolist()):
        if label != IGNORE_LABEL:
            total += weight * (np.log(np.sum(np.exp(row))) - row[label])
    return total


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_the_weighted_sum(seed):
    rng = np.random.default_rng(seed)
    mlm, nsp = random_slots(rng, 17, VOCAB), random_slots(rng, 6, 2)
    result = pretraining_loss(*mlm, *nsp)
    assert result.loss.dtype == torch.float64
    np.testing.assert_allclose(result.mlm_loss, numpy_sum(*mlm), rtol=1e-13)
    np.testing.assert_allclose(result.nsp_loss, numpy_sum(*nsp), rtol=1e-13)
    assert torch.equal(result.loss, result.mlm_loss + result.nsp_loss)
    right = mlm[0].argmax(dim=1) == mlm[1]
    assert int(result.mlm_correct) == int(right.sum())
    assert int(result.mlm_count) == int((mlm[1] != IGNORE_LABEL).sum())
    assert int(result.nsp_count) == int((nsp[1] != IGNORE_LABEL).sum())


def test_only_the_loss_carries_a_gradient():
    rng = np.random.default_rng(0)
    mlm, nsp = random_slots(rng, 9, VOCAB), random_slots(rng, 4, 2)
    for logits in (mlm[0], nsp[0]):
        logits.requires_grad_()
    result = pretraining_loss(*mlm, *nsp)
    assert [value.requires_grad for value in result] == [True] + [False] * 6
    result.loss.backward()
    empty = mlm[1] == IGNORE_LABEL
    assert (mlm[0].grad[empty] == 0).all()
    assert (mlm[0].grad[~empty] != 0).any(dim=1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_summed_in_float32(dtype):
    rng = np.random.default_rng(1)
    mlm, nsp = random_slots(rng, 40, VOCAB, dtype), random_slots(rng, 6, 2, dtype)
    result = pretraining_loss(*mlm, *nsp)
    assert result.loss.dtype == result.mlm_loss.dtype == torch.float32
    np.testing.assert_allclose(result.mlm_loss, numpy_sum(*mlm), rtol=1e-5)


def test_cutting_a_batch_up_changes_no_sum():
    rng = np.random.default_rng(2)
    mlm, nsp = random_slots(rng, 30, VOCAB), random_slots(rng, 12, 2)
    whole = pretraining_loss(*mlm, *nsp)
    parts = [
        pretraining_loss(*(x[a:b] for x in mlm), *(x[c:d] for x in nsp))
        for a, b, c, d in [(0, 7, 0, 0), (7, 7, 0, 5), (7, 30, 5, 12)]
    ]
    for name in whole._fields:
        total = sum(getattr(part, name) for part in parts)
        torch.testing.assert_close(total, getattr(whole, name), rtol=1e-13, atol=0)


@pytest.mark.parametrize("slots", [0, 5])
def test_nothing_to_predict_is_zero_and_never_nan(slots):
    logits = torch.randn(slots, VOCAB, requires_grad=True)
    labels, weights = torch.full((slots,), IGNORE_LABEL), torch.zeros(slots)
    pairs = torch.randn(slots, 2, requires_grad=True)
    result = pretraining_loss(logits, labels, weights, pairs, labels, weights)
    result.loss.backward()
    assert [float(value.detach()) for value in result] == [0.0] * 7
    assert (logits.grad == 0).all()
    assert (pairs.grad == 0).all()


def test_slots_of_weight_zero_are_not_counted():
    logits = torch.eye(3, VOCAB)
    result = pretraining_loss(
        logits,
        torch.tensor([0, 1, 5]),
        torch.tensor([1.0, 0.0, 1.0]),
        torch.eye(2),
        torch.tensor([0, 0]),
        torch.tensor([0.5, 0.5]),
    )
    assert (int(result.mlm_correct), int(result.mlm_count)) == (1, 2)
    assert (int(result.nsp_correct), int(result.nsp_count)) == (1, 2)
