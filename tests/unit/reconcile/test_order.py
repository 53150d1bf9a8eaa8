"""What is said comes in one order, whichever process says it: another order would be a write without a new fact."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Final

import yaml

from deepspeed_operator.reconcile.admission.judge import judge
from deepspeed_operator.reconcile.observe.observed import Facts, Observed
from tests.unit.reconcile.simulation import INSTALLATION, job

SEEDS: Final = ("1", "2", "3")
VERSIONS: Final = (None, "0.19.8")
UNTIDY: Final = """
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


def said(version: str | None) -> str:
    spec = yaml.safe_load(UNTIDY)
    verdict = judge(
        Observed(job(**spec, deepspeedVersion=version), (), Facts(), datetime(2026, 1, 1, tzinfo=UTC)), INSTALLATION
    )
    return "\n".join(map(str, [*verdict.errors, *verdict.findings]))


def test_findings_have_one_order() -> None:
    code = "from tests.unit.reconcile.test_order import VERSIONS, said; print(*map(said, VERSIONS), sep='\\n')"
    found = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in SEEDS
    }
    assert found == {"\n".join(map(said, VERSIONS)) + "\n"}
