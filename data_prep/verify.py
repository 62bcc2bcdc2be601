"""Verification: reads every shard again and checks what must always hold of it.

Shape letters: B packs of a block, L tokens, D sequences per pack, n examples of a split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import numpy.typing as npt

from data_prep.pack import open_examples
from data_prep.stage import MANIFEST
from data_prep.vocabulary import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    read_vocabulary,
    vocabulary_sha256,
)
from packing.files import file_sha256, fingerprint, read_json
from packing.folder import PackedSplit, read_manifest
from packing.plan import plan_from_rows
from packing.shards import NO_EXAMPLE, NO_LABEL, Arrays, Shard, derive

BLOCK = 4096  # packs checked at once


class Mismatch(Exception):
    """Something that must hold does not; the text names file and row."""


def verify(folder: Path) -> Dict[str, Any]:
    """Checks a data folder and returns what was counted.

    Content hashes; every pack's layout (special tokens, segments, labels, padding); every example id in
    exactly one slot; the plan's packs; and, where the examples stage is still there, every token.
    Raises ValueError when `folder` is no data folder, Mismatch at the first thing that does not hold.
    """
    manifest = read_manifest(folder)
    try:
        if vocabulary_sha256(folder / "tokenizer") != manifest["data"]["vocab_sha256"]:
            raise Mismatch(f"{folder / 'tokenizer' / VOCABULARY_FILE}: not the shards' vocabulary")
        kinds = _check_tokenizer(folder, manifest)
        counts = {
            split: _verify_split(folder, manifest, split, kinds) for split in manifest["splits"]
        }
        _check_files(folder / "shards")
        rest = {key: value for key, value in manifest.items() if key != "fingerprint"}
        if fingerprint(rest) != manifest["fingerprint"]:
            raise Mismatch(f"{folder / MANIFEST}: its contents do not match its fingerprint")
    except (ValueError, OSError) as error:  # a shard that cannot be opened, a file that is gone
        raise Mismatch(str(error)) from None
    except KeyError as error:
        raise Mismatch(f"{folder / MANIFEST}: has no key {error}") from None
    return {"counts": counts}


def _verify_split(
    folder: Path, manifest: Dict[str, Any], split: str, kinds: npt.NDArray[np.uint8]
) -> Dict[str, Any]:
    packed = PackedSplit(folder, split)
    expected = manifest["splits"][split]
    first_id, number = expected["first_example_id"], expected["sequences"]
    examples = None
    if (folder / "examples" / MANIFEST).is_file():
        stage = read_json(folder / "examples" / MANIFEST)
        if stage["fingerprint"] == manifest["settings"]["shards"]["examples_fingerprint"]:
            examples = open_examples(folder / "examples", stage, split)
    seen = np.zeros(number, dtype=np.int64)  # row of the split + 1 where an example was found
    tokens = 0
    for shard, first_row in zip(packed.shards, packed.first_rows.tolist()):
        shard.check_content()
        if not np.array_equal(shard.token_kinds, kinds):
            raise Mismatch(f"{shard.path}: token_kinds do not follow from the vocabulary")
        for start in range(0, len(shard), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(shard)))
            arrays = shard.read(rows)
            _check_layout(shard, start, arrays)
            tokens += int(arrays["lengths"].sum(dtype=np.int64))
            _check_ids(shard, start, arrays, first_id, number, seen, first_row)
            if examples is not None:
                _check_tokens(shard, start, arrays, first_id, examples)
        shard.close()
    missing = np.flatnonzero(seen == 0)
    if missing.size:
        raise Mismatch(
            f"{folder / 'shards' / split}: example {first_id + missing[0]} is in no pack "
            f"({missing.size} missing)"
        )
    if tokens != expected["tokens"]:
        raise Mismatch(
            f"{folder}: {split} has {tokens} tokens, the manifest says {expected['tokens']}"
        )
    _check_plan(folder, split, packed, expected)
    return {
        "packs": len(packed),
        "sequences": number,
        "tokens": tokens,
        "compared_with_examples": examples is not None,
    }


def _check_tokenizer(folder: Path, manifest: Dict[str, Any]) -> npt.NDArray[np.uint8]:
    """Both tokenizer files are there and say the same. Returns the token kinds (V,) they imply."""
    vocabulary = read_vocabulary(folder / "tokenizer")
    entries = read_vocabulary(folder / "tokenizer" / VOCABULARY_FILE).entries
    path = folder / "tokenizer" / TOKENIZER_FILE
    if not path.is_file():
        raise Mismatch(f"{path}: no such file")
    if vocabulary.entries != entries or vocabulary.lowercase != manifest["lowercase"]:
        raise Mismatch(f"{path}: not the vocabulary of {VOCABULARY_FILE}")
    return vocabulary.kinds()


def _check_files(shards_dir: Path) -> None:
    """The shards' files are byte for byte those that the stage wrote: also where no array lies."""
    for name, recorded in read_json(shards_dir / MANIFEST)["files"].items():
        if file_sha256(shards_dir / name) != recorded["sha256"]:
            raise Mismatch(f"{shards_dir / name}: its bytes are not those that were written")


def _fail(shard: Shard, start: int, bad: npt.NDArray[np.bool_], what: str) -> None:
    """Raises Mismatch with file and row when any element of `bad` (B, ...) is set."""
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    if rows.size:
        raise Mismatch(f"{shard.path}, row {start + rows[0]}: {what}")


