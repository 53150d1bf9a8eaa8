"""What `dsjob plan` knows of a job's own GPUs, and how sure it is of what fits."""

import json
from typing import Any

import pytest

from tests.unit.cli.command import dsjob, findings
from tests.unit.cli.plans import CONFIG, affinity, job, line, recorded, selector, shown, sources

GIB = 2**30
NETWORK = ("--network", "10GbE")
A100_40G = "NVIDIA-A100-SXM4-40GB"


def test_what_the_configuration_says_has_its_own_source_and_an_optimizer_of_the_script_is_assumed() -> None:
    found = sources(recorded(json.dumps(CONFIG), "--parameters", "7e9", "--slots", 8))
    assert found["precision"] == ("bf16", "DsConfig")
    scripts = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    told = sources(
        recorded(json.dumps({**scripts, "optimizer": {"type": "Lion"}}), "--parameters", "7e9", "--slots", 8)
    )
    assert told["optimizer"] == ("FusedLion", "DsConfig")
    assumed = sources(recorded(json.dumps(scripts), "--parameters", "7e9", "--slots", 8))
    assert assumed["optimizer"] == ("torch.optim.AdamW", "Assumed")


@pytest.mark.parametrize("template", [selector(A100_40G), affinity(A100_40G)], ids=["selector", "affinity"])
def test_a_gpu_that_the_template_demands_is_the_one_that_is_planned(template: dict[str, Any]) -> None:
    found = recorded(job(template=template))
    assert sources(found)["GPU"] == ("A100-40G", "Declared")
    assert (found["memory"]["capacity"], found["memory"]["fit"]) == (40 * GIB, "False")


def test_memory_that_the_job_says_is_the_gpus_and_speed_is_assumed() -> None:
    found = recorded(job(gpuMemory="40Gi"))
    assert sources(found)["memory of a GPU, GiB"] == (40.0, "Declared")
    assert sources(found)["speed of a GPU"] == ("A100-80G", "Assumed")
    assert found["memory"]["source"] == "Declared"


@pytest.mark.parametrize(
    ("options", "capacity"), [(("--gpu", "H100-80G"), 81_559 * 2**20), (("--gpu-memory", 24), 24 * GIB)]
)
def test_options_win_over_the_job(options: tuple[object, ...], capacity: int) -> None:
    found = recorded(job(gpuMemory="40Gi", template=selector(A100_40G)), *options)
    assert found["memory"]["capacity"] == capacity


def test_of_several_gpus_the_smallest_says_that_it_fits_and_the_largest_that_it_does_not() -> None:
    either = affinity(A100_40G, "NVIDIA-A100-SXM4-80GB")
    found = recorded(job(template=either))
    assert found["memory"]["fit"] == "Unknown"
    assert "which of the GPUs its ranks get" in found["memory"]["open"]
    assert sources(found)["GPU"] == ("A100-40G", "Assumed")
    assert [stage["fits"] for stage in found["stages"]] == [False, None, None, None]


def test_the_usual_gpu_is_assumed_with_its_memory() -> None:
    found = recorded(job())
    assert sources(found)["GPU"] == ("A100-80G", "Assumed")
    assert (found["memory"]["fit"], found["memory"]["source"]) == ("True", "Assumed: A100-80G")
    assert [stage["fits"] for stage in found["stages"]] == [False, True, True, True]


def test_what_is_written_for_a_job_fits_into_its_own_gpu() -> None:
    """Stage 0, which is the fastest on such a network, needs four times what these GPUs have."""
    tight = job(nodes=2, gpuMemory="40Gi")
    written = dsjob("plan", "-", *NETWORK, "--apply", 1, stdin=tight).stdout
    assert recorded(written, *NETWORK)["memory"]["fit"] == "True"
    assert not any("does not fit" in finding["message"] for finding in findings("-", stdin=written))


