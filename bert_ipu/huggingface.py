"""Model folders in Hugging Face's format, written and read without transformers.

A folder written here loads with transformers' BertForPreTraining, BertModel and AutoTokenizer; a
folder read here may hold any BERT encoder with absolute positions, with or without its heads.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional

import torch
from safetensors.torch import load_file, save_file

from bert_ipu.config import ModelConfig
from bert_ipu.model import BertForPackedPreTraining
from packing.files import read_object, whole_folder, write_json

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
# Hugging Face's second names of tied parameters; our model has each parameter once.
TIED_NAMES = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
HEAD_PREFIXES = ("cls.", "bert.pooler.")  # what an encoder may be saved without
# Constants that older versions saved among the weights.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


EXPORTED = {
    *("config.json", "model.safetensors", "vocab.txt", "tokenizer.json"),
    *("tokenizer_config.json", "special_tokens_map.json", "README.md"),
}


class LoadedFolder(NamedTuple):
    """A model read from a folder; `model.load_state_dict(state, strict=not absent)` takes it."""

    config: ModelConfig
    state: dict[str, torch.Tensor]  # our model's names, the folder's dtype
    absent: tuple[str, ...]  # parts of the heads that the folder lacks: they stay fresh
    ignored: tuple[str, ...]  # weights in the folder that belong to other heads


def export_folder(
    state: Mapping[str, torch.Tensor],
    config: ModelConfig,
    tokenizer_dir: Path,
    output_dir: Path,
    *,
    do_lower_case: Optional[bool] = None,
    overwrite: bool = False,
) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files to output_dir.

    state          BertForPackedPreTraining's state_dict, on any device; its dtype is kept
    tokenizer_dir  holds vocab.txt and mostly tokenizer.json
    do_lower_case  needed where tokenizer.json does not say it, must agree where it does
    overwrite      replace output_dir, as a whole, if it holds a model
    All is written to output_dir.partial, which is renamed at the end. Raises ValueError if
    output_dir is taken, or if the state or the tokenizer does not fit the config.
    """
    tokenizer_dir, output_dir = Path(tokenizer_dir), Path(output_dir)
    if output_dir.exists() and not overwrite:
        raise ValueError(f"{output_dir} exists already; --overwrite replaces it")
    if output_dir.exists() and not (output_dir / "config.json").is_file():
        raise ValueError(f"{output_dir} is no model folder (no config.json): not replacing it")
    foreign = {path.name for path in output_dir.glob("*")} - EXPORTED
    if foreign:
        raise ValueError(f"{output_dir} holds {min(foreign)} as well: not replacing it")
    check_names(set(state), set(parameter_shapes(config)), "the model's state")
    check_shapes(state, config, "the model's state")
    vocabulary = read_vocabulary(tokenizer_dir / "vocab.txt", config)
    tokenizer_config = make_tokenizer_config(tokenizer_dir, vocabulary, config, do_lower_case)
    model_config = {
        **asdict(config),
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "pad_token_id": vocabulary[SPECIAL_TOKENS["pad_token"]],
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "torch_dtype": str(state[WORD_EMBEDDINGS].dtype).split(".")[-1],
    }

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with whole_folder(output_dir) as scratch:
        write_json(scratch / "config.json", model_config)
        save_file(tensors, scratch / "model.safetensors", metadata={"format": "pt"})
        for name in ("vocab.txt", "tokenizer.json"):
            if (tokenizer_dir / name).is_file():
                shutil.copyfile(tokenizer_dir / name, scratch / name)
        write_json(scratch / "tokenizer_config.json", tokenizer_config)


def load_folder(path: Path) -> LoadedFolder:
    """Reads config.json and model.safetensors, or else pytorch_model.bin.

    Takes what transformers' save_pretrained writes for BertForPreTraining, BertForMaskedLM and
    BertModel, and folders of other BERT models, whose own heads are listed as ignored. Raises
    ValueError, in one line, for missing or broken files, another architecture or positions that are
    not absolute, and weights that do not fit config.json.
    """
    folder = Path(path)
    config = read_model_config(folder / "config.json")
    weights_path, stored = read_weights(folder)
    state = untie(rename(stored), weights_path)
    expected = parameter_shapes(config)
    surplus = sorted(set(state) - set(expected) - set(BUFFERS))
    state = {name: state[name] for name in expected if name in state}
    absent = tuple(name for name in expected if name not in state)
    heads = {name for name in absent if name.startswith(HEAD_PREFIXES)}
    encoder_surplus = {name for name in surplus if name.startswith("bert.")}
    check_names(set(state) | encoder_surplus, set(expected) - heads, str(weights_path))
    check_shapes(state, config, str(weights_path))
    return LoadedFolder(config, state, absent, tuple(surplus))


def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """Name and shape of every parameter of the model, without the memory."""
    with torch.device("meta"):
        model = BertForPackedPreTraining(config)
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def check_names(found: set[str], expected: set[str], source: str) -> None:
    for names, problem in ((expected - found, "lacks"), (found - expected, "has unknown")):
        if names:
            first = ", ".join(sorted(names)[:3])
            raise ValueError(f"{source} {problem} {len(names)} weights of this config: {first}")


