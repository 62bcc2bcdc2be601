"""Clean text -> sentences; pure, and needs no model or download.

The rules are those of `sentencex`. Its two lines of releases (0.6 in Python, 1.x in Rust) share the
interface but differ in what they return and in what they cannot take, which is dealt with here:

* 0.6 gives an iterator of stripped strings, 1.x a list of strings with their trailing spaces;
* 1.x panics on wide white space (U+2028 after an initial), so white space is collapsed first;
* 0.6 takes quadratic time in the length of a line, so a long line is fed in windows;
* both take any unknown language for English without a word.
"""

from __future__ import annotations

import re
from typing import Iterator, List

import sentencex

# Characters; no paragraph of real text is longer, and 0.6 needs under 0.3 s for one window.
WINDOW = 4000

LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]+)*")

# Soft hyphen, zero-width space, direction marks, word joiner, BOM. The joiners U+200C and U+200D
# spell words in Persian and Indic scripts and join emoji; next to ASCII they are only noise.
INVISIBLE = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


def split_sentences(text: str, language: str = "en") -> List[str]:
    r"""Split clean text into sentences, in order; a sentence never crosses a "\n".

    language  ISO 639 code ("en", "pt-BR", "zh-hans"); only the part before the first dash is used.
              A language `sentencex` has no rules for is split by the English ones.

    White space inside a sentence is collapsed to single spaces and invisible characters are
    removed. Pieces without a letter or digit of any script are dropped. All else survives in order.
    A sentence longer than WINDOW characters is cut at a space. Raises ValueError on a bad code.
    """
    if not LANGUAGE.fullmatch(language.lower()):
        raise ValueError(f"language must be an ISO 639 code such as 'en' or 'de', got {language!r}")
    code = language.lower().split("-")[0]
    sentences = []
    for line in text.split("\n"):
        for sentence in _split_line(" ".join(INVISIBLE.sub("", line).split()), code):
            if any(character.isalnum() for character in sentence):
                sentences.append(sentence)
    return sentences


def _split_line(line: str, language: str) -> Iterator[str]:
    """Yield the stripped sentences of one line whose white space is collapsed."""
    while len(line) > WINDOW:
        window = line[:WINDOW].rstrip()
        pieces = _segment(window, language)
        if len(pieces) > 1:  # the last one may go on after the window: it is read again
            end = len(window) - len(pieces.pop())
        else:
            end = max(window.rfind(" "), 0) or len(window)
            pieces = [window[:end]]
        yield from pieces
        line = line[end:].lstrip()
    yield from _segment(line, language)


def _segment(text: str, language: str) -> List[str]:
    found = sentencex.segment(language, text)  # pyright: ignore[reportAttributeAccessIssue]
    pieces = (piece.strip() for piece in found)
    return [piece for piece in pieces if piece]
