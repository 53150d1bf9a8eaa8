"""What is understood of output as DeepSpeed, transformers, Megatron-LM, NeMo, tqdm, Lightning and others print it."""

import time
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
            [("TrainerLog", {"loss": "2.3026", "rate": "1.8e-05", "fraction": "0.1"})],
        ),
        (
            "{'loss': 'nan', 'grad_norm': 'nan', 'learning_rate': '0', 'epoch': '3'}",
            [("TrainerLog", {"loss": "nan", "rate": "0", "fraction": "3"})],
        ),
        (f"\r{BAR.format(step=500)}", [("ProgressBar", {"step": "500", "total": "1000"})]),
        (
            "Training:   1%|▏         | 10/1000 [00:01<",
            [("ProgressBar", {"step": "10", "total": "1000", "name": "Training"})],
        ),
        (
            "\rEpoch 1:  12%|█▏        | 120/1000 [00:10<01:20, 11.00it/s, v_num=0, val_loss=0.9, train_loss=0.501]",
            [
                (
                    "LightningBar",
                    {"epoch": "1", "step": "120", "batches": "1000", "zero": "v_num", "loss": "0.501"},
                )
            ],
        ),
    ],
)
def test_a_line_says_what_it_is_known_to(line: str, said: list[tuple[str, dict[str, Any]]]) -> None:
    assert understood(line) == said


