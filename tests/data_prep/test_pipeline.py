"""The run as a whole, on text made here: stages kept and refused, same bytes, conservation, verify."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest

from data_prep.__main__ import main
from data_prep.config import DataConfig, ExamplesConfig, PackConfig, SourceConfig, VocabularyConfig
from data_prep.documents import Documents
from data_prep.pack import open_examples
from data_prep.pipeline import STAGES, dry_run, run
from data_prep.verify import Mismatch, verify
from packing.files import read_json
from packing.folder import PackedSplit
from packing.shards import content_hash
from tests.resources import assert_one_line_error, call_command

WORDS = (
    "river mountain city was founded by settlers in the early century and its people speak a "
    "language of their own while trade with the coast grew until war came"
).split()


def write_corpus(path, documents=14, seed=0):
    """JSON lines of articles of random sentences; every article has a marker word of its own."""
    rng = np.random.default_rng(seed)
    with open(path, "w", encoding="utf-8") as stream:
        for number in range(documents):
            sentences = []
            for _ in range(int(rng.integers(4, 40))):
                words = rng.choice(WORDS, int(rng.integers(3, 14)))
                sentences.append(f"{' '.join(words).capitalize()} marker{number}.")
            record = {"id": number, "title": f"Article {number}", "text": " ".join(sentences)}
            stream.write(json.dumps(record) + "\n")


def make_config(folder, corpus, **changes):
    config = DataConfig(
        output_dir=str(folder),
        source=SourceConfig(inputs=[str(corpus)]),
        vocabulary=VocabularyConfig(size=200),
        examples=ExamplesConfig(max_length=48, validation_fraction=0.2),
        pack=PackConfig(packs_per_shard=20),
        partition_size=4,
        workers=1,
    )
    return replace(config, **changes)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "articles.jsonl"
    write_corpus(path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory, corpus):
    """A finished run, not to be changed: (config, folder, manifest)."""
    folder = tmp_path_factory.mktemp("made") / "data set"
    config = make_config(folder, corpus)
    return config, folder, run(config)


@pytest.fixture
def copied(made, tmp_path):
    config, folder, _ = made
    shutil.copytree(folder, tmp_path / "copy")
    return replace(config, output_dir=str(tmp_path / "copy")), tmp_path / "copy"


def files_of(folder):
    """sha256 of every file that must not depend on how the run was done."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def test_every_example_is_in_exactly_one_slot_with_its_tokens(made):
    _, folder, manifest = made
    stage = read_json(folder / "examples" / "manifest.json")
    all_ids = []
    for split in ("train", "validation"):
        packed = PackedSplit(folder, split)
        examples = open_examples(folder / "examples", stage, split)
        arrays = packed.read(np.arange(len(packed)))
        first_id = manifest["splits"][split]["first_example_id"]
        for row in range(len(packed)):
            at = 0
            for slot, length in enumerate(arrays["lengths"][row].tolist()):
                example = int(arrays["example_ids"][row, slot])
                if length == 0:
                    assert example == -1
                    continue
                tokens = arrays["input_ids"][row, at : at + length]
                assert np.array_equal(tokens, examples.tokens(example - first_id))
                label = examples.table["next_sentence_label"][example - first_id]
                assert arrays["next_sentence_labels"][row, slot] == label
                all_ids.append(example)
                at += length
            assert (arrays["input_ids"][row, at:] == 0).all()
    assert sorted(all_ids) == list(range(len(all_ids)))
    assert len(all_ids) == sum(packed["sequences"] for packed in manifest["splits"].values())


def test_random_next_comes_from_another_document_of_the_same_split(made):
    _, folder, manifest = made
    stage = read_json(folder / "examples" / "manifest.json")
    owners = {}
    for split in ("train", "validation"):
        table = open_examples(folder / "examples", stage, split).table
        same = table["first_document"] == table["second_document"]
        assert np.array_equal(same, table["next_sentence_label"] == 0)
        owners[split] = {*table["first_document"], *table["second_document"]}
    assert not owners["train"] & owners["validation"]
    assert manifest["splits"]["validation"]["documents"] == len(owners["validation"]) == 3


def test_documents_are_whole_and_counted(made, corpus):
    _, folder, manifest = made
    documents = list(Documents(folder / "extract").read(range(14)))
    lines = corpus.read_text(encoding="utf-8").split("\n")[:-1]
    for document, line in zip(documents, lines):
        original = json.loads(line)
        assert " ".join(document["sentences"]) == original["text"]
        assert document["title"] == original["title"]
    assert manifest["documents"]["documents"] == 14
    assert manifest["documents_per_file"] == {corpus.name: 14}


