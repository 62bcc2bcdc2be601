"""The stages histogram, plan and shards: examples -> counts -> plan -> packed HDF5 shards.

Shape letters: N packs, L tokens, D sequences per pack, n examples.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import numpy.typing as npt

from data_prep.examples import Examples
from data_prep.stage import MANIFEST, Manifest, run_partitions
from data_prep.vocabulary import TOKENIZER_FILE, VOCABULARY_FILE, Vocabulary, read_vocabulary
from packing import PackingPlan, solve
from packing.files import fingerprint, read_json, read_object, whole_folder, write_json
from packing.folder import DATA_FORMAT, DATA_VERSION, data_section, shard_name
from packing.histogram import count_lengths, read_histogram, write_histogram
from packing.shards import (
    NO_EXAMPLE,
    NO_LABEL,
    PAD_ID,
    ShardInfo,
    length_type,
    token_type,
    write_shard,
)


def open_examples(folder: Path, manifest: Manifest, split: str) -> Examples:
    return Examples(folder, split, len(manifest["splits"][split]["parts"]))


def histogram_stage(scratch: Path, examples_dir: Path, examples: Manifest) -> Dict[str, Any]:
    """Body of the histogram stage: `length,count` lines for each split."""
    max_length = examples["settings"]["max_length"]
    counts = {}
    for split in examples["splits"]:
        lengths = open_examples(examples_dir, examples, split).table["length"]
        counted = count_lengths(lengths, max_length)
        write_histogram(scratch / f"{split}.csv", counted)
        counts[split] = int(counted.sum())
    return {"counts": counts}


def plan_stage(
    scratch: Path, histogram_dir: Path, *, max_length: int, max_per_pack: Any, algorithm: str
) -> Dict[str, Any]:
    """Body of the plan stage: one plan for each split, each covering its histogram exactly."""
    plans = {}
    for path in sorted(histogram_dir.glob("*.csv")):
        plan = solve(
            read_histogram(path),
            max_length=max_length,
            max_per_pack=max_per_pack,
            algorithm=algorithm,
        )
        plan.save(scratch / f"{path.stem}.json")
        plans[path.stem] = plan_summary(plan)
    return {"plans": plans}


def plan_summary(plan: PackingPlan) -> Dict[str, Any]:
    return {**plan.summary(), "depth": plan.depth, "plan_fingerprint": plan.fingerprint}


@dataclass(frozen=True)
class ShardTask:
    """One shard: its packs as rows of a CSR table over the examples of a split."""

    path: Path
    examples_dir: Path
    split: str
    number_of_parts: int
    first_example_id: int
    offsets: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    token_kinds: npt.NDArray[np.uint8]
    info: ShardInfo


def fill_shard(task: ShardTask) -> Dict[str, Any]:
    """Lays the tokens of each pack end to end and writes the shard; returns its counts and hash."""
    examples = Examples(task.examples_dir, task.split, task.number_of_parts)
    info = task.info
    num_packs = task.offsets.size - 1
    packs = np.repeat(np.arange(num_packs), np.diff(task.offsets))
    slots = np.arange(task.places.size) - np.repeat(task.offsets[:-1], np.diff(task.offsets))
    rows = examples.table[task.places]

    def by_slot(values: Any, empty: int, dtype: Any) -> npt.NDArray[Any]:
        table = np.full((num_packs, info.max_per_pack), empty, dtype=dtype)
        table[packs, slots] = values
        return table

    arrays = {
        "input_ids": np.full((num_packs, info.max_length), PAD_ID, token_type(info.vocab_size)),
        "lengths": by_slot(rows["length"], 0, length_type(info.max_length)),
        "first_lengths": by_slot(rows["first_length"], 0, length_type(info.max_length)),
        "next_sentence_labels": by_slot(rows["next_sentence_label"], NO_LABEL, np.int8),
        "example_ids": by_slot(task.first_example_id + task.places, NO_EXAMPLE, np.int64),
    }
    ends = np.cumsum(arrays["lengths"], axis=1, dtype=np.int64)[packs, slots]
    starts = ends - rows["length"]
    input_ids = arrays["input_ids"]
    for place, pack, start, end in zip(task.places, packs, starts, ends):
        input_ids[pack, start:end] = examples.tokens(place)
    return write_shard(task.path, arrays, task.token_kinds, info)


def shard_tasks(
    scratch: Path,
    split: str,
    plan: PackingPlan,
    examples_dir: Path,
    examples: Manifest,
    *,
    token_kinds: npt.NDArray[np.uint8],
    info: ShardInfo,
    packs_per_shard: int,
    seed: int,
) -> List[ShardTask]:
    """Applies the plan once to all examples of a split and deals the packs to shards of equal size."""
    counted = examples["splits"][split]
    opened = open_examples(examples_dir, examples, split)
    assignment = plan.assign(opened.table["length"], seed=seed)
    number = -(-plan.num_packs // packs_per_shard)
    borders = np.linspace(0, plan.num_packs, number + 1).astype(np.int64)
    tasks = []
    for index in range(number):
        offsets = assignment.offsets[borders[index] : borders[index + 1] + 1]
        tasks.append(
            ShardTask(
                path=scratch / split / shard_name(index, number),
                examples_dir=examples_dir,
                split=split,
                number_of_parts=len(counted["parts"]),
                first_example_id=counted["first_example_id"],
                offsets=offsets - offsets[0],
                places=assignment.ids[offsets[0] : offsets[-1]],
                token_kinds=token_kinds,
                info=info,
            )
        )
    return tasks


def shards_stage(
    scratch: Path,
    *,
    vocabulary_dir: Path,
    examples_dir: Path,
    plan_dir: Path,
    examples: Manifest,
    vocabulary_sha256: str,
    packs_per_shard: int,
    seed: int,
    workers: int,
) -> Dict[str, Any]:
    """Body of the shards stage: both splits, shard by shard; all shards have the same L and D."""
    vocabulary = read_vocabulary(vocabulary_dir)
    plans = {split: PackingPlan.load(plan_dir / f"{split}.json") for split in examples["splits"]}
    depth = max(plan.depth for plan in plans.values())
    tasks: List[ShardTask] = []
    for split, plan in plans.items():
        (scratch / split).mkdir()
        info = shard_info_of(plan, depth, vocabulary, vocabulary_sha256)
        tasks += shard_tasks(
            scratch,
            split,
            plan,
            examples_dir,
            examples,
            token_kinds=vocabulary.kinds(),
            info=info,
            packs_per_shard=packs_per_shard,
            seed=seed,
        )
    results = run_partitions(
        fill_shard,
        tasks,
        workers=workers,
        name="shards",
        total=sum(plan.num_packs for plan in plans.values()),
        unit="packs",
        amount=lambda summary: summary["num_packs"],
    )
    splits: Dict[str, Dict[str, Any]] = {}
    for task, summary in zip(tasks, results):
        if task.split not in splits:
            splits[task.split] = {**plan_summary(plans[task.split]), "shards": []}
        splits[task.split]["shards"].append({"name": task.path.name, **summary})
    return {"data": data_section(tasks[0].info), "splits": splits}


def shard_info_of(
    plan: PackingPlan, depth: int, vocabulary: Vocabulary, vocabulary_sha256: str
) -> ShardInfo:
    return ShardInfo(
        max_length=plan.max_length,
        max_per_pack=depth,
        vocab_size=len(vocabulary.entries),
        vocab_sha256=vocabulary_sha256,
        special_token_ids=vocabulary.special_token_ids,
        nsp=True,
        plan_fingerprint=plan.fingerprint,
    )


def publish(output_dir: Path, vocabulary_dir: Path, stages: Dict[str, Manifest]) -> Dict[str, Any]:
    """Makes the folder a data folder: copies the tokenizer, then writes manifest.json, last.

    stages: name -> manifest of the stages extract, vocabulary, examples and shards.
    """
    shards, examples, extract = stages["shards"], stages["examples"], stages["extract"]
    splits = {}
    for split, packed in shards["splits"].items():
        made = examples["splits"][split]
        splits[split] = {
            **packed,
            "documents": made["documents"],
            "first_example_id": made["first_example_id"],
            "random_next": made["random_next"],
        }
    manifest = {
        "format": DATA_FORMAT,
        "version": DATA_VERSION,
        "data": shards["data"],
        "splits": splits,
        "documents": extract["counts"],
        "documents_per_file": extract["documents_per_file"],
        "excluded": {**extract["excluded"], **examples["excluded"]},
        "lowercase": stages["vocabulary"]["lowercase"],
        "settings": {name: stage["settings"] for name, stage in stages.items()},
    }
    manifest["fingerprint"] = fingerprint(manifest)
    path = output_dir / MANIFEST
    if (
        path.is_file()
        and read_json(path) == manifest
        and _same_tokenizer(output_dir, vocabulary_dir)
    ):
        return manifest
    foreign = {p.name for p in (output_dir / "tokenizer").glob("*")}
    foreign -= {VOCABULARY_FILE, TOKENIZER_FILE}
    if foreign:
        raise ValueError(f"{output_dir / 'tokenizer'}: holds {min(foreign)}, not replacing it")
    if path.is_file() and read_object(path).get("format") != DATA_FORMAT:
        raise ValueError(f"{path}: is not of this program, not replacing it")
    path.unlink(missing_ok=True)
    with whole_folder(output_dir / "tokenizer") as scratch:
        for name in (VOCABULARY_FILE, TOKENIZER_FILE):
            shutil.copyfile(vocabulary_dir / name, scratch / name)
    write_json(path, manifest)
    return manifest


def _same_tokenizer(output_dir: Path, vocabulary_dir: Path) -> bool:
    pairs: List[Tuple[Path, Path]] = [
        (output_dir / "tokenizer" / name, vocabulary_dir / name)
        for name in (VOCABULARY_FILE, TOKENIZER_FILE)
    ]
    return all(one.is_file() and one.read_bytes() == other.read_bytes() for one, other in pairs)
