"""What this pod was asked to run: plan.json, the hostfile, and who this pod is."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Mapping

PROTOCOL = 1
Cause = Mapping[str, Any]

# Overridden only by tests, which run several agents on one machine.
DIRECTORY = os.environ.get("DEEPSPEED_OPERATOR_DIR", "/etc/deepspeed-operator")
FILES = os.environ.get("DEEPSPEED_OPERATOR_FILES", "/etc/deepspeed-operator-files")
WORKSPACE = os.environ.get("DEEPSPEED_OPERATOR_WORKSPACE", "/workspace")
TERMINATION_LOG = os.environ.get("DEEPSPEED_OPERATOR_TERMINATION_LOG", "/dev/termination-log")

HOSTFILE = os.path.join(DIRECTORY, "hostfile")
TOKEN = os.path.join(DIRECTORY, "token")
DS_CONFIG = os.path.join(DIRECTORY, "ds_config.json")


class Plan:
    def __init__(self, raw: dict[str, Any], hostfile: str, environ: Mapping[str, str], token: str = "") -> None:
        if raw["protocol"] != PROTOCOL:
            raise ValueError(f"plan.json speaks protocol {raw['protocol']}, this agent {PROTOCOL}")
        # What a caller must know to change the gang's state: a Secret of the attempt, which `view` cannot read.
        self.token = token
        self.job: str = raw["job"]
        self.uid: str = raw["uid"]
        self.attempt: int = raw["attempt"]
        self.generation: int = raw.get("generation", 1)
        self.nodes: int = raw["nodes"]
        self.slots: int = raw["slotsPerNode"]
        self.launcher: str = raw["launcher"]
        self.kind: str = raw["program"]["kind"]
        self.program: list[str] = raw["program"]["value"]
        self.args: list[str] = raw["args"]
        self.python: str = raw["python"]
        self.config: str | None = raw["configPath"]
        self.integration: str = raw["integration"]
        self.files: bool = raw["files"]
        self.deepspeed: str | None = raw["deepspeedVersion"]
        self.environment: dict[str, str] = raw.get("environment", {})
        self.library_path: list[str] = raw.get("libraryPath", [])
        self.agent_port: int = raw["agentPort"]
        self.master_port: int = raw["masterPort"]
        self.deadline: float = raw["startupDeadlineSeconds"]
        self.grace: float = raw["terminationGraceSeconds"]
        # How long a silent agent counts as alive. A pod lost for longer has killed its ranks itself.
        self.fence: float = raw.get("fenceSeconds", 20)
        # The network profile whose fabric must be used, and the kinds of transport that show it is not.
        self.fabric: dict[str, Any] | None = raw.get("requiredFabric")
        # Measure the network first, and fail below so many bytes a second; None: no measurement.
        self.preflight: float | None = raw.get("preflightBandwidth")
        # Whether the first steps are measured, for a plan to be corrected by.
        self.measure: bool = raw.get("measure", False)
        entries: list[tuple[str, str]] = re.findall(r"^\s*([^\s#]\S*)\s+slots=(\d+)", hostfile, re.MULTILINE)
        self.hosts = [host for host, _ in entries]
        self.slots_of = [int(slots) for _, slots in entries]
        self.index = int(environ["DEEPSPEED_OPERATOR_INDEX"])
        self.pod = environ.get("DEEPSPEED_OPERATOR_POD", f"{self.job}-{self.attempt}-{self.index}")
        self.pod_uid = environ.get("DEEPSPEED_OPERATOR_POD_UID", "")
        self.node = environ.get("DEEPSPEED_OPERATOR_NODE", "")

    def foreign(self, environ: Mapping[str, str]) -> str:
        """Whose document this is, if it is not this pod's: a node may keep an earlier one of the same name."""
        uid, attempt = environ.get("DEEPSPEED_OPERATOR_JOB_UID"), environ.get("DEEPSPEED_OPERATOR_ATTEMPT")
        if uid in (None, self.uid) and attempt in (None, str(self.attempt)):
            return ""
        whose = f"attempt {self.attempt} of the job with uid {self.uid}"
        return f"its launch document is that of {whose}; this pod is of attempt {attempt} of uid {uid}"

    @property
    def uid_digest(self) -> str:
        """Tells who knows the uid that this is its job, and nobody the uid."""
        return hashlib.sha256(self.uid.encode()).hexdigest()

    @property
    def beat(self) -> float:
        """Seconds that rank 0's agent holds a call: with many nodes longer, so that its load stays level."""
        return min(5.0, max(1.0, self.nodes / 500))

    def pod_of(self, index: int) -> str:
        return self.pod if index == self.index else f"{self.job}-{self.attempt}-{index}"

    def cause(self, reason: str, signature: str, index: int | None = None, **more: Any) -> dict[str, Any]:
        """Why the gang ends: the object that every pod's termination message carries."""
        index = self.index if index is None else index
        return {
            "protocol": PROTOCOL,
            "reason": reason,
            "rank": None,
            "exitCode": None,
            "signal": None,
            "signature": signature[:300],
            "index": index,
            "pod": self.pod_of(index),
            "node": self.node if index == self.index else None,
            "deepspeed": None,
            "generation": self.generation,
            **more,
        }


class Failure(Exception):  # noqa: N818  the run's, not the agent's
    """Ends the run, with the cause that is told to the peers and to the operator."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause["signature"])
        self.cause = cause


def load() -> Plan:
    plan = json.loads(_read(os.path.join(DIRECTORY, "plan.json")))
    loaded = Plan(plan, _read(HOSTFILE), os.environ, _read(TOKEN).strip())
    foreign = loaded.foreign(os.environ)
    if foreign:
        raise Failure(loaded.cause("StaleLaunchDocument", foreign))
    if not loaded.token:
        raise ValueError(f"{TOKEN} is empty: anybody would know the attempt's token")
    # The network profile's: what the image, the template or an entrypoint has set is never overridden.
    for name, value in loaded.environment.items():
        os.environ.setdefault(name, value)
    if loaded.library_path:
        # In front of the image's own, which goes on to hold what torch needs.
        found = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
        os.environ["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys([*loaded.library_path, *found]))
    return loaded


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Kubernetes' rules: $(NAME) is the variable, $$ is a dollar sign, an unknown name stays as written."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)
