"""What DeepSpeed refuses only because of two keys together: one configuration each, and its answer."""

import ast
import pathlib
import re
from typing import Any

import deepspeed_config

_STAGES = (0, 1, 2, 3)
# Accepted at which ZeRO stages.
_BY_STAGE: dict[str, dict[str, Any]] = {
    "fp16_master_weights_and_grads": {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}},
    "bf16_master_weights_and_grads": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
    "bf16_optimizer_states": {
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    },
    "sum": {"gradient_allreduce_op": "sum"},
    "partial_offload": {"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
    "no_grad_norm": {"zero_optimization": {"compute_grad_norm": False}},
}
# Accepted or not.
_PLAIN: dict[str, dict[str, Any]] = {
    "fp16_and_bf16": {"fp16": {"enabled": True}, "bf16": {"enabled": True}},
    "bf16_states_alone": {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True, "bf16_optimizer_states": True}},
    "sum_with_zenflow": {"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2, "zenflow": {}}},
    "sum_with_deepcompile": {"gradient_allreduce_op": "sum", "compile": {"deepcompile": True}},
    "sequence_parallel_size": {"sequence_parallel_size": -1},
    "unreadable_sequence_parallel_size": {"sequence_parallel_size": "x"},
    "fp16_master_when_off": {"fp16": {"enabled": False, "fp16_master_weights_and_grads": True}},
    "deprecated_offload_and_new": {"zero_optimization": {"cpu_offload": True, "offload_optimizer": {"device": "cpu"}}},
}


def measured() -> dict[str, Any]:
    """Stages at which each is accepted; of those without a stage, whether it is."""
    answers: dict[str, Any] = {}
    for name, values in _BY_STAGE.items():
        stages: list[int] = []
        for stage in _STAGES:
            zero = {**values.get("zero_optimization", {}), "stage": stage}
            if deepspeed_config.read({"train_batch_size": 1, **values, "zero_optimization": zero}).ok:
                stages.append(stage)
        answers[name] = stages
    for name, values in _PLAIN.items():
        answers[name] = deepspeed_config.read({"train_batch_size": 1, **values}).ok
    return answers


# Of the engine, which no configuration alone can ask: what it says when it starts, or does, if the version does at all.
_ENGINE: dict[str, str] = {
    "amp_and_zero": "Amp and ZeRO are not currently compatible",
    "amsgrad_on_cpus": "DeepSpeedCPUAdam does not support the AMSGrad variant",
    "autocast_and_half": "Cannot enable both torch autocast and bfloat16",
    "autotp_and_stage_3": "the compatibility between 'autotp' and 'zero_stage = 3' has not been validated",
    "autotp_sizes": "does not match tensor_parallel.autotp_size",
    "bf16_states_offloaded_to_others": "bf16_optimizer_states with ZeRO-Offload requires",
    "compute_grad_norm_and_clipping": "compute_grad_norm=false requires gradient_clipping=0",
    "fp16_master_weights_need_offload": "fp16_master_and_gradients requires optimizer",
    "log_level": "set_log_level_from_string(self",
    "managed_gradient_accumulation": "managed_gradient_accumulation=False supports",
    "master_weights_need_offload": "Master weights feature requires",
    "master_weights_exclude_each_other": "bf16_master_weights_and_gradients are mutually exclusive",
    "muon_and_reduce_scatter": "Muon and reduce scatter cannot be used together",
    "muon_is_compiled": "@compiler.compile()\ndef zeropower_via_newtonschulz5",
    "muon_and_stage_3": "Muon optimizer is not yet compatible with ZeRO Stage 3",
    "muon_is_untested": "from deepspeed.runtime.muon_optimizer import MuonWithAuxAdam",
    "norm_of_fp32_sums": "compute_grad_norm=false does not support ZeRO Stage 1 with",
    "super_offload": "SuperOffload only supports",
    "torch_autocast_and_quantized_weights": "Cannot enable both torch autocast and zero quantized weights",
    "warmup_num_steps": "warmup_num_steps must be",
}


def engine_checks(package: pathlib.Path) -> list[str]:
    files = [*(package / "runtime").rglob("*.py"), *(package / "ops" / "adam").glob("*.py")]
    source = "\n".join(file.read_text() for file in sorted(files))
    return sorted(name for name, message in _ENGINE.items() if message in source)


def expert_words(package: pathlib.Path) -> dict[str, list[str]]:
    """The words that the engine takes for keys of expert_parallel, as the code that checks them lists them."""
    folder = package / "module_inject"
    file = folder / "auto_ep_config.py"
    if not file.exists():
        return {}
    found = re.findall(r"valid_(\w+) = (\(.*?\))", file.read_text())
    words: dict[str, list[str]] = {key: list(ast.literal_eval(each)) for key, each in found}
    presets = [each.read_text() for each in sorted((folder / "auto_ep_presets").glob("*.py"))]
    words["preset_model"] = re.findall(r'^PRESET_NAME = "(\w+)"', "\n".join(presets), re.MULTILINE)
    return dict(sorted(words.items()))
