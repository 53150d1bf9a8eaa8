"""What is told of a round's progress, by whom, and when it will be done."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.harness import load

progress = load("dso_progress")


def told(made: Any, now: float) -> dict[str, Any]:
    state = made.state(now)
    assert state is not None
    assert len(json.dumps(state)) < 400
    return state


def rank(step: int, at: float, seconds: tuple[float, ...] = ()) -> Any:
    of_steps = {"step": step, "at": at, "seconds": seconds, "taken": 1, "first": at, "saving": 0.0, "saved": 0.0}
    return SimpleNamespace(rank=0, rate=0.001, samples=8, save=None, **of_steps)


@pytest.fixture
def made() -> Any:
    return progress.Progress(list)


def test_nothing_is_told_before_anybody_has_spoken(made: Any) -> None:
    assert made.state(1.0) is None


def test_the_time_left_follows_from_the_steps_of_this_round_also_after_a_resume(made: Any) -> None:
    # Of a run that goes on at step 500 of 1000: 2 s a step.
    for number in range(11):
        made.take("KubeflowCallback", {"step": 500 + number, "total": 1000}, 100.0 + 2 * number)
    state = told(made, 121.0)
    assert (state["source"], state["step"], state["totalSteps"]) == ("KubeflowCallback", 510, 1000)
    assert state["secondsLeft"] == 2 * 490 - 1
    assert state["secondsSinceUpdate"] == 1
    assert state["stepSeconds"] == {"median": 2, "p95": 2}


def test_where_nothing_else_is_heard_checkpoints_tell_of_steps_but_of_no_pace(made: Any) -> None:
    made.take("Checkpoint", {"step": 100}, 10.0)
    made.take("Checkpoint", {"step": 200}, 210.0)
    made.take("Checkpoint", {"step": 200}, 260.0)
    state = told(made, 260.0)
    assert (state["source"], state["step"], state["secondsSinceUpdate"]) == ("Checkpoint", 200, 50)
    made.look()
    assert made.last_step is None
    assert made.told_steps().at is None
    made.take("TrainerLog", {"step": 240}, 270.0)
    assert told(made, 270.0)["source"] == "TrainerLog"


def test_what_a_resume_skips_is_no_speed(made: Any) -> None:
    # The Trainer's bar begins at 0, and jumps to where the run goes on.
    for at, step in ((0.0, 0), (1.0, 500), (3.0, 501), (5.0, 502)):
        made.take("ProgressBar", {"step": step, "total": 1000}, at)
    assert told(made, 5.0)["secondsLeft"] == 2 * 498


def test_a_first_step_that_takes_long_is_no_speed(made: Any) -> None:
    for at, step in ((0.0, 1), (600.0, 2), (601.0, 3), (602.0, 4)):
        made.take("Script", {"step": step, "total": 104}, at)
    assert told(made, 602.0)["secondsLeft"] == 100


def test_a_message_that_lacks_something_leaves_that_as_it_was(made: Any) -> None:
    made.take("KubeflowCallback", {"total": "1000"}, 0.0)
    made.take("KubeflowCallback", {"step": "500", "loss": "0.31", "rate": "1e-05"}, 1.0)
    made.take("KubeflowCallback", {"loss": "0.30"}, 2.0)
    state = told(made, 2.0)
    assert (state["step"], state["totalSteps"]) == (500, 1000)
    assert (state["loss"], state["learningRate"]) == ("0.3", 1e-05)


def test_a_loss_that_is_no_number_is_told(made: Any) -> None:
    made.take("Script", {"step": 3, "loss": math.nan, "rate": math.inf}, 0.0)
    state = told(made, 0.0)
    assert (state["loss"], state["learningRate"]) == ("nan", None)


@pytest.mark.parametrize("value", [True, "ten", None, [1], {"a": 1}, "1" * 400, -5, math.nan])
def test_what_is_no_count_is_none(made: Any, value: object) -> None:
    made.take("Script", {"step": value, "total": value, "tokens": 5}, 0.0)
    state = told(made, 0.0)
    assert (state["step"], state["totalSteps"], state["secondsLeft"]) == (None, None, None)


def test_the_most_trusted_that_tells_a_step_is_named(made: Any) -> None:
    said: list[str] = []
    for source in ("TrainerLog", "ProgressBar", "DeepSpeedLog", "DeepSpeedEngine", "KubeflowCallback", "Script"):
        facts = {"loss": 1.0} if source == "TrainerLog" else {"step": 7}
        made.take(source, facts, 1.0)
        said.append(told(made, 1.0)["source"])
    assert said[1:] == ["ProgressBar", "DeepSpeedLog", "DeepSpeedEngine", "KubeflowCallback", "Script"]
    assert said[0] == "TrainerLog"


def test_a_bar_of_the_same_steps_tells_how_many_there_will_be() -> None:
    made = progress.Progress(lambda: [rank(120, 10.0)])
    made.look()
    made.take_output(b"\r 12%|#1        | 119/1000 [00:12<\n")
    state = told(made, 10.0)
    assert (state["source"], state["step"], state["totalSteps"]) == ("DeepSpeedEngine", 120, 1000)


def test_of_a_callback_that_speaks_every_few_seconds_the_engine_tells_the_latest_step() -> None:
    made = progress.Progress(lambda: [rank(1000, 12.0)])
    for at, step in ((0.0, 970), (5.0, 980), (10.0, 990)):
        made.take("KubeflowCallback", {"step": step, "total": 1000}, at)
    made.look()
    state = told(made, 12.0)
    assert (state["source"], state["step"], state["secondsLeft"]) == ("KubeflowCallback", 1000, 0)


def test_so_it_does_for_a_run_of_a_few_steps_of_which_the_callback_told_the_last_too_early() -> None:
    ranks = [rank(28, 10.0)]
    made = progress.Progress(lambda: ranks)
    made.look()
    made.take("KubeflowCallback", {"step": 28, "total": 32}, 10.1)
    ranks[0] = rank(32, 11.0)
    made.look()
    state = told(made, 11.0)
    assert (state["source"], state["step"], state["totalSteps"]) == ("KubeflowCallback", 32, 32)


def test_a_program_that_counts_other_steps_than_its_engine_is_believed() -> None:
    ranks = [rank(7, 10.0)]
    made = progress.Progress(lambda: ranks)
    made.look()
    made.take("Script", {"step": 28, "totalSteps": 32}, 10.1)
    ranks[0] = rank(40, 11.0)
    made.look()
    assert told(made, 11.0)["step"] == 28


def test_a_bar_of_something_else_tells_nothing_of_it() -> None:
    made = progress.Progress(lambda: [rank(120, 10.0)])
    made.look()
    made.take_output(b"\r 12%|#1        | 960/8000 [00:12<\n")
    assert told(made, 10.0)["totalSteps"] is None


def test_a_bar_that_has_not_ended_its_line_is_seen() -> None:
    made = progress.Progress(list)
    made.look(b"\r  1%|          | 10/1000 [00:01<\r  2%|2         | 20/1000 [00:02<01:38, 10.0it/s, loss=0.5]")
    assert told(made, 1e9)["step"] == 20


def test_engines_tell_times_of_steps_and_samples_a_second() -> None:
    made = progress.Progress(lambda: [rank(40, 10.0, (0.5,) * 19 + (5.0,))])
    made.look()
    state = told(made, 10.0)
    assert state["stepSeconds"] == {"median": 0.5, "p95": 0.5}
    assert state["samplesPerSecond"] == pytest.approx(8 / 0.725, rel=1e-3)
    assert state["learningRate"] == 0.001


def test_a_rank_that_is_a_little_behind_takes_nothing_back(made: Any) -> None:
    for step in (100, 99, 101, 100):
        made.take("ProgressBar", {"step": step, "total": 1000}, float(step))
    assert told(made, 101.0)["step"] == 101


def test_another_training_of_the_same_program_begins_anew(made: Any) -> None:
    for number in range(1, 101):
        made.take("Script", {"step": number, "total": 100}, float(number))
    for number in range(1, 11):
        made.take("Script", {"step": number, "total": 50}, 200.0 + 4 * number)
    state = told(made, 240.0)
    assert (state["step"], state["totalSteps"], state["secondsLeft"]) == (10, 50, 160)


def test_in_lightning_the_batches_of_all_epochs_count(made: Any) -> None:
    made.take_output(b"\rEpoch 2:  12%|#2        | 120/1000 [00:10<01:20, 11.00it/s, v_num=0, train_loss=0.501]\n")
    state = told(made, 1e9)
    assert (state["source"], state["step"], state["loss"]) == ("LightningBar", 2120, "0.501")


def drawn(*bars: str, made: Any = None) -> dict[str, Any] | None:
    """The state after so many lines, of which `5/20` stands for a bar without a name."""
    made = made or progress.Progress(list)
    for bar in bars:
        made.take_output((f"\r 10%|#   | {bar} [00:10<01:20, 11.0it/s]\n" if bar[0].isdigit() else f"{bar}\n").encode())
    state = made.state(1e9)
    return state and {key: state[key] for key in ("step", "totalSteps", "loss")}


LOSS = "{'loss': 0.31, 'learning_rate': 1e-05, 'epoch': 0.5}"


def test_a_bar_before_the_training_is_none_of_it() -> None:
    assert drawn("1000/5000") is None
    assert drawn("1000/5000", "10/200", LOSS, "20/200") == {"step": 20, "totalSteps": 200, "loss": "0.31"}


def test_a_bar_of_an_evaluation_is_not_the_trainings() -> None:
    at_500 = {"step": 500, "totalSteps": 1000, "loss": "0.31"}
    assert drawn("490/1000", LOSS, "500/1000", "5/25", "25/25", "5/25") == at_500
    assert drawn("490/1000", LOSS, "500/1000", "{'train_runtime': 271.7, 'epoch': 3.0}", "5/25", "9/25") == at_500


def test_with_an_engine_the_bar_that_counts_its_steps_is_the_trainings() -> None:
    made = progress.Progress(lambda: [rank(1000, 10.0)])
    made.look()
    assert drawn("5000/5000", "1000/1000", "5/25", made=made) == {"step": 1000, "totalSteps": 1000, "loss": None}


def test_a_bar_of_micro_steps_is_none_of_steps_from_the_first_on() -> None:
    ranks: list[Any] = []
    made = progress.Progress(lambda: ranks)
    for step in range(1, 5):
        ranks[:] = [rank(step, float(step))]
        made.look(f"\r 1%|   | {2 * step}/2000 [00:10<01:20, 11.0it/s, loss=0.5]".encode())
        made.look()
        state = told(made, 5.0)
        assert (state["step"], state["totalSteps"], state["loss"]) == (step, None, "0.5")


def test_a_total_that_is_told_before_the_steps_is_the_engines() -> None:
    made = progress.Progress(lambda: [rank(1, 10.0)])
    made.look()
    assert drawn("  Total optimization steps = 1,449", made=made) == {"step": 1, "totalSteps": 1449, "loss": None}


def test_a_bar_for_each_epoch_does_not_end_the_run_again() -> None:
    bars = [f"Training: 10%|#  | {step}/36 [00:10<00:20, 1.0it/s, loss=0.5]" for step in (35, 36, 1, 18)]
    assert drawn(*bars) == {"step": 54, "totalSteps": None, "loss": "0.5"}


@pytest.mark.parametrize(
    ("announced", "bar", "total"),
    [
        ("Epoch 1/20:", "Training", None),
        ("Epoch 1/1:", "Training", 36),
        ("Epoch 1/20:", "steps", 36),
        (f"Epoch 1/20:\n{LOSS}", "Training", 36),
    ],
    ids=["one epoch of several", "a single epoch", "steps of all", "a Trainer's of all epochs"],
)
def test_where_there_are_several_epochs_a_bar_may_be_of_one(announced: str, bar: str, total: int | None) -> None:
    state = drawn(announced, f"{bar}: 10%|#  | 18/36 [00:10<00:20, 1.0it/s, loss=0.5]")
    assert state is not None
    assert (state["step"], state["totalSteps"]) == (18, total)


def test_steps_of_one_epoch_of_several_are_no_total() -> None:
    assert drawn("Epoch 2/20", "Step 5/100, Loss: 0.5") == {"step": None, "totalSteps": None, "loss": "0.5"}
    assert drawn("Step 5/100, Loss: 0.5") == {"step": 5, "totalSteps": 100, "loss": "0.5"}


@pytest.mark.parametrize(
    ("names", "step", "total"),
    [
        (["Epoch 1/3"], 8, 300),
        (["Epoch 2/3"], 108, 300),
        (["Epoch 0/3", "Epoch 1/3"], 108, None),
        (["Epoch 1", "Epoch 2"], 108, None),
        (["Epoch 0", "Epoch 1"], 108, None),
        (["Epoch 4/3"], 308, None),
    ],
)
def test_bars_of_epochs_count_from_0_or_1(names: list[str], step: int, total: int | None) -> None:
    state = drawn(*(f"{name}:  8%|#  | 8/100 [00:05<09:30, 1.55it/s]" for name in names))
    assert state is not None
    assert (state["step"], state["totalSteps"]) == (step, total)


def test_a_rich_bar_of_lightning_names_the_last_epoch() -> None:
    bar = "Epoch 1/2  ━━━━╺━━━ 12/22 0:01:42 • 0:00:50 0.22it/s v_num: 0.000 train_loss: 0.298"
    assert drawn(bar) == {"step": 34, "totalSteps": 66, "loss": "0.298"}


@pytest.mark.parametrize("line", ["5/{0} [00:10<01:20, 1.0it/s]", "Epoch {0}:   1%|# | 5/{0} [00:10<01:20, 1.0it/s]"])
def test_a_number_of_any_length_does_no_harm(line: str) -> None:
    assert (drawn(line.format("9" * 5000)) or {}).get("totalSteps") is None


def test_many_bars_are_not_all_kept() -> None:
    made = progress.Progress(list)
    drawn("5/300", LOSS, "6/300", *(f"1/{total}" for total in range(1000, 1100)), made=made)
    assert len(made.bars.bars) < 20
    assert drawn(made=made) == {"step": 6, "totalSteps": 300, "loss": "0.31"}


def complete(source: str, step: int, engine: int | None, taken: int = 1) -> bool:
    """Whether the ranks have made all steps where this source is at its end and the engine is there."""
    of_engine = [] if engine is None else [rank(engine, 10.0)]
    for each in of_engine:
        each.taken = taken
    made = progress.Progress(lambda: of_engine)
    if source == "ProgressBar":
        made.take_output(f"\r100%|###| {step}/{step} [00:12<00:00, 9.9it/s, loss=0.5]\n".encode())
    else:
        made.take(source, {"step": step, "total": step}, 5.0)
    made.look()
    return made.told_steps().complete


def test_a_bar_over_files_before_the_training_does_not_end_it() -> None:
    assert not complete("ProgressBar", 5000, engine=40)


@pytest.mark.parametrize(
    ("source", "step", "engine", "taken"),
    [("ProgressBar", 100, 100, 100), ("ProgressBar", 500, 1000, 500), ("Script", 10, 1000, 1000)],
    ids=["the engine's own steps", "those since a resume", "the program's own word"],
)
def test_who_counts_the_steps_of_the_training_tells_its_end(source: str, step: int, engine: int, taken: int) -> None:
    assert complete(source, step, engine, taken)


def test_without_an_engine_the_most_trusted_tells_it() -> None:
    assert complete("ProgressBar", 100, engine=None)
    made = progress.Progress(list)
    made.take("ProgressBar", {"step": 5000, "total": 5000}, 5.0)
    made.take("Script", {"step": 3, "total": 100}, 6.0)
    assert not made.told_steps().complete
