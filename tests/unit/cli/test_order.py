"""What is said comes in one order, whichever process says it: in a status, another order would be a write for nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SEEDS: Final = ("1", "2", "3")
UNTIDY: Final = """
apiVersion: deepspeed-operator.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: untidy}
spec:
  nodes: 2
  training: {script: train.py}
  dsConfig:
    train_batch_size: 8
    a: 1
    b: 2
    c: 3
    pipeline: {stages: auto, e: 1, f: 2, g: 3, h: 4}
    zero_optimization: {stage: 2, i: 1, j: 2, k: 3}
    optimizer: {type: AdamW, params: {lr: 0.1, m: 1, mm: 2, mmm: 3}}
    fp16: {enabled: true, p: 1, q: 2}
    bf16: {enabled: true, r: 1, s: 2}
    tensorboard: {enabled: true, t: 1, u: 2}
  template:
    apiVersion: v1
    kind: Pod
    status: {}
    other: {}
    metadata: {name: mine, namespace: mine, generateName: mine}
    spec:
      hostname: mine
      subdomain: mine
      restartPolicy: Always
      hostNetwork: true
      containers: [{name: trainer, image: mine, env: [{name: RANK, value: "0"}, {name: NCCL_DEBUGG, value: x}]}]
"""


def said(path: Path, seed: str) -> str:
    command = [sys.executable, "-m", "deepspeed_operator.cli.main", "validate", str(path), "-o", "json"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["", "  deepspeedVersion: 0.19.8\n"], ids=["any", "0.19.8"])
def test_findings_have_one_order(tmp_path: Path, version: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(UNTIDY + version)
    first, *others = (said(path, seed) for seed in SEEDS)
    assert first.count('"level"') > 10
    assert [other == first for other in others] == [True, True]
