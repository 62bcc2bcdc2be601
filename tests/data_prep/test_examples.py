"""Next-sentence pairs: adjacency, other documents, labels, lengths, against the recipe written plainly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.documents import hold_out
from data_prep.examples import pairs_of_document, split_into_parts, truncate


def numbered_documents(sizes):
    """Documents whose tokens are unique numbers, so that every token tells where it comes from."""
    token = 1000
    documents = []
    for sentence_sizes in sizes:
        document = []
        for size in sentence_sizes:
            document.append(list(range(token, token + size)))
            token += size
        documents.append(document)
    return documents


def flat(document):
    return [token for sentence in document for token in sentence]


document_sizes = st.lists(
    st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=2, max_size=4
)


@given(sizes=document_sizes, seed=st.integers(0, 50), max_length=st.integers(8, 80))
def test_pairs_keep_the_recipes_promises(sizes, seed, max_length):
    documents = numbered_documents(sizes)
    rng = np.random.default_rng(seed)
    owner = {token: i for i, document in enumerate(documents) for token in flat(document)}
    for which, _document in enumerate(documents):
        pairs = list(
            pairs_of_document(documents, which, max_length=max_length, short_seq_prob=0.1, rng=rng)
        )
        assert pairs
        for pair in pairs:
            assert pair.first
            assert pair.second
            assert len(pair.first) + len(pair.second) + 3 <= max_length
            for segment in (pair.first, pair.second):  # contiguous text of one document
                assert segment == list(range(segment[0], segment[0] + len(segment)))
            assert {owner[token] for token in pair.first} == {which}
            assert {owner[token] for token in pair.second} == {pair.second_document}
            assert pair.random_next == (pair.second_document != which)


@given(sizes=document_sizes, seed=st.integers(0, 50))
def test_an_actual_next_follows_at_once_when_nothing_was_cut(sizes, seed):
    documents = numbered_documents(sizes)
    rng = np.random.default_rng(seed)
    for pair in pairs_of_document(documents, 0, max_length=10_000, short_seq_prob=0.0, rng=rng):
        if not pair.random_next:
            assert pair.second[0] == pair.first[-1] + 1


def test_every_sentence_is_used_once_as_text_when_nothing_is_cut():
    documents = numbered_documents([[5] * 40, [5] * 40])
    rng = np.random.default_rng(3)
    seen = []
    for pair in pairs_of_document(documents, 0, max_length=10_000, short_seq_prob=0.0, rng=rng):
        seen += pair.first if pair.random_next else pair.first + pair.second
    assert seen == flat(documents[0])


def test_half_of_the_pairs_are_random():
    documents = numbered_documents([[10] * 4000, [10] * 50, [10] * 50])
    rng = np.random.default_rng(0)
    pairs = list(pairs_of_document(documents, 0, max_length=64, short_seq_prob=0.0, rng=rng))
    share = np.mean([pair.random_next for pair in pairs])
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(len(pairs))
    others = [pair.second_document for pair in pairs if pair.random_next]
    assert set(others) == {1, 2}


def test_short_sequences_are_as_frequent_as_asked():
    documents = numbered_documents([[4] * 200, [4] * 200])
    lengths = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        first = next(
            iter(pairs_of_document(documents, 0, max_length=128, short_seq_prob=0.3, rng=rng))
        )
        lengths.append(len(first.first) + len(first.second) + 3)
    short = np.mean(np.array(lengths) < 100)
    assert 0.15 < short < 0.35


def truncate_token_by_token(first, second, room, rng):
    """The original recipe: the longer side loses a token at a random end, until it fits."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return first, second


@given(a=st.integers(1, 60), b=st.integers(1, 60), room=st.integers(5, 100), seed=st.integers(0, 9))
def test_truncation_keeps_as_much_of_each_side_as_the_original(a, b, room, seed):
    first, second = list(range(a)), list(range(100, 100 + b))
    ours = truncate(first, second, room, np.random.default_rng(seed))
    plain = truncate_token_by_token(first, second, room, np.random.default_rng(seed))
    assert [len(side) for side in ours] == [len(side) for side in plain]
    for side in ours:
        assert side == list(range(side[0], side[0] + len(side)))


def test_truncation_takes_from_both_ends_alike():
    fronts = [
        truncate(list(range(40)), [0], 21, np.random.default_rng(seed))[0][0] for seed in range(500)
    ]
    assert abs(np.mean(fronts) - 10) < 0.5
    assert abs(np.std(fronts) - np.sqrt(5)) < 0.4  # binomial, 20 tokens


@given(total=st.integers(4, 300), fraction=st.floats(0, 0.5))
def test_hold_out(total, fraction):
    keys = np.random.default_rng(total).integers(0, 2**63, total).astype(np.uint64)
    expected = max(2, round(fraction * total)) if fraction > 0 else 0
    if total - expected < 2:
        with pytest.raises(ValueError, match="expected at least"):
            hold_out(keys, fraction)
        return
    train, validation = hold_out(keys, fraction)
    assert validation.size == expected
    assert sorted([*train, *validation]) == list(range(total))
    if expected:
        assert keys[validation].max() <= keys[train].min()


@given(number=st.integers(2, 200), size=st.integers(2, 50))
def test_parts_have_two_documents_at_least_and_lose_none(number, size):
    parts = split_into_parts(np.arange(number), size)
    assert np.array_equal(np.concatenate(parts), np.arange(number))
    assert all(min(size, number) <= part.size < 2 * size or len(parts) == 1 for part in parts)
    assert all(part.size >= 2 for part in parts)
