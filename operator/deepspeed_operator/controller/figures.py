"""The numbers of a job that Prometheus is told."""

from dataclasses import dataclass

from deepspeed_operator.api.progress import Progress
from deepspeed_operator.api.status import DeepSpeedJobStatus


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Of a job that is at work; None for what is not known."""

    step: int | None
    loss: float | None
    tokens_per_second: float | None
    goodput_ratio: float | None
    ettr_ratio: float | None
    productive_seconds: float | None


def figures_of(status: DeepSpeedJobStatus) -> JobFigures:
    """Return what a job's series show: None for what is not known."""
    progress, goodput = status.progress, status.goodput
    percent = goodput.percent if goodput is not None else None
    ettr = goodput.ettr_percent if goodput is not None else None
    return JobFigures(
        step=progress.step if progress is not None else None,
        loss=_loss(progress),
        tokens_per_second=progress.tokens_per_second if progress is not None else None,
        goodput_ratio=percent / 100 if percent is not None else None,
        ettr_ratio=ettr / 100 if ettr is not None else None,
        productive_seconds=goodput.seconds.productive if goodput is not None else None,
    )


def _loss(progress: Progress | None) -> float | None:
    try:
        return float(progress.loss) if progress is not None and progress.loss is not None else None
    except ValueError:
        return None
