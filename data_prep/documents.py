"""The extract stage: raw documents -> clean documents, a JSON line each, and an index of their places."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from data_prep.sentences import split_sentences
from data_prep.sources import Excluded, InputFile, RawDocument, read_documents
from data_prep.stage import run_partitions
from data_prep.wikitext import clean_wikitext

INDEX_FILE = "documents.npy"
INDEX_TYPE = np.dtype(
    [
        ("part", "<u4"),
        ("offset", "<u8"),
        ("bytes", "<u4"),
        ("split_key", "<u8"),
        ("sentences", "<u4"),
    ]
)
MAX_PART_CHARACTERS = 1 << 24  # a partition is closed early when its raw text is this long


@dataclass(frozen=True)
class ExtractTask:
    """One partition of raw documents and where to write what they become."""

    documents: List[RawDocument]
    language: str
    part: int
    path: Path


@dataclass(frozen=True)
class ExtractResult:
    """What became of one partition."""

    index: npt.NDArray[Any]
    excluded: Dict[str, int]
    per_source: Dict[str, int]
    raw_documents: int


def part_path(folder: Path, part: int) -> Path:
    return folder / f"part-{part:05d}.jsonl"


def extract(
    scratch: Path,
    files: List[InputFile],
    *,
    language: str,
    limit: Optional[int],
    partition_size: int,
    workers: int,
) -> Dict[str, Any]:
    """Body of the extract stage. Raises ValueError when the inputs hold no document."""
    excluded: Counter = Counter()
    per_source: Counter = Counter({file.name: 0 for file in files})

    def raw_documents() -> Iterator[RawDocument]:
        for file in files:
            for item in read_documents(file):
                if isinstance(item, Excluded):
                    excluded[item.reason] += 1
                else:
                    yield item

    tasks = _partitions(raw_documents(), language, limit, partition_size, scratch)
    indexes = []
    for result in run_partitions(
        extract_partition,
        tasks,
        workers=workers,
        name="extract",
        total=limit,
        unit="documents",
        amount=lambda result: result.raw_documents,
    ):
        indexes.append(result.index)
        excluded.update(result.excluded)
        per_source.update(result.per_source)
    index = np.concatenate(indexes) if indexes else np.zeros(0, INDEX_TYPE)
    if not index.size:
        names = ", ".join(file.name for file in files[:3])
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(excluded.items())) or "nothing"
        raise ValueError(f"source.inputs: no document with text in {names} (found {reasons})")
    np.save(scratch / INDEX_FILE, index)
    return {
        "counts": {"documents": int(index.size), "sentences": int(index["sentences"].sum())},
        "excluded": dict(sorted(excluded.items())),
        "documents_per_file": dict(sorted(per_source.items())),
    }


def _partitions(
    documents: Iterable[RawDocument],
    language: str,
    limit: Optional[int],
    partition_size: int,
    folder: Path,
) -> Iterator[ExtractTask]:
    """Groups documents into partitions by number and size, the same for any number of workers."""
    group: List[RawDocument] = []
    characters = part = taken = 0
    for document in documents:
        group.append(document)
        characters += len(document.text)
        taken += 1
        if len(group) == partition_size or characters > MAX_PART_CHARACTERS or taken == limit:
            yield ExtractTask(group, language, part, part_path(folder, part))
            group, characters, part = [], 0, part + 1
        if taken == limit:
            return
    if group:
        yield ExtractTask(group, language, part, part_path(folder, part))


def extract_partition(task: ExtractTask) -> ExtractResult:
    """Cleans one partition and writes it; a page that cannot be read is counted and left out."""
    excluded: Counter = Counter()
    per_source: Counter = Counter()
    rows: List[Tuple[int, int, int, int, int]] = []
    with open(task.path, "wb") as stream:
        for document in task.documents:
            try:
                text = clean_wikitext(document.text) if document.wikitext else document.text
            except ValueError:
                excluded["unparseable"] += 1
                continue
            sentences = split_sentences(text, task.language)
            if not sentences:
                excluded["no text"] += 1
                continue
            line = _encode(document, sentences)
            rows.append((task.part, stream.tell(), len(line), _split_key(document), len(sentences)))
            stream.write(line)
            per_source[document.source] += 1
    index = np.array(rows, dtype=INDEX_TYPE)
    return ExtractResult(index, dict(excluded), dict(per_source), len(task.documents))


def _encode(document: RawDocument, sentences: List[str]) -> bytes:
    record = {
        "source": document.source,
        "key": document.key,
        "title": document.title,
        "sentences": sentences,
    }
    return json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n"


def _split_key(document: RawDocument) -> int:
    """A number that decides who is held out: the same document gets the same one in every run."""
    name = f"{document.source}\n{document.key}\n{document.title}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


class Documents:
    """The output of the extract stage, read by document number."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.index = np.load(folder / INDEX_FILE)

    def __len__(self) -> int:
        return self.index.size

    def read(self, numbers: Iterable[int]) -> Iterator[Dict[str, Any]]:
        """Documents (source, key, title, sentences) in the order asked for."""
        opened = None
        stream = None
        try:
            for number in numbers:
                row = self.index[number]
                if opened != row["part"]:
                    if stream is not None:
                        stream.close()
                    opened = row["part"]
                    stream = open(part_path(self.folder, int(opened)), "rb")
                assert stream is not None
                stream.seek(int(row["offset"]))
                yield json.loads(stream.read(int(row["bytes"])).decode("utf-8"))
        finally:
            if stream is not None:
                stream.close()

    def sentences(self) -> Iterator[str]:
        """Every sentence of every document."""
        for document in self.read(range(len(self))):
            yield from document["sentences"]


def hold_out(
    split_keys: npt.NDArray[np.uint64], fraction: float
) -> Tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Document numbers (train, validation): the documents with the smallest keys are held out.

    At least two are held out (their random next sentences come from each other) unless fraction is 0.
    Raises ValueError when fewer than two documents would be left on a side.
    """
    total = split_keys.size
    number = max(2, round(fraction * total)) if fraction > 0 else 0
    if total - number < 2:
        raise ValueError(
            f"documents: found {total}, expected at least {number + 2}: a random next sentence comes "
            f"from another document of the same split ({number} held out; "
            "examples.validation_fraction 0 holds out none)"
        )
    order = np.lexsort((np.arange(total), split_keys))
    return np.sort(order[number:]), np.sort(order[:number])
