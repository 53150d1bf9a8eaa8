"""The NetworkPolicy of a namespace with jobs: who may connect to their pods on our ports and those of the ranks."""

from typing import Final

from deepspeed_operator.api.names import JOBS_POLICY, LABEL_MANAGED_BY, OPERATOR
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.ports import FIRST

# NCCL, gloo and torch listen on ports that the kernel chooses, which are above ours.
_LAST: Final = 65535


def jobs_policy(operator_namespace: str) -> Json:
    """Return the policy that is the same for all jobs of a namespace.

    Ports below ours stay open to everybody: a job's own services, such as TensorBoard or Ray's dashboard, are there.
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
                {"from": [{"podSelector": jobs}]},
                {"from": [from_operator], "ports": [_range(FIRST, _LAST)]},
                {"ports": [_range(1, FIRST - 1), _range(1, FIRST - 1, "UDP")]},
            ],
        },
    }


def _range(first: int, last: int, protocol: str = "TCP") -> Json:
    return {"protocol": protocol, "port": first, "endPort": last}
