"""The NetworkPolicy of a namespace with jobs: who may connect to their pods."""

from collections.abc import Sequence

from deepspeed_operator.api.names import JOBS_POLICY, LABEL_MANAGED_BY, OPERATOR
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.ports import FIRST, LAST


def jobs_policy(operator_namespace: str, further_ingress: Sequence[Json] = ()) -> Json:
    """Return the policy that is the same in all namespaces: jobs' pods reach each other, the operator their agents.

    `further_ingress`: rules of a NetworkPolicy that the install adds. Nothing else may be open by it: policies add up,
    and a namespace may have one that closes everything.
    """
    jobs = {"matchLabels": {LABEL_MANAGED_BY: OPERATOR}}
    from_operator = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator_namespace}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": JOBS_POLICY, "labels": {LABEL_MANAGED_BY: OPERATOR}},
        "spec": {
            "podSelector": jobs,
            "policyTypes": ["Ingress"],
            "ingress": [
                # All ports: NCCL, gloo and torch listen where the kernel chooses.
                {"from": [{"podSelector": jobs}]},
                {"from": [from_operator], "ports": [{"protocol": "TCP", "port": FIRST, "endPort": LAST}]},
                *further_ingress,
            ],
        },
    }
