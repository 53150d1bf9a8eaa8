"""A job with every field of the CRD."""

from tests.e2e.kube import Json

MOMENT = "2026-01-01T00:00:00Z"

# One valid object that has every field, but for those that exclude each other.
FULL: Json = {
    "metadata": {"name": "full"},
    "spec": {
        "nodes": 2,
        "slotsPerNode": 1,
        "image": "image",
        "training": {
            "script": "train.py",
            "args": ["--deepspeed"],
            "configPath": "/app/ds.json",
            "integration": "None",
            "launcher": "Ranks",
            "python": "python3",
            "files": {"configMap": "code"},
        },
        "dsConfigFrom": {"configMap": "configs", "key": "ds.json"},
        "deepspeedVersion": "0.19.8",
        "model": {
            "fromConfig": {"model_type": "llama"},
            "parameters": 7_000_000_000,
            "trainableParameters": 1_000_000,
            "trainable": ["layers.31"],
            "lora": {"rank": 16, "targets": ["q_proj"]},
            "frozenDtype": "BF16",
            "quantization": "NF4",
            "layers": 32,
            "hiddenSize": 4096,
            "experts": {"count": 8, "layers": 4, "parameters": 1000, "topK": 2, "capacityPercent": 125},
            "intermediateSize": 11008,
            "heads": 32,
            "keyValueHeads": 8,
            "vocabulary": 32000,
            "sequenceLength": 4096,
            "attention": "SDPA",
            "activationCheckpointing": True,
        },
        "gpuMemory": "80Gi",
        "admission": "RequireFit",
        "network": {
            "profile": "NVLink",
            "interface": "eth0",
            "env": {"NCCL_DEBUG": "INFO"},
            "require": True,
            "preflight": "Bandwidth",
            "minimumBusBandwidth": "10G",
        },
        "sharedMemory": "16Gi",
        "parallelism": {"tensor": 1, "pipeline": 1, "sequence": 1, "expert": 1},
        "template": {"spec": {"containers": []}},
        "suspend": True,
        "failurePolicy": {
            "maxRestarts": 3,
            "maxInfrastructureRestarts": 20,
            "restartInPlace": True,
            "rules": [
                {
                    "exitCodes": [1],
                    "signals": [9],
                    "reasons": ["RankFailed"],
                    "categories": ["User"],
                    "messagePattern": "out of memory",
                    "action": "Fail",
                }
            ],
            "backoffSeconds": 10,
        },
        "successPolicy": "Head",
        "lifecycle": {
            "startupDeadlineSeconds": 60,
            "partialGangDeadlineSeconds": 30,
            "activeDeadlineSeconds": 86400,
            "cleanPodPolicy": "DeleteAll",
            "ttlSecondsAfterFinished": 3600,
        },
        "runId": "1",
        "managedBy": "example.com/other",
    },
    "status": {
        "state": "Running",
        "run": {
            "id": "1",
            "startTime": MOMENT,
            "completionTime": MOMENT,
            "cleanupTime": MOMENT,
            "activeSeconds": 1,
            "activeDeadlineSeconds": 86400,
            "world": {
                "nodes": 1,
                "slotsPerNode": 1,
                "size": 1,
                "dataParallel": 1,
                "accelerator": {"source": "Template"},
            },
            "batch": {"train": 1},
            "deepspeedVersion": "0.19.8",
            "configDigest": "sha256:0",
            "specDigests": {"NCCL_DEBUG": "0"},
        },
        "attempt": {
            "number": 1,
            "phase": "Starting",
            "startTime": MOMENT,
            "admittedTime": MOMENT,
            "runningTime": MOMENT,
            "obstacle": {"reason": "Unschedulable", "message": "m"},
        },
        "attempts": [
            {
                "number": 1,
                "runId": "1",
                "startTime": MOMENT,
                "runningTime": MOMENT,
                "endTime": MOMENT,
                "outcome": "Failed",
                "reason": "RankFailed",
                "category": "User",
                "rank": 0,
                "pod": "a",
                "node": "b",
                "killedAfterSeconds": 25,
            }
        ],
        "oldestConfigMap": 1,
        "engine": {"world": 1},
        "workers": {"ready": 0},
        "failure": {"reason": "RankFailed", "message": "boom", "pod": "a", "node": "b"},
        "plan": {"message": "m"},
        "transport": {
            "state": "Socket",
            "links": [{"between": "Nodes", "uses": "NET/Socket", "kind": "Socket", "devices": ["a"], "nodes": ["0-1"]}],
            "library": "NCCL 2.28.9",
            "message": "m",
            "busBandwidth": 1,
        },
        "findings": [{"level": "advice", "code": "default-values", "path": "spec", "message": "m", "fix": "f"}],
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "R",
                "message": "m",
                "lastTransitionTime": MOMENT,
                "observedGeneration": 1,
            }
        ],
    },
}
IN_PROGRESS = {
    "run": {
        "id": "1",
        "startTime": MOMENT,
        "world": {"nodes": 1, "slotsPerNode": 1, "size": 1, "dataParallel": 1},
    },
    "attempt": {"number": 1, "phase": "Running", "startTime": MOMENT},
}
