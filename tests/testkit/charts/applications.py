"""Charts of applications."""

from __future__ import annotations

from testkit.charts.data import mysql, postgresql
from testkit.charts.parts import (
    CONFINED,
    SMALL,
    Json,
    account,
    bitnami,
    budget,
    claim,
    config,
    container,
    deployment,
    from_claim,
    from_config,
    from_secret,
    hardened,
    ingress,
    job,
    made,
    network,
    pod,
    role,
    scratch,
    secret,
    service,
    stateful,
    together,
    values,
)

_READ, _WRITE = "get list watch", "create delete deletecollection patch update"
_ALL = "get list watch create update patch delete"


def web_server() -> list[Json]:
    """Return Bitnami's nginx with an Ingress and an autoscaler."""
    name, host = "nginx", "www.shop.example"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    return [
        account(name),
        service(name, 80, 443),
        ingress(name, host, 80),
        network(name, 8080, 8443),
        budget(name),
        made(
            *("autoscaling/v2", "HorizontalPodAutoscaler", name),
            spec={"maxReplicas": 4, "scaleTargetRef": target, "metrics": [cpu]},
        ),
        deployment(
            name, bitnami(name, hardened(name, 8080, 8443), initContainers=[hardened("preserve-logs-symlinks")])
        ),
    ]


def wordpress() -> list[Json]:
    """Return Bitnami's WordPress with its MariaDB."""
    name = "wordpress"
    first = hardened("prepare-base-dir", command=["/bin/bash"])
    whole = bitnami(name, hardened(name, 8080, 8443), initContainers=[first], volumes=[from_claim(name)])
    return [
        *mysql("mariadb"),
        account(name),
        secret(name),
        claim(name, "10Gi"),
        service(name, 80, 443),
        ingress(name, "blog.shop.example", 80),
        network(name, 8080, 8443),
        budget(name),
        deployment(name, whole),
    ]


def grafana() -> list[Json]:
    """Return Grafana with a volume, which an init container gives to its user."""
    name = "grafana"
    owner = {
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        "readOnlyRootFilesystem": False,
        "runAsNonRoot": False,
        "runAsUser": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    first = container("init-chown-data", command=["chown", "-R", "472:472", "/var"], securityContext=owner)
    context = {"fsGroup": 472, "runAsGroup": 472, "runAsNonRoot": True, "runAsUser": 472}
    sidecar = container("grafana-sc-dashboard", securityContext=CONFINED)
    run = container(name, 3000, 9094, securityContext=CONFINED)
    volumes = [from_config(name), from_claim(name), scratch("search")]
    whole = pod(
        name,
        run,
        sidecar,
        securityContext=context,
        automountServiceAccountToken=True,
        enableServiceLinks=True,
        initContainers=[first],
        volumes=volumes,
    )
    test = pod(name, container("grafana-test", securityContext=CONFINED), securityContext=context)
    return [
        account(name),
        secret(name),
        config(name),
        claim(name, "10Gi"),
        *role(name, ("", "configmaps secrets", _READ)),
        service(name, 80),
        ingress(name, "graphs.shop.example", 80),
        deployment(name, whole),
        job("grafana-test", test, "test"),
    ]


def prometheus(standard: str) -> list[Json]:
    """Return Prometheus without an operator: its server and Alertmanager, which watch the own namespace."""
    name = "prometheus-server"
    context = {"fsGroup": 65534, "runAsGroup": 65534, "runAsNonRoot": True, "runAsUser": 65534}
    given = values(standard, {}, {})
    reload = container("prometheus-server-configmap-reload", 8080, **given)
    run = container("prometheus-server", 9090, **given)
    alerts = container("alertmanager", 9093, **given)
    whole = pod(
        name,
        run,
        reload,
        securityContext=context,
        enableServiceLinks=True,
        terminationGracePeriodSeconds=300,
        volumes=[from_config(name), from_claim(name)],
    )
    view = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    return [
        account(name),
        account("alertmanager"),
        config(name),
        config("alertmanager"),
        claim(name),
        made(
            *("rbac.authorization.k8s.io/v1", "RoleBinding", name),
            roleRef=view,
            subjects=[{"kind": "ServiceAccount", "name": name}],
        ),
        service(name, 80),
        service("alertmanager-hl", 9093, headless=True),
        deployment(name, whole),
        stateful("alertmanager", pod("alertmanager", alerts, securityContext=context), "storage", size="2Gi"),
    ]


def jenkins(standard: str) -> list[Json]:
    """Return Jenkins, whose agents are pods."""
    name = "jenkins"
    own = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    user = {"runAsGroup": 1000, "runAsUser": 1000}
    limited = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "4Gi"}}
    main = values(standard, {**own, **user}, {})
    reload = container("config-reload", **values(standard, own, {}))
    run = container(name, 8080, 50000, **{**main, "resources": SMALL if standard == "Restricted" else limited})
    whole = pod(
        name,
        run,
        reload,
        automountServiceAccountToken=True,
        initContainers=[
            {**reload, "name": "config-reload-init"},
            container("init", command=["sh", "/var/jenkins_config/apply_config.sh"], **main),
        ],
        securityContext={"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch", "runAsUser": 1000},
        volumes=[
            from_config(name),
            from_claim(name),
            together("admin-secret", name),
            scratch("plugins"),
        ],
    )
    test = pod(name, container("bats", **main), securityContext={"fsGroup": 1000})
    return [
        account(name),
        secret(name),
        config(name),
        config("jenkins-jenkins-jcasc-config"),
        claim(name),
        *role(
            "jenkins-schedule-agents",
            ("", "pods pods/exec pods/log persistentvolumeclaims events", _READ),
            ("", "pods pods/exec persistentvolumeclaims", _WRITE),
            bind=name,
        ),
        *role("jenkins-casc-reload", ("", "configmaps", _READ), bind=name),
        service(name, 8080),
        service("jenkins-agent", 50000),
        stateful(name, whole),
        job("jenkins-ui-test", test, "test-success"),
    ]


