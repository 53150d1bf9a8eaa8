"""Whether a failure is a cause or the symptom of another rank's, and what it calls the lost one."""

from collections.abc import Callable

import pytest

from tests.unit.agent.harness import Gang, launch_of, load

symptom, address, hub = load("dso_symptom"), load("dso_address"), load("dso_hub")
reasons = load("dso_reason")
Make = Callable[..., Gang]

SYMPTOMS = [
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "RuntimeError: [../gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.233.87.118]:43139",
    "RuntimeError: [../gloo/gloo/transport/tcp/pair.cc:589] Read error [192.168.70.92]:25266: Connection reset",
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for "
    "recv operation to complete",
    "RuntimeError: Application timeout caused pair closure",
    "RuntimeError: Broken pipe",
    "RuntimeError: Socket Timeout",
    "torch.distributed.DistBackendError: NCCL error in: ../c10d/ProcessGroupNCCL.cpp:1691, remote "
    "process exited or there was a network error, NCCL version 2.19.3",
    "torch.distributed.DistBackendError: NCCL error in: /c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL version "
    "2.14.3: Net : Connection closed by remote peer 10.0.0.7<50260>",
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
    "c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to a",
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0/rank_0",
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
    "the bandwidth preflight failed: RuntimeError: Connection reset by peer",
]
CAUSES = [
    "KeyError: 'peer_id'",
    "ValueError: connection closed",
    "KeyError: 'Connection reset by peer'",
    "AssertionError: broken pipe layout",
    "RuntimeError: CUDA error: peer access is not supported between these two devices",
    "RuntimeError: peer-to-peer is off",
    "RuntimeError: the remote process pool is empty",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1331, unhandled cuda error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.18.1",
    "torch.distributed.DistBackendError: NCCL error in: Proc.cpp:1331, invalid usage, NCCL version 2.18.1: "
    "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address.",
    "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('closed without response'))",
    'train.py: error: unrecognized arguments: "--peer"',
    '"Connection reset by peer"',
    "",
]


def cause(text: str, **more: object) -> dict[str, object]:
    killed = more.get("signal")
    found = reasons.finding(-killed if isinstance(killed, int) else 1, text, text, False)
    reason = "PreflightFailed" if text.startswith("the bandwidth") else found.reason
    return {"reason": reason, "signature": text, "rank": 0, "signal": None, "exitCode": 1, **more}


@pytest.mark.parametrize("text", SYMPTOMS)
def test_a_rank_that_lost_another_one(text: str) -> None:
    assert symptom.symptom(cause(text))


@pytest.mark.parametrize("text", CAUSES)
def test_a_rank_that_failed_by_itself(text: str) -> None:
    assert not symptom.symptom(cause(text))


def test_a_watchdogs_abort_is_a_symptom_and_another_abort_is_none() -> None:
    timeout = (
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: [Rank 3] "
    )
    timeout += "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)"
    assert symptom.symptom(cause(timeout, signal=6, exitCode=None))
    assert not symptom.symptom(cause("no more memory", signal=6, exitCode=None))
    assert not symptom.symptom(cause("Fatal Python error: Segmentation fault", signal=11, exitCode=None))


PODS = [("rank 0 in pod a-1-0", "n0", ["10.0.0.6", "fd00::6"]), ("rank 1 in pod a-1-1", "n1", ["10.0.0.7", "fd00::7"])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Connection closed by peer [10.0.0.7]:43139", "Connection closed by peer (rank 1 in pod a-1-1)"),
        ("Connection reset by peer [10.0.0.7]", "Connection reset by peer (rank 1 in pod a-1-1)"),
        ("closed by remote peer 10.0.0.7<50260>", "closed by remote peer rank 1 in pod a-1-1"),
        ("peer fd00:0:0::7%eth0<50260> is gone", "peer rank 1 in pod a-1-1 is gone"),
        ("remote=[::ffff:10.0.0.6]:29500): Broken pipe", "remote=(rank 0 in pod a-1-0)): Broken pipe"),
        ("remote=[fd00::6]:29500", "remote=(rank 0 in pod a-1-0)"),
        ("connect to (10.0.0.6, 29500)", "connect to (rank 0 in pod a-1-0, 29500)"),
        ("connect to 10.0.0.6:29500 failed", "connect to rank 0 in pod a-1-0 failed"),
        ("10.0.0.77 at 12:34:56, std::runtime_error", "10.0.0.77 at 12:34:56, std::runtime_error"),
    ],
)
def test_an_address_becomes_its_pod(text: str, expected: str) -> None:
    assert address.name_addresses(text, address.owners(PODS)) == expected


