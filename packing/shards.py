"""One packed shard: an HDF5 file of packs with unmasked tokens and lengths. The only h5py import.

Shape letters: N packs in the shard, B packs read, L tokens, D sequences per pack, V vocabulary.
Everything else that training needs is derived on reading (`derive`), so a shard stays small.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional

import h5py
import numpy as np
import numpy.typing as npt

from packing.files import whole_file

FORMAT_NAME = "packed-bert-shard"
FORMAT_VERSION = 1
PAD_ID = 0  # token after the last one of a pack; the vocabulary must have [PAD] there
NO_EXAMPLE = -1  # example id of an empty slot
NO_LABEL = -1  # next-sentence label of an empty slot, and of sequences without one
IGNORE_LABEL = -100  # label of a prediction slot that is not used
PADDING_SEQUENCE = 0  # sequence id of padding; sequences of a pack count from 1
KIND_ORDINARY, KIND_CONTINUATION, KIND_SPECIAL, KIND_UNUSED = range(4)  # values of token_kinds

DATASETS = ("input_ids", "lengths", "first_lengths", "next_sentence_labels", "example_ids")
COUNTS = ("num_packs", "num_sequences", "num_tokens")
SPECIAL_TOKENS = ("pad", "unk", "cls", "sep", "mask")

Arrays = Dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ShardInfo:
    """What all shards of one data set share, stored as file attributes.

    max_length         L, tokens per pack
    max_per_pack       D, sequence slots per pack
    vocab_size         V
    vocab_sha256       of vocab.txt
    special_token_ids  ids of pad, unk, cls, sep, mask
    nsp                False: single segments, first_lengths = lengths, no labels
    plan_fingerprint   of the plan the packs were made by
    """

    max_length: int
    max_per_pack: int
    vocab_size: int
    vocab_sha256: str
    special_token_ids: Dict[str, int]
    nsp: bool
    plan_fingerprint: str


def token_type(vocab_size: int) -> npt.DTypeLike:
    """The smallest type that holds every token id: uint16, or uint32 for large vocabularies."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


def length_type(max_length: int) -> npt.DTypeLike:
    """The smallest type that holds every length: uint16, or uint32 for long packs."""
    return np.uint16 if max_length < 2**16 else np.uint32


