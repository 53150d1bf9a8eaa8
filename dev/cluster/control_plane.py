"""etcd, API server, controller manager, scheduler and DNS: processes of the machine itself, on the bridge's address."""

import json
import secrets
from collections.abc import Sequence

from dev.cluster import cgroups, processes
from dev.cluster.processes import run
from dev.cluster.settings import (
    API_SERVER,
    API_SERVICE_ADDRESS,
    HOST_ADDRESS,
    MAX_NODES,
    SERVICE_RANGE,
    Layout,
    node_name,
)

CGROUP = f"{cgroups.PREFIX}machine"
_ETCD = "http://127.0.0.1:2379"
_MASTERS = "system:masters"
# Users and their groups. What the driver and its DNS and simulated nodes do is told apart in the audit log by these
# names.
_USERS = {
    "admin": _MASTERS,
    "coredns": _MASTERS,
    "kwok": _MASTERS,
    "kube-controller-manager": "",
    "kube-scheduler": "",
    "kube-proxy": "",
} | {node_name(number): "system:nodes" for number in range(MAX_NODES)}
_DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
# Every write with its user, verb and object; reads are not counted by anybody.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}


def start_daemon(layout: Layout, name: str, command: Sequence[str]) -> None:
    path = {"PATH": f"{layout.bin}:/usr/sbin:/sbin:/usr/bin:/bin"}
    log = layout.logs / f"{name}.log"
    processes.start(name, command, records=layout.processes, log=log, cgroup=CGROUP, env=path)


def alive(layout: Layout) -> bool:
    return all(processes.is_alive(layout.processes, name) for name in _DAEMONS)


def issue_credentials(layout: Layout) -> None:
    """Certificates, and a token and a kubeconfig for each user."""
    layout.pki.mkdir(parents=True)
    layout.pki.chmod(0o700)
    config = layout.pki / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name = name\n[name]\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650"]
    request = ["openssl", "req", "-x509", "-config", str(config), *key]
    pki = str(layout.pki)
    authority = [
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "keyUsage=critical,keyCertSign,digitalSignature",
    ]
    run([*request, *authority, "-subj", "/CN=cluster-authority", "-keyout", f"{pki}/ca.key", "-out", f"{pki}/ca.crt"])
    addresses = ",".join(f"IP:{address}" for address in (HOST_ADDRESS, API_SERVICE_ADDRESS))
    names = ",".join(f"DNS:{name}" for name in ("kubernetes", "kubernetes.default", "kubernetes.default.svc"))
    signed = [*request, "-CA", f"{pki}/ca.crt", "-CAkey", f"{pki}/ca.key"]
    for name, subject, extension in (
        ("apiserver", "/CN=kube-apiserver", f"subjectAltName={addresses},{names}"),
        ("kubelet-client", f"/O={_MASTERS}/CN=kube-apiserver-kubelet-client", "extendedKeyUsage=clientAuth"),
    ):
        run(
            [
                *signed,
                "-subj",
                subject,
                "-addext",
                extension,
                "-keyout",
                f"{pki}/{name}.key",
                "-out",
                f"{pki}/{name}.crt",
            ]
        )
    run(["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{pki}/service-accounts.key"])
    rows: list[str] = []
    for user, group in _USERS.items():
        token = secrets.token_hex(16)
        account = f"system:node:{user}" if group == "system:nodes" else user if group else f"system:{user}"
        rows.append(f'{token},{account},{user},"{group}"')
        _write_kubeconfig(layout, user, token)
    (layout.pki / "tokens.csv").write_text("\n".join(rows) + "\n")


def _write_kubeconfig(layout: Layout, user: str, token: str) -> None:
    cluster = {"server": API_SERVER, "certificate-authority": str(layout.pki / "ca.crt")}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }
    path = layout.kubeconfig(user)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))


def start_api_server(layout: Layout) -> None:
    etcd = [f"--data-dir={layout.state / 'etcd'}", f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}"]
    # Nothing here outlives the cluster: no write needs to reach the disk.
    start_daemon(layout, "etcd", ["etcd", *etcd, "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync"])
    policy = layout.state / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    pki = layout.pki
    accounts = f"{pki}/service-accounts.key"
    identity = [
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
    ]
    identity += [f"--token-auth-file={pki}/tokens.csv", "--authorization-mode=Node,RBAC", "--allow-privileged=true"]
    identity += [f"--service-account-key-file={accounts}", f"--service-account-signing-key-file={accounts}"]
    identity += [
        "--service-account-issuer=https://kubernetes.default.svc",
        "--enable-admission-plugins=NodeRestriction",
    ]
    kubelets = [
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
    ]
    kubelets += ["--kubelet-preferred-address-types=InternalIP"]  # their names resolve nowhere
    address = [f"--bind-address={HOST_ADDRESS}", f"--advertise-address={HOST_ADDRESS}", "--secure-port=6443"]
    address += [f"--service-cluster-ip-range={SERVICE_RANGE}", f"--etcd-servers={_ETCD}", "--event-ttl=1h"]
    limits = ["--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500"]
    audit = [f"--audit-policy-file={policy}", f"--audit-log-path={layout.audit_log}", "--audit-log-maxsize=4000"]
    start_daemon(layout, "kube-apiserver", ["kube-apiserver", *address, *identity, *kubelets, *limits, *audit])


def start_controllers(layout: Layout) -> None:
    accounts = [
        f"--service-account-private-key-file={layout.pki}/service-accounts.key",
        f"--root-ca-file={layout.pki}/ca.crt",
    ]
    manager = [
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]
    manager += ["--use-service-account-credentials"]
    manager += ["--node-monitor-grace-period=20s", "--node-monitor-period=1s"]
    start_daemon(layout, "kube-controller-manager", ["kube-controller-manager", *manager, *accounts])
    # The scheduler's own limit (50 a second) would be the measure of every test with simulated nodes.
    scheduler = [
        f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]
    scheduler += ["--kube-api-qps=2000", "--kube-api-burst=4000"]
    start_daemon(layout, "kube-scheduler", ["kube-scheduler", *scheduler])
    corefile = layout.state / "Corefile"
    corefile.write_text(_corefile(layout))
    start_daemon(layout, "coredns", ["coredns", "-conf", str(corefile)])


def _corefile(layout: Layout) -> str:
    # No cache, so that a name is found as soon as it exists; nothing outside the cluster has a name.
    return f""".:53 {{
  bind {HOST_ADDRESS}
  errors
  ready {HOST_ADDRESS}:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {layout.kubeconfig("coredns")}
    ttl 1
  }}
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
"""
