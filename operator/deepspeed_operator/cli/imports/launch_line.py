"""A command line that starts ranks → the program that each of them runs, and the world that it asks for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename
from typing import Final, Literal

from deepspeed_operator.api.untyped import Json
from deepspeed_operator.cli.imports import launcher_options as known
from deepspeed_operator.cli.imports.accelerate_options import configuration_of, environment_of
from deepspeed_operator.cli.imports.expansion import Variables
from deepspeed_operator.cli.imports.launcher_options import (
    LauncherOptions,
    again,
    carried,
    included,
    listed,
    number,
    options_of,
)
from deepspeed_operator.cli.imports.remarks import Remarks

_PYTHON: Final = re.compile(r"(pypy|python)[\d.]*")
_SHELLS: Final = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_WRAPPERS: Final = frozenset(
    {"catchsegv", "command", "exec", "nohup", "stdbuf", "sudo", "time", "tini", "dumb-init", "chrt", "env", "ionice"}
    | {"nice", "nsys", "numactl", "setsid", "taskset", "timeout", "unbuffer", "xvfb-run"}
)
_REMOTE: Final = frozenset({"clush", "dsh", "parallel", "pdsh", "screen", "ssh", "tmux", "xargs"})
_ENVIRONMENTS: Final = frozenset({"conda", "mamba", "micromamba", "pipenv", "pixi", "poetry", "uv", "hatch"})
_CONTAINERS: Final = frozenset({"singularity", "apptainer", "enroot", "docker", "podman", "shifter"})
_SELF_LAUNCHING: Final = frozenset({"axolotl", "colossalai", "composer", "llamafactory-cli", "swift", "xtuner", "tune"})
# Stands for how many ranks there are in all, until that is known.
SIZE: Final = "\1"
_WORLD: Final = (
    *("--num_machines", "$(NNODES)", "--machine_rank", "$(NODE_RANK)"),
    *("--main_process_ip", "$(MASTER_ADDR)", "--main_process_port", "$(MASTER_PORT)"),
    *("--num_processes", SIZE, "--deepspeed_multinode_launcher", "standard"),
)
_MODULES: Final = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
    "accelerate.commands.launch": "accelerate launch",
}
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OURS: Final = "the operator's agent starts the ranks on all nodes, and tells them where the others are"
_TAGS: Final = "the operator keeps what the ranks print, and says which rank it was"


@dataclass(slots=True)
class LaunchLine:
    """A program, and how many of it a command line wants.

    `launcher`: what starts it, empty where it is started by itself.
    `program`: a script's path or a module's name in one word, or the words of a command.
    `nodes`, `slots`, `processes`: how many nodes, ranks a node and ranks in all, None where the line does not say.
    `node_rank`: which node this is, as the line says.
    `spans`: whether the launcher is told of other nodes, or takes them from its environment.
    `takes_all`: whether the launcher starts a rank for each GPU of its host.
    `starts_one`: whether it starts one in each pod, unless its environment says how many.
    `names_nodes`, `names_slots`: whether it is told how many, in words that may not be known here.
    `image`: the container image that the launcher starts it in.
    `once_a_pod`: the command that goes on to start its ranks itself, with SIZE for their number; None: the agent does.
    """

    launcher: str
    kind: Literal["script", "module", "command"]
    program: list[str]
    args: list[str] = field(default_factory=list[str])
    nodes: int | None = None
    slots: int | None = None
    processes: int | None = None
    node_rank: str | None = None
    spans: bool = False
    names_nodes: bool = False
    names_slots: bool = False
    takes_all: bool = False
    starts_one: bool = False
    python: str | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])
    ds_config: Json | None = None
    integration: bool = False
    max_restarts: int | None = None
    image: str | None = None
    once_a_pod: list[str] | None = None

    @property
    def starts_shell(self) -> bool:
        """Whether the program is a shell's script, which may be read further."""
        return self.launcher.endswith("shell")

    def within(self, outer: "LaunchLine") -> "LaunchLine":
        """Return this line as an outer one starts it by a shell: srun, mpirun or a script."""
        prefix = outer.launcher.removesuffix("shell").strip()
        if not prefix:
            return self
        direct = not self.launcher
        return replace(
            self,
            launcher=f"{prefix} {self.launcher}".strip(),
            nodes=self.nodes or outer.nodes,
            slots=outer.slots if direct else self.slots,
            processes=outer.processes if direct else self.processes,
            spans=self.spans or direct,
            environment={**outer.environment, **self.environment},
            image=self.image or outer.image,
        )


