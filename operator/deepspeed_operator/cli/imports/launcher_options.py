"""The options of programs that start ranks: which of them take a value."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from posixpath import basename
from typing import Final

from deepspeed_operator.cli.imports.expansion import MARKED

TORCHRUN: Final = frozenset(
    {"nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "max_restarts"}
    | {"monitor_interval", "start_method", "role", "log_dir", "r", "redirects", "t", "tee", "local_ranks_filter"}
    | {"node_rank", "master_addr", "master_port", "local_addr", "logs_specs", "event_log_handler", "numa_binding"}
    | {"signals_to_handle", "duplicate_stdout_filters", "duplicate_stderr_filters", "log_line_prefix_template"}
)
TORCHRUN_FLAGS: Final = frozenset(
    {"standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank"}
)
DEEPSPEED: Final = frozenset(
    {"H", "hostfile", "i", "include", "e", "exclude", "num_nodes", "min_elastic_nodes", "max_elastic_nodes", "num_gpus"}
    | {"num_accelerators", "master_port", "master_addr", "node_rank", "launcher", "launcher_args", "autotuning"}
    | {"bind_core_list", "ssh_port", "venv_script", "enable_each_rank_log"}
)
DEEPSPEED_FLAGS: Final = frozenset(
    {"module", "no_python", "no_local_rank", "no_ssh_check", "no_ssh", "force_multi", "elastic_training", "save_pid"}
    | {"bind_cores_to_rank"}
)
ACCELERATE_FLAGS: Final = frozenset(
    {
        "m",
        "module",
        "no_python",
        "multi_gpu",
        "cpu",
        "tpu",
        "use_deepspeed",
        "use_fsdp",
        "use_megatron_lm",
        "debug",
        "q",
    }
    | {"quiet", "enable_cpu_affinity", "use_xpu", "use_tp", "tpu_cluster", "no_tpu_cluster", "main_process_only", "aws"}
    | {"downcast_bf16", "same_network", "dynamo_use_dynamic", "dynamo_use_fullgraph", "use_parallelism_config"}
)
MPIRUN: Final = frozenset(
    {"np", "n", "c", "N", "npernode", "ppn", "H", "host", "hosts", "hostfile", "machinefile", "f", "x", "genv", "env"}
    | {"bind_to", "map_by", "rank_by", "wdir", "wd", "prefix", "path", "genvlist", "hostname", "output_filename", "app"}
    | {"rsh_agent", "launch_agent", "timeout", "cpus_per_proc", "cpus_per_rank", "launcher", "iface", "envlist"}
)
MPIRUN_FLAGS: Final = frozenset(
    {"allow_run_as_root", "report_bindings", "tag_output", "timestamp_output", "oversubscribe", "nooversubscribe", "v"}
    | {
        "q",
        "verbose",
        "quiet",
        "display_map",
        "display_allocation",
        "bynode",
        "byslot",
        "pernode",
        "l",
        "print_rank_map",
    }
    | {"prepend_rank", "do_not_launch", "leave_session_attached", "merge_stderr_to_stdout", "bind_to_core", "genvall"}
)
MPIRUN_PAIRS: Final = frozenset({"mca", "gmca", "omca", "pmixmca", "prtemca", "genv", "env"})
SRUN: Final = frozenset(
    {"N", "nodes", "n", "ntasks", "ntasks_per_node", "G", "gpus", "gpus_per_node", "gpus_per_task", "gres", "c"}
    | {"cpus_per_task", "container_image", "container_mounts", "container_workdir", "container_name", "mpi", "w"}
    | {"nodelist", "x", "exclude", "p", "partition", "A", "account", "q", "qos", "t", "time", "J", "job_name", "o"}
    | {"output", "e", "error", "i", "input", "jobid", "export", "mem", "mem_per_gpu", "D", "chdir", "C", "constraint"}
    | {
        "cpu_bind",
        "gpu_bind",
        "distribution",
        "m",
        "W",
        "wait",
        "network",
        "reservation",
        "container_env",
        "environment",
    }
)


SRUN_FLAGS: Final = frozenset(
    {"l", "label", "u", "unbuffered", "exclusive", "overlap", "v", "verbose", "Q", "quiet", "O", "overcommit", "s"}
    | {"oversubscribe", "K", "kill_on_bad_exit", "pty", "E", "preserve_env", "no_container_mount_home", "exact", "Z"}
    | {"container_mount_home", "container_writable", "container_remap_root", "no_container_remap_root", "no_kill"}
)
_PROGRAMS: Final = frozenset(
    {"accelerate", "bash", "deepspeed", "mpirun", "python", "python3", "sh", "srun", "torchrun"}
)


@dataclass(slots=True)
class LauncherOptions:
    """What stands before the program: options by their names without dashes, and the words from the program on."""

    given: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    written: dict[str, str] = field(default_factory=dict[str, str])
    rest: list[str] = field(default_factory=list[str])

    def has(self, *names: str) -> bool:
        return any(name in self.given for name in names)

    def last(self, *names: str) -> str | None:
        """Return the value given last under one of these names, None where there is none."""
        return next((self.given[name][-1] for name in names if name in self.given), None)


def options_of(
    words: Sequence[str], valued: Collection[str], flags: Collection[str] = (), pairs: Collection[str] = ()
) -> LauncherOptions:
    """Read options up to the program.

    `valued`: the names that take a value; `pairs`: those that take a name and a value; `flags`: those that take none.
    A name that is none of them takes the next word if that looks like a value.
    """
    options, at = LauncherOptions(), 0
    while at < len(words) and (words[at].startswith("-") or _unknown_option(words, at)) and words[at] != "--":
        flag, equals, value = words[at].partition("=")
        name = flag.lstrip("-").replace("-", "_")
        at += 1
        if not equals:
            if name in pairs:
                width = 1 if "=" in "".join(words[at : at + 1]) and name.endswith("env") else 2  # -env NAME=VALUE
                value = "=".join(words[at : at + width])
                at += width
            elif name in valued or (name not in flags and _looks_like_a_value(words, at)):
                value = "".join(words[at : at + 1])
                at += 1
            elif not flag.startswith("--") and name[:1] in valued and name[1:].isdecimal():
                name, value = name[:1], name[1:]  # -n4
        options.given.setdefault(name, []).append(value)
        options.written.setdefault(name, flag)
    options.rest = list(words[at:])
    if options.rest[:1] == ["--"]:
        options.rest.pop(0)
    return options


def number(text: str | None) -> int | None:
    """Return a whole number that an option gives, None if it gives none."""
    text = text or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def included(filter_: str) -> tuple[int | None, int | None] | None:
    """Return nodes and slots of an --include such as localhost:0,1 or a@b:0,1,2."""
    hosts = [host for host in filter_.split("@") if host]
    if not hosts:
        return None
    slots = {len(host.partition(":")[2].split(",")) if ":" in host else None for host in hosts}
    return len(hosts), slots.pop() if len(slots) == 1 else None


def listed(hosts: str) -> tuple[int | None, int | None]:
    """Return nodes and slots of mpirun's -H: a:8,b:8; None for slots that are not said, or differ."""
    names = [host for host in hosts.split(",") if host]
    slots = {number(host.partition(":")[2]) for host in names}
    return len(names) or None, slots.pop() if len(slots) == 1 else None


def carried(export: str) -> dict[str, str]:
    """Return the variables to which srun's --export gives values: ALL,NAME=VALUE."""
    return {name: value for each in export.split(",") for name, equals, value in [each.partition("=")] if equals}


def again(options: LauncherOptions, name: str, flag: str) -> list[str]:
    """Return an option as it is written, as often as it is."""
    return [word for value in options.given[name] for word in ([flag, value] if value else [flag])]


def _unknown_option(words: Sequence[str], at: int) -> bool:
    """Whether a word that only a shell knows stands where options do: before another one, or a program."""
    return bool(MARKED.fullmatch(words[at])) and at + 1 < len(words)


def _looks_like_a_value(words: Sequence[str], at: int) -> bool:
    if at + 1 >= len(words):
        return False
    return (
        not words[at].startswith("-")
        and not words[at].endswith((".py", ".sh"))
        and basename(words[at]) not in _PROGRAMS
    )
