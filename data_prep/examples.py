"""The examples stage: sentences -> next-sentence pairs, as in the original BERT recipe [1].

Shape letters: n examples of a part, T tokens of a part.
[1] Devlin et al., arXiv:1810.04805, section 3.1 and appendix A.2
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from data_prep.documents import Documents, hold_out
from data_prep.stage import run_partitions
from data_prep.vocabulary import Vocabulary, read_vocabulary
from packing.folder import SPLITS
from packing.shards import token_type

STAGE_ID = 1  # of this stage in the seed of its generators
TEXT_TOKENS_LEFT = 3  # [CLS], [SEP], [SEP]
EXAMPLE_TYPE = np.dtype(
    [
        ("offset", "<u8"),  # where its tokens start in the part's tokens
        ("length", "<u4"),  # tokens, special tokens counted
        ("first_length", "<u4"),  # tokens of [CLS] A [SEP]
        ("next_sentence_label", "i1"),  # 1 = random next, 0 = actual next
        ("first_document", "<u4"),  # document number of A
        ("second_document", "<u4"),  # document number of B
    ]
)

Document = List[List[int]]  # token ids of its sentences


@dataclass(frozen=True)
class Pair:
    """One example before special tokens: segments A and B, and where B comes from."""

    first: List[int]
    second: List[int]
    random_next: bool
    second_document: int


def pairs_of_document(
    documents: Sequence[Document],
    which: int,
    *,
    max_length: int,
    short_seq_prob: float,
    rng: np.random.Generator,
) -> Iterator[Pair]:
    """Cuts one document into pairs (A, B): B follows A in half of them, else starts in another document.

    documents       all documents of the part, each a non-empty list of non-empty sentences
    which           the document to cut
    max_length      tokens of the longest example, special tokens counted
    short_seq_prob  probability that the document is cut into shorter pieces, of a random length
    A pair keeps only what fits: the longer segment loses tokens at both ends, at random.
    """
    room = max_length - TEXT_TOKENS_LEFT
    target = room
    if rng.random() < short_seq_prob:
        target = int(rng.integers(2, room, endpoint=True))
    document = documents[which]
    at = 0
    while at < len(document):
        end, gathered = at, 0
        while end < len(document) and gathered < target:
            gathered += len(document[end])
            end += 1
        number = end - at
        split = at + (int(rng.integers(1, number)) if number > 1 else 1)
        first = _join(document, at, split)
        random_next = number == 1 or rng.random() < 0.5
        if random_next:
            other = int(rng.integers(0, len(documents) - 1))
            other += other >= which
            start = int(rng.integers(0, len(documents[other])))
            second = _gather(documents[other], start, target - len(first))
            at = split  # the sentences that were not used are cut again
        else:
            other = which
            second = _join(document, split, end)
            at = end
        first, second = truncate(first, second, room, rng)
        yield Pair(first, second, random_next, other)


def _join(document: Document, start: int, end: int) -> List[int]:
    return [token for sentence in document[start:end] for token in sentence]


def _gather(document: Document, start: int, wanted: int) -> List[int]:
    """Sentences from `start` on until there are `wanted` tokens, at least one sentence."""
    tokens = list(document[start])
    for sentence in document[start + 1 :]:
        if len(tokens) >= wanted:
            break
        tokens += sentence
    return tokens


def truncate(
    first: List[int], second: List[int], room: int, rng: np.random.Generator
) -> Tuple[List[int], List[int]]:
    """Takes tokens off the longer segment, one by one from a random end, until both fit in `room`.

    Where both are equally long, the second gives. Drawn at once: of n tokens that go, a binomial number
    goes from the front.
    """
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    kept_first = min(len(first), max(room - len(second), (room + 1) // 2))
    kept_second = room - kept_first
    return _cut(first, kept_first, rng), _cut(second, kept_second, rng)


def _cut(tokens: List[int], kept: int, rng: np.random.Generator) -> List[int]:
    front = int(rng.binomial(len(tokens) - kept, 0.5)) if kept < len(tokens) else 0
    return tokens[front : front + kept]


@dataclass(frozen=True)
class ExamplesTask:
    """One part of the examples stage: documents to tokenize and pair with each other."""

    documents_dir: Path
    vocabulary_dir: Path
    numbers: npt.NDArray[np.int64]
    path: Path
    seed: Tuple[int, ...]
    max_length: int
    short_seq_prob: float


@dataclass(frozen=True)
class ExamplesResult:
    """Counts of one part."""

    documents: int
    examples: int
    tokens: int
    random_next: int
    excluded: Dict[str, int]


def tokens_path(part: Path) -> Path:
    return part.with_name(part.name + ".tokens.npy")


def table_path(part: Path) -> Path:
    return part.with_name(part.name + ".examples.npy")


def make_examples(task: ExamplesTask) -> ExamplesResult:
    """Makes and writes the examples of one part: tokens (T,) in one array, a table of EXAMPLE_TYPE (n,)."""
    vocabulary = read_vocabulary(task.vocabulary_dir)
    numbers, documents, empty = _tokenize(task, vocabulary)
    if len(documents) < 2:
        raise ValueError(
            f"{task.path.name}: {len(documents)} document with tokens, expected at least two: a random "
            "next sentence comes from another one"
        )
    rng = np.random.default_rng(task.seed)
    special = vocabulary.special_token_ids
    head, separator = [special["cls"]], [special["sep"]]
    tokens: List[npt.NDArray[Any]] = []
    rows = []
    dtype = token_type(len(vocabulary.entries))
    offset = 0
    for which, number in enumerate(numbers):
        pairs = pairs_of_document(
            documents,
            which,
            max_length=task.max_length,
            short_seq_prob=task.short_seq_prob,
            rng=rng,
        )
        for pair in pairs:
            sequence = head + pair.first + separator + pair.second + separator
            tokens.append(np.array(sequence, dtype=dtype))
            rows.append(
                (
                    offset,
                    len(sequence),
                    len(pair.first) + 2,
                    int(pair.random_next),
                    number,
                    numbers[pair.second_document],
                )
            )
            offset += len(sequence)
    table = np.array(rows, dtype=EXAMPLE_TYPE)
    np.save(tokens_path(task.path), np.concatenate(tokens))
    np.save(table_path(task.path), table)
    return ExamplesResult(
        documents=len(documents),
        examples=table.size,
        tokens=offset,
        random_next=int(table["next_sentence_label"].sum()),
        excluded={"documents without tokens": empty} if empty else {},
    )


def _tokenize(task: ExamplesTask, vocabulary: Vocabulary) -> Tuple[List[int], List[Document], int]:
    """Token ids of each document's sentences; sentences and documents without any are left out."""
    tokenizer = vocabulary.tokenizer()
    numbers, documents = [], []
    for number, document in zip(task.numbers, Documents(task.documents_dir).read(task.numbers)):
        encoded = tokenizer.encode_batch(document["sentences"])
        sentences = [encoding.ids for encoding in encoded if encoding.ids]
        if sentences:
            numbers.append(int(number))
            documents.append(sentences)
    return numbers, documents, len(task.numbers) - len(documents)


