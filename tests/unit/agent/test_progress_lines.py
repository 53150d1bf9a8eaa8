"""What is understood of output as DeepSpeed 0.19.8, transformers 4 and 5, tqdm and Lightning 2.6 print it."""

from typing import Any

import pytest

from tests.unit.agent.harness import load

lines = load("dso_progresslines")
BAR = " 50%|█████     | {step}/1000 [00:12<00:10, 49.49it/s]"
ERASED = "\r" + " " * 70 + "\r"


def understood(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(each.source, dict(each.facts)) for each in lines.statements(text.encode())]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "[2026-11-30 09:00:01,123] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=2, "
            "lr=[0.001, 0.001], mom=[(0.9, 0.999)]",
            [("DeepSpeedLog", {"step": "10", "rate": "0.001"})],
        ),
        (
            "[2026-11-30 09:00:01,123] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/global_step=10, "
            "RunningAvgSamplesPerSec=123.4567, CurrSamplesPerSec=120.2, MemAllocated=0.1GB, MaxMemAllocated=0.2GB",
            [("DeepSpeedLog", {"step": "10", "samples": "123.4567"})],
        ),
        (
            "steps: 30 loss: 0.6931 iter time (s): 0.123 samples/sec: 65.041",
            [("DeepSpeedLog", {"step": "30", "loss": "0.6931", "samples": "65.041"})],
        ),
        (
            "{'loss': 2.3026, 'grad_norm': 0.51, 'learning_rate': 1.8e-05, 'epoch': 0.1}",
            [("TrainerLog", {"loss": "2.3026"}), ("TrainerLog", {"rate": "1.8e-05"})],
        ),
        (
            "{'loss': 'nan', 'grad_norm': 'nan', 'learning_rate': '0', 'epoch': '3'}",
            [("TrainerLog", {"loss": "nan"}), ("TrainerLog", {"rate": "0"})],
        ),
        (f"\r{BAR.format(step=500)}", [("ProgressBar", {"step": "500", "total": "1000"})]),
        ("Training:   1%|▏         | 10/1000 [00:01<", [("ProgressBar", {"step": "10", "total": "1000"})]),
        (
            "\rEpoch 1:  12%|█▏        | 120/1000 [00:10<01:20, 11.00it/s, v_num=0, val_loss=0.9, train_loss=0.501]",
            [
                ("LightningBar", {"epoch": "1", "step": "120", "batches": "1000"}),
                ("LightningBar", {"loss": "0.501"}),
            ],
        ),
    ],
)
def test_a_line_says_what_it_is_known_to(line: str, said: list[tuple[str, dict[str, Any]]]) -> None:
    assert understood(line) == said


@pytest.mark.parametrize(
    "line",
    [
        "[rank 1]  50%|█████     | 500/1000 [00:12<00:10, 49.49it/s]",
        "Map:  12%|█▏        | 120/1000 [00:00<00:01, 900.0 examples/s]",
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:00<00:00,  9.5it/s]",
        "Validation DataLoader 0:  50%|█████     | 1/2 [00:00<00:00,  9.5it/s]",
        "{'eval_loss': 1.5, 'eval_runtime': 2.1, 'epoch': 1.0}",
        "{'train_runtime': 10.1, 'train_loss': 0.5, 'epoch': 1.0}",
        "100%|" + "x" * 3000 + "| 5/10 [",
    ],
)
def test_other_lines_say_nothing_of_the_training(line: str) -> None:
    assert understood(line) == []


def test_of_a_bar_that_was_drawn_again_and_again_the_last_state_counts() -> None:
    drawn = "".join(f"\r{BAR.format(step=step)}" for step in range(500, 530))
    assert understood(f"{drawn}\n") == [("ProgressBar", {"step": str(step), "total": "1000"}) for step in (528, 529)]


def test_what_is_printed_over_a_bar_is_seen() -> None:
    text = f"\r{BAR.format(step=500)}{ERASED}{{'loss': '0.31', 'epoch': '0.5'}}\n\r{BAR.format(step=500)}"
    assert ("TrainerLog", {"loss": "0.31"}) in understood(text)


def test_the_bar_of_an_evaluation_is_not_the_trainings() -> None:
    bars = lines.Bars()
    assert bars.counts(500, 1000)
    assert not bars.counts(5, 20)
    assert not bars.counts(20, 20)
    assert bars.counts(501, 1000)


def test_a_bar_that_has_ended_leaves_its_place_to_the_next() -> None:
    bars = lines.Bars()
    assert bars.counts(20, 20)
    assert bars.counts(0, 1000)
