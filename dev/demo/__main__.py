"""`make demo`: from nothing to DeepSpeed training in two pods on two nodes, and a job that is refused."""

import os
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dev.demo import environment
from dev.demo.environment import NAMESPACE, ROOT, Environment
from dev.demo.follow import condition, follow, program_lines

T = TypeVar("T")


def main() -> None:
    """Run the demo; SystemExit with a message if something is not as it should be."""
    use_current = os.environ.get("CLUSTER") == "current"
    cluster = timed("The cluster and the images", environment.current if use_current else environment.local)
    timed("helm install deepspeed-operator charts/deepspeed-operator", cluster.install)
    timed("What an earlier demo left is deleted", lambda: clean(cluster))
    train(cluster)
    refuse(cluster)
    if cluster.kubeconfig:
        print(
            "\nThe cluster stays up. To use it:\n"
            f"  export KUBECONFIG={cluster.kubeconfig} PATH={Path(cluster.kubectl).parent}:$PATH\n"
            f"  kubectl describe dsj quickstart -n {NAMESPACE}\n"
            "  make cluster-down"
        )


def timed(title: str, step: Callable[[], T]) -> T:
    """Run a step and say how long it took."""
    begin = time.monotonic()
    result = step()
    print(f"== {title} ({time.monotonic() - begin:.1f} s)", flush=True)
    return result


def clean(cluster: Environment) -> None:
    """Delete the demo's jobs, pods included, and make its namespace."""
    if not cluster.run(cluster.kubectl, "get", "namespace", NAMESPACE, "--ignore-not-found"):
        cluster.run(cluster.kubectl, "create", "namespace", NAMESPACE)
    cluster.run(
        cluster.kubectl, "delete", "dsj", "quickstart", "article", "-n", NAMESPACE, "--ignore-not-found",
        "--cascade=foreground", "--timeout=60s",
    )  # fmt: skip


def train(cluster: Environment) -> None:
    """Run the quickstart and show what came of it."""
    print("\n$ kubectl apply -f examples/quickstart.yaml")
    print(apply(cluster, "quickstart.yaml"), end="", flush=True)
    job = follow(cluster, "quickstart", timeout=600)
    print("\n$ kubectl get dsj -o wide")
    print(cluster.run(cluster.kubectl, "get", "dsj", "-o", "wide", "-n", NAMESPACE), end="")
    print("\nConditions")
    for entry in job["status"]["conditions"]:
        print(f"  {entry['type']:12} {entry['status']:6} {entry['reason']}: {shortened(entry['message'])}")
    if condition(job, "Complete").get("status") != "True":
        raise SystemExit("\nThe job did not complete.")
    print("\nLosses")
    for index in range(job["spec"]["nodes"]):
        pod = f"quickstart-{job['status']['attempt']['number']}-{index}"
        losses = [line for line in program_lines(cluster, pod) if " loss " in line]
        if not losses:
            raise SystemExit(f"The pod {pod} printed no loss.")
        print(textwrap.indent("\n".join(losses), "  "))


def refuse(cluster: Environment) -> None:
    """Apply a job whose batch sizes contradict each other, and show that nothing is created for it."""
    print("\n$ kubectl apply -f examples/article.yaml")
    print(apply(cluster, "article.yaml"), end="", flush=True)
    job = follow(cluster, "article", timeout=60)
    accepted = condition(job, "Accepted")
    pods = cluster.run(
        cluster.kubectl, "get", "pods", "-n", NAMESPACE, "-l", "deepspeed-operator.dev/job-name=article", "-o", "name"
    )
    if accepted.get("status") != "False" or pods:
        raise SystemExit(f"The article's job was not refused: {accepted} {pods}")


def apply(cluster: Environment, example: str) -> str:
    """Apply an example to the demo's namespace."""
    return cluster.run(cluster.kubectl, "apply", "-n", NAMESPACE, "-f", str(ROOT / "examples" / example))


def shortened(message: str) -> str:
    """Return the first line, cut to a terminal's width."""
    line = message.partition("\n")[0]
    return line if len(line) <= 160 else f"{line[:159]}…"


if __name__ == "__main__":
    main()
