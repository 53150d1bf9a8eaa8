"""What the NetworkPolicy of jobs opens: policies add up, so that whatever it allows is open."""

from deepspeed_operator.api.untyped import Json
from deepspeed_operator.render.network_policy import jobs_policy


def test_nobody_but_jobs_and_the_operator_is_let_in() -> None:
    jobs, operator = jobs_policy("ops")["spec"]["ingress"]
    assert jobs == {"from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "deepspeed-operator"}}}]}
    assert operator["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}}]
    assert operator["ports"] == [{"protocol": "TCP", "port": 20000, "endPort": 29999}]


def test_the_install_lets_others_in() -> None:
    scraper: Json = {"from": [{"namespaceSelector": {}}], "ports": [{"port": 9400}]}
    assert jobs_policy("ops", [scraper])["spec"]["ingress"][2:] == [scraper]
