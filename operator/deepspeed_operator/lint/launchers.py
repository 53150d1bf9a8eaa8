"""Commands that start ranks themselves, in a job that plans another world than they form."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Launcher
from deepspeed_operator.api.status import Finding, Level, World
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.lint.commands import Launch, assigned, launches, referenced

# What the agent sets for launcher None; the last two, as a PyTorchJob does, where the command names one of them.
_NODE_VARIABLES: Final = ("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")
_SET: Final = frozenset({*_NODE_VARIABLES, *(f"PET_{name}" for name in _NODE_VARIABLES), "WORLD_SIZE", "RANK"})
_ACCELERATE: Final = (
    "--num_machines $(NNODES) --machine_rank $(NODE_RANK) --main_process_ip $(MASTER_ADDR) --main_process_port "
    "$(MASTER_PORT) --num_processes {size}"
)
_COMPOSER: Final = (
    "--world_size {size} --nproc $(NPROC_PER_NODE) --node_rank $(NODE_RANK) --master_addr $(MASTER_ADDR) "
    "--master_port $(MASTER_PORT)"
)
# torch/distributed/elastic/multiprocessing/api.py, PContext.close(): after it, SIGKILL.
_TORCHRUN_GRACE: Final = 30
_AGENT_KEEPS: Final = 5  # seconds of the pod's grace, for the agent's own end
_HOSTS: Final = ("hostfile", "H", "host", "hosts", "machinefile", "f")


def launcher_findings(spec: DeepSpeedJobSpec, world: World) -> list[Finding]:
    """Return errors where a launcher certainly forms another world than the job's, and warnings where it may."""
    training = spec.training
    if training.launcher is Launcher.TORCHRUN:
        return list(_grace(spec))
    if training.command is not None:
        path, words = "spec.training.command", [*training.command, *training.args]
    elif training.module is not None:
        path, words = "spec.training.module", ["python", "-m", training.module, *training.args]
    else:
        return []
    found = launches(words)
    if training.launcher is not Launcher.NONE:
        return list(_within_ranks(found, path, world))
    judged = [list(_once_a_pod(launch, spec, words, world)) for launch in found]
    if not all(judged):
        return []  # one of them forms the job's world: the others may prepare, or evaluate
    code = Code.LAUNCHER_WORLD
    return (
        [Finding(level=level, code=code, path=path, message=words, fix=fix) for level, words, fix in judged[0]]
        if judged
        else []
    )


def _grace(spec: DeepSpeedJobSpec) -> Iterator[Finding]:
    seconds = pod_template(spec).pod.get("terminationGracePeriodSeconds")
    if isinstance(seconds, int) and seconds - _AGENT_KEEPS > _TORCHRUN_GRACE:
        yield warning(
            "spec.training.launcher",
            Code.LAUNCHER_GRACE,
            f"torchrun ends its ranks by SIGKILL {_TORCHRUN_GRACE} s after SIGTERM: the rest of the pod's grace of "
            f"{seconds} s is of no use to them",
            "Write spec.training.launcher: Ranks, under which they have all but 5 s of it.",
        )


def _within_ranks(found: Sequence[Launch], path: str, world: World) -> Iterator[Finding]:
    if not found or world.size == 1:
        return
    launch = found[0]
    options = _options(launch)
    literal = not referenced(launch.arguments)
    if launch.name == "torchrun":
        certain = literal and _option(options, "nnodes", "1") == "1"
    else:
        elsewhere = ("hostfile", "H", "no_ssh", "node_rank", "launcher")
        certain = literal and launch.name == "deepspeed" and not any(_has(options, name) for name in elsewhere)
    verb = "starts" if certain else "may start"
    yield Finding(
        level=Level.ERROR if certain and launch.alone else Level.WARNING,
        code=Code.LAUNCHER_PER_RANK,
        path=path,
        message=f"{launch.name} {verb} ranks itself, and here each of the {world.size} ranks runs it: each would form "
        "a world of its own.",
        fix="Write spec.training.launcher: None, under which it runs once a pod; or name the script that it starts in "
        "spec.training.script.",
    )


_Judged = tuple[Level, str, str]


