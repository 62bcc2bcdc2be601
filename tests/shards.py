"""Small random shards and data folders for tests, made without data_prep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Sequence

import numpy as np

from packing.files import fingerprint, write_json
from packing.folder import DATA_FORMAT, DATA_VERSION, data_section, shard_name
from packing.shards import (
    KIND_CONTINUATION,
    KIND_ORDINARY,
    KIND_SPECIAL,
    KIND_UNUSED,
    NO_EXAMPLE,
    NO_LABEL,
    ShardInfo,
    write_shard,
)

PAD, UNK, CLS, SEP, MASK, UNUSED = range(6)
INFO = ShardInfo(
    max_length=40,
    max_per_pack=4,
    vocab_size=64,
    vocab_sha256="0" * 64,
    special_token_ids={"pad": PAD, "unk": UNK, "cls": CLS, "sep": SEP, "mask": MASK},
    nsp=True,
    plan_fingerprint="1" * 64,
)
KINDS = np.array(
    [KIND_SPECIAL] * 5 + [KIND_UNUSED] + [KIND_ORDINARY] * 38 + [KIND_CONTINUATION] * 20,
    dtype=np.uint8,
)


def random_arrays(
    num_packs: int, seed: int = 0, info: ShardInfo = INFO, first_id: int = 0
) -> Dict[str, Any]:
    """Packs of one to D sequences of random lengths, a third of them full to the last token."""
    rng = np.random.default_rng(seed)
    arrays = {
        "input_ids": np.zeros((num_packs, info.max_length), dtype=np.uint16),
        "lengths": np.zeros((num_packs, info.max_per_pack), dtype=np.uint16),
        "first_lengths": np.zeros((num_packs, info.max_per_pack), dtype=np.uint16),
        "next_sentence_labels": np.full((num_packs, info.max_per_pack), NO_LABEL, dtype=np.int8),
        "example_ids": np.full((num_packs, info.max_per_pack), NO_EXAMPLE, dtype=np.int64),
    }
    example = first_id
    for row in range(num_packs):
        at = 0
        wanted = int(rng.integers(1, info.max_per_pack + 1))
        for slot in range(wanted):
            room = info.max_length - at - 5 * (wanted - slot - 1)
            length = int(rng.integers(5, max(6, min(room, 2 * room // (wanted - slot)) + 1)))
            if slot == wanted - 1 and rng.random() < 1 / 3:
                length = room
            length = min(length, room)
            first = int(rng.integers(3, length - 1))
            tokens = rng.integers(6, info.vocab_size, length)
            tokens[0], tokens[first - 1], tokens[-1] = CLS, SEP, SEP
            arrays["input_ids"][row, at : at + length] = tokens
            arrays["lengths"][row, slot] = length
            arrays["first_lengths"][row, slot] = first
            arrays["next_sentence_labels"][row, slot] = rng.integers(0, 2)
            arrays["example_ids"][row, slot] = example
            example += 1
            at += length
    return arrays


def write_folder(
    folder: Path,
    packs_of_shards: Sequence[int],
    seed: int = 0,
    info: ShardInfo = INFO,
    splits: Sequence[str] = ("train",),
) -> Dict[str, Any]:
    """A data folder with one shard for each number of packs; returns the train split's arrays."""
    described: Dict[str, Any] = {}
    train: Dict[str, Any] = {}
    first_id = 0
    for split in splits:
        split_info = replace(info, plan_fingerprint=fingerprint(split))
        parts, shards = [], []
        for index, num_packs in enumerate(packs_of_shards):
            arrays = random_arrays(num_packs, seed + index + 100 * len(described), info, first_id)
            first_id += int((arrays["lengths"] > 0).sum())
            name = shard_name(index, len(packs_of_shards))
            path = folder / "shards" / split / name
            shards.append({"name": name, **write_shard(path, arrays, KINDS, split_info)})
            parts.append(arrays)
        together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        train = train or together
        sequences = int((together["lengths"] > 0).sum())
        tokens = int(together["lengths"].sum())
        packs = len(together["lengths"])
        described[split] = {
            "plan_fingerprint": split_info.plan_fingerprint,
            "shards": shards,
            "sequences": sequences,
            "tokens": tokens,
            "packs": packs,
            "packing_factor": sequences / packs,
            "efficiency": tokens / packs / info.max_length,
            "lower_bound": -(-tokens // info.max_length),
        }
    manifest = {
        "format": DATA_FORMAT,
        "version": DATA_VERSION,
        "data": data_section(info),
        "splits": described,
    }
    write_json(folder / "manifest.json", {**manifest, "fingerprint": fingerprint(manifest)})
    (folder / "tokenizer").mkdir(exist_ok=True)
    return train
