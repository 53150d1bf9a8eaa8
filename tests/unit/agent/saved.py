"""Checkpoints as DeepSpeed and the frameworks lay them out."""

import json
import os
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any

from tests.unit.agent.harness import load

RANKS = 2
files: Any = load("dso_checkpoint_files")


def archive(path: Path, **state: Any) -> None:
    """Write a file as torch.save does: a zip archive with a pickle, and storages beside it."""
    with zipfile.ZipFile(path, "w") as written:
        written.writestr(f"{path.stem}/data.pkl", pickle.dumps(state, protocol=2))
        written.writestr(f"{path.stem}/data/0", bytes(4096))


def tag(root: Path, step: int, *, stage: int = 1, name: str | None = None, age: float = 0) -> Path:
    """Write a tag of two data-parallel ranks, which `latest` then names; it was written `age` seconds ago."""
    directory = root / (name or f"global_step{step}")
    directory.mkdir(parents=True, exist_ok=True)
    optimizer: dict[str, Any] | None = {"state": {}} if stage == 0 else None
    state = {"module": {"weight": 1}, "optimizer": optimizer, "global_steps": step}
    for rank in range(RANKS):
        if stage == 3 or rank == 0:
            prefix = f"zero_pp_rank_{rank}_" if stage == 3 else ""
            model = directory / f"{prefix}mp_rank_00_model_states.pt"
            archive(model, **state, dp_world_size=RANKS, mp_world_size=1, ds_config={"optimizer": {"type": "AdamW"}})
        if stage:
            archive(directory / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", optimizer_state_dict={})
    (root / "latest").write_text(directory.name)
    aged(directory, age)
    return directory


def trainers(root: Path, step: int, age: float = 0) -> Path:
    """Write a checkpoint of the Trainer's with DeepSpeed's within."""
    directory = root / f"checkpoint-{step}"
    tag(directory, step, age=age)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    (directory / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    aged(directory, age)
    return directory


def aged(directory: Path, age: float) -> None:
    at = time.time() - age
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (at, at))


def cut(path: Path) -> None:
    """Leave of a file what a killed writer leaves."""
    os.truncate(path, path.stat().st_size // 2)