@pytest.mark.parametrize("resource", ["amd.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.shared"])
def test_of_a_device_without_a_data_sheet_only_traffic_and_memory_are_told(resource: str) -> None:
    found = recorded(job(gpu=resource))
    assert (found["step"], found["memory"]["capacity"], found["memory"]["fit"]) == (None, None, "Unknown")
    assert found["memory"]["needed"] == recorded(job())["memory"]["needed"]
    assert "GPU" not in sources(found)
    out = shown(job(gpu=resource))
    assert f"the memory of {resource} is not known" in line(out, "fits")
    assert f"no data sheet here describes {resource}" in line(out, "Time of a step: unknown")


def test_a_job_on_cpus_is_not_planned_on_gpus() -> None:
    out = shown(job(slotsPerNode=2).replace('{"nvidia.com/gpu": 8}', '{"nvidia.com/gpu": 0}'))
    assert "no data sheet here describes CPUs" in line(out, "Time of a step: unknown")


def test_memory_of_such_a_device_is_compared_and_a_gpu_by_name_is_planned() -> None:
    assert recorded(job(gpu="amd.com/gpu", gpuMemory="192Gi"))["memory"]["fit"] == "True"
    named = recorded(job(gpu="amd.com/gpu"), "--gpu", "A100-80G")
    assert named["step"] == recorded(job(), "--gpu", "A100-80G")["step"]


def test_a_gpu_that_no_table_knows_is_not_taken_for_the_usual_one() -> None:
    found = recorded(job(template=selector("NVIDIA-Z1000-SXM9-512GB")))
    assert (found["step"], found["memory"]["fit"]) == (None, "Unknown")
    assert sources(found)["device"] == ("NVIDIA-Z1000-SXM9-512GB", "Declared")


def test_a_lower_bound_of_memory_is_never_said_to_fit() -> None:
    """Of 7 billion parameters nobody knows what activations need."""
    options = ("--parameters", "7e9", "--slots", 8, "--gpu", "A100-80G")
    out = shown(json.dumps(CONFIG), *options)
    assert line(out, "Memory of a GPU").startswith("Memory of a GPU: ≥ ")
    assert "≥ 31.4 GiB  may fit" in line(out, "2  ")
    assert {stage["fits"] for stage in recorded(json.dumps(CONFIG), *options)["stages"]} == {None}


def test_within_the_error_of_a_prediction_it_may_fit_and_what_fits_for_sure_comes_first() -> None:
    needed = recorded(job())["stages"][1]["memory"] / GIB
    options = ("--gpu-memory", f"{needed + 1:.1f}")
    out = shown(job(), *options)
    assert line(out, "1   ").split("GiB")[1].startswith("  may fit ")
    assert "61.9 GiB, may fit  zero_optimization.stage: 1" in line(out, "1. ")
    small = recorded(job(template=selector(A100_40G)))["alternatives"]
    assert [each["fits"] for each in small] == [True, True, True, None]
    assert "39.2 GiB, may fit" in line(shown(job(template=selector(A100_40G))), "4. ")


def test_the_fastest_stage_is_chosen_among_those_that_fit_for_sure() -> None:
    needed = recorded(job())["stages"][1]["memory"] / GIB
    out = shown(job(), "--gpu-memory", f"{needed + 1:.1f}")
    assert "the fastest that fits" not in line(out, "1   ")
    assert "as written, the fastest that fits" in line(out, "2   ")


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        (job(nodes=2), (), "give --network GB/S or NAME"),
        (job(), ("--deepspeed-version", "0.18.2"), "without DeepSpeed 0.17.6 (counted: 0.15.4, 0.19.8); --deepspeed-"),
        (job(parallelism={"tensor": 2}), (), "all times are without tensor parallelism"),
    ],
    ids=["network", "version", "tensor"],
)
def test_where_no_gain_is_predicted_that_is_said_and_why(text: str, options: tuple[object, ...], why: str) -> None:
    out = shown(text, *options)
    assert why in line(out, "No advice: ")
    assert "Nothing that fits is predicted" not in out


def test_where_gains_are_predicted_and_small_that_is_said() -> None:
    best = job(dsConfig={"zero_optimization": {"stage": 1}})
    assert recorded(best)["alternatives"] == []
    assert "Nothing that fits is predicted to be 10% faster" in shown(best)


