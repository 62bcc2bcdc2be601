"""The vocabulary stage: a WordPiece vocabulary trained on the documents, or an existing one taken over.

Shape letters: V vocabulary entries.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional

import numpy as np
import numpy.typing as npt
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from packing.files import file_sha256, read_object
from packing.shards import (
    KIND_CONTINUATION,
    KIND_ORDINARY,
    KIND_SPECIAL,
    KIND_UNUSED,
    PAD_ID,
    SPECIAL_TOKENS,
)

VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
SPECIAL_ENTRIES = tuple(f"[{name.upper()}]" for name in SPECIAL_TOKENS)  # [PAD] first: id 0
MAX_ALPHABET = 1000  # characters that a trained vocabulary spells; the rest becomes [UNK]
MAX_WORD_CHARACTERS = 100  # longer words become [UNK], as in BERT
_UNUSED = re.compile(r"\[unused\d+\]$")


@dataclass(frozen=True)
class Vocabulary:
    """Entries by id, and how text is normalized before they are looked up.

    entries          V strings, index = id
    lowercase        uncased: lower case, and accents stripped
    strip_accents    None: as `lowercase`
    chinese_chars    each Chinese character is a word
    """

    entries: List[str]
    lowercase: bool
    strip_accents: Optional[bool] = None
    chinese_chars: bool = True

    @property
    def special_token_ids(self) -> Dict[str, int]:
        ids = {entry: i for i, entry in enumerate(self.entries)}
        return {name: ids[entry] for name, entry in zip(SPECIAL_TOKENS, SPECIAL_ENTRIES)}

    def kinds(self) -> npt.NDArray[np.uint8]:
        """(V,) uint8: ordinary, continuation piece, special or unused, by id."""
        kinds = np.full(len(self.entries), KIND_ORDINARY, dtype=np.uint8)
        for i, entry in enumerate(self.entries):
            if entry in SPECIAL_ENTRIES:
                kinds[i] = KIND_SPECIAL
            elif _UNUSED.match(entry):
                kinds[i] = KIND_UNUSED
            elif entry.startswith("##"):
                kinds[i] = KIND_CONTINUATION
        return kinds

    def tokenizer(self) -> Tokenizer:
        """A tokenizer of plain text: [SEP] in an article is a bracket, a word and a bracket."""
        ids = {entry: i for i, entry in enumerate(self.entries)}
        tokenizer = Tokenizer(
            models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
        )
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.chinese_chars,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    def save(self, folder: Path) -> None:
        """Writes vocab.txt and a tokenizer.json that Hugging Face loads, with special tokens and pairs."""
        text = "\n".join(self.entries) + "\n"
        (folder / VOCABULARY_FILE).write_bytes(text.encode("utf-8"))
        tokenizer = self.tokenizer()
        tokenizer.add_special_tokens(list(SPECIAL_ENTRIES))
        special = self.special_token_ids
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", special["cls"]), ("[SEP]", special["sep"])],
        )
        tokenizer.decoder = decoders.WordPiece()
        (folder / TOKENIZER_FILE).write_bytes(tokenizer.to_str(pretty=True).encode("utf-8"))


def vocabulary_sha256(folder: Path) -> str:
    """What shards and checkpoints remember of their vocabulary."""
    return file_sha256(folder / VOCABULARY_FILE)


def read_vocabulary(path: Path, lowercase: Optional[bool] = None) -> Vocabulary:
    """Reads a vocab.txt, or a Hugging Face BERT tokenizer folder (tokenizer.json or vocab.txt).

    lowercase None: as the folder says, uncased where it says nothing.
    Raises ValueError naming the file when it is missing, has doubles, or lacks a special token.
    """
    if path.is_dir():
        if (path / TOKENIZER_FILE).is_file():
            vocabulary = _from_tokenizer_json(path / TOKENIZER_FILE, lowercase)
        elif (path / VOCABULARY_FILE).is_file():
            said = {}
            if (path / "tokenizer_config.json").is_file():
                said = read_object(path / "tokenizer_config.json")
            vocabulary = Vocabulary(
                _read_entries(path / VOCABULARY_FILE),
                lowercase=said.get("do_lower_case", True) if lowercase is None else lowercase,
                strip_accents=said.get("strip_accents"),
                chinese_chars=said.get("tokenize_chinese_chars", True),
            )
        else:
            raise ValueError(
                f"vocabulary.tokenizer: {path} has neither {TOKENIZER_FILE} nor {VOCABULARY_FILE}"
            )
    elif path.is_file():
        vocabulary = Vocabulary(_read_entries(path), lowercase=lowercase is not False)
    else:
        raise ValueError(f"vocabulary.tokenizer: no such file or folder: {path}")
    _check(vocabulary, path)
    return vocabulary


def _read_entries(path: Path) -> List[str]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    entries = [line.rstrip("\r") for line in text.split("\n")]
    while entries and not entries[-1]:
        entries.pop()
    return entries


def _from_tokenizer_json(path: Path, lowercase: Optional[bool]) -> Vocabulary:
    stored = read_object(path)
    model = stored.get("model") or {}
    if model.get("type", "WordPiece") != "WordPiece" or not isinstance(model.get("vocab"), dict):
        raise ValueError(f"{path}: expected a WordPiece tokenizer, found {model.get('type')!r}")
    if model.get("continuing_subword_prefix", "##") != "##":
        raise ValueError(
            f"{path}: expected pieces marked ##, found {model['continuing_subword_prefix']!r}"
        )
    ids = dict(model["vocab"])
    ids.update({token["content"]: token["id"] for token in stored.get("added_tokens") or []})
    entries = sorted(ids, key=ids.__getitem__)
    if [ids[entry] for entry in entries] != list(range(len(entries))):
        raise ValueError(
            f"{path}: expected token ids 0..{len(entries) - 1} without gaps or doubles"
        )
    normalizer = stored.get("normalizer") or {}
    if normalizer.get("type", "BertNormalizer") != "BertNormalizer":
        raise ValueError(f"{path}: expected BertNormalizer, found {normalizer.get('type')!r}")
    return Vocabulary(
        entries,
        lowercase=normalizer.get("lowercase", True) if lowercase is None else lowercase,
        strip_accents=normalizer.get("strip_accents"),
        chinese_chars=normalizer.get("handle_chinese_chars", True),
    )


def _check(vocabulary: Vocabulary, path: Path) -> None:
    entries = vocabulary.entries
    if not entries:
        raise ValueError(f"{path}: empty, expected one vocabulary entry a line")
    doubles = [entry for entry, number in Counter(entries).items() if number > 1]
    if doubles:
        raise ValueError(f"{path}: {doubles[0]!r} is listed twice")
    missing = [entry for entry in SPECIAL_ENTRIES if entry not in entries]
    if missing:
        raise ValueError(f"{path}: has no {missing[0]}, expected a BERT vocabulary")
    if entries[PAD_ID] != "[PAD]":
        raise ValueError(f"{path}: id {PAD_ID} is {entries[PAD_ID]!r}, expected [PAD]")
    if vocabulary.tokenizer().get_vocab_size() != len(entries):
        raise ValueError(f"{path}: could not be loaded as a WordPiece vocabulary")


def train_vocabulary(
    sentences: Callable[[], Iterable[str]], size: int, lowercase: bool
) -> Vocabulary:
    """Trains WordPiece on sentences; the same sentences give the same vocabulary, in any process.

    sentences  called twice: once for the alphabet, once for the pieces
    size       entries, special tokens included; a small corpus may give fewer
    The library numbers characters and their ## forms in the order of a randomly keyed hash table, and
    breaks ties between pairs by these numbers. So they are given to it in sorted order.
    Raises ValueError when `size` does not hold the special tokens and the alphabet.
    """
    tokenizer = Vocabulary(list(SPECIAL_ENTRIES), lowercase).tokenizer()
    normalize = tokenizer.normalizer.normalize_str
    characters: Counter = Counter()
    for sentence in sentences():
        characters.update(normalize(sentence))
    for character in [character for character in characters if character.isspace()]:
        del characters[character]
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    alphabet = sorted(ranked[:MAX_ALPHABET])
    seeds = [*SPECIAL_ENTRIES, *alphabet, *(f"##{character}" for character in alphabet)]
    if len(seeds) > size:
        raise ValueError(
            f"vocabulary.size: {size} entries do not hold {len(SPECIAL_ENTRIES)} special tokens and "
            f"{len(alphabet)} characters in two forms, expected at least {len(seeds)}"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=seeds,
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    entries = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return Vocabulary([entry for entry, _ in entries], lowercase)


def make_vocabulary(scratch: Path, vocabulary: Vocabulary, trained: bool) -> Dict[str, Any]:
    """Body of the vocabulary stage: writes the tokenizer and says what it holds."""
    vocabulary.save(scratch)
    kinds = vocabulary.kinds()
    return {
        "counts": {"entries": len(vocabulary.entries), "unused": int((kinds == KIND_UNUSED).sum())},
        "lowercase": vocabulary.lowercase,
        "trained": trained,
        "vocab_sha256": vocabulary_sha256(scratch),
    }
