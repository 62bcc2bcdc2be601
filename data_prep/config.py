"""Settings of a data preparation run: frozen dataclasses, one per concern, checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from packing import SOLVERS


def _check(condition: bool, key: str, expected: str, found: object) -> None:
    if not condition:
        raise ValueError(f"{key}: expected {expected}, found {found!r}")


@dataclass(frozen=True)
class SourceConfig:
    """Where the text comes from.

    Args:
        inputs: files, folders, globs, or package:PKG/path for a file inside an installed package
        format: auto, mediawiki, wikiextractor, jsonl or text
        language: ISO code that the sentence splitter knows, e.g. en
    """

    inputs: List[str] = field(default_factory=list)
    format: str = "auto"
    language: str = "en"


@dataclass(frozen=True)
class VocabularyConfig:
    """The WordPiece vocabulary: an existing one, or one trained on the documents.

    Args:
        tokenizer: a Hugging Face BERT tokenizer folder or a vocab.txt; empty: train one
        size: entries of a trained vocabulary
        lowercase: uncased or cased; empty: as the given tokenizer says, uncased where it says nothing
    """

    tokenizer: Optional[str] = None
    size: int = 30522
    lowercase: Optional[bool] = None

    def __post_init__(self) -> None:
        _check(self.size >= 16, "vocabulary.size", "at least 16 entries", self.size)


@dataclass(frozen=True)
class ExamplesConfig:
    """How documents become BERT inputs, as in the original recipe.

    Args:
        max_length: tokens of the longest example, special tokens counted; also the length of a pack
        short_seq_prob: fraction of documents cut into examples of a random shorter length
        validation_fraction: fraction of documents held out, at least two; 0: none
    """

    max_length: int = 512
    short_seq_prob: float = 0.1
    validation_fraction: float = 0.005

    def __post_init__(self) -> None:
        _check(self.max_length >= 8, "examples.max_length", "at least 8 tokens", self.max_length)
        _check(self.max_length < 2**31, "examples.max_length", "below 2^31", self.max_length)
        _check(
            0.0 <= self.short_seq_prob <= 1.0,
            "examples.short_seq_prob",
            "a fraction in [0, 1]",
            self.short_seq_prob,
        )
        _check(
            0.0 <= self.validation_fraction <= 0.5,
            "examples.validation_fraction",
            "a fraction in [0, 0.5]",
            self.validation_fraction,
        )


@dataclass(frozen=True)
class PackConfig:
    """How examples become packs and packs become shards.

    Args:
        algorithm: auto (the best of those that follow but nnlshp), optimal, lpfhp, spfhp or nnlshp
        max_per_pack: most sequences in a pack; empty: no limit
        packs_per_shard: most packs in one HDF5 file
    """

    algorithm: str = "auto"
    max_per_pack: Optional[int] = 8
    packs_per_shard: int = 65536

    def __post_init__(self) -> None:
        _check(
            self.algorithm in SOLVERS, "pack.algorithm", f"one of {list(SOLVERS)}", self.algorithm
        )
        _check(
            self.max_per_pack is None or self.max_per_pack >= 1,
            "pack.max_per_pack",
            "at least 1 sequence, or nothing for no limit",
            self.max_per_pack,
        )
        _check(
            self.algorithm != "nnlshp" or self.max_per_pack is not None,
            "pack.max_per_pack",
            "a limit, since algorithm nnlshp needs one",
            self.max_per_pack,
        )
        _check(
            self.packs_per_shard >= 1,
            "pack.packs_per_shard",
            "at least 1 pack",
            self.packs_per_shard,
        )


@dataclass(frozen=True)
class DataConfig:
    """One run of data preparation.

    Args:
        output_dir: the data folder: examples, plan, shards, manifest
        corpus_dir: folder of the stages that do not depend on the length, extract and vocabulary, so
            that configs can share them; empty: output_dir
        limit: use only this many articles; empty: all
        seed: of example making and of the order of packs
        workers: processes; 0: one per core. Changes nothing in the output
        partition_size: documents per unit of work; bounds the memory of a worker
    """

    output_dir: str
    source: SourceConfig = field(default_factory=SourceConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    pack: PackConfig = field(default_factory=PackConfig)
    corpus_dir: Optional[str] = None
    limit: Optional[int] = None
    seed: int = 42
    workers: int = 0
    partition_size: int = 1000

    def __post_init__(self) -> None:
        _check(bool(self.output_dir), "output_dir", "a folder", self.output_dir)
        _check(self.limit is None or self.limit >= 1, "limit", "at least 1 document", self.limit)
        _check(self.seed >= 0, "seed", "a whole number >= 0", self.seed)
        _check(self.workers >= 0, "workers", "a whole number >= 0", self.workers)
        _check(
            self.partition_size >= 2, "partition_size", "at least 2 documents", self.partition_size
        )
