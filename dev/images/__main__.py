"""`build` fills the registry of this machine's cluster; `release` builds for another registry, on any base."""

import argparse
import tomllib
from collections.abc import Sequence

from dev.images import images, recipes, registry
from dev.images.settings import ROOT


def main() -> None:
    options = _parser().parse_args()
    if options.action == "build":
        for name in options.names or images.NAMES:
            print(f"{name} {images.ensure(name)}")
    else:
        _release(options.names, options)


def _release(names: Sequence[str], options: argparse.Namespace) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    made = {
        "operator": recipes.operator(options.operator_base),
        "worker": recipes.worker(options.worker_base, options.worker_build_base),
        "worker-huggingface": recipes.hugging_face(options.worker_base, options.worker_build_base),
    }
    for name in names or ("operator", "worker"):
        image = images.make(made[name])
        if options.registry:
            reference = f"{options.registry}/{made[name].repository}:{version}"
            registry.publish(image, reference)
            image = reference
        print(f"{name} {image}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.images", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="build what is missing, and push it for the nodes to pull")
    build.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(images.NAMES)}; all without any")
    release = actions.add_parser("release", help="build operator and worker, and push them where one says")
    release.add_argument(
        "names", nargs="*", metavar="NAME", help="operator, worker, worker-huggingface; the first two without any"
    )
    release.add_argument("--registry", default="", help="where to push; without it nothing is pushed")
    release.add_argument("--operator-base", default="", metavar="IMAGE")
    release.add_argument("--worker-base", default="", metavar="IMAGE")
    release.add_argument("--worker-build-base", default="", metavar="IMAGE")
    return parser


if __name__ == "__main__":
    main()
