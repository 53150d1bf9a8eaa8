"""What all models of the API have in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """camelCase outside, snake_case inside. Unknown keys are the API server's to refuse or prune.

    What is wrong is told without the value, which may be a secret: the words go to logs and events.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, hide_input_in_errors=True)
