"""Quantities mean the bytes that Kubernetes takes them for."""

import pytest

from deepspeed_operator.api.quantity import bytes_of


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        (1024, 1024),
        ("1024", 1024),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5G", 1_500_000_000),
        ("16Gi", 16 * 2**30),
        ("2E", 2 * 10**18),
        ("7Ei", 7 * 2**60),
        ("16GB", None),
        ("K", None),
        ("1K", None),
        ("-1", None),
        ("", None),
    ],
)
def test_a_quantity(quantity: int | str, size: int | None) -> None:
    assert bytes_of(quantity) == size
