"""What this pod is to run: the launch document, the hostfile, the attempt's token, and who this pod is."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Mapping

PROTOCOL = 3  # of all that agents write: docs/agent-protocol.md
Cause = Mapping[str, Any]

# Overridden only by `dsjob run` and tests, which run several agents on one machine.
DIRECTORY = os.environ.get("DEEPSPEED_OPERATOR_DIR", "/etc/deepspeed-operator")
FILES = os.environ.get("DEEPSPEED_OPERATOR_FILES", "/etc/deepspeed-operator-files")
WORKSPACE = os.environ.get("DEEPSPEED_OPERATOR_WORKSPACE", "/workspace")
TERMINATION_LOG = os.environ.get("DEEPSPEED_OPERATOR_TERMINATION_LOG", "/dev/termination-log")

DOCUMENT = os.path.join(DIRECTORY, "launch.json")
HOSTFILE = os.path.join(DIRECTORY, "hostfile")
TOKEN = os.path.join(DIRECTORY, "token")
DS_CONFIG = os.path.join(DIRECTORY, "ds_config.json")


class LaunchDocument:
    """The launch document, with what the pod's environment adds to it.

    The operator that wrote the document delivered this agent beside it, so that both know the same keys: each of them
    is there, with null for what the job does not have.
    """

    def __init__(self, document: Mapping[str, Any], hostfile: str, environ: Mapping[str, str], token: str = "") -> None:
        if document["protocol"] != PROTOCOL:
            raise ValueError(f"the launch document speaks protocol {document['protocol']}, this agent {PROTOCOL}")
        # What a caller must know to change the gang's state: a Secret of the attempt, which `view` cannot read.
        self.token = token
        self.job: str = document["job"]
        self.uid: str = document["uid"]
        self.attempt: int = document["attempt"]
        self.round: int = document["round"]  # the number of the attempt's first round
        self.nodes: int = document["nodes"]
        self.slots: int = document["slotsPerNode"]
        self.launcher: str = document["launcher"]
        self.kind: str = document["program"]["kind"]
        self.program: list[str] = document["program"]["value"]
        self.args: list[str] = document["args"]
        self.python: str = document["python"]
        self.config: str | None = document["configPath"]
        self.integration: str = document["integration"]
        self.files: bool = document["files"]
        self.deepspeed: str | None = document["deepspeedVersion"]
        self.environment: dict[str, str] = document["environment"]
        self.library_path: list[str] = document["libraryPath"]
        self.agent_port: int = document["ports"]["agent"]
        self.preflight_port: int = document["ports"]["preflight"]
        self.master_ports: list[int] = document["ports"]["masters"]
        # How long a checkpoint may take to be made universal, before the ranks begin; 0: theirs is loaded as it is.
        self.conversion_seconds: int = document["checkpoint"]["conversionSeconds"]
        self.deadline: float = document["startupDeadlineSeconds"] + self.conversion_seconds
        self.grace: float = document["terminationGraceSeconds"]
        # Whether the success of rank 0's pod is the gang's: the others only serve it.
        self.head_decides: bool = document["successPolicy"] == "Head"
        # How long a silent agent counts as alive. A pod that is lost for longer has killed its ranks itself.
        self.fence: float = document["fenceSeconds"]
        # After which failures the ranks start again in their pods, and how often.
        self.failure_policy: dict[str, Any] = document["failurePolicy"]
        # How long the others wait for one in the place of a pod that is lost; 0: the attempt ends without it.
        self.replacement_seconds: float = self.failure_policy["replacementSeconds"]
        self.warm_interpreters = (
            self.launcher == "Ranks"
            and self.kind != "command"
            and self.failure_policy["restartInPlace"]
            and self.failure_policy["warmInterpreters"] == "Auto"
        )
        # The network profile whose fabric must be used, and the kinds of transport that show it is not.
        self.fabric: dict[str, Any] | None = document["requiredFabric"]
        # Measure the network first, and fail below so many bytes a second; None: do not measure.
        self.preflight: float | None = document["preflightBandwidth"]
        checkpoint = document["checkpoint"]
        # The directory that the job names for its checkpoints, or an argument of its program does; None where neither.
        self.checkpoint_path: str | None = checkpoint["path"]
        self.checkpoint_declared: bool = checkpoint["declared"]  # by the job: its output says no better
        self.repair_latest: bool = checkpoint["repairLatest"]
        self.run_began: int = checkpoint["since"]  # seconds since 1970
        # After how many seconds without a step the ranks hang, as far as that is given, and whether they start again
        # after a limit that was learned, too: dso_hang.py.
        self.hang: dict[str, Any] = document["hang"]
        self.reached_step: int = document["reachedStep"]  # the highest of the attempts before
        # Whether the first steps are measured, for a plan to be corrected by.
        self.measure: bool = document["measure"]
        entries: list[tuple[str, str]] = re.findall(r"^\s*([^\s#]\S*)\s+slots=(\d+)", hostfile, re.MULTILINE)
        self.hosts = [host for host, _ in entries]
        self.slots_of = [int(slots) for _, slots in entries]
        self.index = int(environ["DEEPSPEED_OPERATOR_INDEX"])
        self.pod = environ.get("DEEPSPEED_OPERATOR_POD", f"{self.job}-{self.attempt}-{self.index}")
        self.pod_uid = environ.get("DEEPSPEED_OPERATOR_POD_UID", "")
        self.node = environ.get("DEEPSPEED_OPERATOR_NODE", "")
        # Which of the attempt's replacements this pod is, 0 for none, and whether the pod before it has ended for sure.
        self.replacement = int(environ.get("DEEPSPEED_OPERATOR_REPLACEMENT", "0"))
        self.fenced = environ.get("DEEPSPEED_OPERATOR_FENCED") == "true"

    def foreign(self, environ: Mapping[str, str]) -> str:
        """Whose document this is, if it is not this pod's: a node may keep an earlier one of the same name."""
        uid, attempt = environ.get("DEEPSPEED_OPERATOR_JOB_UID"), environ.get("DEEPSPEED_OPERATOR_ATTEMPT")
        if uid in (None, self.uid) and attempt in (None, str(self.attempt)):
            return ""
        whose = f"attempt {self.attempt} of the job with uid {self.uid}"
        return f"its launch document is that of {whose}; this pod is of attempt {attempt} of uid {uid}"

    @property
    def uid_digest(self) -> str:
        """Shows who knows the uid that this is its job, and nobody the uid."""
        return hashlib.sha256(self.uid.encode()).hexdigest()

    @property
    def hold(self) -> float:
        """Seconds that the hub holds a heartbeat: with many nodes longer, so that its load stays level."""
        return min(5.0, max(1.0, self.nodes / 500))

    def master_port(self, number: int) -> int:
        """The port of torch.distributed in this round: another one each time, as old ranks may still hold theirs."""
        return self.master_ports[(number - 1) % len(self.master_ports)]

    def pod_of(self, index: int) -> str:
        return self.pod if index == self.index else f"{self.job}-{self.attempt}-{index}"

    @property
    def hub_seconds(self) -> float:
        """How long this pod waits for another hub where it loses its own; 0: it ends."""
        return self.replacement_seconds if self.index else 0

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
            "round": self.round,
            **more,
        }


class RunFailedError(Exception):
    """Ends the run, with the cause that this pod reports to the hub and to the operator."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause["signature"])
        self.cause = cause


def load() -> LaunchDocument:
    """Read the launch document, and set the variables that it gives to all ranks.

    Raises RunFailedError for another pod's document, OSError, ValueError or LookupError for one that is none.
    """
    launch = LaunchDocument(json.loads(_read(DOCUMENT)), _read(HOSTFILE), os.environ, _read(TOKEN).strip())
    foreign = launch.foreign(os.environ)
    if foreign:
        raise RunFailedError(launch.cause("StaleLaunchDocument", foreign))
    if not launch.token:
        raise ValueError(f"{TOKEN} is empty: anybody would know the attempt's token")
    # The network profile's: what the image, the template or an entrypoint has set is never overridden.
    for name, value in launch.environment.items():
        os.environ.setdefault(name, value)
    if launch.library_path:
        # In front of the image's own, which goes on to hold what torch needs.
        own = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
        os.environ["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys([*launch.library_path, *own]))
    return launch


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Kubernetes' rules: $(NAME) is the variable, $$ is a dollar sign, an unknown name stays as written."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)
