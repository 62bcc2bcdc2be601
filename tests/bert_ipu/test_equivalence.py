"""Packing changes nothing: same loss and gradients as one sequence per row, however the batch is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bert_ipu.backends.torch import packed_loss
from bert_ipu.config import ModelConfig
from bert_ipu.dataset import PackedDataset
from bert_ipu.model import BertForPackedPreTraining
from packing.shards import IGNORE_LABEL
from tests.shards import INFO, write_folder

MODEL = ModelConfig(
    vocab_size=INFO.vocab_size,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=INFO.max_length,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)


def make_model(attention):
    return BertForPackedPreTraining(MODEL, attention=attention, seed=3).double()


def unpack(batch):
    """The batch's sequences one per row, rebuilt token by token; labels are recognized by their places."""
    rows = []
    for pack in range(len(batch["input_ids"])):
        ids = batch["sequence_ids"][pack]
        for slot in range(int(ids.max())):
            places = torch.nonzero(ids == slot + 1).flatten()
            used = batch["mlm_labels"][pack] != IGNORE_LABEL
            mine = used & torch.isin(batch["mlm_positions"][pack], places)
            rows.append((pack, slot, places, mine))
    number, length = len(rows), batch["input_ids"].shape[1]
    slots = batch["mlm_labels"].shape[1]
    out = {
        name: torch.zeros(number, length, dtype=torch.int64)
        for name in ("input_ids", "sequence_ids", "position_ids", "token_type_ids")
    }
    out["cls_positions"] = torch.zeros(number, 1, dtype=torch.int64)
    out["nsp_labels"] = torch.zeros(number, 1, dtype=torch.int64)
    out["nsp_weights"] = torch.zeros(number, 1, dtype=torch.float64)
    out["mlm_positions"] = torch.zeros(number, slots, dtype=torch.int64)
    out["mlm_labels"] = torch.full((number, slots), IGNORE_LABEL, dtype=torch.int64)
    out["mlm_weights"] = torch.zeros(number, slots, dtype=torch.float64)
    for row, (pack, slot, places, mine) in enumerate(rows):
        size = len(places)
        out["input_ids"][row, :size] = batch["input_ids"][pack, places]
        out["sequence_ids"][row, :size] = 1
        out["position_ids"][row, :size] = torch.arange(size)
        out["token_type_ids"][row, :size] = batch["token_type_ids"][pack, places]
        out["nsp_labels"][row, 0] = batch["nsp_labels"][pack, slot]
        out["nsp_weights"][row, 0] = batch["nsp_weights"][pack, slot].double()
        count = int(mine.sum())
        out["mlm_positions"][row, :count] = batch["mlm_positions"][pack, mine] - places[0]
        out["mlm_labels"][row, :count] = batch["mlm_labels"][pack, mine]
        out["mlm_weights"][row, :count] = batch["mlm_weights"][pack, mine].double()
    return out


def cut(batch, size):
    number = len(batch["input_ids"])
    return [
        {name: tensor[start : start + size] for name, tensor in batch.items()}
        for start in range(0, number, size)
    ]


def loss_and_gradients(model, batches):
    model.zero_grad(set_to_none=True)
    total = 0.0
    for batch in batches:
        loss = packed_loss(model, batch).loss
        loss.backward()
        total += float(loss.detach())
    return total, {name: p.grad.clone() for name, p in model.named_parameters()}


def assert_same(one, other):
    assert one[0] == pytest.approx(other[0], rel=1e-10)
    whole = torch.sqrt(sum((grad**2).sum() for grad in one[1].values()))
    assert whole > 0
    for name, grad in one[1].items():
        assert (grad - other[1][name]).norm() < 1e-10 * whole, name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_folder(path, [9])
    return path


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("normalization", ["per_sequence", "per_token"])
def test_packed_equals_unpacked_for_any_cut(folder, attention, normalization):
    dataset = PackedDataset(folder, loss_normalization=normalization)
    batch = dataset[list(range(9))]
    model = make_model(attention)
    packed = loss_and_gradients(model, [batch])
    unpacked_batch = unpack(batch)
    assert len(unpacked_batch["input_ids"]) == (dataset.packed.lengths > 0).sum() > 9
    assert_same(packed, loss_and_gradients(model, [unpacked_batch]))
    for size in (1, 2, 4, 5):
        assert_same(packed, loss_and_gradients(model, cut(batch, size)))
        assert_same(packed, loss_and_gradients(model, cut(unpacked_batch, size)))


def reference_loss(model, batch, normalization):
    """The loss from its definition in words: means over sequences or tokens, in a plain loop."""
    unpacked = unpack(batch)
    token_losses, sequence_means, nsp_losses = [], [], []
    length = unpacked["input_ids"].shape[1]
    for row in range(len(unpacked["input_ids"])):
        one = {name: tensor[row : row + 1] for name, tensor in unpacked.items()}
        used = one["mlm_labels"][0] != IGNORE_LABEL
        logits, nsp = model(
            one["input_ids"],
            one["sequence_ids"],
            one["position_ids"],
            one["token_type_ids"],
            torch.arange(length),
            torch.zeros(1, dtype=torch.int64),
        )
        scores = torch.log_softmax(logits, dim=-1)
        losses = [
            -float(scores[place, label].detach())
            for place, label in zip(one["mlm_positions"][0][used], one["mlm_labels"][0][used])
        ]
        token_losses += losses
        sequence_means.append(np.mean(losses))
        nsp_losses.append(-float(torch.log_softmax(nsp, -1)[0, one["nsp_labels"][0, 0]].detach()))
    mlm = np.mean(token_losses if normalization == "per_token" else sequence_means)
    return mlm, np.mean(nsp_losses)


@pytest.mark.parametrize("normalization", ["per_sequence", "per_token"])
def test_loss_is_the_mean_it_says(folder, normalization):
    dataset = PackedDataset(folder, loss_normalization=normalization)
    batch = dataset[list(range(9))]
    model = make_model("eager")
    mlm, nsp = reference_loss(model, batch, normalization)
    loss = packed_loss(model, batch)
    # the weights are float32
    assert float(loss.mlm_loss) == pytest.approx(mlm, rel=1e-6)
    assert float(loss.nsp_loss) == pytest.approx(nsp, rel=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_sequence_does_not_see_the_others_of_its_pack(folder, attention):
    batch = PackedDataset(folder)[list(range(9))]
    model = make_model(attention).float().eval()
    length = batch["input_ids"].shape[1]
    everywhere = torch.arange(9 * length)

    def logits(tokens):
        with torch.no_grad():
            mlm, nsp = model(
                tokens,
                batch["sequence_ids"],
                batch["position_ids"],
                batch["token_type_ids"],
                everywhere,
                everywhere,
            )
        return mlm.view(9, length, -1), nsp.view(9, length, -1)

    before = logits(batch["input_ids"])
    for slot in (1, 2):
        mine = batch["sequence_ids"] == slot
        assert mine.any()
        assert (~mine & (batch["sequence_ids"] > 0)).any()
        changed = torch.where(mine, (batch["input_ids"] * 7 + 11) % 64, batch["input_ids"])
        for one, other in zip(before, logits(changed)):
            assert torch.equal(one[~mine], other[~mine])
            assert not torch.equal(one[mine], other[mine])
