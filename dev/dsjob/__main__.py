"""Writes dsjob.pyz and, for krew, an archive of it and the manifest."""

import argparse
from importlib.metadata import version
from pathlib import Path

import yaml

from dev.dsjob.archive import write
from dev.dsjob.krew import PLUGIN, here, manifest, write_archive


def main() -> None:
    parser = argparse.ArgumentParser("python -m dev.dsjob")
    parser.add_argument("--directory", type=Path, default=Path("dist"), help="where the files are written")
    parser.add_argument("--url", default="", help="of the directory that the archive for krew is to be fetched from")
    parser.add_argument("--homepage", default="", help="that krew shows")
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "dsjob.pyz"
    write(program)
    print(program)
    if not arguments.url:
        return
    number, platform = version("deepspeed-operator"), here()
    archive = directory / f"kubectl-dsj-{number}-{platform.os}-{platform.arch}.tar.gz"
    write_archive(program, archive)
    told = manifest(number, arguments.homepage, {platform: (f"{arguments.url.rstrip('/')}/{archive.name}", archive)})
    path = directory / f"{PLUGIN}.yaml"
    path.write_text(yaml.safe_dump(told, sort_keys=False, allow_unicode=True))  # pyright: ignore[reportUnknownMemberType]
    print(archive, path, sep="\n")


if __name__ == "__main__":
    main()