MEGATRON = (
    " iteration      200/    5000 | consumed samples:  3200 | elapsed time per iteration (ms): 1082.6 | "
    "learning rate: 8.672E-06 | global batch size:    16 | lm loss: 8.44E+00 | loss scale: 1.0 | grad norm: 3.089 | "
)
OF_MEGATRON = {"step": "200", "total": "5000", "loss": "8.44E+00", "rate": "8.672E-06"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (MEGATRON, OF_MEGATRON),
        (f"[2025-10-11 18:11:22]{MEGATRON}", OF_MEGATRON),
        (f"3: {MEGATRON}samples per second: 91.621 |", {**OF_MEGATRON, "samples": "91.621"}),
        (f"[rank 7] {MEGATRON}", OF_MEGATRON),
        (f"[rank 7] 3: {MEGATRON}", OF_MEGATRON),
        (
            " samples/sec: 51.2 | iteration       10/      50 | elapsed time per iteration (ms): 98.5 | "
            "learning rate: 1.234E-04 | lm_loss: 7.12E+00 | number of skipped iterations:   0 |",
            {"step": "10", "total": "50", "loss": "7.12E+00", "rate": "1.234E-04", "samples": "51.2"},
        ),
        ("  train_iters ..................................... 1000", {"total": "1000"}),
        ("03/27/2024 07:07:33 - INFO - __main__ -   Total optimization steps = 1,449", {"total": "1449"}),
        (
            "[default0]:Training epoch 0, iteration 17/99 | lr: 2.699e-06 | global_batch_size: 128 | global_step: 17 | "
            "reduced_train_loss: 11.03 | train_step_timing in s: 12.64 | val_loss: 3.6",
            {"step": "17", "total": "99", "loss": "11.03", "rate": "2.699e-06"},
        ),
        (
            "11/15 18:22:07 - mmengine - INFO - Iter(train) [  10/1545]  base_lr: 1e-4 lr: 4.0002e-05  eta: 4:17:00  "
            "time: 10.0461  memory: 7529  loss: 1.8848  loss_cls: 0.07",
            {"step": "10", "total": "1545", "loss": "1.8848", "rate": "4.0002e-05"},
        ),
        (
            "{'loss': '0.3713', 'learning_rate': '3.333e-05', 'epoch': '0.08602', 'global_step/max_steps': '1/60'}",
            {"loss": "0.3713", "rate": "3.333e-05", "fraction": "0.0", "step": "1", "total": "60"},
        ),
        (
            '{"current_steps": 10, "total_steps": 93, "loss": 4.169, "lr": 2.25e-06}',
            {"step": "10", "total": "93", "loss": "4.169", "rate": "2.25e-06"},
        ),
        ("{'eval_loss': 0.5, 'epoch': 2.99, 'global_step/max_steps': '222/222'}", {"step": "222", "total": "222"}),
        (
            "step 00004/21,400 (0.02%) | loss: 8.893647 | dt: 989.44ms | tok/sec: 529,882",
            {"step": "00004", "total": "21400", "loss": "8.893647", "plain": "step"},
        ),
        (
            "Step 20/1000, lr=1.0e-4, train_loss=0.5",
            {"step": "20", "total": "1000", "loss": "0.5", "rate": "1.0e-4", "plain": "Step"},
        ),
        ("Epoch: 1 Step: 12/300 Loss: 2.184", {"loss": "2.184"}),
        (
            "step 7/100 | loss 5.234 | lr 6e-05",
            {"step": "7", "total": "100", "loss": "5.234", "rate": "6e-05", "plain": "step"},
        ),
        ("[Train] Batch 11/200 — loss: 0.5234", {"loss": "0.5234"}),
        ("[ 1,  2000] loss:  1.681", {"loss": "1.681"}),
        ("2023-08-02 00:41:19.600 | INFO | __main__:log_dist:54 - [Rank 0] Loss: nan", {"loss": "nan"}),
    ],
)
def test_a_line_of_a_trainer_says_what_it_is_known_to(line: str, said: dict[str, str]) -> None:
    together: dict[str, str] = {}
    for source, facts in understood(line):
        together.update(facts if source == "TrainerLog" else {})
    assert together == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            f"{BAR.format(step=20)[:-1]}, loss=0.5, lr=1e-05]",
            {"step": "20", "total": "1000", "loss": "0.5", "rate": "1e-05"},
        ),
        ("\x1b[32m 12%|█▏        |\x1b[0m 120/1000 [00:10<01:20, 11.00it/s]\x1b[A", {"step": "120", "total": "1000"}),
        ("[rank0]:  12%|█▏        | 120/1000 [00:10<01:20,  1.10s/it]", {"step": "120", "total": "1000"}),
        (
            "(Worker pid=31) Training Progress:  3%|▎| 4/140 [03:20<1:52:10, 49.49s/it]",
            {"step": "4", "total": "140", "name": "Training Progress"},
        ),
        ("  4% 99/2238 [1:48:23<35:43:37, 60.13s/it]", {"step": "99", "total": "2238"}),
        (
            "Steps:   1%|          | 3/500 [00:48<2:08:43, 15.54s/it, lr=7.5e-7, step_loss=0.00447]",
            {"step": "3", "total": "500", "name": "Steps", "rate": "7.5e-7", "loss": "0.00447"},
        ),
        (
            "Epoch 2/3:   1%|▏         | 8/893 [00:05<09:30, 1.55it/s, loss=14.23, causal=0.456]",
            {"epoch": "2", "epochs": "3", "step": "8", "batches": "893", "loss": "14.23"},
        ),
        (
            "Train step of epoch 0:   5%|▌         | 1/17 [00:04<01:00, 4.0s/it, gpt_loss=0.793, lr=1.25e-6]",
            {"epoch": "0", "step": "1", "batches": "17", "loss": "0.793", "rate": "1.25e-6"},
        ),
        (
            "Epoch 9:  50%|█████| 430/860 [00:05<00:00, 162.07it/s, v_num=1, train_loss_step=1.46, valid_loss=1.5]",
            {"epoch": "9", "step": "430", "batches": "860", "zero": "v_num", "loss": "1.46"},
        ),
        (
            "Epoch 1/2  ━━━━━━━━━━━━╺━━━━━━ 12/22 0:01:42 • 0:00:50 0.22it/s v_num: 0.000 train/loss_step: 0.298",
            {"epoch": "1", "last": "2", "step": "12", "batches": "22", "zero": "v_num", "loss": "0.298"},
        ),
    ],
)
def test_a_bar_says_what_it_is_known_to(line: str, said: dict[str, str]) -> None:
    ((_, facts),) = understood(line)
    assert facts == said