def test_a_version_that_another_one_judges_is_shown_with_it() -> None:
    other = job(deepspeedVersion="0.18.2")
    assert "DeepSpeed 0.18.2, judged as 0.17.6, ZeRO" in shown(other)
    assert (recorded(other)["declaredVersion"], recorded(other)["version"]) == ("0.18.2", "0.17.6")
    assert "DeepSpeed 0.19.8, ZeRO" in shown(job())


def test_a_version_that_nobody_declares_is_assumed() -> None:
    options = ("--parameters", "7e9")
    assert sources(recorded(json.dumps(CONFIG), *options))["DeepSpeed"] == ("0.19.8", "Assumed")
    declared = recorded(json.dumps(CONFIG), *options, "--deepspeed-version", "0.15.4")
    assert "DeepSpeed" not in sources(declared)
    assert "DeepSpeed" not in sources(recorded(job()))


@pytest.mark.parametrize(("memory", "admission"), [("40Gi", "Advise"), ("120Gi", "RequireFit"), ("200Gi", "Advise")])
def test_the_smallest_change_is_that_of_validate(memory: str, admission: str) -> None:
    """Also of a job that is refused for it: what else it could be is asked of the plan."""
    long = job(gpuMemory=memory, admission=admission, model={"sequenceLength": 4096, "attention": "Eager"})
    said = next(each["fix"] for each in findings("-", stdin=long) if "smallest change" in each["fix"])
    assert line(shown(long), "The smallest change").partition(" (--apply")[0] == said.partition(". ")[0]


def test_memory_of_the_pod_is_told_beside_its_limit() -> None:
    limited = job(dsConfig={"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})
    limited = limited.replace('{"nvidia.com/gpu": 8}', '{"nvidia.com/gpu": 8, "memory": "64Gi"}')
    pod = recorded(limited)["pod"]
    assert pod["limit"] == 64 * GIB
    assert pod["needed"] == pytest.approx(sum(pod["terms"].values()), abs=10)
    assert pod["terms"]["optimizer states, offloaded"] == pytest.approx(8 * 6_738_415_616, rel=0.01)
    assert "of its limit of 64.0 GiB, too much" in line(shown(limited), "Memory of a pod")
    assert "too much" not in line(shown(job()), "Memory of a pod")


def test_an_alternative_that_offloads_says_what_its_pod_needs() -> None:
    found = recorded(job(nodes=2, gpuMemory="40Gi"))["alternatives"]
    offloads = ["zero_optimization.offload_optimizer" in each["change"] for each in found]
    assert [each["pod"] > 80 * GIB for each in found] == offloads == [False, False, False, True]
    out = shown(job(nodes=2, gpuMemory="40Gi"))
    assert [", pod " in line(out, f"{number}. ") for number in (1, 2, 3, 4)] == offloads


def test_an_alternative_that_the_kernel_would_end_comes_after_one_that_may_fit() -> None:
    batch = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}}
    again = {"activationCheckpointing": True}
    limited = job(nodes=2, gpuMemory="24Gi", model=again, dsConfig=batch)
    limited = limited.replace('{"nvidia.com/gpu": 8}', '{"nvidia.com/gpu": 8, "memory": "64Gi"}')
    found = recorded(limited)["alternatives"]
    verdicts = [(each["fits"], each["pod"] > 64 * GIB) for each in found]
    assert verdicts == [(True, False), (None, False), (True, True)]
    assert "pod 84.7 GiB, too much" in line(shown(limited), "3. ")


def test_zero_and_accumulation_have_their_shares_of_the_gain() -> None:
    shares = recorded(job())["shares"]
    assert shares["both"] == pytest.approx(shares["accumulation"] * shares["stage"])
    accumulated = recorded(job())["stages"]
    assert shares["stage"] == accumulated[2]["samplesPerSecond"] / accumulated[0]["samplesPerSecond"]


@pytest.mark.parametrize("kernel", ["Flash", "SDPA", "Eager"])
def test_attention_is_shown_as_it_was_declared(kernel: str) -> None:
    assert sources(recorded(job(model={"attention": kernel})))["attention"] == (kernel, "Declared")


