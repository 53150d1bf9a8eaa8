"""What real failures say, as data: words, the reason that they mean, and who says them.

The first entry that fits decides, so that a special one stands before a general one. The texts that these come from,
and are tested with, are in tests/unit/agent/failures.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# How much another rank's end explains this one's: not at all, perhaps, or surely.
CAUSE, PERHAPS, CONSEQUENCE = range(3)


class Signature(NamedTuple):
    reason: str
    pattern: str
    source: str  # who prints it
    weight: int = CAUSE
    others: tuple[str, ...] = ()  # reasons that it may have as well, where the words alone are not certain
    of_torch: bool = False  # only in an exception of torch, or where it has aborted: any word may be a key of a user's

    def search(self, text: str) -> re.Match[str] | None:
        """Compiled when a rank has failed, not while the agent starts."""
        return re.search(self.pattern, text, re.IGNORECASE)


def _says(
    reason: str,
    pattern: str,
    source: str,
    weight: int = CAUSE,
    *,
    others: tuple[str, ...] = (),
    of_torch: bool = False,
) -> Signature:
    return Signature(reason, pattern, source, weight, others, of_torch)


# What torch raises as one of these is told by gloo, NCCL and the stores, and what NCCL says itself; an abort's words
# begin as they like.
OF_TORCH = re.compile(r"(?:(?:\w+\.)*(?:Dist(?:Backend|Store|Network|)|Timeout)Error|RuntimeError|nccl\w+Error): ")

# In the line that tells why a program ended: its exception, or what() of its abort.
WORDS = (
    _says("SharedMemory", r"killed by signal: bus error|out of shared memory", "torch.utils.data"),
    _says("SharedMemory", r"unable to (?:open|mmap|resize|write to|allocate)\b.*(?:shared memory|</?torch_)", "torch"),
    _says("SharedMemory", r"/dev/shm|shared memory segment|posix_fallocate failed|\bshm_open\b|_shm_manager", "NCCL"),
    _says("SharedMemory", r"shared memory manager", "torch", of_torch=True),
    _says("HostOutOfMemory", r"killed by signal: killed", "torch.utils.data", others=("RankFailed",)),
    _says(
        "HostOutOfMemory",
        r"^(?:\w+\.)*BrokenProcessPool\b|subprocesses has abruptly died",
        "concurrent.futures, datasets",
        others=("RankFailed",),
    ),
    _says("Segfault", r"killed by signal: (?:segmentation fault|illegal instruction)", "torch.utils.data"),
    _says("Segfault", r"fatal python error: (?:segmentation fault|illegal instruction)", "faulthandler"),
    _says("SharedMemory", r"fatal python error: bus error", "faulthandler"),
    _says(
        "CudaOutOfMemory", r"\b(?:cuda|hip|xpu|npu|gpu|device)\b[^.]*\bout of memory|cuda_error_out_of_memory", "CUDA"
    ),
    _says("CudaOutOfMemory", r"^torch\.(?:cuda\.)?OutOfMemoryError\b|cudaErrorMemoryAllocation", "torch, CUDA"),
    _says("CudaOutOfMemory", r"cuda failure (?:2 )?'out of memory'|failed to cuda (?:malloc|calloc)", "NCCL"),
    _says("CudaOutOfMemory", r"cu(?:blas|dnn)_status_alloc_failed", "cuBLAS, cuDNN"),
    _says("CudaOutOfMemory", r"cublas_status_not_initialized", "cuBLAS", others=("DeviceFault", "UserError")),
    _says("CudaOutOfMemory", r"nvml_success == r internal assert", "torch", others=("DeviceFault",)),
    _says("HostOutOfMemory", r"cpuallocator|alloc_cpu|std::bad_alloc|^(?:\w+\.)*_?(?:Array)?MemoryError\b", "torch"),
    _says("HostOutOfMemory", r"^(?!.*(?:nccl|ibv_)).*cannot allocate memory", "the kernel"),
    _says("HostOutOfMemory", r"ray\S*OutOfMemoryError", "ray"),
    _says("CudaOutOfMemory", r"resource_exhausted: out of memory|error out of memory at line", "XLA, bitsandbytes"),
    _says("DeviceFault", r"uncorrectable (?:ecc|nvlink)|ecc error|fallen off the bus|gpu is lost", "CUDA, driver"),
    _says("DeviceFault", r"(?:devices?|device\(s\)) (?:are|is|is/are) busy or unavailable", "CUDA"),
    _says("DeviceFault", r"system not yet initialized|cudaErrorSystemNotReady|error 80[23]\b", "CUDA, fabric manager"),
    _says(
        "DeviceFault",
        r"no cuda-capable device is detected|device not ready|(?:stack|or a hardware) error|nvlink sharp",
        "CUDA",
    ),
    _says(
        "DeviceFault",
        r"unsupported display driver|\bmps (?:server|client)|driver/library version mismatch",
        "CUDA, NVML",
    ),
    _says(
        "DeviceFault", r"\bxid\b.*\b(?:48|6[34]|7[49]|9[2458])\b|nvlink error|nvml\S* (?:unknown|gpu lost)", "driver"
    ),
    _says(
        "DeviceFault",
        r"\b(?:cuda|hip)\b[^:']*(?:error|failure)[^:']*[:'] ?"
        r"(?:unspecified launch failure|unknown error|the launch timed out|an illegal instruction)",
        "CUDA",
        others=("UserError",),  # a kernel of the program's own may write where it must not
    ),
    _says(
        "DeviceFault",
        r"no (?:cuda |hip )?gpus are available|no xpu devices are|no nvidia driver|cuda unknown error"
        r"|forward compatibility was attempted",
        "torch, CUDA",
        others=("UserError",),
    ),
    _says("UserError", r"cu(?:blas|dnn)_status_", "cuBLAS, cuDNN", others=("CudaOutOfMemory", "DeviceFault")),
    _says("UserError", r"illegal memory access", "CUDA", others=("DeviceFault",)),
    _says("UserError", r"device-side assert|misaligned address|no kernel image", "CUDA"),
    _says("UserError", r"detected mismatch between collectives", "torch.distributed"),
    _says("UserError", r"invalid usage|duplicate gpu detected", "NCCL", of_torch=True),
    # Checkpoints and data
    _says("DataOrCheckpoint", r"used a dp world size of|universal_checkpoint_info", "deepspeed"),
    _says("DataOrCheckpoint", r"in loading state_dict|size mismatch for |loaded state dict", "torch.nn, torch.optim"),
    _says("DataOrCheckpoint", r"pytorchstream(?:reader|writer)|the file might be corrupted", "torch"),
    _says("DataOrCheckpoint", r"^(?:\w+\.)*(?:Safetensor|Unpickling|Read|UnidentifiedImage)Error\b", "safetensors"),
    _says(
        "DataOrCheckpoint", r"^(?:\w+\.)*(?:BadZipFile|CheckpointException)\b|truncated|iostream error", "torch, PIL"
    ),
    _says("DataOrCheckpoint", r"input/output error|stale file handle|transport endpoint|unexpected pos \d", "a volume"),
    # EFBIG, ECOMM, EHOSTDOWN, EUCLEAN, EREMOTEIO
    _says("DataOrCheckpoint", r"\[errno (?:27|70|112|117|121)\]|not enough disk space", "a volume, datasets"),
    _says("DataOrCheckpoint", r"parent directory \S+ does not exist|^\w+: File \S+ cannot be opened", "torch.save"),
    _says("DataOrCheckpoint", r"missing key in checkpoint|numels out of \d+ - something is wrong", "torch, deepspeed"),
    _says(
        "DataOrCheckpoint",
        r"valid checkpoint|checkpoint(?: file)?\S* (?:not found|does not exist|is missing)",
        "transformers",
    ),
    _says("DataOrCheckpoint", r"error no file named|not appear to have (?:a file|files) named", "transformers"),
    _says(
        "DataOrCheckpoint", r"can't load (?:the )?\w+ for |unable to load weights|no checkpoint found", "transformers"
    ),
    _says("DataOrCheckpoint", r"is not a local folder and|couldn't connect to '?https?://\S*hugg", "transformers"),
    _says(
        "DataOrCheckpoint", r"access (?:to )?a gated repo|^ConnectionError: couldn't reach", "transformers, datasets"
    ),
    _says(
        "DataOrCheckpoint",
        r"^(?:requests|urllib3|httpx|httpcore|aiohttp)\.[^:]*: .*(?:huggingface|hf-mirror|\bhf\.co\b|modelscope)",
        "what reads from a hub",
    ),
    _says(
        "DataOrCheckpoint", r"^(?:botocore|s3fs|gcsfs|adlfs|azure|google\.(?:api_core|cloud|auth))\.", "object stores"
    ),
    _says("DataOrCheckpoint", r"sentencepiece_processor\.cc", "sentencepiece"),
    _says(
        "DataOrCheckpoint",
        r"^(?:\w+\.)*(?:(?:LocalEntry|Repository|Revision|Entry|DataFiles|Dataset)NotFound|GatedRepo|HfHubHTTP"
        r"|DatasetGeneration|NonMatching\w+)Error\b",
        "huggingface_hub, datasets",
    ),
    _says("DataOrCheckpoint", r"^(?:\w+\.)*Arrow\w+: |not able to read records|eoferror: ran out of input", "pyarrow"),
    # DeepSpeed's configuration
    _says("ConfigRejected", r"deepspeedconfigerror", "deepspeed.runtime.config"),
    _says(
        "ConfigRejected", r"validation errors? for (?:DeepSpeed\w*|\w*(?:Offload|Monitor|Comms|Zero)\w*Config)", "it"
    ),
    _says("ConfigRejected", r"check batch related parameters|micro batch size per gpu: |either train_batch_size", "it"),
    _says("ConfigRejected", r"(?:^AssertionError: )(?:train batch size|gradient accumulation steps): ", "it"),
    _says("ConfigRejected", r"client provided optimizer|zero.?offload can only work with", "deepspeed, transformers"),
    _says("ConfigRejected", r"deepspeed config (?:values|file)|in the deepspeed config|your ds-config", "transformers"),
    _says(
        "ConfigRejected",
        r"incompatible with pipeline parallelism|deepspeed zero-3 is not compatible|^ValueError: type fp16 is not supp",
        "deepspeed, transformers",
    ),
    _says(
        "ConfigRejected",
        r"zero stage \d \w*requires an optimizer|zero_allow_untested_optimizer|zero_force_ds_cpu_optimizer"
        r"|deepspeed requires --deepspeed_config|moe not supported with stage 3",
        "deepspeed.runtime.engine",
    ),
    _says("ConfigRejected", r"an? (?:optimizer|scheduler) in the config file", "accelerate"),
    _says("ConfigRejected", r"num_elems \d+ ?> ?buffer", "deepspeed.runtime.swap_tensor"),
    _says("ConfigRejected", r"expected a string path to an existing deepspeed config", "deepspeed"),
    # Who did not come, at the start
    _says(
        "NcclTimeout",
        r"store->get\(.*(?:socket|wait) ?timeout|store->get\(.*timeout waiting",
        "c10d",
        PERHAPS,
        of_torch=True,
    ),
    _says("RendezvousTimeout", r"^(?:\w+\.)*DistStoreError: .*time(?:d )?out", "c10d", PERHAPS),
    _says("RendezvousTimeout", r"rendezvous(?:timeout|connection|closed)error", "torchrun", PERHAPS),
    _says("RendezvousTimeout", r"timed out after \d+ seconds waiting for", "c10d store", PERHAPS, of_torch=True),
    _says("RendezvousTimeout", r"client socket has (?:timed out|failed to connect)", "c10d", PERHAPS, of_torch=True),
    _says(
        "RendezvousTimeout", r"wait timeout after \d+ms|^RuntimeError: socket timeout", "c10d", PERHAPS, of_torch=True
    ),
    _says(
        "RendezvousTimeout", r"^RuntimeError: conn\S* timed out|timed out initializing", "c10d", PERHAPS, of_torch=True
    ),
    # Who did not come later
    _says("NcclTimeout", r"watchdog caught collective operation timeout|timed out in blocking wait", "c10d", PERHAPS),
    _says("NcclTimeout", r"watchdog (?:got stuck|hang)|heartbeat monitor timed out", "c10d", PERHAPS),
    _says("NcclTimeout", r"dump signal (?:due to a collective timeout|from another rank)", "c10d", PERHAPS),
    _says("NcclTimeout", r"failed to pass monitoredbarrier", "c10d", PERHAPS),
    _says(
        "NcclTimeout",
        r"timed out waiting \d+ms for|application timeout caused|nccl timeout",
        "gloo",
        PERHAPS,
        of_torch=True,
    ),
    # Who ended it, or whom it lost
    _says(
        "RankFailed",
        r"signalexception: .*got signal: (?:1|2|15)\b|received (?:1|2|15) death signal|^\"?KeyboardInterrupt\b",
        "torchrun, Python",
        CONSEQUENCE,
    ),
    _says(
        "RankFailed",
        r"^ray\.exceptions\.(?:RayTaskError\()?(?:ActorDied|RayActor|ActorUnavailable|WorkerCrashed)Error",
        "ray",
        others=("HostOutOfMemory", "Segfault"),
    ),
    _says("NcclNetwork", r"^(?:Connection(?:Reset|Refused|Aborted)|BrokenPipe)Error\b", "Python", CONSEQUENCE),
    _says(
        "NcclNetwork",
        r"connection (?:was )?(?:likely )?(?:reset|closed|refused|aborted)|broken pipe|pair closure"
        r"|remote process exited|ncclRemoteError|communicator was aborted|failed to recv, got 0 bytes|socket timeout"
        r"|gloo/transport/\w+/(?:pair|buffer|unbound_buffer)\.\w+",
        "gloo, NCCL, c10d",
        CONSEQUENCE,
        of_torch=True,
    ),
    # A network that does not work
    _says("NcclNetwork", r"failed to (?:listen|bind)|address already in use", "c10d", of_torch=True),
    _says("NcclNetwork", r"call to ibv_|no socket interface found|no route to host", "NCCL", PERHAPS, of_torch=True),
    _says(
        "DeviceFault",
        r"unhandled cuda error|ncclUnhandledCudaError",
        "NCCL",
        others=("CudaOutOfMemory", "UserError"),
        of_torch=True,
    ),
    _says(
        "NcclNetwork",
        r"unhandled system error|nccl(?:System|Internal)Error|nccl error|\bhccl",
        "NCCL, HCCL",
        PERHAPS,
        of_torch=True,
    ),
    _says("RendezvousTimeout", r"^(?:\w+\.)*DistStoreError\b", "c10d", PERHAPS),
    _says("NcclNetwork", r"^(?:\w+\.)*Dist(?:Backend|Network|)Error\b", "c10d", PERHAPS),
)
# In the log, where the words say no more than that something failed, or that another rank did.
LOG = (
    _says(
        "SharedMemory",
        r"unexpected bus error|shared memory segment|posix_fallocate failed|fail\w* [^\n]*/dev/shm/",
        "NCCL",
    ),
    _says(
        "DeviceFault", r"xid \(pci[^)]*\): (?!13\b|31\b|43\b|45\b)\d+|fallen off the bus|uncorrectable ecc", "kernel"
    ),
    _says("CudaOutOfMemory", r"cuda failure (?:2 )?'out of memory'|failed to cuda (?:malloc|calloc)", "NCCL"),
    _says("Segfault", r"unexpected segmentation fault|segmentation fault \(core dumped\)", "torch, a shell"),
    _says(
        "Segfault",
        r"double free or corruption|(?:free|malloc|realloc|munmap_chunk)\(\): |corrupted (?:size|double)",
        "glibc",
    ),
    _says("RankFailed", r"received (?:1|2|15) death signal", "torchrun", CONSEQUENCE),
    _says(
        "NcclNetwork",
        r"nccl warn net/(?:ib|ofi)[ :]+(?:got async event ?: port error|got completion |request .*with error)",
        "NCCL",
        PERHAPS,
    ),
    _says("HostOutOfMemory", r"killed signal terminated program", "a compiler"),
    _says("UserError", r"memory access fault by gpu", "ROCm", others=("DeviceFault",)),
    _says("DeviceFault", r"hw exception by gpu|hardware exception", "ROCm"),
    _says("DeviceFault", r"failed to initialize the hccp process", "HCCP, Ascend", others=("NcclNetwork",)),
    _says("NcclTimeout", r"getting socket times out|notify wait\S* time|fftsplus task timeout", "HCCL", PERHAPS),
    # Ray names the OOM killer among what may be.
    _says(
        "HostOutOfMemory",
        r"oom[-_ ]kill(?!er due)|out of memory: killed process|task \d+: out of memory",
        "kernel, slurm",
    ),
)
# With SIGKILL alone: what DeepSpeed says of the host's memory before it is full.
MEMORY_FULL = re.compile(r"CPU Virtual Memory: .*percent = (?:9\d|100)")
# Words that say no more than that something failed.
VAGUE = re.compile(
    r"unhandled (?:system|cuda) error|exited unexpectedly|Caught \w+ in DataLoader|unknown error|^Fatal Python error"
    r"|terminate called|internal error|^$|^\x22"  # no words, or only the last line, in quotes
    r"|Error building extension|Call to CUDA function failed\.?$|\bH(?:CCL|ccl)|NPU error|Pin memory thread exited"
    r"|^ray\.exceptions\.(?:RayTaskError\()?(?:ActorDied|RayActor|ActorUnavailable|WorkerCrashed)Error"
)
# What no signature knows, where it is certain that it ended a rank.
UNCAUGHT = _says("UserError", r"", "Python")
# An exception with the last places of its traceback: `exception @ path:function path:function`.
PLACES = (
    _says(
        "SharedMemory", r"no space left on device.*multiprocessing/(?:synchronize|shared_memory|heap)\.py:", "Python"
    ),
    _says("DataOrCheckpoint", r"no space left on device|disk quota exceeded", "the kernel"),
    _says("DataOrCheckpoint", r"^FileNotFoundError\b(?!.*/subprocess\.py:\S+$)", "Python"),
    _says(
        "ConfigRejected",
        r"deepspeed/runtime/(?:\w+/)?config(?:_utils)?\.py:"
        r"|deepspeed/runtime/engine\.py:_(?:configure|do)_\w+$|deepspeed/runtime/lr_schedules\.py:\S+$"
        r"|transformers/(?:integrations/)?deepspeed\.py:(?:deepspeed_init|trainer_config\w+|deepspeed_optim\w+)$"
        r"|accelerate/accelerator\.py:_prepare_deepspeed$|accelerate/utils/(?:deepspeed|dataclasses)\.py:(?:fill_match"
        r"|deepspeed_config_process|set_stage_and_offload)$|strategies/deepspeed\.py:_(?:format|load_config|validate)\w*$",
        "deepspeed, transformers, accelerate, lightning",
    ),
    _says("RendezvousTimeout", r"tim(?:ed|e)[ -]?out.* @ .*torch/distributed/(?:rendezvous|elastic/)", "c10d", PERHAPS),
    _says("NcclTimeout", r"tim(?:ed|e)[ -]?out.* @ .*torch/distributed/distributed_c10d\.py:\S+$", "c10d", PERHAPS),
    _says("DataOrCheckpoint", r"^(?:\w+\.)*JSONDecodeError\b", "Python"),
    _says(
        "DataOrCheckpoint",
        r":_?(?:deepspeed_)?load_(?:zero_)?(?:checkpoint|state_dict|from_checkpoint|state)\b|state_dict_factory\.py"
        r"|/datasets/(?:builder|load|data_files)\.py",
        "torch, deepspeed, transformers, datasets",
    ),
)
# A mistake of the code, wherever it is.
OF_CODE = re.compile(r"(?:Attribute|Type|Name|Import|ModuleNotFound|Syntax|Indentation|UnboundLocal)Error\b")
# A program that has come to its end: its interpreter goes down, or torch's own objects do.
GOES_DOWN = re.compile(
    r"at interpreter shutdown|Exception ignored in atexit callback|Error in atexit\._run_exitfuncs"
    r"|Python runtime state: finalizing"
)
LEFT = re.compile(
    r"destroy_process_group\(\) was not called before program exit|has NOT been destroyed before we destruct"
)
TRAINED = re.compile(r"'train_runtime'|Training completed\b|\*{5} train metrics \*{5}|End time of running main")
