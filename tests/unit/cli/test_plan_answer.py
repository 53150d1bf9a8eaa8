"""What `dsjob plan` says first, asked as users ask it."""

import json
from typing import Any

import pytest
import yaml

from tests.models import LLAMA_13B
from tests.unit.cli.command import dsjob
from tests.unit.cli.plans import CONFIG, job, line, recorded, selector, shown

QWEN_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
LLAMA_70B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
UNSAID = {"trainableParameters": None, "activationCheckpointing": None, "attention": None}
BATCH = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8}


def asked(model: dict[str, Any], stage: int = 2, *, nodes: int = 1, gpus: int = 8, **facts: Any) -> str:
    """As little as a user says."""
    config = {**BATCH, "zero_optimization": {"stage": stage}}
    said = {"fromConfig": model, "sequenceLength": 4096, **UNSAID, **facts}
    return job(nodes=nodes, slotsPerNode=gpus, model=said, dsConfig=config).replace(
        '{"nvidia.com/gpu": 8}', f'{{"nvidia.com/gpu": {gpus}}}'
    )


QWEN = (asked(QWEN_7B, nodes=2), "--gpu", "A100-80G", "--network", "100Gb")
LLAMA = (asked(LLAMA_70B, 3, nodes=4, activationCheckpointing=True), "--gpu", "H100-80G", "--network", "400Gb")
LORA = (asked(LLAMA_13B, gpus=1, lora={"rank": 16}, sequenceLength=2048, attention="Flash"), "--gpu", "4090")


def test_the_first_line_is_the_answer_and_says_what_it_comes_to() -> None:
    out, found = shown(*QWEN), recorded(*QWEN)
    first = out.splitlines()[0]
    assert first.startswith(
        "llama-7b: stage 1, micro batch 1 (4 fit), 44.5 of 80.0 GiB, 23.2 s a step, 22.6 k tokens/s"
    )
    rate = found["answer"]["samplesPerSecond"] * 4096
    # 6 operations a parameter and token, and 12 × layers × width × tokens for attention (2204.02311, B).
    operations = 6 * 7_615_616_512 + 12 * 28 * 3584 * 4096
    assert f"MFU {100 * rate * operations / (16 * 312e12):.2g} %" in first
    assert first.endswith(f"; 1 B tokens take {1e9 / rate / 3600:.1f} h")


def test_then_come_the_stages_the_micro_batches_and_what_is_faster() -> None:
    out = shown(*QWEN)
    begins = ["Which ZeRO stage", "Which micro batch", "Faster", "As written: 2 × 8 ranks", "Traffic", "Memory", "Time"]
    assert [out.index(f"\n{each}") for each in begins] == sorted(out.index(f"\n{each}") for each in begins)
    rows = recorded(*QWEN)["microBatches"]
    assert [row["microBatch"] for row in rows] == [1, 2, 4, 8]
    assert {row["microBatch"] * row["accumulation"] for row in rows} == {8}
    assert [row["fits"] for row in rows] == [True, True, True, None]
    assert [row["memory"] for row in rows] == sorted(row["memory"] for row in rows)


def test_the_configuration_is_its_own_answer_where_nothing_is_better() -> None:
    best = job(template=selector("NVIDIA-A100-SXM4-80GB"), dsConfig={"zero_optimization": {"stage": 1}})
    assert recorded(best)["answer"]["number"] is None
    assert shown(best).startswith("llama-7b: stage 1, micro batch 2, 61.9 of 80.0 GiB, ")


def test_stage_3_with_activation_checkpointing_has_a_time_and_advice_and_hpz_costs_memory() -> None:
    out, found = shown(*LLAMA), recorded(*LLAMA)
    assert "No advice" not in out
    assert found["step"]["unproven"] == []
    near, plain = found["answer"], found["memory"]["needed"]
    assert found["alternatives"][near["number"] - 1]["change"] == {"zero_optimization.zero_hpz_partition_size": 8}
    assert near["memory"] - plain == pytest.approx(2 * 70_553_706_496 / 8, rel=0.01)


def test_zero_plus_plus_is_compared_where_the_network_decides_and_says_that_numbers_change() -> None:
    found = {tuple(each["change"]): each for each in recorded(*LLAMA)["alternatives"]}
    zero = "zero_optimization.zero_"
    small = found[f"{zero}hpz_partition_size", f"{zero}quantized_weights", f"{zero}quantized_gradients"]
    assert small["gain"] > found[(f"{zero}hpz_partition_size",)]["gain"] > 1.1
    assert "numbers change" in small["caveat"]
    node = recorded(asked(QWEN_7B, 3), "--gpu", "A100-80G")["alternatives"]
    assert not any("quantized" in key for each in node for key in each["change"])