def content_hash(arrays: Arrays) -> str:
    """sha256 over names, types, shapes and values, the same whatever library wrote the file."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little.dtype.str} {little.shape}".encode("ascii"))
        digest.update(little.tobytes())
    return digest.hexdigest()


def write_shard(
    path: Path, arrays: Arrays, token_kinds: npt.NDArray[np.uint8], info: ShardInfo
) -> Dict[str, Any]:
    """Writes a shard under a temporary name and renames it when it is whole.

    arrays: the DATASETS, shapes (N, L) and (N, D). Returns its counts and content hash.
    """
    num_packs = len(arrays["input_ids"])
    assert num_packs > 0
    assert arrays["input_ids"].shape == (num_packs, info.max_length)
    stored = {**{name: arrays[name] for name in DATASETS}, "token_kinds": token_kinds}
    summary = {
        "num_packs": num_packs,
        "num_sequences": int((arrays["lengths"] > 0).sum()),
        "num_tokens": int(arrays["lengths"].sum(dtype=np.int64)),
        "content_hash": content_hash(stored),
    }
    with whole_file(path) as partial:
        with h5py.File(partial, "w") as file:
            for name, array in stored.items():
                file.create_dataset(name, data=array)  # contiguous: rows are read by offset
            file.attrs["format"] = FORMAT_NAME
            file.attrs["version"] = FORMAT_VERSION
            for key in ("max_length", "max_per_pack", "vocab_size", "vocab_sha256", "nsp"):
                file.attrs[key] = getattr(info, key)
            file.attrs["plan_fingerprint"] = info.plan_fingerprint
            for name in SPECIAL_TOKENS:
                file.attrs[f"{name}_token_id"] = info.special_token_ids[name]
            for key, value in summary.items():
                file.attrs[key] = value
    return summary


class Shard:
    """An opened shard. Lengths are in memory; other arrays are read by rows, without HDF5.

    The file is opened once to check it and to learn where its arrays lie. Rows then come from memory
    maps made in the process that reads, so a Shard can be pickled and used after fork or spawn.
    """

    def __init__(self, path: Path, expect: Optional[ShardInfo] = None):
        """Raises ValueError naming file, found and expected when the shard is not what it should be."""
        self.path = Path(path)
        self._maps: Dict[str, np.memmap] = {}
        try:
            size = os.path.getsize(self.path)
        except OSError:
            raise ValueError(f"{path}: no such file, expected a packed shard") from None
        try:
            file: Any = h5py.File(self.path, "r", locking=False)
        except OSError as error:
            reason = "truncated" if "truncated" in str(error) else "not an HDF5 file or damaged"
            raise ValueError(f"{path}: {reason} ({size} bytes)") from None
        with file:
            self.info = self._read_info(file)
            self.num_packs = int(file.attrs["num_packs"])
            self.num_sequences = int(file.attrs["num_sequences"])
            self.num_tokens = int(file.attrs["num_tokens"])
            self.content_hash = str(file.attrs["content_hash"])
            self._layout = {name: self._locate(file, name) for name in DATASETS}
            self.lengths = file["lengths"][:]
            self.token_kinds = file["token_kinds"][:]
        if expect is not None:
            self._compare(expect)
        if self.token_kinds.shape != (self.info.vocab_size,):
            raise ValueError(
                f"{path}: token_kinds has shape {self.token_kinds.shape}, "
                f"expected ({self.info.vocab_size},)"
            )

    def _read_info(self, file: Any) -> ShardInfo:
        found = file.attrs.get("format")
        if found != FORMAT_NAME:
            raise ValueError(f"{self.path}: format is {found!r}, expected {FORMAT_NAME!r}")
        version = file.attrs.get("version")
        if version != FORMAT_VERSION:
            raise ValueError(f"{self.path}: format version {version}, expected {FORMAT_VERSION}")
        try:
            return ShardInfo(
                max_length=int(file.attrs["max_length"]),
                max_per_pack=int(file.attrs["max_per_pack"]),
                vocab_size=int(file.attrs["vocab_size"]),
                vocab_sha256=str(file.attrs["vocab_sha256"]),
                special_token_ids={
                    name: int(file.attrs[f"{name}_token_id"]) for name in SPECIAL_TOKENS
                },
                nsp=bool(file.attrs["nsp"]),
                plan_fingerprint=str(file.attrs["plan_fingerprint"]),
            )
        except KeyError as error:
            raise ValueError(f"{self.path}: {error.args[0]}") from None

    def _locate(self, file: Any, name: str) -> Any:
        """(dtype, shape, offset in the file) of one array."""
        if name not in file:
            raise ValueError(f"{self.path}: has no array {name!r}")
        array = file[name]
        width = self.info.max_length if name == "input_ids" else self.info.max_per_pack
        expected = (int(file.attrs["num_packs"]), width)
        if array.shape != expected:
            raise ValueError(f"{self.path}: {name} has shape {array.shape}, expected {expected}")
        offset = array.id.get_offset()
        if offset is None:
            raise ValueError(f"{self.path}: {name} is not stored contiguously")
        return array.dtype.str, array.shape, int(offset)

    def _compare(self, expect: ShardInfo) -> None:
        found = self.info
        for key in ShardInfo.__dataclass_fields__:
            if getattr(found, key) != getattr(expect, key):
                raise ValueError(
                    f"{self.path}: {key} is {getattr(found, key)!r}, expected {getattr(expect, key)!r}"
                )

    def __len__(self) -> int:
        return self.num_packs

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def close(self) -> None:
        """Lets go of the memory maps; the next read makes them again."""
        self._maps = {}

    def array(self, name: str) -> npt.NDArray[Any]:
        """One of DATASETS as a read-only memory map."""
        if name not in self._maps:
            dtype, shape, offset = self._layout[name]
            self._maps[name] = np.memmap(self.path, dtype, "r", offset, shape)
        return self._maps[name]

    def read(self, rows: Any) -> Arrays:
        """The DATASETS at `rows` (any numpy index), copied: (B, L) and (B, D)."""
        return {name: np.array(self.array(name)[rows]) for name in DATASETS}

    def check_content(self) -> None:
        """Reads everything again and raises ValueError when it does not match the stored hash."""
        arrays = {name: np.asarray(self.array(name)) for name in DATASETS}
        found = content_hash({**arrays, "token_kinds": self.token_kinds})
        if found != self.content_hash:
            raise ValueError(
                f"{self.path}: content hash is {found[:12]}…, expected {self.content_hash[:12]}…"
            )


def derive(arrays: Arrays) -> Arrays:
    """What follows from the lengths of packs: ids of sequences, positions, segments, [CLS] places.

    arrays: `input_ids` (B, L), `lengths` and `first_lengths` (B, D)
    Returns (B, L) int64 `sequence_ids` (1..D, 0 = padding), `position_ids` (restart at 0 in every
    sequence), `token_type_ids` (1 in the second segment), and (B, D) int64 `cls_positions` (0 for an
    empty slot).
    """
    lengths = arrays["lengths"].astype(np.int64)
    num_packs, max_length = arrays["input_ids"].shape
    depth = lengths.shape[1]
    ends = np.cumsum(lengths, axis=1)
    starts = ends - lengths
    # padding counts as one more slot, after the others
    slots = np.tile(np.arange(depth + 1), num_packs)
    sizes = np.concatenate([lengths, max_length - ends[:, -1:]], axis=1)
    slot = np.repeat(slots, sizes.ravel()).reshape(num_packs, max_length)
    real = slot < depth

    def of_token(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        padded = np.concatenate([values, np.zeros((num_packs, 1), np.int64)], axis=1)
        return np.take_along_axis(padded, slot, axis=1)

    position_ids = np.where(real, np.arange(max_length) - of_token(starts), 0)
    first_lengths = of_token(arrays["first_lengths"].astype(np.int64))
    return {
        "sequence_ids": np.where(real, slot + 1, PADDING_SEQUENCE),
        "position_ids": position_ids,
        "token_type_ids": (real & (position_ids >= first_lengths)).astype(np.int64),
        "cls_positions": np.where(lengths > 0, starts, 0),
    }