def _once_a_pod(launch: Launch, spec: DeepSpeedJobSpec, words: Sequence[str], world: World) -> Iterator[_Judged]:
    options = _options(launch)
    certain = Level.ERROR if launch.alone else Level.WARNING
    if launch.name == "torchrun":
        yield from _torchrun(options, certain, world)
    unset = _unset(spec, words, options)
    if unset:
        message = f"{launch.name} asks for {', '.join(unset)}, which nothing here sets: each pod may train alone."
        yield Level.WARNING, message, f"Use {', '.join(_NODE_VARIABLES)}, which are set for launcher None."
    if world.nodes == 1:
        return
    alone = f"each of the {world.nodes} pods trains alone"
    if launch.name == "deepspeed":
        yield from _deepspeed(launch, options, certain, world)
    elif launch.name == "accelerate launch" and not _has(options, "config_file"):
        if _option(options, "num_machines", "1") == "1":
            message = f"without num_machines, unless a configuration file in the image has it, {alone}."
            yield Level.WARNING, f"accelerate launch: {message}", f"Add {_ACCELERATE.format(size=world.size)}"
    elif launch.name == "composer" and not _has(options, "world_size"):
        yield Level.WARNING, f"composer: without world_size {alone}.", f"Add {_COMPOSER.format(size=world.size)}"
    elif launch.name in {"mpirun", "horovodrun", "colossalai run"} and not any(_has(options, each) for each in _HOSTS):
        message = f"{launch.name} starts ranks in its own pod only, unless the image configures other hosts: {alone}."
        yield Level.WARNING, message, "Write spec.training.launcher: Ranks and the script in spec.training.script."
    elif launch.name == "axolotl train" and _option(options, "launcher", "accelerate") == "accelerate":
        message = f"axolotl starts accelerate launch, with which {alone} unless its configuration file says otherwise."
        yield Level.WARNING, message, "Add --launcher torchrun, which takes the pods' number from PET_NNODES."
    elif launch.name == "llamafactory-cli" and world.slots_per_node == 1 and not _forces_torchrun(spec, words):
        message = f"llamafactory-cli starts torchrun only where it sees several devices: {alone}."
        yield Level.WARNING, message, "Set FORCE_TORCHRUN to 1 in the trainer container's env."


def _torchrun(options: Sequence[str], certain: Level, world: World) -> Iterator[_Judged]:
    # Without them torchrun takes PET_NNODES and PET_NPROC_PER_NODE, which the agent sets.
    nodes, ranks = _option(options, "nnodes", ""), _option(options, "nproc_per_node", "")
    if _has(options, "standalone") and world.nodes > 1:
        message = f"--standalone is for one node: the {world.nodes} pods do not meet."
        yield (
            certain,
            f"torchrun: {message}",
            "Remove it: torchrun takes PET_NNODES and PET_MASTER_ADDR.",
        )
    elif nodes.isdecimal() and int(nodes) != world.nodes:
        message = f"--nnodes {nodes} forms worlds of {nodes} of the job's {world.nodes} pods."
        yield certain, f"torchrun: {message}", "Write --nnodes $(NNODES), or leave it out: PET_NNODES is set."
    elif ranks.isdecimal() and int(ranks) != world.slots_per_node:
        message = f"--nproc_per_node {ranks} starts {ranks} ranks a pod; the job plans {world.slots_per_node}."
        fix = f"Write --nproc_per_node $(NPROC_PER_NODE), or spec.slotsPerNode: {ranks}."
        yield certain, f"torchrun: {message}", fix


def _deepspeed(launch: Launch, options: Sequence[str], certain: Level, world: World) -> Iterator[_Judged]:
    if _has(options, "no_ssh") and _has(options, "node_rank"):
        return
    fix = "Write spec.training.launcher: DeepSpeed, and the script in spec.training.script with its arguments in args."
    reaches = any(_has(options, name) for name in ("hostfile", "H", "launcher", "include", "i", "num_nodes"))
    if reaches or referenced(launch.arguments):
        message = f"each of the {world.nodes} pods runs deepspeed, which reaches the others by ssh, or trains alone."
        yield Level.WARNING, message, fix
    else:
        message = "without a hostfile deepspeed starts ranks in its own pod only: "
        yield certain, f"{message}each of the {world.nodes} pods trains alone.", fix


def _options(launch: Launch) -> list[str]:
    """Return the launcher's own arguments: what stands before the program that it starts."""
    words = launch.arguments
    ends = [at for at, word in enumerate(words) if word.endswith(".py") or word in {"-m", "--module"}]
    own = [word.partition("=") for word in words[: min(ends, default=len(words))]]
    return [(flag.replace("_", "-") if flag.startswith("-") else flag) + equals + value for flag, equals, value in own]


def _has(options: Sequence[str], name: str) -> bool:
    flags = {f"--{name.replace('_', '-')}", f"-{name}"}
    return any(word.partition("=")[0] in flags for word in options)


def _option(options: Sequence[str], name: str, default: str) -> str:
    flag = f"--{name.replace('_', '-')}"
    for at, word in enumerate(options):
        option, equals, value = word.partition("=")
        if option == flag:
            return value if equals else "".join(options[at + 1 : at + 2])
    return default


def _unset(spec: DeepSpeedJobSpec, words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the variables of how many pods there are, and which this one is, that nobody is seen to set."""
    template = pod_template(spec)
    if template.env_from or any(re.search(r"(^|[;&\n]|\bsource)\s*(\.|source)\s", word) for word in words):
        return []
    given = {f"{variable.get('name')}" for variable in template.env}
    given |= _SET | assigned(words) | set(spec.network.env if spec.network is not None else ())
    names = ("nnodes", "node_rank", "num_machines", "machine_rank")
    asked = referenced([_option(options, name, "") for name in names])
    return sorted(asked - given - {"_"})


def _forces_torchrun(spec: DeepSpeedJobSpec, words: Sequence[str]) -> bool:
    template = pod_template(spec)
    named = any(variable.get("name") == "FORCE_TORCHRUN" for variable in template.env)
    return named or bool(template.env_from) or "FORCE_TORCHRUN" in assigned(words)