def gitlab_runner(standard: str) -> list[Json]:
    """Return GitLab Runner, which runs each job in a pod."""
    name = "gitlab-runner"
    own = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": False,
        "runAsNonRoot": True,
    }
    volumes = [
        {"name": "runner-secrets", "emptyDir": {"medium": "Memory"}},
        {"name": "etc-gitlab-runner", "emptyDir": {"medium": "Memory"}},
        together("projected-secrets", name),
        from_config(name),
    ]
    context = {"fsGroup": 65533, "runAsUser": 100}
    run = container(name, 9252, **values(standard, own, {}), command=["/usr/bin/dumb-init", "--"])
    return [
        account(name),
        secret(name, **{"runner-token": "example", "runner-registration-token": ""}),
        config(name),
        *role(
            name,
            ("", "configmaps", "create delete get update"),
            ("", "events", "list watch"),
            ("", "pods", "create delete get list watch"),
            ("", "pods/attach pods/exec", "create delete get patch"),
            ("", "pods/log", "get list"),
            ("", "secrets", "create delete get update"),
            ("", "serviceaccounts", "get"),
            ("", "services", "create get"),
        ),
        deployment(name, pod(name, run, securityContext=context, terminationGracePeriodSeconds=3600, volumes=volumes)),
    ]


def argo_workflows(standard: str) -> list[Json]:
    """Return Argo Workflows for one namespace; the cluster's administrator has installed its kinds and their roles."""
    found: list[Json] = [config("workflow-controller-configmap"), account("argo-workflow")]
    rules = (
        ("", "pods", _ALL),
        ("", "pods/exec", "create"),
        ("", "configmaps", _READ),
        ("", "persistentvolumeclaims persistentvolumeclaims/finalizers", "create update delete get"),
        ("argoproj.io", "workflows workflows/finalizers workflowtasksets workflowartifactgctasks", _ALL),
        ("argoproj.io", "workflowtemplates cronworkflows cronworkflows/finalizers", _ALL),
        ("", "serviceaccounts secrets", "get list"),
        ("", "events", "create patch"),
        ("policy", "poddisruptionbudgets", "create get delete"),
        ("coordination.k8s.io", "leases", "get list watch create update patch delete"),
    )
    found += role("argo-workflow", ("argoproj.io", "workflowtaskresults", "create patch"))
    for name, port in (("argo-workflows-workflow-controller", 9090), ("argo-workflows-server", 2746)):
        given = rules if port == 9090 else (*rules, ("", "pods/log", "get list"))
        own = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": port == 9090,
            "runAsNonRoot": True,
        }
        run = container(name, port, **values(standard, own, {}), args=["--namespaced"])
        whole = pod(
            name,
            run,
            nodeSelector={"kubernetes.io/os": "linux"},
            volumes=[scratch("tmp")],
        )
        found += [account(name), *role(name, *given), service(name, port), deployment(name, whole)]
    return found


def keycloak() -> list[Json]:
    """Return Bitnami's Keycloak with its PostgreSQL."""
    name = "keycloak"
    first = hardened("prepare-write-dirs", command=["/bin/bash"])
    whole = bitnami(name, hardened(name, 8080, 7800), initContainers=[first], automountServiceAccountToken=True)
    return [
        *postgresql("keycloak-postgresql"),
        account(name),
        secret(name),
        config("keycloak-env-vars"),
        service(name, 80),
        service("keycloak-hl", 8080, headless=True),
        ingress(name, "login.shop.example", 80),
        network(name, 8080, 7800),
        budget(name),
        stateful(name, whole),
    ]


