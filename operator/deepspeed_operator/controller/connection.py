"""Where the API server is and how to prove who we are: the pod's service account, or a kubeconfig."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import (
    load_incluster_config,  # pyright: ignore[reportUnknownVariableType] -- the library is typed in part
    load_kube_config,  # pyright: ignore[reportUnknownVariableType]
)
from kubernetes.aio.config.config_exception import ConfigException

from deepspeed_operator.api.names import OPERATOR

UNLIMITED = 0  # as aiohttp understands it


@dataclass(slots=True)
class Connection:
    """One way to the API server; tokens in it are refreshed by the library that loaded it."""

    configuration: Configuration
    ssl_context: ssl.SSLContext

    @property
    def server(self) -> str:
        return str(self.configuration.host).rstrip("/")

    async def authorization(self) -> dict[str, str]:
        """Header that proves our identity; empty where a client certificate does."""
        token = await self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return {"Authorization": token} if token else {}

    def session(
        self,
        limit: int,
        headers: dict[str, str] | None = None,
        *,
        response_class: type[aiohttp.ClientResponse] = aiohttp.ClientResponse,
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
    ) -> aiohttp.ClientSession:
        """Open a session with at most this many connections."""
        return aiohttp.ClientSession(
            response_class=response_class,
            middlewares=middlewares,
            connector=aiohttp.TCPConnector(limit=limit, ssl=self.ssl_context),
            headers={"User-Agent": OPERATOR, **(headers or {})},
            read_bufsize=2**20,
        )


async def connect(kubeconfig: str | None = None) -> Connection:
    """Find the API server: by the kubeconfig if one is named, else by the service account, else by KUBECONFIG."""
    configuration = Configuration()
    if kubeconfig is not None or not _in_cluster(configuration):
        await load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return Connection(configuration, context)


def _in_cluster(configuration: Configuration) -> bool:
    try:
        load_incluster_config(configuration)
    except ConfigException:
        return False
    return True