@pytest.mark.parametrize(
    "line", ["Epoch 2/20:", "== Epoch 1 of 3 ==", "Epoch: 0 | Step: 8", "INFO: Epoch [1/5]", "Beginning of Epoch 1/2"]
)
def test_an_epoch_of_several_is_heard_of(line: str) -> None:
    assert understood(line) == [("ProgressBar", {"epoch": "".join(filter(str.isdigit, line))[0]})]


@pytest.mark.parametrize("line", ["Beginning of Epoch 1/1", "Num Epochs = 3", "{'epoch': 1.0}", "epoch=0/micro_step=2"])
def test_a_single_epoch_is_all(line: str) -> None:
    assert understood(line) == []


def test_a_long_line_costs_little() -> None:
    begun = time.process_time()
    for filler in (" ", "-", "step 1/", "Epoch ", "5%|", "1, ", "loss "):
        assert len(list(lines.statements((filler * 8000)[:7900].encode() + b"loss% |\n"))) <= 1
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    "line",
    [
        "[rank 1]  50%|█████     | 500/1000 [00:12<00:10, 49.49it/s]",
        "Map:  12%|█▏        | 120/1000 [00:00<00:01, 900.0 examples/s]",
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:00<00:00,  9.5it/s]",
        "Validation DataLoader 0:  50%|█████     | 1/2 [00:00<00:00,  9.5it/s]",
        "{'eval_loss': 1.5, 'eval_runtime': 2.1, 'epoch': 1.0}",
        "100%|" + "x" * 9000 + "| 5/10 [",
        " 50%|█████     | 512/1024 [00:00<00:01, 9.00MB/s]",
        " 50%|█████     | 18/35 [00:00<00:00, 1027.60ex/s]",
        " 50%|█████     | 18/35 [00:00<?, ? examples/s]",
        "Eval Epoch 1/3:  50%|█████     | 10/20 [00:00<00:00, 29.87it/s, loss=0.4]",
        "Validating:  50%|█████     | 10/20 [00:00<00:00, 29.87it/s, loss=0.4]",
        "Test set: Average loss: 0.0506, Accuracy: 9850/10000 (98.50%)",
        "Validation - Loss: 0.156",
        "step 10/10 | val loss: 0.31",
        "Best loss: 0.12 at step 30",
        "Epoch: 0 | Step: 8 | PPO Epoch: 1 | Actor Loss: 0.0108 | Critic Loss: 0.02".replace("Epoch: 0 | ", ""),
        "Rank 0 Skipping step. Attempted loss scale: 8388608, reducing to 4194304",
        "compile({'loss': 'mean_squared_error', 'metrics': ['accuracy']})",
        "  retro_cyclic_train_iters ........................ None",
        " validation loss at iteration 311 on validation set | lm loss value: 7.9E+00 | lm loss PPL: 2.6E+03 |",
        "[rank 3] {'loss': 2.3026, 'learning_rate': 1.8e-05, 'epoch': 0.1}",
    ],
)
def test_other_lines_say_nothing_of_the_training(line: str) -> None:
    assert understood(line) == []


def test_of_a_bar_that_was_drawn_again_and_again_the_last_state_counts() -> None:
    drawn = "".join(f"\r{BAR.format(step=step)}" for step in range(500, 530))
    assert understood(f"{drawn}\n") == [("ProgressBar", {"step": str(step), "total": "1000"}) for step in (528, 529)]


def test_of_the_end_of_a_training_its_mean_loss_is_not_told() -> None:
    assert understood("{'train_runtime': 10.1, 'train_loss': 0.5, 'epoch': 1.0}") == [
        ("TrainerLog", {"end": "'train_runtime'"})
    ]


def test_what_is_printed_over_a_bar_is_seen() -> None:
    text = f"\r{BAR.format(step=500)}{ERASED}{{'loss': '0.31', 'epoch': '0.5'}}\n\r{BAR.format(step=500)}"
    assert ("TrainerLog", {"loss": "0.31", "fraction": "0.5"}) in understood(text)