@pytest.mark.parametrize("workers", [2, 3])
def test_the_same_bytes_for_any_number_of_workers(made, tmp_path, workers):
    config, folder, _ = made
    run(replace(config, output_dir=str(tmp_path / "other"), workers=workers))
    assert files_of(tmp_path / "other") == files_of(folder)


def test_a_second_run_keeps_everything(copied, caplog):
    config, folder = copied
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.h5")}
    with caplog.at_level("INFO"):
        run(config)
    assert [r.message for r in caplog.records if "unchanged" in r.message]
    assert not [r.message for r in caplog.records if "running" in r.message]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.h5")} == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 7}, ["examples", "seed = 42, now 7"]),
        ({"limit": 9}, ["extract", "limit = None, now 9"]),
        ({"vocabulary": VocabularyConfig(size=150)}, ["vocabulary", "size = 200, now 150"]),
        ({"pack": PackConfig(algorithm="spfhp", packs_per_shard=20)}, ["plan", "'spfhp'"]),
        ({"pack": PackConfig(packs_per_shard=9)}, ["shards", "packs_per_shard = 20, now 9"]),
    ],
)
def test_changed_settings_are_refused_by_name(copied, change, words):
    config, folder = copied
    before = files_of(folder)
    with pytest.raises(ValueError, match="--overwrite") as caught:
        run(replace(config, **change))
    for word in words:
        assert word in str(caught.value)
    assert files_of(folder) == before


def test_overwrite_makes_what_a_fresh_run_makes(copied, tmp_path):
    config, folder = copied
    changed = replace(config, seed=7)
    run(changed, overwrite=True)
    fresh = tmp_path / "fresh"
    run(replace(changed, output_dir=str(fresh)))
    assert files_of(folder) == files_of(fresh)


def test_changed_input_is_refused(copied, tmp_path):
    config, _ = copied
    other = tmp_path / "articles.jsonl"
    write_corpus(other, seed=1)
    with pytest.raises(ValueError, match="extract: it was made with inputs"):
        run(replace(config, source=SourceConfig(inputs=[str(other)])))


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_died_in_a_stage_is_finished_by_the_next(copied, made, stage):
    config, folder = copied
    for later in STAGES[STAGES.index(stage) :]:
        shutil.rmtree(folder / later)
    (folder / "manifest.json").unlink()
    (folder / f"{stage}.partial").mkdir()
    (folder / f"{stage}.partial" / "half").write_bytes(b"half")
    run(config)
    assert files_of(folder) == files_of(made[1])


def test_a_file_of_zero_length_is_not_taken_for_whole(copied):
    config, folder = copied
    shard = next((folder / "shards").rglob("*.h5"))
    shard.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged"):
        run(config)
    run(config, overwrite=True)
    verify(folder)


def test_dry_run_writes_nothing_and_says_what_would_run(copied, corpus, tmp_path):
    config, folder = copied
    before = files_of(folder)
    states = dry_run(replace(config, pack=PackConfig(packs_per_shard=9)))["stages"]
    assert states["plan"] == "unchanged, would be kept"
    assert states["shards"].startswith("refused without --overwrite")
    assert states["verify"] == "would run"
    assert files_of(folder) == before
    result = dry_run(make_config(tmp_path / "new", corpus))
    assert set(result["stages"].values()) == {"would run"}
    assert result["free_bytes"] > result["estimated_bytes"]["shards"] > 0
    assert not (tmp_path / "new").exists()


def test_manifest_names_no_path_host_or_clock(made, corpus):
    _, folder, _ = made
    for path in folder.rglob("manifest.json"):
        text = path.read_text(encoding="utf-8")
        assert str(corpus.parent) not in text
        assert "workers" not in text


def change_shard(path, change):
    """Edits a shard and makes its hash right again, so that only the invariant is broken."""
    with h5py.File(path, "r+") as file:
        change(file)
        names = ("input_ids", "lengths", "first_lengths", "next_sentence_labels", "example_ids")
        arrays = {name: file[name][:] for name in (*names, "token_kinds")}
        file.attrs["content_hash"] = content_hash(arrays)
        return str(file.attrs["content_hash"])


def swap_ids(file):
    file["example_ids"][1, 0] = file["example_ids"][0, 0]


def set_value(name, row, column, value):
    def change(file):
        file[name][row, column] = value

    return change


def split_label(file):
    file["next_sentence_labels"][3, 0] = 1 - file["next_sentence_labels"][3, 0]


