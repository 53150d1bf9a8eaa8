"""Which checkpoints lie in a directory, and which of them are complete: by names, sizes and ends of files.

Nothing is unpickled. A directory holds DeepSpeed's tags and the file `latest`, which names one of them; or directories
of a framework's, each of which has such a file within: the Trainer's checkpoint-N, Accelerate's, Lightning's.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from typing import Dict, Iterator, NamedTuple, Tuple

LATEST = "latest"
MOST = 100_000  # entries of a directory that are looked at
PICKLE_BYTES = 64 << 20
HEADER_BYTES = 64 << 20
END_OF_ZIP = b"PK\x05\x06"
END_BYTES = 22  # of the record that ends a zip archive: torch writes no comment after it

_MODEL = re.compile(r"(zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")
_NUMBER = re.compile(r"(\d+)(?!.*\d)")
_UNIVERSAL = "zero"  # the directory of a universal checkpoint's parts
Files = Dict[str, Tuple[int, float]]  # by name: the size in bytes, and when it was last written


class Checkpoint(NamedTuple):
    """One checkpoint of all ranks."""

    path: str  # of its directory, by which a program goes on from it
    tag: str
    step: int | None
    time: float  # when its last file was written, by the clock of whoever holds the files
    size: int  # bytes
    missing: str  # why it is not complete, in words; empty: it is
    own: bool  # a tag of DeepSpeed's, as `latest` may name it, and no framework's directory


class World(NamedTuple):
    """What a file of model states says of the ranks that saved it; None where it does not."""

    data: int | None
    model: int | None
    step: int | None
    partitioned: bool  # the optimizer's states are in files of their own


def checkpoints(root: str, ranks: int) -> Iterator[Checkpoint]:
    """Yield those in a directory, the newest first, without those that cannot be read; raise OSError.

    `ranks`: of the job, where no file tells it.
    """
    found: list[tuple[float, int, str]] = []
    for name, entry in _entries(root):
        if entry.is_dir():
            found.append((entry.stat().st_mtime, _number(name) or 0, name))
    for _, _, name in sorted(found, reverse=True):
        try:
            checkpoint = checkpoint_at(os.path.join(root, name), ranks)
        except OSError:
            continue
        if checkpoint:
            yield checkpoint


def newest_complete(root: str, ranks: int) -> Checkpoint | None:
    """Return the one that `latest` names if it is complete, else the newest that is. Raises OSError."""
    tag = named_by_latest(root)
    named = os.path.join(root, tag) if tag else ""
    checkpoint = checkpoint_at(named, ranks) if os.path.isdir(named) else None
    if checkpoint and not checkpoint.missing:
        return checkpoint
    return next((each for each in checkpoints(root, ranks) if not each.missing), None)


def named_by_latest(root: str) -> str | None:
    """Return the tag in `latest`, empty if it was not written to its end; None without such a file. Raises OSError."""
    try:
        with open(os.path.join(root, LATEST), encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def checkpoint_at(path: str, ranks: int) -> Checkpoint | None:
    """Return the checkpoint in a directory; None if it has nothing of one. Raises OSError."""
    files, directories = _listed(path)
    name = os.path.basename(path)
    if any(_MODEL.fullmatch(each) or _OPTIMIZER.fullmatch(each) for each in files):
        return None if _UNIVERSAL in directories else _of_deepspeed(path, files, ranks)
    inner = named_by_latest(path) if LATEST in files else None
    of_trainer = "trainer_state.json" in files or re.fullmatch(r"checkpoint-\d+", name)
    if not (inner or of_trainer):
        return None
    within = checkpoint_at(os.path.join(path, inner), ranks) if inner and inner in directories else None
    size, time = _sum(files)
    if within:
        size, time = size + within.size, max(time, within.time)
    step = _number(name)
    if step is None and within:
        step = within.step
    missing = _missing_of_framework(path, files, inner, within) or (
        _missing_of_trainer(path, files) if of_trainer else ""
    )
    return Checkpoint(path, name, step, time or os.stat(path).st_mtime, size, missing, False)


def _of_deepspeed(path: str, files: Files, ranks: int) -> Checkpoint:
    size, time = _sum(files)
    tag = os.path.basename(path)
    first = next((each for each in sorted(files) if _first_model_states(each)), None)
    world = _world(os.path.join(path, first)) if first and not _torn(path, first, files) else None
    step = _number(tag) if world is None or world.step is None else world.step
    missing = _missing(path, files, world, ranks)
    return Checkpoint(path, tag, step, time, size, missing, True)


def _first_model_states(name: str) -> bool:
    match = _MODEL.fullmatch(name)
    return bool(match and int(match[3]) == 0 and int(match[2] or 0) == 0)


def _missing(path: str, files: Files, world: World | None, ranks: int) -> str:
    """What the tag lacks of what its stage and its ranks imply.

    A rank writes all that is its own before its optimizer's states, layers and experts too, so that those of all ranks
    show that the others are there.
    """
    torn = next((name for name in sorted(files) if name.endswith(".pt") and _torn(path, name, files)), None)
    if torn:
        return f"{torn} is not written to its end"
    models = [match for match in map(_MODEL.fullmatch, files) if match]
    model = {(int(match[2] or 0), int(match[3])) for match in models}
    optimizer = {(int(match[1]), int(match[2])) for match in map(_OPTIMIZER.fullmatch, files) if match}
    if (0, 0) not in model:
        return "the model states of rank 0 are missing"
    if world is None or world.data is None or world.model is None:
        if optimizer and len(optimizer) < ranks:
            return f"the optimizer states of {ranks - len(optimizer)} of {ranks} ranks are missing"
        return ""
    every = {(data, part) for data in range(world.data) for part in range(world.model)}
    of_stage_3 = any(match[1] for match in models)
    wanted = every if of_stage_3 else {(0, part) for part in range(world.model)}
    return _words("model states", wanted - model) or (
        _words("optimizer states", every - optimizer) if optimizer or world.partitioned else ""
    )


def _words(what: str, lacking: set[tuple[int, int]]) -> str:
    if not lacking:
        return ""
    data, part = min(lacking)
    others = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"the {what} of zero_pp_rank_{data}_mp_rank_{part:02d}{others} are missing"


def _missing_of_framework(path: str, files: Files, inner: str | None, within: Checkpoint | None) -> str:
    if within:
        return f"in {within.tag} {within.missing}" if within.missing else ""
    if inner:
        return f"{inner}, which its file {LATEST} names, is missing"
    if "optimizer.pt" in files:
        return "optimizer.pt is not written to its end" if _torn(path, "optimizer.pt", files) else ""
    return "the states of the optimizer are missing"


def _missing_of_trainer(path: str, files: Files) -> str:
    """The Trainer writes trainer_state.json last."""
    for name in files:
        if name.endswith(".safetensors") and not _ends_as_its_header_says(os.path.join(path, name), files[name][0]):
            return f"{name} is not written to its end"
        if name.endswith(".index.json"):
            try:
                with open(os.path.join(path, name), encoding="utf-8") as file:
                    shards = set(json.load(file)["weight_map"].values())
            except (ValueError, LookupError, TypeError, AttributeError):
                return f"{name} is not written to its end"
            if shards - set(files):
                return f"{min(shards - set(files))} is missing"
    try:
        with open(os.path.join(path, "trainer_state.json"), encoding="utf-8") as file:
            json.load(file)
    except (OSError, ValueError):
        return "trainer_state.json is missing, or not written to its end"
    return ""


def _torn(path: str, name: str, files: Files) -> bool:
    """Whether a file of torch.save's has no end. Of one in the format before zip archives only its size is known."""
    size = files[name][0]
    if size == 0:
        return True
    with open(os.path.join(path, name), "rb") as file:
        if file.read(2) != b"PK"[: min(2, size)]:
            return False
        if size < END_BYTES:
            return True
        file.seek(-END_BYTES, os.SEEK_END)
        return not file.read(END_BYTES).startswith(END_OF_ZIP)


