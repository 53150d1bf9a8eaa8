"""The operator is newer than the CRD, which drops what it does not know of a status."""

import time
from collections.abc import Iterator

import pytest

from dev.cluster.cluster import Cluster
from tests.faults.jobs import ONCE, Jobs
from tests.faults.proxy import Proxy
from tests.faults.replica import Replica
from tests.faults.simulated import ROOT

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deepspeedjobs.deepspeed-operator.dev"
STATUS = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties"
UNKNOWN = ("observedGeneration", "workers")

pytestmark = pytest.mark.disrupts


@pytest.fixture
def older_crd(simulated: Cluster) -> Iterator[None]:
    removals = [{"op": "remove", "path": f"{STATUS}/{field}"} for field in UNKNOWN]
    simulated.api.request("PATCH", CRD, removals, patch="json")
    time.sleep(3)  # until it is served by
    yield
    simulated.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    time.sleep(3)


@pytest.mark.usefixtures("older_crd")
def test_what_an_older_crd_drops_is_said_once_and_not_written_again_and_again(
    replica: Replica, jobs: Jobs, proxy: Proxy
) -> None:
    replica.start()
    jobs.apply()
    replica.eventually(jobs.running, 20)
    written = proxy.settled_writes()
    assert not set(UNKNOWN) & set(jobs.status())
    assert len([write for write in written if write not in ONCE]) <= 2 + 7
    for number in range(3):
        jobs.annotate(touched=str(number))
        time.sleep(1)
    assert proxy.settled_writes() == written
    assert replica.log.count("The CRD is older than this operator") == 1
    assert "drops status.observedGeneration, workers" in replica.log
    assert replica.metric("deepspeed_operator_status_pruned_total") > 0
