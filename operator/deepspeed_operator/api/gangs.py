"""Which scheduler places the pods of an attempt together or not at all."""

from enum import StrEnum


class GangScheduling(StrEnum):
    """Whose PodGroup an attempt has."""

    AUTO = "Auto"
    NONE = "None"
    VOLCANO = "Volcano"
    COSCHEDULING = "Coscheduling"
    KAI = "KAI"


GANG_SCHEDULERS = (GangScheduling.VOLCANO, GangScheduling.COSCHEDULING, GangScheduling.KAI)