def check_shapes(state: Mapping[str, torch.Tensor], config: ModelConfig, source: str) -> None:
    expected = parameter_shapes(config)
    for name, tensor in state.items():
        if tensor.shape != expected[name]:
            raise ValueError(
                f"{source}: {name} must have shape {tuple(expected[name])}, "
                f"got {tuple(tensor.shape)}"
            )


def rename(stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Old LayerNorm names become today's, and names of a bare encoder get their "bert."."""
    encoder_only = not any(name.startswith("bert.") for name in stored)
    state = {}
    for name, tensor in stored.items():
        for old, new in OLD_ENDINGS.items():
            if name.endswith(old):
                name = name[: -len(old)] + new
        if encoder_only and not name.startswith("cls."):
            name = "bert." + name
        state[name] = tensor
    return state


def untie(state: dict[str, torch.Tensor], source: Path) -> dict[str, torch.Tensor]:
    """Drops the second names of tied parameters; refuses a decoder with weights of its own."""
    state = dict(state)
    for second, first in TIED_NAMES.items():
        if second in state:
            tensor = state.pop(second)
            if not torch.equal(state.setdefault(first, tensor), tensor):
                raise ValueError(f"{source}: {second} must equal {first} (tied), got other values")
    return state


def read_weights(folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """The weights file of a folder and its tensors, on the CPU."""
    path = folder / "model.safetensors"
    if not path.is_file():
        path = folder / "pytorch_model.bin"
    if not path.is_file():
        raise ValueError(f"{folder} has neither model.safetensors nor pytorch_model.bin, unsplit")
    try:
        stored = load_file(path) if path.suffix == ".safetensors" else load_pickled(path)
    except Exception as error:  # a broken pickle may raise nearly anything
        reason = [type(error).__name__, *str(error).splitlines()[:1]]
        raise ValueError(f"{path} cannot be read: {': '.join(reason)}") from error
    if not isinstance(stored, Mapping) or not all(map(torch.is_tensor, stored.values())):
        raise ValueError(f"{path} must hold tensors by name, got {type(stored).__name__}")
    return path, dict(stored)


def load_pickled(path: Path) -> Any:
    """What torch.save wrote, on the CPU; only tensors and plain values are unpickled."""
    with warnings.catch_warnings():
        # torch 2.0.1 warns about its own use of TypedStorage
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        return torch.load(path, map_location="cpu", weights_only=True)


def read_model_config(path: Path) -> ModelConfig:
    """ModelConfig of a config.json; a key it lacks has its default, as with transformers."""
    stored = read_object(path)
    for key, expected, default in (
        ("model_type", "bert", None),
        ("position_embedding_type", "absolute", "absolute"),
        ("is_decoder", False, False),
        ("add_cross_attention", False, False),
    ):
        if stored.get(key, default) != expected:
            raise ValueError(f"{path}: {key} must be {expected!r}, got {stored.get(key)!r}")
    names = [field.name for field in fields(ModelConfig)]
    try:
        return ModelConfig(**{name: stored[name] for name in names if name in stored})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_vocabulary(path: Path, config: ModelConfig) -> dict[str, int]:
    """Token -> id from vocab.txt, whose line number, from 0, is the id."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    lines = path.read_text(encoding="utf-8").split("\n")
    tokens = lines[:-1] if lines[-1] == "" else lines
    if len(tokens) > config.vocab_size:
        raise ValueError(f"{path} has {len(tokens)} tokens, vocab_size is {config.vocab_size}")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    missing = [token for token in SPECIAL_TOKENS.values() if token not in vocabulary]
    if missing:
        raise ValueError(f"{path} lacks the special tokens {', '.join(missing)}")
    return vocabulary


def make_tokenizer_config(
    tokenizer_dir: Path,
    vocabulary: dict[str, int],
    config: ModelConfig,
    do_lower_case: Optional[bool],
) -> dict[str, Any]:
    """Content of tokenizer_config.json, with tokenizer.json's normalisation where there is one."""
    path = tokenizer_dir / "tokenizer.json"
    normalizer: dict[str, Any] = {}
    if path.is_file():
        tokenizer = read_object(path)
        if tokenizer.get("model", {}).get("vocab") != vocabulary:
            raise ValueError(f"{path} and {tokenizer_dir / 'vocab.txt'} differ in their vocabulary")
        normalizer = bert_normalizer(tokenizer.get("normalizer"))
    stored = normalizer.get("lowercase", do_lower_case)
    if stored is None:
        raise ValueError(f"{path} does not say whether it lower-cases; pass do_lower_case")
    if do_lower_case is not None and stored != do_lower_case:
        raise ValueError(f"do_lower_case must be {stored} as in {path}, got {do_lower_case}")
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": stored,
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": config.max_position_embeddings,
        **SPECIAL_TOKENS,
    }


def bert_normalizer(normalizer: Optional[dict[str, Any]]) -> dict[str, Any]:
    """The BertNormalizer of a tokenizer.json, alone or within a Sequence; {} if there is none."""
    steps = [normalizer or {}]
    if steps[0].get("type") == "Sequence":
        steps = steps[0].get("normalizers", [])
    return next((step for step in steps if step.get("type") == "BertNormalizer"), {})
