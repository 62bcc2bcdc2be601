"""The whole run on many scripts, formats and a given vocabulary, in a locale that knows no UTF-8."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data_prep.documents import Documents
from data_prep.vocabulary import read_vocabulary
from packing.files import read_json
from packing.folder import PackedSplit
from tests.data_prep.test_vocabulary import genuine_vocabulary
from tests.resources import run_command

SENTENCES = {
    "Chinese": "北京是中华人民共和国的首都。它有三千多年的历史。",
    "Arabic": "القاهرة هي عاصمة مصر. يعيش فيها ملايين الناس.",
    "Hindi": "दिल्ली भारत की राजधानी है। यह यमुना नदी के किनारे है।",
    "Emoji": "People like pictures 😀🚀. Even families 👨‍👩‍👧 are pictures.",
    "Accents": "Zürich ist größer als Genève. Łódź leży w Polsce.",
    "English": "A literal [SEP] or [MASK] in a text is only text. So is </doc> in the middle of a line.",
}


def write_inputs(folder):
    """The same six documents, twice each, in three formats; returns the texts."""
    folder.mkdir()
    with open(folder / "a.jsonl", "w", encoding="utf-8") as stream:
        for title, text in SENTENCES.items():
            stream.write(json.dumps({"title": title, "text": text}, ensure_ascii=False) + "\n")
    blocks = [text.replace("。", "。\n") for text in SENTENCES.values()]
    (folder / "b.txt").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    extracted = [
        f'<doc id="{i}" url="x" title="{title}">\n{title}\n\n{text}\n\n</doc>\n'
        for i, (title, text) in enumerate(SENTENCES.items())
        if "</doc>" not in text
    ]
    (folder / "wiki_00").write_text("".join(extracted), encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    write_inputs(folder / "文本 texts")
    done = run_command(
        *("data_prep", "run", "--source.inputs", json.dumps([str(folder / "文本 texts")])),
        *("--output-dir", str(folder / "数据"), "--vocabulary.size", "400", "--workers", "1"),
        *("--examples.max-length", "32", "--examples.validation-fraction", "0.15"),
    )
    assert done.returncode == 0, done.stderr
    return folder / "数据"


def test_no_character_is_lost(made):
    documents = Documents(made / "extract")
    assert len(documents) == 17
    for document in documents.read(range(len(documents))):
        text = "".join(document["sentences"])
        originals = ["".join(text.split()) for text in SENTENCES.values()]
        assert "".join(text.split()).replace("\u200d", "") in [
            original.replace("\u200d", "") for original in originals
        ]


def test_manifest_counts_documents_of_each_file(made):
    per_file = read_json(made / "manifest.json")["documents_per_file"]
    assert sorted(per_file.values()) == [5, 6, 6]


def test_special_tokens_stand_only_where_sequences_begin_and_end(made):
    packed = PackedSplit(made, "train")
    special = packed.info.special_token_ids
    tokens = packed.read(np.arange(len(packed)))["input_ids"]
    sequences = int((packed.lengths > 0).sum())
    assert (tokens == special["cls"]).sum() == sequences
    assert (tokens == special["sep"]).sum() == 2 * sequences
    assert (tokens == special["mask"]).sum() == 0


def test_trained_vocabulary_knows_every_character(made):
    vocabulary = read_vocabulary(made / "vocabulary")
    tokenizer = vocabulary.tokenizer()
    for text in SENTENCES.values():
        assert vocabulary.special_token_ids["unk"] not in tokenizer.encode(text).ids


def test_given_vocabulary_is_taken_over(tmp_path):
    vocabulary = genuine_vocabulary()
    write_inputs(tmp_path / "texts")
    done = run_command(
        *("data_prep", "run", "--source.inputs", json.dumps([str(tmp_path / "texts")])),
        *("--output-dir", str(tmp_path / "out"), "--vocabulary.tokenizer", str(vocabulary)),
        *("--examples.max-length", "64", "--examples.validation-fraction", "0"),
    )
    assert done.returncode == 0, done.stderr
    packed = PackedSplit(tmp_path / "out", "train")
    assert packed.info.vocab_size == 30_522
    assert packed.info.special_token_ids["cls"] == 101
    assert (tmp_path / "out" / "tokenizer" / "vocab.txt").read_bytes() == vocabulary.read_bytes()