def test_what_does_not_fit_is_offered_quantization_and_offload_each_and_with_activation_checkpointing() -> None:
    found = [(set(each["change"]), each["script"]) for each in recorded(*LORA)["alternatives"]]
    four, again = "NF4 by bitsandbytes (load_in_4bit)", "activation checkpointing"
    assert (set(), [four, again]) in found
    assert (set(), [four]) in found
    on_host = {"zero_optimization.stage", "zero_optimization.offload_param"}
    assert (on_host, []) in found
    assert (on_host, [again]) in found
    out = shown(*LORA)
    assert "As written it does not fit: 39.9 of 24.0 GiB" in out
    assert "without offload_param's work on the host" in line(out, "4. ?")


def test_no_script_is_changed_for_what_a_configuration_alone_does_as_fast() -> None:
    """Activation checkpointing leaves more room, and none is needed."""
    roomy = recorded(job(template=selector("NVIDIA-A100-SXM4-80GB"), nodes=2), "--network", "25Gb")["alternatives"]
    assert roomy
    assert not any(each["script"] for each in roomy)


def test_a_pod_that_the_kernel_would_end_is_no_answer_without_a_word() -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
    limited = job(gpuMemory="10Gi", model={"activationCheckpointing": True}, dsConfig=config)
    limited = limited.replace('{"nvidia.com/gpu": 8}', '{"nvidia.com/gpu": 8, "memory": "64Gi"}')
    assert "of its limit of 64.0 GiB, too much: the kernel would end it" in line(shown(limited), "its pod needs ")
    assert "its pod needs" not in shown(job())


def test_what_only_may_be_too_large_is_not_said_to_be() -> None:
    needed = recorded(job())["memory"]["needed"] / 2**30
    out = shown(job(), "--gpu-memory", f"{needed - 1:.1f}")
    assert f"  As written: {needed:.1f} of {needed - 1:.1f} GiB (may fit)" in out


def test_the_answer_changes_no_numbers_where_what_is_written_fits() -> None:
    found = recorded(*LLAMA)
    assert "numbers change" not in (found["alternatives"][found["answer"]["number"] - 1]["caveat"] or "")


def test_what_a_script_must_do_is_written_into_the_facts_and_said() -> None:
    text, *options = LORA
    result = dsjob("plan", "-", *options, "--apply", 1, stdin=text)
    model = yaml.safe_load(result.stdout)["spec"]["model"]
    assert (model["quantization"], model["activationCheckpointing"]) == ("NF4", True)
    assert "in the script: NF4 by bitsandbytes (load_in_4bit) and activation checkpointing" in result.stderr
    assert recorded(result.stdout, *options)["memory"]["fit"] == "True"


def test_full_fine_tuning_is_meant_where_nothing_is_said_of_adapters() -> None:
    assert "too large if all parameters train" in line(shown(*QWEN), "0    172.3 GiB")
    assert "too large if all" not in shown(*LORA)


@pytest.mark.parametrize(("kind", "words"), [("Int8", "adapters train wrongly"), ("NF4", "bnb_4bit_quant_storage")])
def test_what_bitsandbytes_and_stage_3_do_together_is_said(kind: str, words: str) -> None:
    text, *options = LORA
    held = json.loads(text)
    held["spec"]["model"]["quantization"] = kind
    assert words in line(shown(json.dumps(held), *options), "3: ")
    assert "bitsandbytes" not in shown(asked(LLAMA_13B), "--gpu", "A100-80G")


def test_what_is_assumed_is_no_bound() -> None:
    """Tuned stacks are faster than what is assumed, whatever is left out."""
    for out in (shown(*QWEN), shown(*LLAMA), shown(job(parallelism={"tensor": 2}))):
        assert "≤" not in out
    assert "computing at 40% of the GPU's peak as plain PyTorch does; tuned stacks reach 56%" in shown(*QWEN)
    assert "not counted: tensor parallelism" in shown(job(parallelism={"tensor": 2}))


def test_of_a_model_without_layers_no_micro_batch_is_said_to_fit() -> None:
    out = shown(json.dumps(CONFIG), "--parameters", "7e9", "--slots", 8)
    assert "fit)" not in out.splitlines()[0].replace("(may fit)", "")
    assert "activation checkpointing in the script" not in out
