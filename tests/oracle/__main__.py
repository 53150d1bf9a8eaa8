"""`schema VERSION…` writes what the operator knows of a DeepSpeed version; `full` compares every version at length.

`engines` is the part of `full` that starts engines.
"""

import argparse
from pathlib import Path

from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs
from tests.oracle import engine_report, refusals, report

_ROOT = Path(__file__).resolve().parents[2]
_SCHEMAS = _ROOT / "operator" / "deepspeed_operator" / "dsconfig" / "schemas"


def main() -> None:
    options = _parser().parse_args()
    if options.action == "schema":
        for version in options.versions or SUPPORTED:
            rootfs.installed(version)
            (_SCHEMAS / f"{version}.json").write_text(rootfs.output(version, "introspect.py"), encoding="utf-8")
            print(_SCHEMAS / f"{version}.json")
        return
    page = _ROOT / "docs" / "oracle.md"
    if options.action == "full":
        refusals.write(_ROOT / "docs" / "validate.md")
        report.write(page, options.count, options.seed)
    engine_report.write(page, options.engines, options.seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    schema = actions.add_parser("schema", help="install the version beside PyTorch and describe its configuration")
    schema.add_argument("versions", nargs="*", metavar="VERSION", help="all supported ones without any")
    full = actions.add_parser("full", help="compare verdicts; write docs/oracle.md and docs/validate.md")
    full.add_argument("--count", type=int, default=5000, help="configurations to draw for each version")
    engines = actions.add_parser(
        "engines", help="compare verdicts with engines only; write their part of docs/oracle.md"
    )
    for each in (full, engines):
        each.add_argument("--engines", type=int, default=1000, help="configurations to draw for each version's engine")
        each.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
