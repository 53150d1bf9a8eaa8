"""Prometheus metrics of the operator."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILE_SECONDS = Histogram(
    "deepspeed_operator_reconcile_seconds",
    "Seconds of one reconcile of one job, API calls included",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
DECIDE_SECONDS = Histogram(
    "deepspeed_operator_decide_seconds",
    "Seconds that deciding what to do takes, without API calls",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
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