def swap_tokens(file):
    """Two text tokens of one sequence change places: only the examples stage can tell."""
    row = file["input_ids"][2]
    places = np.flatnonzero(row > 5)
    a, b = places[0], places[np.flatnonzero(row[places] != row[places[0]])[0]]
    row[[a, b]] = row[[b, a]]
    file["input_ids"][2] = row


@pytest.mark.parametrize(
    ("change", "row", "words"),
    [
        (swap_ids, 1, "is in a second pack"),
        (set_value("example_ids", 0, 0, 10**6), 0, "outside"),
        (set_value("input_ids", 2, 0, 9), 2, "without [CLS]"),
        (set_value("input_ids", 2, 3, 4), 2, "[MASK] or [PAD] inside a sequence"),
        (set_value("input_ids", 2, 3, 60_000), 2, "beyond the vocabulary"),
        (set_value("next_sentence_labels", 1, 0, -1), 1, "next-sentence label"),
        (set_value("first_lengths", 1, 0, 1), 1, "first_lengths"),
        (set_value("lengths", 0, 0, 0), 0, "empty"),
        (split_label, 3, "differs from the examples stage"),
        (swap_tokens, 2, "differ from the examples stage"),
    ],
)
def test_verify_names_file_and_row(copied, change, row, words):
    _, folder = copied
    path = sorted((folder / "shards" / "train").iterdir())[0]
    digest = change_shard(path, change)
    manifest = read_json(folder / "manifest.json")
    manifest["splits"]["train"]["shards"][0]["content_hash"] = digest
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(Mismatch) as caught:
        verify(folder)
    assert words in str(caught.value)
    assert f"{path}, row {row}:" in str(caught.value)


def test_verify_on_the_command_line(copied):
    _, folder = copied
    done = call_command(main, "verify", str(folder))
    assert done.returncode == 0, done.stderr
    assert "each example once" in done.stdout
    shard = sorted((folder / "shards" / "train").iterdir())[0]
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(bytes(data))
    assert_one_line_error(call_command(main, "verify", str(folder)), 1, str(shard))
    shard.unlink()
    assert_one_line_error(call_command(main, "verify", str(folder)), 1, str(shard))
    assert_one_line_error(
        call_command(main, "verify", str(folder / "none")), 2, "not a data folder"
    )


def drop_validation(folder):
    manifest = read_json(folder / "manifest.json")
    del manifest["splits"]["validation"]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def empty_tokenizer(folder):
    (folder / "tokenizer" / "tokenizer.json").write_bytes(b"")


def no_tokenizer(folder):
    (folder / "tokenizer" / "tokenizer.json").unlink()


@pytest.mark.parametrize("damage", [drop_validation, empty_tokenizer, no_tokenizer])
def test_verify_sees_what_lies_beside_the_shards(copied, damage):
    _, folder = copied
    damage(folder)
    with pytest.raises(Mismatch, match="manifest|tokenizer"):
        verify(folder)


def test_verify_without_the_examples_stage(copied):
    _, folder = copied
    shutil.rmtree(folder / "examples")
    counts = verify(folder)["counts"]
    assert not counts["train"]["compared_with_examples"]


def test_one_document_is_refused(tmp_path):
    write_corpus(tmp_path / "one.jsonl", documents=1)
    with pytest.raises(ValueError, match="documents: found 1, expected at least 4"):
        run(make_config(tmp_path / "out", tmp_path / "one.jsonl"))
    assert not (tmp_path / "out" / "examples").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_foreign_tokenizer_folder_is_not_replaced(tmp_path, corpus):
    folder = tmp_path / "out" / "tokenizer"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"holds notes\.txt, not replacing it"):
        run(make_config(tmp_path / "out", corpus))
    assert (folder / "notes.txt").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_foreign_stage_folder_is_not_replaced(tmp_path, corpus, overwrite):
    folder = tmp_path / "out" / "extract"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="no manifest"):
        run(make_config(tmp_path / "out", corpus), overwrite=overwrite)
    assert (folder / "notes.txt").exists()


def test_two_runs_in_one_folder_are_kept_apart(tmp_path, corpus):
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another run is writing there"):
            run(make_config(tmp_path / "out", corpus))
    run(make_config(tmp_path / "out", corpus))


def test_without_a_validation_split(tmp_path, corpus):
    config = make_config(
        tmp_path / "out", corpus, examples=ExamplesConfig(max_length=48, validation_fraction=0)
    )
    manifest = run(config)
    assert list(manifest["splits"]) == ["train"]
    verify(tmp_path / "out")
