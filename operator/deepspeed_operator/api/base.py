"""What all models of the API have in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """camelCase outside, snake_case inside. Unknown keys are the API server's to refuse or prune."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)
