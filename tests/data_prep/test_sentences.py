from __future__ import annotations

import lzma
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sentences import WINDOW, split_sentences


def solid(text):
    return "".join(text.split())


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Smith left. He ran.", ["Dr. Smith left.", "He ran."]),
        ("The U.S. Army came. It won.", ["The U.S. Army came.", "It won."]),
        ("Fruit, e.g. this one. Eat it.", ["Fruit, e.g. this one.", "Eat it."]),
        ("J. K. Rowling wrote it.", ["J. K. Rowling wrote it."]),
        ("It cost $3.50. He paid.", ["It cost $3.50.", "He paid."]),
        ("One\nline. Two", ["One", "line.", "Two"]),
        ("a  b\t\u3000c", ["a b c"]),
        ("", []),
        (" \n \n", []),
        ("...\n!?\n—\n***", []),
        ("\ufeffBig\u200b\u00adword.", ["Bigword."]),
        ("x\u200dy می\u200cخواهم 👩\u200d💻.", ["xy می\u200cخواهم 👩\u200d💻."]),
    ],
)
def test_split(text, sentences):
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("language", "text", "number"),
    [
        ("zh", "他来了。她走了。", 2),
        ("ja", "日本は国です。東京は首都です。", 2),
        ("hi", "यह एक वाक्य है। यह दूसरा है।", 2),
        ("ar", "هذا سؤال؟ نعم هو كذلك.", 2),
        ("de", "Er kam um 5 Uhr usw. Sie ging.", 1),
        ("EN-us", "One. Two.", 2),
        ("xx", "Unknown to the rules. English ones are used.", 2),
    ],
)
def test_languages(language, text, number):
    assert len(split_sentences(text, language)) == number


@pytest.mark.parametrize("language", ["", "English", "simple", "e", "en_US", "12"])
def test_wrong_language_is_refused(language):
    with pytest.raises(ValueError, match="ISO 639"):
        split_sentences("One.", language)


@pytest.mark.parametrize("space", ["\u2028", "\u3000", "\x85", "\x0b", "\x1c", "\u2009"])
def test_wide_white_space_neither_breaks_a_line_nor_the_splitter(space):
    # sentencex 1.0.32 panics on "B\u2028."
    assert " ".join(split_sentences(f"A B{space}. C{space}d")) == "A B . C d"
    assert split_sentences(f"One{space}line. B{space}. End", "nl")[0] == "One line."


# All of Unicode, and often what rules look at. The replacements of the invisible are not tested here.
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=3),
        st.sampled_from(
            ["Dr. ", ". ", ".", "? ", '"', " '", "(", ")", "[1]", "。", "A.", "\n", "\u2028"]
        ),
    ),
    max_size=40,
).map("".join)


@given(text=TEXTS, language=st.sampled_from(["en", "de", "zh", "fr", "hi", "am", "xx"]))
@settings(max_examples=150, deadline=None)
def test_every_letter_and_digit_survives_in_order(text, language):
    sentences = split_sentences(text, language)
    found = [c for sentence in sentences for c in sentence if c.isalnum()]
    assert found == [c for c in text if c.isalnum()]
    for sentence in sentences:
        assert sentence == " ".join(sentence.split())
        assert any(c.isalnum() for c in sentence)


def test_long_line_is_linear_and_complete():
    text = 'Dr. Smith (he "said") wrote it. ' * 3000
    start = time.perf_counter()
    sentences = split_sentences(text)
    assert time.perf_counter() - start < 8
    assert sentences == ['Dr. Smith (he "said") wrote it.'] * 3000


@pytest.mark.parametrize("text", ["word " * 5000, "x" * 20000, "好" * 9000, ("( " * 5000) + "a"])
def test_line_without_an_end_is_cut(text):
    sentences = split_sentences(text)
    assert max(map(len, sentences)) <= WINDOW
    assert [c for c in "".join(sentences) if c.isalnum()] == [c for c in text if c.isalnum()]


def test_real_text_survives(published):
    path = published("wikipedia-en/wiki_00.txt.xz")
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as stream:
        text = stream.read(400_000)
    sentences = split_sentences(text)
    assert 2000 < len(sentences) < 4000
    assert 80 < sum(map(len, sentences)) / len(sentences) < 180
    # Nothing is lost but invisible characters and pieces of punctuation alone.
    dropped = len(solid(text)) - len(solid("".join(sentences)))
    assert 0 <= dropped < 100
    position = 0
    for c in solid("".join(sentences)):
        position = text.index(c, position) + 1