def test_an_address_that_pods_share_is_their_nodes_or_nobodys() -> None:
    pods = [
        ("rank 0", "n0", ["10.0.0.6", "172.17.0.1"]),
        ("rank 1", "n0", ["10.0.0.6"]),
        ("rank 2", "n1", ["172.17.0.1"]),
    ]
    assert address.owners(pods) == {"10.0.0.6": "node n0"}


def test_this_machines_addresses_are_found_and_the_loopbacks_are_not() -> None:
    found = address.own_addresses()
    assert all(address.canonical(each) == each for each in found)
    assert not {"127.0.0.1", "::1"} & set(found)


def test_the_hub_names_a_lost_pod_by_its_address() -> None:
    gang = hub.Hub(launch_of(2), 0.0)
    body = {"protocol": 3, "uid": "job-uid", "attempt": 1, "round": 1, "phase": "Waiting", "stopSeconds": 0.0}
    body |= {"replacement": 0, "fenced": False, "hang": 0, "evidence": None}
    body |= dict.fromkeys(
        ("transport", "cause", "ago", "left", "stepped", "stuck", "world", "ranks", "ahead", "endings", "pace")
    )
    for index in (0, 1):
        own: dict[str, object] = {"index": index, "pod": f"a-1-{index}", "podUid": f"p{index}", "node": f"n{index}"}
        own["addresses"] = [f"10.0.0.{index + 6}"]
        assert gang.heartbeat({**body, **own}, 0.1)[0] == 200
    gang.heartbeat({**body, **own, "cause": cause(SYMPTOMS[2].replace("10.233.87.118", "10.0.0.6"))}, 0.2)
    gang.check(9)
    assert gang.round.cause["signature"].endswith("Connection closed by peer (rank 0 in pod a-1-0)")


def test_of_symptoms_the_weakest_and_then_the_first_by_the_hubs_clock_is_the_cause() -> None:
    gang = hub.Hub(launch_of(3), 0.0)
    body: dict[str, object] = {"protocol": 3, "uid": "job-uid", "attempt": 1, "round": 1, "phase": "Waiting"}
    body |= {"addresses": [], "stopSeconds": 0.0}
    body |= {"replacement": 0, "fenced": False, "hang": 0, "evidence": None}
    body |= dict.fromkeys(
        ("transport", "cause", "ago", "left", "stepped", "stuck", "world", "ranks", "ahead", "endings", "pace")
    )
    pods = [{"index": at, "pod": f"a-1-{at}", "podUid": f"p{at}", "node": f"n{at}"} for at in range(3)]
    for own in pods:
        gang.heartbeat({**body, **own}, 0.1)
    lost = cause(SYMPTOMS[2])
    gang.heartbeat({**body, **pods[0], "cause": {**lost, "rank": 0}, "ago": 0.1}, 1.0)
    gang.heartbeat({**body, **pods[1], "cause": {**lost, "rank": 1}, "ago": 0.9}, 1.1)
    assert gang.round.suspect["rank"] == 1
    gang.heartbeat({**body, **pods[2], "cause": {**cause(SYMPTOMS[-2]), "rank": 2}, "ago": 0.0}, 1.2)
    gang.check(9)
    assert (gang.round.cause["rank"], gang.round.cause["reason"]) == (2, "RendezvousTimeout")