def test_a_more_precise_sum_has_a_number_and_is_written_by_it() -> None:
    many = job(dsConfig={"gradient_accumulation_steps": 16})
    found = recorded(many)["precision"]
    assert found["memory"] > recorded(many)["memory"]["needed"]
    assert found["samplesPerSecond"] > 0
    number = found["number"]
    assert 'data_types.grad_accum_dtype: "fp32"' in line(shown(many), f"{number}. ")
    written = json.loads(dsjob("plan", "-", "--apply", number, stdin=many).stdout)
    assert written["spec"]["dsConfig"]["data_types"] == {"grad_accum_dtype": "fp32"}


AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 1},
}


def test_batch_sizes_that_a_framework_fills_in_are_asked_for() -> None:
    options = ("--parameters", "7e9", "--slots", 8)
    result = dsjob("plan", "-", *options, "--micro-batch", 2, stdin=json.dumps(AUTO))
    assert (result.exit_code, result.stdout) == (1, "\n")
    assert "give --accumulation N, as the ranks will have" in result.stderr
    out = shown(json.dumps(AUTO), *options, "--micro-batch", 2, "--accumulation", 4)
    assert "micro batch 2, accumulation 4, 64 samples a step" in out
    assert "precision bf16" in line(out, "Assumed")


@pytest.mark.parametrize(
    ("options", "source", "precision"),
    [
        ((), "Assumed", "bf16"),
        (("--gpu", "V100-32G"), "Assumed", "fp16"),
        (("--precision", "fp16"), "Declared", "fp16"),
        (("--precision", "fp32"), "Declared", "fp32"),
    ],
)
def test_a_precision_that_a_framework_decides_is_assumed_in_16_bits_or_chosen(
    options: tuple[str, ...], source: str, precision: str
) -> None:
    batch = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": "auto", "gradient_accumulation_steps": 1}
    config = {**batch, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}
    given = ("--parameters", "7B", "--slots", 8, *options)
    assert f"precision {precision}" in line(shown(json.dumps(config), *given), source)


def test_a_precision_that_the_file_decides_is_not_chosen() -> None:
    fixed = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}}
    left = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": "auto"}}
    for config, words in ((fixed, "the file decides it"), (left, "leaves only bf16 to the framework")):
        result = dsjob("plan", "-", "--parameters", "7B", "--precision", "fp16", stdin=json.dumps(config))
        assert (result.exit_code, words in result.stderr) == (1, True)


def test_what_an_assumed_precision_could_make_otherwise_is_unknown() -> None:
    found = json.loads(job())
    found["spec"]["dsConfig"]["bf16"] = {"enabled": True}
    sure = recorded(json.dumps(found))["memory"]
    found["spec"]["dsConfig"]["bf16"] = {"enabled": "auto"}
    assumed = recorded(json.dumps(found))["memory"]
    assert assumed["needed"] == sure["needed"]
    tight = str(sure["needed"] / 2**30 * 1.15)
    assert recorded(json.dumps(found), "--gpu-memory", tight)["memory"]["open"][-1] == "bf16.enabled, which is auto"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG, "--micro-batch 2: the file says 4"),
        ({**AUTO, "train_batch_size": 48, "gradient_accumulation_steps": 4}, "are 64 samples, not train_batch_size 48"),
    ],
)
def test_batch_sizes_that_contradict_the_file_are_refused(config: dict[str, Any], message: str) -> None:
    options = ("--parameters", "7e9", "--slots", 8, "--micro-batch", 2)
    result = dsjob("plan", "-", *options, stdin=json.dumps(config))
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_configuration_in_a_config_map_of_the_file_is_planned() -> None:
    found = json.loads(job())
    text = json.dumps(found["spec"].pop("dsConfig"))
    found["spec"]["dsConfigFrom"] = {"configMap": "zero"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "zero"}, "data": {"ds_config.json": text}}
    documents = f"---\n{json.dumps(found)}\n---\n{json.dumps(settings)}\n"
    assert recorded(documents)["memory"]["needed"] == recorded(job())["memory"]["needed"]
