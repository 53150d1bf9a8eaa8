"""Done once, before ranks are forked: what an engine would import and ask when it starts, which is most of its time.

DeepSpeed prints on stdout while it is imported: import this after stdout has been put aside.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import functools
import importlib

import cpuinfo.cpuinfo
import torch._dynamo
import torch.distributed.fsdp  # noqa: F401


def prepare_cpu() -> None:
    # DeepSpeed's own all-reduce between CPUs would be compiled first, and is not what GPUs use.
    vars(importlib.import_module("deepspeed.comm.torch"))["build_shm_op"] = lambda: None
    # It asks what kind of CPU this is in a process of its own.
    cpuinfo.cpuinfo.get_cpu_info_json = functools.cache(cpuinfo.cpuinfo.get_cpu_info_json)
    cpuinfo.get_cpu_info()