def _check_layout(shard: Shard, start: int, arrays: Arrays) -> None:
    """Special tokens, segments, labels and padding of a block of packs."""
    info = shard.info
    tokens, lengths = arrays["input_ids"], arrays["lengths"].astype(np.int64)
    first, labels = arrays["first_lengths"].astype(np.int64), arrays["next_sentence_labels"]
    filled = lengths > 0
    special = info.special_token_ids
    _fail(shard, start, ~filled[:, :1], "the pack is empty")
    _fail(shard, start, filled[:, 1:] & ~filled[:, :-1], "an empty slot before a filled one")
    _fail(shard, start, lengths.sum(axis=1) > info.max_length, "longer than the pack")
    _fail(shard, start, tokens >= info.vocab_size, "a token id beyond the vocabulary")
    padding = derive(arrays)["sequence_ids"] == 0
    _fail(shard, start, padding & (tokens != special["pad"]), "padding that is not [PAD]")
    forbidden = (tokens == special["mask"]) | (tokens == special["pad"])
    _fail(shard, start, ~padding & forbidden, "[MASK] or [PAD] inside a sequence")
    ends = np.cumsum(lengths, axis=1)
    starts = ends - lengths

    def token_at(places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return np.take_along_axis(tokens, np.where(filled, places, 0), axis=1)

    _fail(shard, start, filled & (token_at(starts) != special["cls"]), "a sequence without [CLS]")
    last_is_sep = token_at(ends - 1) == special["sep"]
    _fail(shard, start, filled & ~last_is_sep, "a sequence that does not end with [SEP]")
    if info.nsp:
        wrong = filled & ((first < 3) | (first > lengths - 2))
        _fail(shard, start, wrong, "first_lengths leaves no room for a segment")
        middle_is_sep = token_at(starts + first - 1) == special["sep"]
        _fail(shard, start, filled & ~middle_is_sep, "a first segment that does not end with [SEP]")
        wrong = filled & ~np.isin(labels, (0, 1))
    else:
        wrong = filled & ((first != lengths) | (labels != NO_LABEL))
    _fail(shard, start, wrong, "a wrong next-sentence label")
    separators = ((tokens == special["sep"]) & ~padding).sum(axis=1)
    expected = filled.sum(axis=1) * (2 if info.nsp else 1)
    _fail(shard, start, separators != expected, "a wrong number of [SEP]")
    empty = ~filled & ((labels != NO_LABEL) | (first != 0))
    _fail(shard, start, empty, "an empty slot that has a label or a segment")


def _check_ids(
    shard: Shard,
    start: int,
    arrays: Arrays,
    first_id: int,
    number: int,
    seen: npt.NDArray[np.int64],
    first_row: int,
) -> None:
    """Every id in range, none seen before; marks those of this block in `seen` (n,)."""
    filled = arrays["lengths"] > 0
    ids = arrays["example_ids"]
    _fail(shard, start, ~filled & (ids != NO_EXAMPLE), "an empty slot with an example id")
    outside = filled & ((ids < first_id) | (ids >= first_id + number))
    _fail(shard, start, outside, f"an example id outside {first_id}..{first_id + number - 1}")
    rows, _ = np.nonzero(filled)
    places = ids[filled] - first_id
    order = np.argsort(places, kind="stable")
    doubled = np.zeros(places.size, dtype=bool)
    doubled[order[1:]] = places[order[1:]] == places[order[:-1]]
    doubled |= seen[places] > 0
    if doubled.any():
        at = int(np.flatnonzero(doubled)[0])
        raise Mismatch(
            f"{shard.path}, row {start + rows[at]}: example {first_id + places[at]} is in a second pack"
        )
    seen[places] = first_row + start + rows + 1


def _check_tokens(shard: Shard, start: int, arrays: Arrays, first_id: int, examples: Any) -> None:
    """The sequences of a block are those of the examples stage, token by token."""
    lengths = arrays["lengths"].astype(np.int64)
    starts = np.cumsum(lengths, axis=1) - lengths
    rows, slots = np.nonzero(lengths)
    places = arrays["example_ids"][rows, slots] - first_id
    table = examples.table[places]
    for name, column in (
        ("lengths", "length"),
        ("first_lengths", "first_length"),
        ("next_sentence_labels", "next_sentence_label"),
    ):
        bad = np.flatnonzero(arrays[name][rows, slots] != table[column])
        if bad.size:
            raise Mismatch(
                f"{shard.path}, row {start + rows[bad[0]]}: {name} of example "
                f"{first_id + places[bad[0]]} differs from the examples stage"
            )
    for row, slot, place in zip(rows.tolist(), slots.tolist(), places.tolist()):
        at = starts[row, slot]
        found = arrays["input_ids"][row, at : at + lengths[row, slot]]
        if not np.array_equal(found, examples.tokens(place)):
            raise Mismatch(
                f"{shard.path}, row {start + row}: tokens of example {first_id + place} differ from "
                "the examples stage"
            )


def _check_plan(folder: Path, split: str, packed: PackedSplit, expected: Dict[str, Any]) -> None:
    """The packs are exactly the plan's, strategy by strategy."""
    strategies, repeats = np.unique(packed.lengths, axis=0, return_counts=True)
    rows: List = list(zip((tuple(row) for row in strategies.tolist()), repeats.tolist()))
    rebuilt = plan_from_rows(
        rows, max_length=packed.info.max_length, max_per_pack=None, algorithm=""
    )
    if rebuilt.fingerprint != expected["plan_fingerprint"]:
        raise Mismatch(f"{folder / 'shards' / split}: the packs are not those of the plan")
    if len(packed) != expected["packs"]:
        raise Mismatch(f"{folder}: {split} has {len(packed)} packs, expected {expected['packs']}")