def _ends_as_its_header_says(path: str, size: int) -> bool:
    """Whether a safetensors file is as long as its header says."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, HEADER_BYTES):
            return False
        try:
            header = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            return bool(size == 8 + length + max(ends, default=0))
        except (ValueError, LookupError, TypeError, AttributeError):
            return False


def _world(path: str) -> World | None:
    """What the pickle in a zip archive of torch's says, read as bytes; None for one that is no such archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(each for each in archive.namelist() if each.endswith("/data.pkl"))
            with archive.open(name) as member:
                pickled = member.read(PICKLE_BYTES)
    except (zipfile.BadZipFile, StopIteration, NotImplementedError, EOFError):
        return None
    optimizer = re.search(_key("optimizer") + rb"(.)", pickled, re.DOTALL)
    partitioned = optimizer is not None and optimizer[1] == b"N"
    data, shard = _integer(pickled, "dp_world_size"), _integer(pickled, "mics_shard_size")
    # Of MiCS only the first group of ranks saves; without it there is -1, which is read as a huge number.
    data = min(data, shard) if data and shard else data
    return World(data, _integer(pickled, "mp_world_size"), _integer(pickled, "global_steps"), partitioned)


def _key(name: str) -> bytes:
    """A key of a dictionary as pickle's protocol 2 writes it for the first time: the text, and where it is memoized."""
    return re.escape(b"X" + len(name).to_bytes(4, "little") + name.encode()) + rb"(?:q.|r....)"


def _integer(pickled: bytes, name: str) -> int | None:
    match = re.search(_key(name) + rb"(?:K(.)|M(..)|J(....))", pickled, re.DOTALL)
    return int.from_bytes(match[match.lastindex or 0], "little") if match else None


def _listed(path: str) -> tuple[Files, set[str]]:
    files: Files = {}
    directories: set[str] = set()
    for name, entry in _entries(path):
        if entry.is_dir():
            directories.add(name)
        else:
            known = entry.stat()
            files[name] = known.st_size, known.st_mtime
    return files, directories


def _entries(path: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(path) as entries:
        for number, entry in enumerate(entries):
            if number < MOST:
                try:
                    entry.stat()
                except OSError:
                    continue  # it went meanwhile, or is a link to nothing
                yield entry.name, entry


def _sum(files: Files) -> tuple[int, float]:
    return sum(size for size, _ in files.values()), max((time for _, time in files.values()), default=0.0)


def _number(name: str) -> int | None:
    match = _NUMBER.search(name)
    return int(match[1]) if match else None
