"""Prometheus metrics of the operator itself. Those of jobs are in job_metrics."""

from importlib.metadata import version
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

# Up to a minute: whatever takes longer is broken, and how long then no longer matters.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ATTEMPT_BUCKETS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14_400)

BUILD = Info("deepspeed_operator_build", "The release that runs")
BUILD.info({"version": version("deepspeed-operator")})
RECONCILE_SECONDS = Histogram(
    "deepspeed_operator_reconcile_seconds", "Seconds of one reconcile of one job, API calls included", buckets=BUCKETS
)
DECIDE_SECONDS = Histogram(
    "deepspeed_operator_decide_seconds", "Seconds that deciding what to do takes, without API calls", buckets=BUCKETS
)
QUEUE_SECONDS = Histogram(
    "deepspeed_operator_queue_wait_seconds", "Seconds that a job waited for a worker", buckets=BUCKETS
)
REQUEST_SECONDS = Histogram(
    "deepspeed_operator_api_request_seconds",
    "Seconds until the API server has answered one try of a request, watches apart",
    ("verb",),
    buckets=BUCKETS,
)
LOOP_LAG_SECONDS = Histogram(
    "deepspeed_operator_event_loop_lag_seconds", "Seconds by which a timer of the event loop rang late", buckets=BUCKETS
)
HUB_SECONDS = Histogram(
    "deepspeed_operator_hub_answer_seconds",
    "Seconds until the agent of a job's rank 0, the hub of its gang, has told its state",
    buckets=BUCKETS,
)
HUB_ERRORS = Counter("deepspeed_operator_hub_errors", "Times that the agent of a job's rank 0 did not answer")
TIME_TO_RUNNING_SECONDS = Histogram(
    "deepspeed_operator_time_to_running_seconds",
    "Seconds from the beginning of an attempt until all of its ranks run",
    buckets=_ATTEMPT_BUCKETS,
)
RESTARTS = Counter(
    "deepspeed_operator_restarts", "Starts of ranks after a failure, in their pods or in new ones", ("reason",)
)
RECONCILE_ERRORS = Counter("deepspeed_operator_reconcile_errors", "Reconciles that ended by an unexpected exception")
STATUS_PRUNED = Counter(
    "deepspeed_operator_status_pruned",
    "Status writes of which the API server kept a part: the CRD is older than the operator",
)
QUEUE_DEPTH = Gauge("deepspeed_operator_queue_depth", "Jobs that wait for a worker")
WRITES = Counter("deepspeed_operator_api_writes", "Write requests to the API server", ("verb", "kind"))
READS = Counter("deepspeed_operator_api_reads", "Read requests to the API server", ("verb", "kind"))
API_ERRORS = Counter("deepspeed_operator_api_errors", "Answers other than success, by HTTP status", ("code",))
RELISTS = Counter("deepspeed_operator_informer_relists", "Full lists of pods, the first included")
INVALID_JOBS = Gauge("deepspeed_operator_unreadable_jobs", "Jobs that the operator cannot parse and leaves alone")
LEADER = Gauge("deepspeed_operator_leader", "1 on the replica that holds the Lease")
