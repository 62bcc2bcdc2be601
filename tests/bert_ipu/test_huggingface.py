"""Folders written for transformers load there without a complaint, and its folders load here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from bert_ipu.config import ModelConfig
from bert_ipu.huggingface import export_folder, load_folder
from bert_ipu.model import BertForPackedPreTraining

SMALL = ModelConfig(
    vocab_size=40,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
    hidden_act="gelu_new",
    layer_norm_eps=1e-7,
)
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "##s",
    "Caf",
    "caf",
    "##e",
    "é",
]
TEXT = "The cats caf\u00e9"


@pytest.fixture
def state():
    return BertForPackedPreTraining(SMALL, seed=1).state_dict()


def write_tokenizer(folder, lowercase=True, words=WORDS):
    """vocab.txt, and tokenizer.json unless lowercase is None."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if lowercase is not None:
        tokenizers = pytest.importorskip("tokenizers")
        vocabulary = {word: index for index, word in enumerate(words)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.add_special_tokens(words[:5])
        tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def exported(tmp_path, state):
    export_folder(state, SMALL, write_tokenizer(tmp_path / "tokenizer"), tmp_path / "model")
    return tmp_path / "model"


def save_transformers_model(class_name, folder, **options):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        **options,
    )
    model = getattr(transformers, class_name)(config)
    model.save_pretrained(folder)
    return model


def edit_config(folder, **changes):
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def edit_weights(folder, edit):
    """edit(tensors) changes the dict in place."""
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


# --- export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_name", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_transformers_loads_the_folder_whole(exported, state, class_name):
    transformers = pytest.importorskip("transformers")
    model, report = getattr(transformers, class_name).from_pretrained(
        exported, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    if class_name == "BertForPreTraining":
        assert not report["unexpected_keys"]
    loaded = model.state_dict()
    prefix = "bert." if class_name == "BertModel" else ""
    compared = [name for name in loaded if prefix + name in state]
    assert len(compared) >= len(loaded) - 2  # the two tied names
    for name in compared:
        assert torch.equal(loaded[name], state[prefix + name])
    if "cls.predictions.decoder.weight" in loaded:
        words = state["bert.embeddings.word_embeddings.weight"]
        assert torch.equal(loaded["cls.predictions.decoder.weight"], words)
    assert (model.config.hidden_act, model.config.layer_norm_eps) == ("gelu_new", 1e-7)
    assert model.config.architectures == ["BertForPreTraining"]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("with_json", [True, False])
def test_auto_tokenizer_reads_as_the_vocabulary_was_made(tmp_path, state, lowercase, with_json):
    transformers = pytest.importorskip("transformers")
    tokenizer_dir = write_tokenizer(tmp_path / "tokenizer", lowercase if with_json else None)
    export_folder(state, SMALL, tokenizer_dir, tmp_path / "model", do_lower_case=lowercase)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    expected = (
        ["the", "cat", "##s", "caf", "##e"] if lowercase else ["[UNK]", "cat", "##s", "[UNK]"]
    )
    assert tokenizer.convert_ids_to_tokens(tokenizer(TEXT)["input_ids"]) == [
        "[CLS]",
        *expected,
        "[SEP]",
    ]
    assert tokenizer.model_max_length == 32
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, 4)


def test_a_folder_comes_back_exactly(exported, state):
    loaded = load_folder(exported)
    assert loaded.config == SMALL
    assert (loaded.absent, loaded.ignored) == ((), ())
    assert list(loaded.state) == list(state)
    assert all(torch.equal(loaded.state[name], state[name]) for name in state)
    BertForPackedPreTraining(loaded.config).load_state_dict(loaded.state)


def test_an_existing_folder_is_kept_unless_overwritten(exported, state, tmp_path):
    tokenizer_dir = tmp_path / "tokenizer"
    with pytest.raises(ValueError, match="model exists already"):
        export_folder(state, SMALL, tokenizer_dir, exported)
    changed = {name: tensor + 1 for name, tensor in state.items()}
    (tmp_path / "model.partial").mkdir()  # of a run that was killed
    (tmp_path / "model.partial" / "junk").touch()
    export_folder(changed, SMALL, tokenizer_dir, exported, overwrite=True)
    assert torch.equal(
        load_folder(exported).state["cls.predictions.bias"], changed["cls.predictions.bias"]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "tokenizer"]
    assert sorted(path.name for path in exported.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_a_folder_that_is_no_model_is_never_replaced(state, tmp_path):
    write_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "thesis").mkdir()
    with pytest.raises(ValueError, match="thesis is no model folder"):
        export_folder(state, SMALL, tmp_path / "tokenizer", tmp_path / "thesis", overwrite=True)


