"""Attention alone: the mask, the two paths, and the wall between the sequences of a pack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bert_ipu.attention import ATTENTION_PATHS, attend_eager, attend_sdpa, block_diagonal_mask

HEADS, HEAD_SIZE = 2, 8
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors wait for threads longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_sequence_ids(rng: np.random.Generator, length: int) -> torch.Tensor:
    """(6, L): packs cut at random, a full pack, one short by a token, one sequence, and padding."""
    rows = []
    for padding in (0, 1, int(rng.integers(0, length))):
        cuts = np.sort(rng.integers(0, length - padding + 1, size=3))
        row = np.searchsorted(cuts, np.arange(length), side="right") + 1
        row[length - padding :] = 0
        rows.append(row)
    one = np.ones(length, dtype=int)
    rows += [one, np.where(np.arange(length) == length - 1, 0, one), np.zeros(length, dtype=int)]
    return torch.from_numpy(np.stack(rows))


def random_heads(rng: np.random.Generator, ids_BL: torch.Tensor, scale: float) -> torch.Tensor:
    shape = (3, len(ids_BL), HEADS, ids_BL.shape[1], HEAD_SIZE)
    return torch.from_numpy(rng.normal(size=shape) * scale)


def attend_with_gradients(path, qkv, mask, dropout):
    """Output and the gradients of query, key and value for one fixed weighting of the output."""
    leaves = [x.clone().requires_grad_() for x in qkv]
    torch.manual_seed(1)
    output = ATTENTION_PATHS[path](*leaves, mask, dropout)
    weighting = torch.linspace(-1.0, 1.0, output.numel(), dtype=output.dtype).view_as(output)
    return [output.detach(), *torch.autograd.grad((output * weighting).sum(), leaves)]


def test_a_token_attends_to_its_own_sequence_and_padding_to_padding():
    rng = np.random.default_rng(0)
    ids = random_sequence_ids(rng, 13)
    mask = block_diagonal_mask(ids)
    assert mask.shape == (6, 1, 13, 13)
    assert mask.dtype == torch.bool
    for b in range(6):
        for i in range(13):
            assert mask[b, 0, i].tolist() == [bool(ids[b, j] == ids[b, i]) for j in range(13)]
    assert mask.any(dim=-1).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("length", [7, 100])
def test_the_paths_agree_with_gradients(dtype, tolerance, length):
    rng = np.random.default_rng(length)
    ids = random_sequence_ids(rng, length)
    qkv, mask = random_heads(rng, ids, 1.0).to(dtype), block_diagonal_mask(ids)
    eager = attend_with_gradients("eager", qkv, mask, 0.0)
    sdpa = attend_with_gradients("sdpa", qkv, mask, 0.0)
    for ours, theirs in zip(eager, sdpa):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 33, 100, 600])
@pytest.mark.parametrize("path", sorted(ATTENTION_PATHS))
def test_a_changed_sequence_leaves_the_others_bit_identical(path, length, dtype, dropout):
    rng = np.random.default_rng(length)
    ids = random_sequence_ids(rng, length)
    if length > 512:  # more than one block of keys in a fused kernel: one random pack will do
        ids = ids[2:3]
    mask = block_diagonal_mask(ids)
    before = random_heads(rng, ids, 1.0).to(dtype)
    reference = attend_with_gradients(path, before, mask, dropout)
    for sequence in (0, 1, 3):
        changed = (ids == sequence)[:, None, :, None]
        after = torch.where(changed, random_heads(rng, ids, 30.0).to(dtype), before)
        results = attend_with_gradients(path, after, mask, dropout)
        kept = (~changed).expand_as(reference[0])
        for old, new in zip(reference, results):
            assert torch.isfinite(new).all()
            assert torch.equal(old[kept], new[kept])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("path", sorted(ATTENTION_PATHS))
def test_huge_scores_stay_finite(path, dtype):
    rng = np.random.default_rng(0)
    ids = random_sequence_ids(rng, 40)
    qkv = random_heads(rng, ids, 1e4).to(dtype)
    for result in attend_with_gradients(path, qkv, block_diagonal_mask(ids), 0.0):
        assert torch.isfinite(result).all()


@pytest.mark.parametrize("attend", [attend_eager, attend_sdpa])
def test_dropout_keeps_the_expectation_and_drops_weights(attend):
    torch.manual_seed(0)
    ones = torch.ones(1, 1, 400, 8)
    mask = torch.ones(1, 1, 400, 400, dtype=torch.bool)
    output = attend(ones, ones, ones, mask, 0.5)
    assert output.std() > 0.01
    assert abs(float(output.mean()) - 1.0) < 0.01
    assert torch.equal(attend(ones, ones, ones, mask, 0.0).round(decimals=5), ones)
