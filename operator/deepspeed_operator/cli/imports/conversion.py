"""A workload → a DeepSpeedJob's manifest. What would train wrongly is refused."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, cast

from deepspeed_operator.api.names import API_VERSION, KIND, NAME_MAX_LENGTH, TRAINER
from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.cli.imports.expansion import MARK
from deepspeed_operator.cli.imports.launch_line import SIZE, LaunchLine
from deepspeed_operator.cli.imports.paths import checkpoint_warnings, configuration_argument
from deepspeed_operator.cli.imports.pod_cleaning import cleaned, with_environment, without_accelerator
from deepspeed_operator.cli.imports.remarks import Remarks
from deepspeed_operator.cli.imports.script_context import ScriptContext
from deepspeed_operator.cli.imports.script_entry import ScriptEntry, entry_of, script_entry
from deepspeed_operator.cli.imports.workload import Workload, file_reader, gpus_of
from deepspeed_operator.job.template import PodTemplate

_SERVERS: Final = frozenset({"nginx", "ray", "sglang", "text-generation-launcher", "tritonserver", "vllm"})
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_LEFT: Final = re.compile(r"(?<!\$)\$\{[A-Za-z_]\w*\}|^\$[A-Z][A-Z0-9_]+$|^<[A-Za-z][\w -]*>$|\{\{[^{}]+\}\}")
_BLANK: Final = re.compile(r"(?m)(?<=[=\s\"'])<[A-Za-z][^<>|&;\n]* [^<>|&;\n]*>")


@dataclass(frozen=True, slots=True)
class Conversion:
    """What became of a workload: `manifest` is None where it is refused."""

    kind: str
    name: str
    manifest: Json | None
    remarks: Remarks


@dataclass(frozen=True, slots=True)
class GivenWorld:
    """What the user says of the world, where the source does not, or says otherwise."""

    nodes: int | None = None
    slots: int | None = None


def converted(workload: Workload, given: GivenWorld) -> Conversion:
    """Make a DeepSpeedJob of a workload."""
    name = _name(workload)
    return Conversion(workload.kind, name, _Converter(workload, given, name).manifest(), workload.remarks)


def _name(workload: Workload) -> str:
    written = workload.name or "imported"
    name = re.sub(r"[^a-z0-9-]+", "-", written.lower())
    name = re.sub(r"^[^a-z]+", "", name)[:NAME_MAX_LENGTH].strip("-") or "imported"
    if workload.name is None:
        workload.remarks.changed("metadata.name", f"the source has no name: {name}")
    elif name != written:
        why = (
            "names of jobs begin with a letter, have small letters, digits and -, and at most "
            f"{NAME_MAX_LENGTH} of them"
        )
        workload.remarks.changed("metadata.name", f"{written} is {name} now: {why}")
    return name


class _Converter:
    def __init__(self, workload: Workload, given: GivenWorld, name: str) -> None:
        self.workload = workload
        self.given = given
        self.name = name
        self.remarks = workload.remarks
        self.template = workload.template
        self.trainer = PodTemplate.parse(self.template).trainer

    def manifest(self) -> Json | None:
        self._present()
        if self.workload.script is not None:
            for blank in dict.fromkeys(_BLANK.findall(self.workload.script)):
                self.remarks.refuse(self.workload.path, f"{blank} is to be filled in first")
        file = file_reader(self.template, self.trainer, self.workload.config_maps)
        entry = self._entry(file)
        line = entry.line
        if line is None or not line.program:
            if not self.remarks.refused:
                self._no_program()
            return None
        self._unknown_world(line)
        nodes, slots = self._world(line)
        self._judge(line, nodes)
        if self.remarks.refused:
            return None
        template = self._template(entry, line)
        spec: Json = {"nodes": nodes}
        gpus = gpus_of(template)
        if slots is not None and slots != gpus:
            spec["slotsPerNode"] = slots
        image = (line.image or "").replace("#", "/")
        if image and (image.endswith((".sqsh", ".sif")) or not re.fullmatch(r"[a-z0-9][\w./:@-]*", image)):
            why = "push it to a registry, and name it in spec.image"
            self.remarks.left_out(self.workload.path, f"--container-image {image.replace(MARK, '')}: {why}")
        elif image:
            self.remarks.changed(self.workload.path, f"--container-image {line.image} is spec.image")
            spec["image"] = image
        spec["training"] = self._training(line, nodes * (slots or 1))
        if line.ds_config is not None:
            spec["dsConfig"] = line.ds_config
        elif not line.integration:
            spec |= configuration_argument(
                spec["training"], template, self.trainer, self.workload.config_maps, self.remarks
            )
        if line.max_restarts is not None:
            spec["failurePolicy"] = {"maxRestarts": line.max_restarts}
            self.remarks.carried(self.workload.path, "--max_restarts: spec.failurePolicy.maxRestarts")
        spec |= {key: value for key, value in self.workload.spec.items() if key not in spec}
        if template:
            spec["template"] = template
        checkpoint_warnings(spec["training"], template, self.remarks)
        self._undefined(spec)
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": self._metadata(), "spec": spec}

    def _metadata(self) -> Json:
        workload = self.workload
        metadata: Json = {"name": self.name}
        if workload.namespace is not None:
            metadata["namespace"] = workload.namespace
        metadata |= {
            key: value for key, value in (("labels", workload.labels), ("annotations", workload.annotations)) if value
        }
        return metadata

    def _present(self) -> None:
        variables, workload = self.workload.variables, self.workload
        variables.present |= {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}
        for variable in objects_at(self.trainer, "env"):
            name, value = str(variable.get("name")), variable.get("value")
            if name in variables.values or name in variables.present:
                continue
            variables.present.add(name)
            if isinstance(value, str):
                variables.values[name] = value
        nodes = self.given.nodes or workload.nodes
        if nodes is not None and workload.joined:
            variables.values.setdefault("NNODES", str(nodes))

    def _entry(self, file: Callable[[str], str | None]) -> ScriptEntry:
        workload = self.workload
        context = ScriptContext(workload.variables, self.remarks, workload.path, file)
        if workload.script is not None:
            return script_entry(workload.script, replace(context, batch=workload.batch))
        return entry_of(workload.words, context)

    def _no_program(self) -> None:
        image = self.trainer.get("image")
        if self.workload.words or self.workload.script is not None:
            self.remarks.refuse(
                self.workload.path, "nothing that trains is started: no launcher, and no Python program"
            )
        else:
            message = (
                f"the program is the entrypoint of {image}, which is not written here; say it by "
                "--command 'python3 train.py …'"
            )
            self.remarks.refuse(self.workload.path, message)

    def _unknown_world(self, line: LaunchLine) -> None:
        """Refuse a number of nodes that only a shell, or a file that is not here, knows."""
        said = line.nodes or self.workload.nodes or self.given.nodes
        if said is None and line.spans and line.names_nodes:
            why = "how many nodes there are is not written here: say it by --nodes"
            self.remarks.refuse(self.workload.path, f"{line.launcher}: {why}")
        slots = self.given.slots or line.slots or line.processes or self.workload.slots or gpus_of(self.template)
        if slots is None and (line.names_slots or line.takes_all):
            how = "a rank for each GPU of its host, which are" if line.takes_all else "how many ranks a pod has is"
            why = f"{how} not written here, and a pod has one then: say it by --slots, or limit the trainer's GPUs"
            self.remarks.warn(self.workload.path, f"{line.launcher}: {why}")

    def _world(self, line: LaunchLine) -> tuple[int, int | None]:
        workload, remarks = self.workload, self.remarks
        nodes = self.given.nodes or workload.nodes or line.nodes or _share(line.processes, line.slots) or 1
        if workload.batch and self.given.nodes is None and 1 < (line.nodes or nodes) < nodes:
            why = f"{nodes} nodes were asked for, and the program is started on {line.nodes}: the job has these"
            remarks[:] = [remark for remark in remarks if remark.path != "--nodes"]
            remarks.warn(workload.path, f"{line.launcher}: {why}")
            nodes = line.nodes or nodes
        if (
            line.nodes is not None
            and line.nodes != nodes
            and workload.nodes is not None
            and self.given.nodes is None
            and line.nodes != 1
        ):
            remarks.warn(
                workload.path, f"the launcher says {line.nodes} nodes, and there are {nodes} pods: the job has {nodes}"
            )
        gpus = gpus_of(self.template)
        slots = self.given.slots or line.slots or _share(line.processes, nodes) or workload.slots
        one = self._starts_one(line)
        if slots is None and line.launcher and line.launcher != "shell" and not one:
            slots = gpus  # the launchers start a rank for each
        if slots is None and gpus is not None and gpus > 1 and one:
            slots = 1
            remarks.warn(
                workload.path,
                f"one process a pod, which has {gpus} accelerators, as before: without spec.slotsPerNode each "
                "has a rank",
            )
        if line.processes is not None and slots is not None and nodes * slots != line.processes:
            remarks.warn(
                workload.path, f"the launcher says {line.processes} ranks in all, the job has {nodes} × {slots}"
            )
        if workload.nodes is not None or line.nodes is not None or nodes > 1:
            remarks.carried(workload.path, f"spec.nodes: {nodes}")
        if slots is not None:
            remarks.carried(workload.path, f"ranks a pod: {slots}")
        return nodes, slots

    def _starts_one(self, line: LaunchLine) -> bool:
        """Whether a pod has one process: no launcher starts it, or torchrun, which nothing tells of more."""
        told = "PET_NPROC_PER_NODE" in self.workload.variables.values | dict.fromkeys(self.workload.variables.present)
        return not line.launcher or (line.starts_one and not told and not self.trainer.get("envFrom"))

    def _judge(self, line: LaunchLine, nodes: int) -> None:
        """Refuse what would not train what is meant."""
        workload, remarks, path = self.workload, self.remarks, self.workload.path
        launcher = line.launcher
        if "horovodrun" in launcher or any("horovod" in word for word in [*line.program, *line.args]):
            remarks.refuse(
                path,
                "a Horovod program: it finds its world by MPI or Gloo, which nothing here gives, so that each "
                "rank would train alone. Train with DeepSpeed or torch.distributed",
            )
        elif line.program[0].partition(".")[0].rpartition("/")[2] in _SERVERS and not launcher:
            remarks.refuse(path, f"{line.program[0]}: it serves, and trains nothing")
        elif launcher.endswith("mpirun") and line.kind == "command":
            shown = " ".join(line.program[:2])
            remarks.refuse(
                path,
                f"{shown} is an MPI program: the operator starts ranks for torch.distributed, without MPI, so "
                "that each would be alone",
            )
        elif workload.starts == "one" and (line.starts_shell or (line.kind == "command" and not launcher)):
            shown = " ".join(line.program[:3])
            remarks.refuse(
                path,
                f"{shown} is in the image: what it starts in the other pods cannot be seen. Import that script, "
                "or say the program by --command",
            )
        if self.given.nodes is not None or nodes == 1 or remarks.refused:
            return
        if workload.starts == "all" and workload.script is None:
            self._alone(line, nodes)
        self._same_rank(line, nodes)

    def _alone(self, line: LaunchLine, nodes: int) -> None:
        if line.spans or line.starts_shell or self._told(line):
            return
        how = (
            f"{line.launcher} starts ranks in its own pod only" if line.launcher else "nothing tells them of each other"
        )
        self.remarks.refuse(
            self.workload.path,
            f"{how}: as it is written each of the {nodes} pods trains alone. If one world of them is meant, "
            f"import it with --nodes {nodes}; if not, with --nodes 1 for each",
        )

    def _told(self, line: LaunchLine) -> bool:
        """Whether what starts the ranks finds the other pods in its environment."""
        variables = self.workload.variables
        if self.trainer.get("envFrom"):
            return True
        if line.launcher == "torchrun":
            return line.nodes is None and ("PET_NNODES" in variables.values or "PET_NNODES" in variables.present)
        return not line.launcher and self.workload.joined

    def _same_rank(self, line: LaunchLine, nodes: int) -> None:
        rank = self.workload.variables.known(line.node_rank) if line.node_rank is not None else ""
        everywhere = self.workload.starts == "all" and (
            self.workload.script is None or line.launcher.startswith("srun")
        )
        if rank.isdecimal() and everywhere:
            self.remarks.refuse(
                self.workload.path,
                f"each of the {nodes} pods says that it is node {rank}: they never form one world. Take the "
                f"rank out, since the operator numbers the nodes, or import it with --nodes {nodes}",
            )

    def _template(self, entry: ScriptEntry, line: LaunchLine) -> Json:
        workload = self.workload
        template: Json = self.template
        trainer: Json = self.trainer
        cleaned(template, trainer, self.remarks)
        if workload.script is None and trainer:
            without_accelerator(trainer, self.remarks)
        environment = {
            name: value
            for name, value in {**entry.environment, **line.environment}.items()
            if name and MARK not in value
        }
        container = entry.prelude or environment or entry.directory or trainer
        if not container:
            return template
        if not trainer:
            trainer = {"name": TRAINER}
            object_at(template).setdefault("spec", {})
            object_at(template, "spec")["containers"] = [*list_at(template, "spec", "containers"), trainer]
            self.trainer = trainer
        with_environment(trainer, environment, self.remarks, workload.path)
        if entry.directory is not None:
            trainer["workingDir"] = entry.directory
        if entry.prelude:
            end = ' exec "$@"' if entry.prelude.endswith("&&") else '\nexec "$@"'
            trainer["command"] = [entry.shell, "-c", f"{entry.prelude}{end}", "entrypoint"]
        return template

    def _training(self, line: LaunchLine, size: int) -> Json:
        training: Json = {}
        if line.once_a_pod is not None:
            training = {"command": [word.replace(SIZE, str(size)) for word in line.once_a_pod], "launcher": "None"}
            if line.starts_shell:
                shown = " ".join(line.program[:3])
                self.remarks.warn(
                    self.workload.path,
                    f"{shown} is not among the files: it goes on to run once a pod, and must form the job's "
                    "world itself, by NNODES, NODE_RANK, MASTER_ADDR. Import it instead, if you can",
                )
        elif line.kind == "command":
            training = {"command": line.program}
        else:
            training = {line.kind: line.program[0]}
        if line.once_a_pod is None and line.args:
            training["args"] = line.args
        if line.python is not None:
            training["python"] = line.python
        if line.integration:
            training["integration"] = "Accelerate"
        what = line.kind if line.once_a_pod is None else "command"
        self.remarks.carried(
            self.workload.path,
            f"the program and its arguments: spec.training.{what}{' and args' if training.get('args') else ''}",
        )
        return training

    def _undefined(self, spec: Json) -> None:
        """Warn of variables that nothing is seen to set, and of what a reader of the template is to fill in."""
        blanks = list(dict.fromkeys(_blanks(spec)))
        if blanks:
            self.remarks.warn(self.workload.path, f"to be filled in before it is applied: {', '.join(blanks[:8])}")
        given = {str(each.get("name")) for each in objects_at(self.trainer, "env")}
        asked = set(_REFERENCE.findall(json.dumps(spec)))
        names = sorted((asked & self.workload.variables.undefined) - given)
        if names and not self.trainer.get("envFrom"):
            self.remarks.warn(
                self.workload.path,
                f"{', '.join(names)}: asked for, and set by nothing in the file. "
                "Set it in the trainer container's env, unless the image does",
            )


def _blanks(value: object, key: str = "") -> Iterator[str]:
    """Yield what a template's reader is to fill in, where no shell does."""
    if isinstance(value, dict):
        for name, inner in cast(Json, value).items():
            if name != "command":
                yield from _blanks(inner, name)
    elif isinstance(value, list):
        for inner in cast(list[object], value):
            yield from _blanks(inner, key)
    elif isinstance(value, str):
        yield from (f"{key} {blank}" for blank in _LEFT.findall(value))


def _share(whole: int | None, parts: int | None) -> int | None:
    return whole // parts if whole and parts and whole % parts == 0 else None
