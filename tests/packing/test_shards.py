"""Shards and data folders: written, read, derived, refused when damaged."""

from __future__ import annotations

import multiprocessing
import pickle
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.files import read_json, whole_file, whole_folder, write_json
from packing.folder import PackedSplit
from packing.shards import (
    NO_EXAMPLE,
    NO_LABEL,
    Shard,
    ShardInfo,
    content_hash,
    derive,
    length_type,
    token_type,
    write_shard,
)
from tests.shards import INFO, KINDS, random_arrays, write_folder


def test_shard_is_read_as_it_was_written(tmp_path):
    arrays = random_arrays(7)
    summary = write_shard(tmp_path / "shard.h5", arrays, KINDS, INFO)
    shard = Shard(tmp_path / "shard.h5", INFO)
    assert shard.info == INFO
    assert len(shard) == summary["num_packs"] == 7
    assert shard.num_tokens == summary["num_tokens"] == arrays["lengths"].sum()
    assert shard.content_hash == summary["content_hash"]
    read = shard.read(np.array([6, 0, 3]))
    for name, values in arrays.items():
        assert read[name].dtype == values.dtype
        assert np.array_equal(read[name], values[[6, 0, 3]])
    assert np.array_equal(shard.token_kinds, KINDS)
    shard.check_content()


def test_same_arrays_give_the_same_bytes(tmp_path):
    for name in ("a.h5", "b.h5"):
        write_shard(tmp_path / name, random_arrays(5), KINDS, INFO)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_anybody_can_read_it_with_h5py(tmp_path):
    arrays = random_arrays(3)
    write_shard(tmp_path / "shard.h5", arrays, KINDS, INFO)
    with h5py.File(tmp_path / "shard.h5", "r") as file:
        assert np.array_equal(file["input_ids"][:], arrays["input_ids"])
        assert file.attrs["max_length"] == INFO.max_length


def test_types_follow_vocabulary_and_length():
    assert token_type(65_536) == np.uint16
    assert token_type(65_537) == np.uint32
    assert length_type(65_535) == np.uint16
    assert length_type(65_536) == np.uint32


def test_content_hash_sees_values_types_shapes_and_names():
    base = {"a": np.arange(6, dtype=np.int32)}
    others = [
        {"b": np.arange(6, dtype=np.int32)},
        {"a": np.arange(6, dtype=np.int64)},
        {"a": np.arange(6, dtype=np.int32).reshape(2, 3)},
        {"a": np.arange(1, 7, dtype=np.int32)},
    ]
    assert len({content_hash(arrays) for arrays in [base, *others]}) == 5
    assert content_hash({"a": np.arange(6, dtype=">i4")}) == content_hash(base)


def derive_plainly(lengths, first_lengths, max_length):
    """The derived arrays of one pack, token by token."""
    sequence_ids, position_ids, token_type_ids = [], [], []
    cls_positions = []
    for slot, (length, first) in enumerate(zip(lengths, first_lengths)):
        cls_positions.append(len(sequence_ids) if length else 0)
        for position in range(length):
            sequence_ids.append(slot + 1)
            position_ids.append(position)
            token_type_ids.append(int(position >= first))
    padding = [0] * (max_length - len(sequence_ids))
    return sequence_ids + padding, position_ids + padding, token_type_ids + padding, cls_positions


@given(seed=st.integers(0, 1000), num_packs=st.integers(1, 6))
def test_derived_arrays_equal_a_plain_loop(seed, num_packs):
    arrays = random_arrays(num_packs, seed=seed)
    derived = derive(arrays)
    for row in range(num_packs):
        plain = derive_plainly(
            arrays["lengths"][row].tolist(), arrays["first_lengths"][row].tolist(), INFO.max_length
        )
        names = ("sequence_ids", "position_ids", "token_type_ids", "cls_positions")
        for name, expected in zip(names, plain):
            assert derived[name][row].tolist() == list(expected), name


def damaged(path, how):
    if how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("not a shard", encoding="utf-8")
    else:
        with h5py.File(path, "r+") as file:
            if how == "version":
                file.attrs["version"] = 99
            elif how == "format":
                file.attrs["format"] = "other"
            elif how == "array":
                del file["lengths"]
            elif how == "attribute":
                del file.attrs["vocab_sha256"]
            elif how == "shape":
                del file["example_ids"]
                file["example_ids"] = np.zeros((2, 2), np.int64)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "truncated"),
        ("empty", "not an HDF5 file"),
        ("text", "not an HDF5 file"),
        ("version", "format version 99, expected 1"),
        ("format", "format is 'other'"),
        ("array", "'lengths'"),
        ("attribute", "vocab_sha256"),
        ("shape", "example_ids has shape"),
    ],
)
def test_damaged_shard_is_refused_by_name(tmp_path, how, message):
    path = tmp_path / "shard.h5"
    write_shard(path, random_arrays(4), KINDS, INFO)
    damaged(path, how)
    with pytest.raises(ValueError, match=message) as caught:
        Shard(path, INFO)
    assert str(path) in str(caught.value)


