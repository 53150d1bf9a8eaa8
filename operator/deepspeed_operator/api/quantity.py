"""Kubernetes quantities of bytes."""

import re
from decimal import Decimal
from typing import Final

QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?([EPTGM]i?|Ki|k)?$"
_PREFIXES: Final = "kMGTPE"


def bytes_of(quantity: int | str) -> int | None:
    """Return the bytes that a quantity such as 16Gi, or a plain number, stands for; None if it is none."""
    text = str(quantity)
    if re.fullmatch(QUANTITY_PATTERN, text) is None:
        return None
    number = text.rstrip("kKMGTPEi")
    unit = text[len(number) :].replace("K", "k")
    power = _PREFIXES.index(unit[0]) + 1 if unit else 0
    return round(Decimal(number) * (1024 if unit.endswith("i") else 1000) ** power)
