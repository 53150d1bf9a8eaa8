"""Which run of a job has ended, as an annotation says: what a backup keeps of a job that it restores without status."""

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN, NAME_MAX_LENGTH
from deepspeed_operator.api.untyped import Json, object_at

_LONGEST: Final = 1024  # characters; ours have fewer than 300


def _of_the_operator(annotations: object) -> Json:
    """Keep the annotation that is read, unless it is too long to be ours: a job may have many more."""
    text = object_at(annotations).get(ANNOTATION_ENDED_RUN)
    return {ANNOTATION_ENDED_RUN: text} if isinstance(text, str) and len(text) <= _LONGEST else {}


OperatorAnnotations = Annotated[dict[str, str], BeforeValidator(_of_the_operator)]


class EndedRun(ApiModel):
    """A run that came to its end.

    `job` is the name of the job that it was a run of, and neither its uid, which no restore keeps, nor its namespace,
    which a restore may map to another one: a job of another name that was made from this one's YAML is another job.
    """

    job: str = Field(max_length=NAME_MAX_LENGTH)
    run_id: str = Field(max_length=64)
    outcome: Literal["Complete", "Failed"]
    time: str = Field(max_length=64, pattern=r"^[0-9TZ:.+-]+$")
    reason: str | None = Field(default=None, max_length=256)  # why it failed

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return what the annotation says; None where it says nothing that the operator would write."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    @property
    def text(self) -> str:
        """The annotation's value."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    def is_of(self, job: str, run_id: str) -> bool:
        """Whether this is the run of this id of a job of this name."""
        return (self.job, self.run_id) == (job, run_id)
