from itertools import product

from deepspeed_operator.controller.tokens import Tokens


def test_each_attempt_of_each_job_of_each_install_has_a_token_of_its_own() -> None:
    cases = list(product((b"one", b"two"), ("a", "b", "a/1"), (1, 2, 11)))
    tokens = {Tokens(key).of(uid, attempt) for key, uid, attempt in cases}
    assert len(tokens) == len(cases)
    assert {len(token) for token in tokens} == {64}
    assert Tokens(b"one").of("a", 1) in tokens, "nothing is remembered"