def launch_line(words: Sequence[str], variables: Variables, remarks: Remarks, path: str) -> LaunchLine | None:
    """Read a command line; None where it is empty.

    `variables`: what is known of those that it names; `path`: where it stands in the source, for the remarks.
    """
    return _Line(variables, remarks, path).read(list(words))


class _Line:
    def __init__(self, variables: Variables, remarks: Remarks, path: str) -> None:
        self.variables = variables
        self.remarks = remarks
        self.path = path

    def read(self, words: list[str]) -> LaunchLine | None:
        words, environment = self._unwrapped(words)
        if not words:
            return None
        name = basename(words[0])
        if _PYTHON.fullmatch(name):
            line = self._python(words)
        elif name in {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "horovodrun"}:
            line = self._mpirun(words)
        elif name == "srun":
            line = self._srun(words[1:])
        elif name in _SHELLS | {"eval"}:
            line = LaunchLine("shell", "command", words, once_a_pod=words)
        else:
            line = self._launcher(name if name != "accelerate" else " ".join([name, *words[1:2]]), words)
        if line is not None:
            line.environment = {**environment, **line.environment}
        return line

    def _launcher(self, name: str, words: list[str]) -> LaunchLine | None:
        if name in {"torchrun", "torch.distributed.launch"}:
            return self._torchrun(words[1:], name)
        if name in {"deepspeed", "deepspeed.pt", "ds"}:
            return self._deepspeed(words[1:])
        if name in {"accelerate launch", "accelerate-launch"}:
            return self._accelerate(words[2 if name == "accelerate launch" else 1 :])
        inner = _wrapped(words)
        if inner:
            why = "it would wrap the launcher; what it prepares, the image has, or the trainer container's command does"
            self.remarks.left_out(self.path, f"{' '.join(words[:inner])}: {why}")
            return self.read(words[inner:])
        if name in _SELF_LAUNCHING:
            return LaunchLine(name, "command", words, spans=True, once_a_pod=words)
        return LaunchLine("", "command", words)

    def _unwrapped(self, words: list[str]) -> tuple[list[str], dict[str, str]]:
        environment: dict[str, str] = {}
        while words:
            name = basename(words[0])
            assignment = _ASSIGNMENT.fullmatch(words[0])
            if assignment is not None:
                environment[assignment[1]] = assignment[2]
                words = words[1:]
            elif name in _WRAPPERS | _REMOTE | _ENVIRONMENTS | _CONTAINERS:
                inner = next((at for at in range(1, len(words)) if starts_ranks(words[at])), None)
                if inner is None and name in _REMOTE and " " in words[-1].strip():
                    self._wrapper(name, words[:-1])
                    return ["/bin/sh", "-c", words[-1]], environment  # ssh HOST 'cd DIR && …'
                if inner is None:
                    return ([], environment) if name == "env" else (words, environment)
                environment |= {m[1]: m[2] for word in words[1:inner] if (m := _ASSIGNMENT.fullmatch(word))}
                self._wrapper(name, words[:inner])
                words = words[inner:]
            else:
                break
        return words, environment

    def _wrapper(self, name: str, words: Sequence[str]) -> None:
        shown = " ".join(words)
        if name in _CONTAINERS:
            why = "the pod is the container; push that image to a registry and name it in spec.image"
        elif name in _REMOTE:
            why = "the operator's agents start the ranks on all nodes, without ssh"
        elif name in _ENVIRONMENTS:
            why = "the environment is the image's; with its Python elsewhere, write spec.training.python"
        elif name in {"env", "exec", "time", "command", "nohup", "stdbuf", "unbuffer", "tini", "dumb-init", "setsid"}:
            return
        else:
            why = "it would wrap the launcher, and the agent starts the ranks itself"
        self.remarks.left_out(self.path, f"{shown}: {why}")

    def _python(self, words: list[str]) -> LaunchLine:
        python = None if words[0] in {"python", "python3"} else words[0]
        options, at = list[str](), 1
        while at < len(words) and words[at].startswith("-"):
            if words[at] == "-m":
                name, rest = "".join(words[at + 1 : at + 2]), words[at + 2 :]
                if name in _MODULES:
                    known_name = _MODULES[name]
                    line = self._launcher(known_name, [*known_name.split(), *rest])
                    assert line is not None, "a launcher is always a line"
                    line.python = line.python or python
                    return line
                return LaunchLine("", "module", [name], rest, python=python)
            if words[at] == "-c":
                return LaunchLine("", "command", [words[0], *options, *words[at:]])
            width = 2 if words[at] in {"-W", "-X"} else 1
            if words[at] != "-u":  # the agent's ranks write at once anyway
                options += words[at : at + width]
            at += width
        script = words[at : at + 1]
        if options or not script:
            return LaunchLine("", "command", words)
        return LaunchLine("", "script", script, words[at + 1 :], python=python)

    def _target(self, launcher: str, options: LauncherOptions) -> LaunchLine:
        """Return the line of the program behind a launcher's options."""
        rest = options.rest
        if options.has("no_python"):
            return LaunchLine(launcher, "command", rest[:1], rest[1:])
        kind = "module" if options.has("m", "module") else "script"
        return LaunchLine(launcher, kind, rest[:1], rest[1:])

    def _number(self, text: str | None) -> int | None:
        return number(self.variables.known(text) if text is not None else None)

    def _dropped(self, options: LauncherOptions, reason: str, *names: str) -> None:
        found = [options.written[name] for name in names if options.has(name)]
        if found:
            self.remarks.left_out(self.path, f"{', '.join(found)}: {reason}")

    def _unknown(self, options: LauncherOptions, *tables: frozenset[str]) -> None:
        for name, flag in options.written.items():
            if not any(name in table for table in tables):
                self.remarks.left_out(self.path, f"{flag}: not known as an option of the launcher")

    def _torchrun(self, words: list[str], name: str) -> LaunchLine:
        options = options_of(words, known.TORCHRUN, known.TORCHRUN_FLAGS)
        line = self._target("torchrun", options)
        nodes = self.variables.known(options.last("nnodes") or "")
        least, _, most = nodes.partition(":")
        line.nodes = number(most or least)
        if most and least != most:
            self.remarks.changed(self.path, f"--nnodes {nodes}: a job has a fixed number of nodes, here {most}")
        line.slots = self._number(options.last("nproc_per_node"))
        line.names_nodes = options.has("nnodes")
        line.takes_all = options.last("nproc_per_node") in {"auto", "gpu"}
        line.names_slots = options.has("nproc_per_node") and not line.takes_all
        line.starts_one = not options.has("nproc_per_node")
        line.node_rank = options.last("node_rank")
        line.spans = (options.has("nnodes") and line.nodes != 1) and not options.has("standalone")
        line.max_restarts = self._number(options.last("max_restarts"))
        ours = ("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "master_addr", "master_port", "node_rank")
        self._dropped(options, _OURS, *ours, "standalone", "local_addr", "start_method", "monitor_interval", "role")
        self._dropped(options, _TAGS, "log_dir", "r", "redirects", "t", "tee", "local_ranks_filter", "logs_specs")
        self._unknown(options, known.TORCHRUN, known.TORCHRUN_FLAGS)
        if name == "torch.distributed.launch" and not options.has("use_env"):
            line.args.insert(0, "--local-rank=$(LOCAL_RANK)")
            why = "as this launcher of torch 2 adds; that of torch 1 wrote --local_rank"
            self.remarks.changed(self.path, f"--local-rank=$(LOCAL_RANK) is an argument now, {why}")
        return line

    def _deepspeed(self, words: list[str]) -> LaunchLine:
        options = options_of(words, known.DEEPSPEED, known.DEEPSPEED_FLAGS)
        line = self._target("deepspeed", options)
        line.nodes = self._number(options.last("num_nodes"))
        line.slots = self._number(options.last("num_gpus", "num_accelerators"))
        within = included(options.last("include", "i") or "")
        if within is not None:
            line.nodes, line.slots = within[0] or line.nodes, within[1] or line.slots
        line.node_rank = options.last("node_rank")
        line.spans = options.has("hostfile", "H", "num_nodes", "include", "i", "no_ssh") and line.nodes != 1
        line.names_nodes, line.takes_all = options.has("hostfile", "H", "num_nodes"), line.slots is None
        ours = ("hostfile", "H", "include", "i", "master_addr", "master_port", "node_rank", "launcher", "launcher_args")
        ssh = ("ssh_port", "no_ssh", "no_ssh_check", "force_multi", "venv_script", "save_pid")
        self._dropped(options, f"{_OURS}; no ssh is needed", *ours, *ssh)
        self._dropped(options, "which nodes a job takes is the template's nodeSelector and affinity", "exclude", "e")
        self._dropped(options, _TAGS, "enable_each_rank_log")
        self._dropped(options, "the agent binds no cores", "bind_cores_to_rank", "bind_core_list")
        self._dropped(options, "a job's world is fixed", "elastic_training", "min_elastic_nodes", "max_elastic_nodes")
        self._dropped(options, "the autotuner starts jobs itself; dsjob plan compares configurations", "autotuning")
        self._unknown(options, known.DEEPSPEED, known.DEEPSPEED_FLAGS)
        if not options.has("no_local_rank"):
            line.args.insert(0, "--local_rank=$(LOCAL_RANK)")
            self.remarks.changed(
                self.path, "--local_rank=$(LOCAL_RANK) is an argument now, as deepspeed adds it itself"
            )
        return line

    def _accelerate(self, words: list[str]) -> LaunchLine:
        options = options_of(words, frozenset(), known.ACCELERATE_FLAGS)
        line = self._target("accelerate launch", options)
        line.nodes = self._number(options.last("num_machines"))
        line.processes = self._number(options.last("num_processes"))
        line.node_rank = options.last("machine_rank")
        line.names_nodes, line.names_slots = options.has("num_machines"), options.has("num_processes")
        line.takes_all = not line.names_slots
        line.spans = (options.has("num_machines") and line.nodes != 1) or options.has("config_file")
        line.max_restarts = self._number(options.last("max_restarts"))
        world = ("num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port")
        hosts = ("same_network", "rdzv_backend", "rdzv_conf", "deepspeed_hostfile", "deepspeed_multinode_launcher")
        ours = (*world, *hosts, "deepspeed_inclusion_filter", "deepspeed_exclusion_filter", "gpu_ids", "multi_gpu")
        self._dropped(options, _OURS, *ours[2:])
        if options.has("config_file", "use_fsdp", "use_megatron_lm", "tpu", "use_tp", "use_parallelism_config"):
            kept = [
                word
                for name, flag in options.written.items()
                if name not in ours
                for word in again(options, name, flag)
            ]
            why = "its configuration file is not read here, so that accelerate goes on to start the ranks, once a pod"
            if not options.has("config_file"):
                why = "accelerate goes on to start the ranks, once a pod: it prepares more than DeepSpeed"
            self.remarks.changed(self.path, f"{why}; the world's options are the job's")
            line.once_a_pod = ["accelerate", "launch", *_WORLD, *kept, *options.rest]
            return line
        line.environment = environment_of(options)
        line.ds_config = configuration_of(options)
        line.integration = line.ds_config is not None
        if line.ds_config is not None:
            self.remarks.changed(
                self.path, "accelerate's DeepSpeed options are spec.dsConfig now, as it writes them itself"
            )
        if line.environment:
            names = ", ".join(line.environment)
            self.remarks.changed(
                self.path, f"options of accelerate launch are variables now, as it sets them itself: {names}"
            )
        return line

    def _mpirun(self, words: list[str]) -> LaunchLine | None:
        name = "horovodrun" if basename(words[0]) == "horovodrun" else "mpirun"
        options = options_of(words[1:], known.MPIRUN, known.MPIRUN_FLAGS, known.MPIRUN_PAIRS)
        line = self.read(options.rest)
        if line is None:
            return None
        processes = self._number(options.last("np", "n", "c"))
        per_node = self._number(options.last("N", "npernode", "ppn"))
        mapped = re.search(r"ppr:(\d+):node", " ".join(options.given.get("map_by", [])))
        per_node = per_node or (int(mapped[1]) if mapped else None) or (1 if options.has("pernode") else None)
        if line.launcher in {"", "shell"}:
            nodes, each = listed(options.last("H", "host", "hosts") or "")
            line.processes, line.slots = processes or (nodes * each if nodes and each else None), per_node or each
            line.nodes = line.nodes or (nodes if each is None else None)
        elif processes:
            line.nodes = line.nodes or processes  # one launcher a node
        line.spans = True
        for given in [*options.given.get("x", []), *options.given.get("genv", []), *options.given.get("env", [])]:
            variable, equals, value = given.partition("=")
            if equals:
                line.environment[variable] = value
        line.launcher = f"{name} {line.launcher}".strip()
        self.remarks.left_out(self.path, f"{name} and its options: {_OURS}; variables of -x that have a value are kept")
        return line

    def _srun(self, words: list[str]) -> LaunchLine | None:
        options = options_of(words, known.SRUN, known.SRUN_FLAGS)
        line = self.read(options.rest)
        if line is None:
            return None
        tasks = self._number(options.last("n", "ntasks"))
        per_node = self._number(options.last("ntasks_per_node"))
        nodes = self._number(options.last("N", "nodes"))
        line.nodes = line.nodes or nodes
        if line.launcher in {"", "shell"}:
            line.processes, line.slots, line.spans = tasks, per_node, True
        line.launcher = f"srun {line.launcher}".strip()
        line.image = options.last("container_image")
        line.environment = carried(options.last("export") or "") | line.environment
        self._dropped(options, "write it as workingDir of the trainer container, in spec.template", "D", "chdir")
        self._dropped(options, "write the volumes into spec.template", "container_mounts", "container_workdir")
        return line


def starts_ranks(word: str) -> bool:
    name = "" if " " in word else basename(word)
    others = {"deepspeed", "torchrun", "accelerate", "accelerate-launch", "mpirun", "mpiexec", "srun"}
    return name in others | _SELF_LAUNCHING | _SHELLS or bool(_PYTHON.fullmatch(name)) or name.endswith(".py")


def _wrapped(words: Sequence[str]) -> int | None:
    """Return where a launcher begins behind another program, None where none does."""
    for at, word in enumerate(words[1:], 1):
        has_options = not words[at - 1].startswith("-") and "".join(words[at + 1 : at + 2]).startswith("-")
        if basename(word) in {"deepspeed", "torchrun"} and has_options:
            return at
        if basename(word) == "accelerate" and words[at + 1 : at + 2] == ["launch"]:
            return at
        if _PYTHON.fullmatch(basename(word)) and any(module in _MODULES for module in words[at + 1 : at + 4]):
            return at
    return None
