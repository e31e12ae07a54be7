"""Charts of databases and queues."""

from __future__ import annotations

from testkit.charts.parts import (
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
    job,
    network,
    pod,
    role,
    secret,
    service,
    stateful,
    together,
    values,
)

_SHARED_MEMORY: Json = {"name": "dshm", "emptyDir": {"medium": "Memory"}}


def postgresql(name: str = "postgresql") -> list[Json]:
    """Return Bitnami's PostgreSQL, which other charts contain."""
    return [
        account(name),
        secret(name),
        service(name, 5432),
        service(f"{name}-hl", 5432, headless=True),
        network(name, 5432),
        budget(name),
        stateful(
            name,
            bitnami(name, hardened("postgresql", 5432), hostNetwork=False, hostIPC=False, volumes=[_SHARED_MEMORY]),
            "data",
        ),
    ]


def mysql(name: str = "mysql") -> list[Json]:
    """Return Bitnami's MySQL or MariaDB."""
    first = hardened("preserve-logs-symlinks", command=["/bin/bash"], args=["-ec", "true"])
    return [
        account(name),
        config(name),
        secret(name),
        service(name, 3306),
        service(f"{name}-hl", 3306, headless=True),
        network(name, 3306),
        budget(name),
        stateful(
            name, bitnami(name, hardened(name, 3306), initContainers=[first], volumes=[from_config(name)]), "data"
        ),
    ]


def redis() -> list[Json]:
    """Return Bitnami's Redis with replicas."""
    found: list[Json] = [
        account("redis"),
        secret("redis"),
        network("redis", 6379),
        service("redis-hl", 6379, headless=True),
    ]
    maps = [f"redis-{each}" for each in ("configuration", "health", "scripts")]
    found += [config(each) for each in maps]
    for each in ("redis-master", "redis-replicas"):
        whole = bitnami(each, hardened("redis", 6379), volumes=[from_config(one) for one in maps])
        found += [account(each), service(each, 6379), budget(each), stateful(each, whole, "redis-data")]
    return found


def mongodb() -> list[Json]:
    """Return Bitnami's MongoDB, standalone."""
    name = "mongodb"
    first = hardened("log-dir", command=["/bin/bash"])
    whole = bitnami(
        name, hardened(name, 27017), initContainers=[first], volumes=[from_config("mongodb-scripts"), from_claim(name)]
    )
    return [
        account(name),
        secret(name),
        config("mongodb-scripts"),
        claim(name),
        service(name, 27017),
        network(name, 27017),
        budget(name),
        deployment(name, whole),
    ]


def rabbitmq() -> list[Json]:
    """Return Bitnami's RabbitMQ, whose peers find each other by endpoints."""
    name, ports = "rabbitmq", (5672, 4369, 25672, 15672)
    whole = bitnami(
        name,
        hardened(name, *ports),
        initContainers=[hardened("prepare-plugins-dir")],
        automountServiceAccountToken=True,
        volumes=[from_secret("rabbitmq-config")],
    )
    return [
        account(name),
        secret(name),
        secret("rabbitmq-config"),
        *role(name, ("", "endpoints", "get"), ("", "events", "create")),
        service(name, *ports),
        service("rabbitmq-hl", *ports, headless=True),
        network(name, *ports),
        budget(name),
        stateful(name, whole, "data"),
    ]


def kafka() -> list[Json]:
    """Return Bitnami's Kafka with KRaft."""
    name, ports = "kafka", (9092, 9093, 9094, 9095)
    whole = bitnami(
        name,
        hardened(name, *ports),
        initContainers=[hardened("prepare-config")],
        volumes=[from_config("kafka-scripts"), from_secret("kafka-user-passwords")],
    )
    return [
        account(name),
        secret("kafka-user-passwords"),
        secret("kafka-kraft"),
        config("kafka-scripts"),
        service(name, *ports),
        service("kafka-hl", *ports, headless=True),
        network(name, *ports),
        budget(name),
        stateful(name, whole, "data"),
    ]


def elasticsearch() -> list[Json]:
    """Return Elastic's Elasticsearch, with one node on each machine."""
    name = "elasticsearch"
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
    run = container(
        *(name, 9200, 9300),
        securityContext={"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 1000},
        resources={"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
        readinessProbe={"exec": {"command": ["bash", "-c", "true"]}},
    )
    whole = pod(
        name,
        run,
        securityContext={"fsGroup": 1000, "runAsUser": 1000},
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        automountServiceAccountToken=True,
        enableServiceLinks=True,
        terminationGracePeriodSeconds=120,
        volumes=[from_secret("elasticsearch-certs"), from_config("elasticsearch-config")],
    )
    return [
        account(name),
        secret("elasticsearch-certs"),
        secret("elasticsearch-credentials"),
        config("elasticsearch-config"),
        service(name, 9200, 9300),
        service("elasticsearch-hl", 9200, 9300, headless=True),
        budget(name),
        stateful(name, whole, name, size="30Gi"),
    ]


def minio(standard: str) -> list[Json]:
    """Return MinIO's chart in standalone mode, with the Job that creates its user."""
    name = "minio"
    context = {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch", "runAsGroup": 1000, "runAsUser": 1000}
    given = values(standard, {"readOnlyRootFilesystem": False}, {"requests": {"memory": "128Mi"}})
    post = container("minio-make-user", **values(standard, {}, {"requests": {"memory": "128Mi"}}))
    # `postJob.securityContext.enabled` is false unless Restricted needs it.
    of_job = {"securityContext": {"fsGroup": 1000, "runAsGroup": 1000, "runAsUser": 1000}}
    after: Json = of_job if standard == "Restricted" else {}
    whole = pod(name, post, volumes=[together("configuration", name)], **after)
    return [
        account(name),
        secret(name),
        config(name),
        claim(name, "50Gi"),
        service(name, 9000),
        service("minio-console", 9001),
        deployment(
            name, pod(name, container(name, 9000, 9001, **given), securityContext=context, volumes=[from_claim(name)])
        ),
        job("minio-post-job", whole, "post-install,post-upgrade"),
    ]