def test_nothing_is_left_when_the_export_fails(state, tmp_path):
    with pytest.raises(ValueError, match="vocab.txt is missing"):
        export_folder(state, SMALL, tmp_path / "nowhere", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_states_and_tokenizers_that_do_not_fit_are_refused(state, tmp_path):
    def export(state=state, config=SMALL, lowercase=True, words=WORDS, **options):
        for old in (tmp_path / "tokenizer").glob("*"):
            old.unlink()
        tokenizer_dir = write_tokenizer(tmp_path / "tokenizer", lowercase, words)
        export_folder(state, config, tokenizer_dir, tmp_path / "model", **options)

    less = {name: tensor for name, tensor in state.items() if name != "cls.predictions.bias"}
    with pytest.raises(ValueError, match="state lacks 1 weights .*: cls.predictions.bias"):
        export(less)
    with pytest.raises(ValueError, match="state has unknown 1 weights .*: extra"):
        export({**state, "extra": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"bias must have shape \(40,\), got \(41,\)"):
        export({**state, "cls.predictions.bias": torch.zeros(41)})
    with pytest.raises(ValueError, match="has 41 tokens, vocab_size is 40"):
        export(words=[*WORDS, *(f"w{i}" for i in range(29))])
    with pytest.raises(ValueError, match=r"lacks the special tokens \[MASK\]"):
        export(words=[word for word in WORDS if word != "[MASK]"])
    with pytest.raises(ValueError, match="pass do_lower_case"):
        export(lowercase=None)
    with pytest.raises(ValueError, match="do_lower_case must be True as in .*, got False"):
        export(do_lower_case=False)
    write_tokenizer(tmp_path / "tokenizer")
    write_tokenizer(tmp_path / "tokenizer", lowercase=None, words=[*WORDS, "new"])
    with pytest.raises(ValueError, match="differ in their vocabulary"):
        export_folder(state, SMALL, tmp_path / "tokenizer", tmp_path / "model")


# --- load ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("class_name", "absent", "ignored"),
    [
        ("BertForPreTraining", [], []),
        (
            "BertForMaskedLM",
            [
                "bert.pooler.dense.weight",
                "bert.pooler.dense.bias",
                "cls.seq_relationship.weight",
                "cls.seq_relationship.bias",
            ],
            [],
        ),
        ("BertModel", "cls.", []),
        ("BertForSequenceClassification", "cls.", ["classifier.bias", "classifier.weight"]),
    ],
)
@pytest.mark.parametrize("as_bin", [False, True])
def test_folders_of_transformers_load(tmp_path, class_name, absent, ignored, as_bin):
    theirs = save_transformers_model(class_name, tmp_path).state_dict()
    if as_bin:  # as older versions of transformers saved: every name, tied or not
        (tmp_path / "model.safetensors").unlink()
        torch.save(theirs, tmp_path / "pytorch_model.bin")
    loaded = load_folder(tmp_path)
    if absent == "cls.":
        fresh = BertForPackedPreTraining(loaded.config).state_dict()
        absent = [name for name in fresh if name.startswith("cls.")]
    assert list(loaded.absent) == absent
    assert list(loaded.ignored) == ignored
    prefix = "bert." if class_name == "BertModel" else ""
    theirs = {prefix + name: tensor for name, tensor in theirs.items()}
    for name, tensor in loaded.state.items():
        assert torch.equal(tensor, theirs[name])
    BertForPackedPreTraining(loaded.config).load_state_dict(loaded.state, strict=not absent)


def test_old_names_and_buffers_are_understood(exported, state):
    def age(tensors):
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            old = old.replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["bert.embeddings.position_ids"] = torch.arange(32)[None]
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    edit_weights(exported, age)
    loaded = load_folder(exported)
    assert (loaded.absent, loaded.ignored) == ((), ())
    assert all(torch.equal(loaded.state[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "model_type must be 'bert', got 'roberta'"),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type must be 'absolute', got 'relative_key'",
        ),
        ({"is_decoder": True}, "is_decoder must be False, got True"),
        ({"hidden_act": "silu"}, "config.json: hidden_act must be one of gelu, gelu_new, relu"),
        ({"hidden_size": None}, "hidden_size must be a whole number >= 1, got None"),
        ({"vocab_size": 41}, r"word_embeddings.weight must have shape \(41, 8\), got \(40, 8\)"),
        ({"num_hidden_layers": 2}, "safetensors lacks 16 weights of this config: bert.encoder.lay"),
    ],
)
def test_configs_that_do_not_fit_are_refused(exported, changes, message):
    edit_config(exported, **changes)
    with pytest.raises(ValueError, match=message):
        load_folder(exported)


def test_weights_that_do_not_fit_are_refused(exported):
    def surplus(tensors):
        tensors["bert.encoder.layer.1.output.dense.bias"] = torch.zeros(8)

    edit_weights(exported, surplus)
    with pytest.raises(
        ValueError, match="has unknown 1 weights of this config: bert.encoder.layer.1"
    ):
        load_folder(exported)

    def untied(tensors):
        del tensors["bert.encoder.layer.1.output.dense.bias"]
        tensors["cls.predictions.decoder.weight"] = torch.zeros(40, 8)

    edit_weights(exported, untied)
    with pytest.raises(ValueError, match="decoder.weight must equal .* got other values"):
        load_folder(exported)


def test_missing_and_broken_files_are_refused_in_one_line(exported):
    def message():
        with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
            load_folder(exported)
        return str(caught.value)

    weights = exported / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "model.safetensors cannot be read" in message()
    weights.unlink()
    assert "has neither model.safetensors nor pytorch_model.bin" in message()
    pickled = exported / "pytorch_model.bin"
    torch.save({"a": torch.zeros(9)}, pickled)
    for content in (b"", b"no checkpoint", pickled.read_bytes()[:200], pickled.read_bytes()[:-9]):
        pickled.write_bytes(content)
        assert "pytorch_model.bin cannot be read" in message()
    torch.save({"step": 3}, pickled)
    assert "pytorch_model.bin must hold tensors by name, got dict" in message()
    (exported / "config.json").write_text("{", encoding="utf-8")
    assert "config.json: not JSON" in message()
    (exported / "config.json").write_text("[]", encoding="utf-8")
    assert "config.json: expected a JSON object, found list" in message()
    (exported / "config.json").unlink()
    assert "config.json: no such file" in message()


def test_transformers_is_not_imported():
    code = "import sys, bert_ipu.huggingface; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
