"""`make images` for another registry and on another base, as for a cluster elsewhere."""

import json
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import build
from dev.cluster.processes import wait_for
from dev.images import bases
from dev.images.commands import run, without_make
from dev.images.images import make
from dev.images.recipes import Image
from dev.images.settings import ROOT

ACCEPTED = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Registry:
    """One that the cluster's nodes know nothing of, with a certificate of its own."""

    address: str
    certificate: Path

    def get(self, path: str) -> Any:
        """What it answers, as JSON."""
        trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(self.certificate)))
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), trusted)
        request = urllib.request.Request(f"https://{self.address}/v2/{path}", headers={"Accept": ACCEPTED})
        with direct.open(request, timeout=10) as response:
            return json.loads(response.read())

    def answers(self) -> bool:
        try:
            return self.get("") == {}
        except OSError:
            return False

    def config(self, repository: str, tag: str) -> Any:
        """The configuration of an image, by way of its manifest."""
        manifest = self.get(f"{repository}/manifests/{tag}")
        return self.get(f"{repository}/blobs/{manifest['config']['digest']}")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Registry]:
    """A registry on loopback, empty."""
    build.install_packages()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    key, certificate, config = (tmp_path / name for name in ("key.pem", "certificate.pem", "config.json"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    owner = ["-subj", "/CN=elsewhere", "-addext", "subjectAltName=IP:127.0.0.1"]
    run(["openssl", "req", "-x509", *curve, *owner, "-keyout", str(key), "-out", str(certificate)])
    tls = {"certificate": str(certificate), "key": str(key)}
    storage = {"filesystem": {"rootdirectory": str(tmp_path / "storage")}}
    config.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": address, "tls": tls}}))
    registry, log = Registry(address, certificate), tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=output, stderr=output)
    try:
        wait_for("the registry", registry.answers, seconds=60, log=log)
        yield registry
    finally:
        server.kill()
        server.wait()


def make_images(
    variables: dict[str, str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = ["make", "images", *(f"{name}={value}" for name, value in variables.items())]
    given = {**without_make(), **(environment or {})}
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)


def test_an_image_is_pushed_where_one_says(elsewhere: Registry) -> None:
    where = f"{elsewhere.address}/team"
    done = make_images({"IMAGES": "operator", "REGISTRY": where}, {"SSL_CERT_FILE": str(elsewhere.certificate)})
    assert done.returncode == 0, done.stdout + done.stderr
    (tag,) = elsewhere.get("team/deepspeed-operator/tags/list")["tags"]
    assert done.stdout.splitlines()[-1] == f"operator {where}/deepspeed-operator:{tag}"
    config = elsewhere.config("team/deepspeed-operator", tag)["config"]
    assert (config["Entrypoint"], config["User"]) == (["deepspeed-operator"], "65532:65532")


@pytest.mark.parametrize(
    ("image", "given", "lacking"),
    [
        ("operator", {"OPERATOR_BASE": bases.PYTHON}, "pip"),
        ("worker", {"WORKER_BASE": bases.NO_PYTHON}, "apt-get"),
        ("worker", {"WORKER_BASE": bases.PYTHON, "WORKER_BUILD_BASE": bases.NO_PYTHON}, "apt-get"),
    ],
)
def test_images_are_built_on_the_bases_that_one_names(image: str, given: dict[str, Image], lacking: str) -> None:
    """Seen at once by what a base lacks that the build needs."""
    done = make_images({"IMAGES": image, **{argument: make(base) for argument, base in given.items()}})
    assert done.returncode != 0
    assert f"{lacking}: not found" in done.stderr