def vault() -> list[Json]:
    """Return Vault without its injector."""
    name = "vault"
    field = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    node = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    run = container(
        *(name, 8200, 8201),
        env=[field, node, {"name": "SKIP_CHOWN", "value": "true"}, {"name": "SKIP_SETCAP", "value": "true"}],
        lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 5 && kill -SIGTERM $(pidof vault)"]}}},
        securityContext={"allowPrivilegeEscalation": False},
    )
    term = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}, "topologyKey": "kubernetes.io/hostname"}
    whole = pod(
        name,
        run,
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        hostNetwork=False,
        securityContext={"fsGroup": 1000, "runAsGroup": 1000, "runAsNonRoot": True, "runAsUser": 100},
        volumes=[from_config(name), scratch("home")],
    )
    return [
        account(name),
        config(name),
        *role("vault-discovery-role", ("", "pods", "get watch list update patch"), bind=name),
        service(name, 8200, 8201, publishNotReadyAddresses=True),
        service("vault-internal-hl", 8200, 8201, headless=True),
        budget(name),
        stateful(name, whole, "data", size="10Gi"),
    ]


def harbor() -> list[Json]:
    """Return Harbor: seven workloads behind an Ingress."""
    context = {"fsGroup": 10000, "fsGroupChangePolicy": "OnRootMismatch", "runAsUser": 10000}
    database = {"fsGroup": 999, "fsGroupChangePolicy": "OnRootMismatch", "runAsUser": 999}
    host = "registry.shop.example"
    found: list[Json] = [ingress("harbor-core", host, 80)]
    found[0]["metadata"]["annotations"] = {
        "ingress.kubernetes.io/ssl-redirect": "true",
        "ingress.kubernetes.io/proxy-body-size": "0",
        "nginx.ingress.kubernetes.io/ssl-redirect": "true",
        "nginx.ingress.kubernetes.io/proxy-body-size": "0",
    }
    for name, ports in (("core", 8080), ("portal", 8080), ("registry", 5000), ("jobservice", 8080)):
        whole = f"harbor-{name}"
        runs = [container(name, ports, securityContext=CONFINED)]
        if name == "registry":
            runs.append(container("registryctl", 8080, securityContext=CONFINED))
        template = pod(whole, *runs, securityContext=context, automountServiceAccountToken=False)
        found += [account(whole), config(whole), secret(whole), service(whole, 80), deployment(whole, template)]
    found += [claim("harbor-registry", "5Gi"), claim("harbor-jobservice", "1Gi")]
    for name, port, given in (("database", 5432, database), ("redis", 6379, database), ("trivy", 8080, context)):
        whole = f"harbor-{name}"
        run = container(name, port, securityContext=CONFINED)
        first = container("data-permissions-ensurer", securityContext=CONFINED)
        more: Json = {"initContainers": [first]} if name == "database" else {}
        template = pod(
            whole, run, securityContext=given, volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}], **more
        )
        found += [account(whole), secret(whole), service(whole, port), stateful(whole, template, "data", size="5Gi")]
    return found


def certificate() -> list[Json]:
    """Return a web server whose certificate cert-manager, which the cluster has, requests."""
    name, host = "web", "secure.shop.example"
    spec = {"secretName": f"{host}-tls", "dnsNames": [host], "issuerRef": {"kind": "ClusterIssuer", "name": "public"}}
    served = ingress(name, host, 80)
    served["metadata"]["annotations"] = {"cert-manager.io/cluster-issuer": "public"}
    return [
        account(name),
        service(name, 80),
        served,
        made("cert-manager.io/v1", "Certificate", name, spec=spec),
        deployment(name, bitnami(name, hardened(name, 8080))),
    ]


def cron_job() -> list[Json]:
    """Return an application that runs every night, after a migration as a hook."""
    name = "report"
    source = [{"secretRef": {"name": name}}, {"configMapRef": {"name": name}}]
    run = container(name, envFrom=source, securityContext={**CONFINED, "runAsUser": 1000}, resources=SMALL)
    template = pod(name, run, restartPolicy="Never", volumes=[from_claim(name), from_secret(name)])
    schedule = {
        "schedule": "0 3 * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"backoffLimit": 2, "ttlSecondsAfterFinished": 86400, "template": template}},
    }
    return [
        account(name),
        secret(name),
        config(name),
        claim(name, "1Gi"),
        job("report-migrate", template, "pre-install,pre-upgrade"),
        made("batch/v1", "CronJob", name, spec=schedule),
    ]