def test_shard_of_another_vocabulary_or_plan_is_refused(tmp_path):
    write_shard(tmp_path / "shard.h5", random_arrays(4), KINDS, INFO)
    for other in (replace(INFO, vocab_sha256="other"), replace(INFO, plan_fingerprint="other")):
        with pytest.raises(ValueError, match="expected 'other'"):
            Shard(tmp_path / "shard.h5", other)
    with pytest.raises(ValueError, match="no such file"):
        Shard(tmp_path / "none.h5")


def test_changed_values_are_found(tmp_path):
    path = tmp_path / "shard.h5"
    write_shard(path, random_arrays(4), KINDS, INFO)
    with h5py.File(path, "r+") as file:
        file["input_ids"][2, 3] += 1
    with pytest.raises(ValueError, match="content hash"):
        Shard(path, INFO).check_content()


def test_folder_reads_rows_through_all_shards(tmp_path):
    arrays = write_folder(tmp_path, [5, 3, 4])
    split = PackedSplit(tmp_path, "train")
    assert len(split) == 12
    rows = np.array([11, 0, 5, 7, 4, 8])
    for name, values in split.read(rows).items():
        assert np.array_equal(values, arrays[name][rows]), name
    assert np.array_equal(split.lengths, arrays["lengths"])
    for bad in ([-1], [12], []):
        with pytest.raises(ValueError, match="rows"):
            split.read(np.array(bad, dtype=np.int64))


def test_few_shards_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr("packing.folder.MAX_OPEN_SHARDS", 2)
    arrays = write_folder(tmp_path, [2] * 6)
    split = PackedSplit(tmp_path, "train")
    for row in range(12):
        assert np.array_equal(split.read(np.array([row]))["input_ids"], arrays["input_ids"][[row]])
        assert sum(bool(shard._maps) for shard in split.shards) <= 2


def read_in_child(split, queue):
    queue.put(split.read(np.arange(len(split)))["input_ids"])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_split_is_read_in_another_process_after_it_was_read_here(tmp_path, method):
    arrays = write_folder(tmp_path, [3, 3])
    split = PackedSplit(tmp_path, "train")
    split.read(np.array([0, 5]))
    assert len(pickle.dumps(split)) < 100_000
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=read_in_child, args=(split, queue))
    child.start()
    assert np.array_equal(queue.get(timeout=60), arrays["input_ids"])
    child.join()


def test_manifest_and_shards_must_agree(tmp_path):
    write_folder(tmp_path, [3, 3])
    manifest = read_json(tmp_path / "manifest.json")
    manifest["splits"]["train"]["shards"][1]["num_packs"] = 4
    write_json(tmp_path / "manifest.json", manifest)
    with pytest.raises(ValueError, match="num_packs is 3, the manifest says 4"):
        PackedSplit(tmp_path, "train")
    with pytest.raises(ValueError, match="split: expected one of train, found 'test'"):
        PackedSplit(tmp_path, "test")
    with pytest.raises(ValueError, match="not a data folder"):
        PackedSplit(tmp_path / "shards", "train")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "packed-bert-data"}'])
def test_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.json"):
        PackedSplit(tmp_path, "train")


def test_nothing_half_written_stays(tmp_path):
    def broken_file():
        with whole_file(tmp_path / "a.txt") as partial:
            partial.write_text("half", encoding="utf-8")
            raise RuntimeError("stop")

    def broken_folder():
        with whole_folder(tmp_path / "b") as partial:
            (partial / "x").write_text("half", encoding="utf-8")
            raise RuntimeError("stop")

    for broken in (broken_file, broken_folder):
        with pytest.raises(RuntimeError, match="stop"):
            broken()
    assert not (tmp_path / "a.txt").exists()
    assert not (tmp_path / "b").exists()
    with whole_folder(tmp_path / "b") as partial:
        assert list(partial.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "in_the_way", "named", "reason"),
    [
        ("a" * 250, None, "a" * 250, "name too long"),
        ("a.txt", "a.txt.partial", "a.txt.partial", "a directory"),
    ],
)
def test_file_that_cannot_be_written_is_named_as_its_user_does(
    tmp_path, name, in_the_way, named, reason
):
    if in_the_way:
        (tmp_path / in_the_way).mkdir()
    with pytest.raises(OSError, match=reason) as raised, whole_file(tmp_path / name) as partial:
        partial.write_text("half", encoding="utf-8")
    assert raised.value.filename == str(tmp_path / named)


def test_info_has_what_the_manifest_needs():
    assert NO_EXAMPLE == NO_LABEL == -1
    assert set(ShardInfo.__dataclass_fields__) == set(INFO.__dict__)
