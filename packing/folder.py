"""A data folder: manifest.json, tokenizer/, shards/train/ and shards/validation/ read as one.

Shape letters: N packs in a split, B packs read, L tokens, D sequences per pack.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import numpy.typing as npt

from packing.files import read_json
from packing.shards import Arrays, Shard, ShardInfo

DATA_FORMAT = "packed-bert-data"
DATA_VERSION = 1
SPLITS = ("train", "validation")
MAX_OPEN_SHARDS = 32  # memory maps held at once, so that 1,000 shards need few open files


def shard_name(index: int, number: int) -> str:
    """File name of shard `index` of `number`; it lies in shards/SPLIT/ of the data folder."""
    return f"shard-{index:05d}-of-{number:05d}.h5"


def read_manifest(folder: Path) -> Dict[str, Any]:
    """The manifest of a data folder. Raises ValueError when there is none or it is of another format."""
    folder = Path(folder)
    path = folder / "manifest.json"
    if not path.is_file():
        raise ValueError(
            f"{folder}: not a data folder (expected {path}, written by `data_prep run`)"
        )
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != DATA_FORMAT:
        raise ValueError(f"{path}: expected format {DATA_FORMAT!r}")
    if manifest.get("version") != DATA_VERSION:
        raise ValueError(
            f"{path}: data version {manifest.get('version')!r}, expected {DATA_VERSION}"
        )
    for key in ("data", "splits", "fingerprint"):
        if not manifest.get(key):
            raise ValueError(f"{path}: has no {key!r}")
    return manifest


def shard_info(manifest: Dict[str, Any], split: str) -> ShardInfo:
    """What every shard of a split must say of itself."""
    try:
        return ShardInfo(
            plan_fingerprint=manifest["splits"][split]["plan_fingerprint"], **manifest["data"]
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"manifest.json: lacks something of the {split} split ({error})") from None


def data_section(info: ShardInfo) -> Dict[str, Any]:
    """The manifest's `data` section, from which `shard_info` is made again."""
    section = asdict(info)
    del section["plan_fingerprint"]
    return section


class PackedSplit:
    """All packs of one split, rows counted through its shards. Can be pickled; opens files on reading."""

    def __init__(self, folder: Path, split: str):
        """Opens and checks every shard. Raises ValueError naming file, found and expected."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        if split not in manifest["splits"]:
            raise ValueError(
                f"split: expected one of {', '.join(manifest['splits'])}, found {split!r}"
            )
        listed: List[Dict[str, Any]] = manifest["splits"][split]["shards"]
        self.folder = folder
        self.split = split
        self.manifest = manifest
        self.info = shard_info(manifest, split)
        self.shards = [
            Shard(folder / "shards" / split / shard["name"], self.info) for shard in listed
        ]
        for shard, expected in zip(self.shards, listed):
            for key in ("num_packs", "num_sequences", "num_tokens", "content_hash"):
                if getattr(shard, key) != expected[key]:
                    raise ValueError(
                        f"{shard.path}: {key} is {getattr(shard, key)}, "
                        f"the manifest says {expected[key]}"
                    )
        self.first_rows = np.cumsum([0] + [shard.num_packs for shard in self.shards])
        self.lengths = np.concatenate([shard.lengths for shard in self.shards])
        self.token_kinds = self.shards[0].token_kinds
        self._open: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    def read(self, rows: npt.NDArray[np.int64]) -> Arrays:
        """The stored arrays at rows (B,), in that order: (B, L) and (B, D)."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.ndim != 1 or rows.size == 0 or rows.min() < 0 or rows.max() >= len(self):
            raise ValueError(f"rows: expected 1-D, each in 0..{len(self) - 1}, found {rows}")
        shard_of_row = np.searchsorted(self.first_rows, rows, side="right") - 1
        parts: Dict[str, npt.NDArray[Any]] = {}
        for index in np.unique(shard_of_row).tolist():
            here = np.flatnonzero(shard_of_row == index)
            self._touch(index)
            read = self.shards[index].read(rows[here] - self.first_rows[index])
            for name, values in read.items():
                if name not in parts:
                    parts[name] = np.empty((rows.size, values.shape[1]), values.dtype)
                parts[name][here] = values
        return parts

    def _touch(self, index: int) -> None:
        """Remembers that a shard is open, and closes the one unused for longest when too many are."""
        self._open[index] = None
        self._open.move_to_end(index)
        if len(self._open) > MAX_OPEN_SHARDS:
            oldest, _ = self._open.popitem(last=False)
            self.shards[oldest].close()