def split_into_parts(
    numbers: npt.NDArray[np.int64], partition_size: int
) -> List[npt.NDArray[np.int64]]:
    """Cuts document numbers into parts of `partition_size` to twice that, sizes as equal as possible."""
    if not numbers.size:
        return []
    return np.array_split(numbers, max(1, numbers.size // partition_size))


def examples_stage(
    scratch: Path,
    *,
    documents_dir: Path,
    vocabulary_dir: Path,
    max_length: int,
    short_seq_prob: float,
    validation_fraction: float,
    partition_size: int,
    seed: int,
    workers: int,
) -> Dict[str, Any]:
    """Body of the examples stage: both splits, part by part."""
    documents = Documents(documents_dir)
    split_numbers = hold_out(documents.index["split_key"], validation_fraction)
    tasks, keys = [], []
    for split_index, (split, numbers) in enumerate(zip(SPLITS, split_numbers)):
        (scratch / split).mkdir()
        for part, chunk in enumerate(split_into_parts(numbers, partition_size)):
            keys.append(split)
            tasks.append(
                ExamplesTask(
                    documents_dir=documents_dir,
                    vocabulary_dir=vocabulary_dir,
                    numbers=chunk,
                    path=scratch / split / f"part-{part:05d}",
                    seed=(seed, STAGE_ID, split_index, part),
                    max_length=max_length,
                    short_seq_prob=short_seq_prob,
                )
            )
    results = run_partitions(
        make_examples,
        tasks,
        workers=workers,
        name="examples",
        total=len(documents),
        unit="documents",
        amount=lambda result: result.documents,
    )
    splits: Dict[str, Dict[str, Any]] = {
        split: {"documents": 0, "examples": 0, "tokens": 0, "random_next": 0, "parts": []}
        for split in dict.fromkeys(keys)
    }
    excluded: Dict[str, int] = {}
    for split, result in zip(keys, results):
        counted = splits[split]
        for key in ("documents", "examples", "tokens", "random_next"):
            counted[key] += getattr(result, key)
        counted["parts"].append(result.examples)
        for reason, number in result.excluded.items():
            excluded[reason] = excluded.get(reason, 0) + number
    first_id = 0
    for counted in splits.values():
        counted["first_example_id"] = first_id
        first_id += counted["examples"]
    return {"splits": splits, "excluded": excluded}


class Examples:
    """The examples of one split, by their place in it; example id = first_example_id + place."""

    def __init__(self, folder: Path, split: str, number_of_parts: int):
        paths = [folder / split / f"part-{part:05d}" for part in range(number_of_parts)]
        tables = [np.load(table_path(path)) for path in paths]
        self.table = np.concatenate(tables)
        self.first_of_part = np.cumsum([0] + [table.size for table in tables])
        self._tokens = [np.load(tokens_path(path), mmap_mode="r") for path in paths]

    def __len__(self) -> int:
        return self.table.size

    def tokens(self, place: int) -> npt.NDArray[Any]:
        """Token ids of one example, special tokens included."""
        part = int(np.searchsorted(self.first_of_part, place, side="right")) - 1
        row = self.table[place]
        start = int(row["offset"])
        return self._tokens[part][start : start + int(row["length"])]
