"""Findings: how one is made, and the code of each kind. What each code means is in finding_catalogue.py."""

from enum import StrEnum

from deepspeed_operator.api.status import Finding, Level


class Code(StrEnum):
    """What a finding is about, for `dsjob validate --ignore` and for programs: it stays as it is between releases."""

    # batch
    BATCH_SIZE = "batch-size"
    NO_BATCH_SIZE = "no-batch-size"
    FRACTIONAL_BATCH_SIZE = "fractional-batch-size"
    NUMBER_TOO_LARGE = "number-too-large"
    SAMPLES_PER_STEP = "samples-per-step"
    ELASTIC_TRAINING = "elastic-training"

    # keys and values
    INVALID_VALUE = "invalid-value"
    LOOSE_TYPE = "loose-type"
    OUT_OF_RANGE = "out-of-range"
    LOSS_SCALE_POWER = "loss-scale-power"
    UNKNOWN_KEY = "unknown-key"
    IGNORED_KEY = "ignored-key"
    MISSPELT_KEY = "misspelt-key"
    MISSING_KEY = "missing-key"
    REMOVED_KEY = "removed-key"
    DEPRECATED_KEY = "deprecated-key"
    DEPRECATED_AND_NEW_KEY = "deprecated-and-new-key"
    NO_EFFECT = "no-effect"
    DEFAULT_VALUES = "default-values"
    AUTO_VALUES = "auto-values"
    AUTO_UNFILLED = "auto-unfilled"
    CREDENTIAL = "credential"
    SET_BY_FRAMEWORK = "set-by-framework"
    JUDGED_AS = "judged-as"
    CHANGED_DEFAULT = "changed-default"

    # precision
    FP16_AND_BF16 = "fp16-and-bf16"
    PRECISION_CONFLICT = "precision-conflict"
    AUTOCAST_AND_QUANTIZED = "autocast-and-quantized"
    AUTO_CAST_WITHOUT_FP16 = "auto-cast-without-fp16"
    DTYPE_MISMATCH = "dtype-mismatch"
    BF16_STATES_ALONE = "bf16-states-alone"
    BF16_SUMS = "bf16-sums"

    # ZeRO and offloading
    ZERO_STAGE = "zero-stage"
    NOT_WITH_ZERO = "not-with-zero"
    NEEDS_OFFLOAD = "needs-offload"
    NOT_WITH_OFFLOAD = "not-with-offload"
    NVME_BELOW_STAGE_3 = "nvme-below-stage-3"
    PINNED_MEMORY = "pinned-memory"
    NOT_WITH_ZENFLOW = "not-with-zenflow"
    ZENFLOW_PARAMS = "zenflow-params"
    ZENFLOW_INTERVAL = "zenflow-interval"
    NOT_WITH_DEEPCOMPILE = "not-with-deepcompile"
    NOT_WITH_REDUCE_SCATTER = "not-with-reduce-scatter"
    GRAD_NORM_AND_CLIPPING = "grad-norm-and-clipping"
    UNMANAGED_ACCUMULATION = "unmanaged-accumulation"
    PARTITION_EXCEEDS_WORLD = "partition-exceeds-world"

    # ranks
    INDIVISIBLE_RANKS = "indivisible-ranks"
    INDIVISIBLE_SEQUENCE = "indivisible-sequence"
    SEQUENCE_SIZE = "sequence-size"
    SEQUENCE_SIZE_ALONE = "sequence-size-alone"
    MESH_SIZE = "mesh-size"
    CONTRADICTORY_SIZES = "contradictory-sizes"
    NOT_WITH_PIPELINE = "not-with-pipeline"
    AUTOTP_AT_STAGE_3 = "autotp-at-stage-3"
    UNSUPPORTED_ACCELERATOR = "unsupported-accelerator"

    # optimizer and scheduler
    UNKNOWN_OPTIMIZER = "unknown-optimizer"
    UNTESTED_OPTIMIZER = "untested-optimizer"
    SCRIPT_OPTIMIZER = "script-optimizer"
    MAX_GRAD_NORM = "max-grad-norm"
    UNSUPPORTED_AMSGRAD = "unsupported-amsgrad"
    NEEDS_DYNAMIC_LOSS_SCALE = "needs-dynamic-loss-scale"
    NOT_WITH_MUON = "not-with-muon"
    NEEDS_COMPILER = "needs-compiler"
    UNKNOWN_SCHEDULER = "unknown-scheduler"
    SCHEDULER_NEEDS_CODE = "scheduler-needs-code"
    SCHEDULER_NEEDS_METRIC = "scheduler-needs-metric"
    WRAPPED_OPTIMIZER = "wrapped-optimizer"
    ZERO_LEARNING_RATE = "zero-learning-rate"
    NEEDS_CALL = "needs-call"

    # what some versions train wrongly
    FIRST_LEARNING_RATE = "first-learning-rate"
    STALE_PARAMETERS = "stale-parameters"
    STAIRS_IGNORED = "stairs-ignored"
    ALL_REDUCE_FETCH = "all-reduce-fetch"
    DECAY_NEVER_BEGINS = "decay-never-begins"
    COSINE_NEVER_BEGINS = "cosine-never-begins"
    GRADIENTS_LOST = "gradients-lost"
    OVERFLOW_NOT_SHARED = "overflow-not-shared"
    UNSCALED_AUTOCAST = "unscaled-autocast"
    GRADIENTS_OVERWRITTEN = "gradients-overwritten"
    NEVER_STEPS = "never-steps"
    GRADIENTS_NOT_CLEARED = "gradients-not-cleared"
    MUON_IS_SGD = "muon-is-sgd"
    MUON_SCATTERED = "muon-scattered"
    MUON_FIRST_LEARNING_RATE = "muon-first-learning-rate"
    ONE_LEARNING_RATE = "one-learning-rate"
    MUON_RATES_IGNORED = "muon-rates-ignored"
    LEARNING_RATES_OVERWRITTEN = "learning-rates-overwritten"
    GRADIENTS_DIVIDED_TWICE = "gradients-divided-twice"
    GRADIENTS_DIVIDED_BY_STAGES = "gradients-divided-by-stages"
    LAST_GRADIENT_NOT_REDUCED = "last-gradient-not-reduced"
    MUON_EACH_MICRO_STEP = "muon-each-micro-step"

    # text and files
    INVALID_TEXT = "invalid-text"
    NOT_PLAIN_JSON = "not-plain-json"
    YAML_CONFIGURATION = "yaml-configuration"
    TOO_LARGE = "too-large"
    MISSING_CONFIG_MAP = "missing-config-map"
    MISSING_CONFIG_MAP_KEY = "missing-config-map-key"
    CONFIG_MAP_NOT_IN_FILES = "config-map-not-in-files"

    # the job
    WRONG_KIND = "wrong-kind"
    MISSING_FIELD = "missing-field"
    UNKNOWN_FIELD = "unknown-field"
    INVALID_FIELD = "invalid-field"
    INVALID_COMBINATION = "invalid-combination"
    RESERVED_FIELD = "reserved-field"
    RESERVED_NAME = "reserved-name"
    RESERVED_PATH = "reserved-path"
    COVERING_MOUNT = "covering-mount"
    UNNORMALIZED_PATH = "unnormalized-path"
    AMBIGUOUS_TRAINER = "ambiguous-trainer"
    MISSING_IMAGE = "missing-image"
    CONTRADICTORY_IMAGES = "contradictory-images"
    MORE_RANKS_THAN_ACCELERATORS = "more-ranks-than-accelerators"
    IDLE_ACCELERATORS = "idle-accelerators"
    PLAIN_SIDECAR = "plain-sidecar"
    DNS_POLICY = "dns-policy"
    WORKING_DIRECTORY = "working-directory"
    SHARED_MEMORY_TWICE = "shared-memory-twice"
    SHARED_MEMORY_SIZE = "shared-memory-size"
    LAUNCHER_PER_RANK = "launcher-per-rank"
    LAUNCHER_WORLD = "launcher-world"
    LAUNCHER_GRACE = "launcher-grace"
    IDLE_RULE = "idle-rule"
    RESTARTED_FROM_ZERO = "restarted-from-zero"
    HANG = "hang"
    CHECKPOINT_NOT_KEPT = "checkpoint-not-kept"
    UNSAFE_PATTERN = "unsafe-pattern"

    # memory and speed
    INVALID_MODEL = "invalid-model"
    DOES_NOT_FIT = "does-not-fit"
    POD_MEMORY = "pod-memory"
    FASTER_PREDICTED = "faster-predicted"
    FASTER_MEASURED = "faster-measured"

    # network
    NVLINK_BETWEEN_NODES = "nvlink-between-nodes"
    PROFILE_OF_NCCL = "profile-of-nccl"
    NO_COMPUTE_DOMAIN = "no-compute-domain"
    NO_ROCE_INTERFACES = "no-roce-interfaces"
    HUGE_PAGES = "huge-pages"
    ASSUMED_DEVICES = "assumed-devices"
    NO_FABRIC_DEVICES = "no-fabric-devices"
    UNUSED_RDMA = "unused-rdma"
    RDMA_PREVENTED = "rdma-prevented"
    MEMLOCK = "memlock"
    OBSOLETE_ON_EFA = "obsolete-on-efa"
    PROFILE_NEEDS = "profile-needs"
    TRANSPORT_UNSEEN = "transport-unseen"
    INVALID_VARIABLE = "invalid-variable"
    OVERRIDDEN_VARIABLE = "overridden-variable"
    UNKNOWN_VARIABLE = "unknown-variable"
    UNREAD_VARIABLE = "unread-variable"
    DEPRECATED_VARIABLE = "deprecated-variable"
    NEW_VARIABLE = "new-variable"
    DEBUG_VARIABLE = "debug-variable"
    PROFILE_OVERRIDDEN = "profile-overridden"
    NAME_PREFIX = "name-prefix"
    LOOPBACK = "loopback"
    INTERFACE_NAME = "interface-name"
    FIXED_GID_INDEX = "fixed-gid-index"
    VARIABLE_OUT_OF_RANGE = "variable-out-of-range"
    CONTRADICTORY_VARIABLES = "contradictory-variables"
    DISABLED_TRANSPORT = "disabled-transport"
    DEBUG_LEVEL = "debug-level"
    DEBUG_FILE = "debug-file"
    FORCED_LL128 = "forced-ll128"

    # what a run shows
    CHANGE_NOT_APPLIED = "change-not-applied"
    POD_WARNING = "pod-warning"
    VERSION_DIFFERS = "version-differs"
    WORLD_MISMATCH = "world-mismatch"
    WORLD_UNSEEN = "world-unseen"
    TRANSPORT_MISMATCH = "transport-mismatch"
    ENGINE_DIFFERS = "engine-differs"
    SECTION_REPLACED = "section-replaced"
    MORE_FINDINGS = "more-findings"


def error(path: str, code: Code, message: str, fix: str = "") -> Finding:
    """Say what is refused; `path` is where it stands in the job, `fix` what to write instead."""
    return Finding(level=Level.ERROR, code=code, path=path, message=message, fix=fix)


def warning(path: str, code: Code, message: str, fix: str = "") -> Finding:
    """Say what is ignored, or surprising."""
    return Finding(level=Level.WARNING, code=code, path=path, message=message, fix=fix)


def advice(path: str, code: Code, message: str, fix: str = "") -> Finding:
    """Say what could be better."""
    return Finding(level=Level.ADVICE, code=code, path=path, message=message, fix=fix)
