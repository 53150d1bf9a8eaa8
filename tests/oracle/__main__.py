"""`schema VERSION…` writes what the operator knows of a DeepSpeed version; `full` compares every version at length."""

import argparse
from pathlib import Path

from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs
from tests.oracle import refusals, report

_ROOT = Path(__file__).resolve().parents[2]
_SCHEMAS = _ROOT / "operator" / "deepspeed_operator" / "dsconfig" / "schemas"


def main() -> None:
    options = _parser().parse_args()
    if options.action == "schema":
        for version in options.versions or SUPPORTED:
            rootfs.installed(version)
            (_SCHEMAS / f"{version}.json").write_text(rootfs.output(version, "introspect.py"), encoding="utf-8")
            print(_SCHEMAS / f"{version}.json")
    else:
        refusals.write(_ROOT / "docs" / "validate.md")
        report.write(_ROOT / "docs" / "oracle.md", options.count, options.seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    schema = actions.add_parser("schema", help="install the version beside PyTorch and describe its configuration")
    schema.add_argument("versions", nargs="*", metavar="VERSION", help="all supported ones without any")
    full = actions.add_parser("full", help="compare verdicts; write docs/oracle.md and docs/validate.md")
    full.add_argument("--count", type=int, default=5000, help="configurations to draw for each version")
    full.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
