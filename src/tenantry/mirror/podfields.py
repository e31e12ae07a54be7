"""The fields of Pods that are mirrored: an allow-list, pure.

Source: Kubernetes 1.36, `k8s.io/api/core/v1/types.go`. A field is listed if users set it, and if its value has the same
meaning on the lower side or is translated in `pods.py`. The fields that an API server or a scheduler sets (nodeName,
overhead, priority, serviceAccountName, status) are not listed.
"""

from __future__ import annotations

from tenantry.mirror.shapes import (
    NotTranslated,
    Shape,
    boolean,
    denied,
    fields,
    integer,
    listed,
    mapped,
    number_or_text,
    text,
)

MOST_CONTAINERS = 200
SCHEDULERS = ("", "default-scheduler")
_REMOVE = "remove the field"
_IN_EPHEMERAL = (
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
)

_texts = listed(text)
_amounts = mapped(number_or_text)
_named = fields({"name": text})
_expressions = listed(fields({"key": text, "operator": text, "values": _texts}))
SELECTOR = fields({"matchLabels": mapped(text), "matchExpressions": _expressions})
_resources = fields({"limits": _amounts, "requests": _amounts})


def _scheduler(value: object, path: str) -> None:
    if value not in SCHEDULERS:
        raise NotTranslated(f"{path} must be '{SCHEDULERS[1]}' or empty: the host's scheduler assigns all pods")


# Volumes

_keys = listed(fields({"key": text, "path": text, "mode": integer}))
_field = fields({"apiVersion": text, "fieldPath": text})
_resource_field = fields({"containerName": text, "resource": text, "divisor": number_or_text})
_files = listed(
    fields(
        {"path": text, "mode": integer, "fieldRef": _field, "resourceFieldRef": _resource_field},
        one_of=("fieldRef", "resourceFieldRef"),
    )
)
_projections: dict[str, Shape] = {
    "configMap": fields({"name": text, "items": _keys, "optional": boolean}),
    "secret": fields({"name": text, "items": _keys, "optional": boolean}),
    "downwardAPI": fields({"items": _files}),
    "serviceAccountToken": fields({"audience": text, "expirationSeconds": integer, "path": text}),
}
_no_projections: dict[str, Shape] = {
    "clusterTrustBundle": denied("copy the certificates into a ConfigMap"),
    "podCertificate": denied("use a Secret with a certificate"),
}
_projection = fields({**_no_projections, **_projections}, one_of=tuple(_projections))
_sources: dict[str, Shape] = {
    "configMap": fields({"name": text, "items": _keys, "defaultMode": integer, "optional": boolean}),
    "downwardAPI": fields({"items": _files, "defaultMode": integer}),
    "emptyDir": fields({"medium": text, "sizeLimit": number_or_text}),
    # The upper side creates the claim from the template; the lower volume only names the claim.
    "ephemeral": fields({}),
    "hostPath": fields({"path": text, "type": text}),
    "image": fields({"reference": text, "pullPolicy": text}),
    "nfs": fields({"server": text, "path": text, "readOnly": boolean}),
    "persistentVolumeClaim": fields({"claimName": text, "readOnly": boolean}),
    "projected": fields({"sources": listed(_projection), "defaultMode": integer}),
    "secret": fields({"secretName": text, "items": _keys, "defaultMode": integer, "optional": boolean}),
}
# Its attributes name objects of the lower namespace in a way that only the driver knows, as SecretProviderClasses.
_no_sources: dict[str, Shape] = {"csi": denied("use a Secret, or a PersistentVolumeClaim")}
_volume = fields(
    {"name": text, **_no_sources, **_sources},
    one_of=tuple(_sources),
    otherwise="use a PersistentVolumeClaim for other storage",
)

# Containers

_key = fields({"name": text, "key": text, "optional": boolean})
_values: dict[str, Shape] = {
    "configMapKeyRef": _key,
    "secretKeyRef": _key,
    "fieldRef": _field,
    "fileKeyRef": fields({"volumeName": text, "path": text, "key": text, "optional": boolean}),
    "resourceFieldRef": _resource_field,
}
_env = fields({"name": text, "value": text, "valueFrom": fields(_values, one_of=tuple(_values))})
_env_sources: dict[str, Shape] = {
    "configMapRef": fields({"name": text, "optional": boolean}),
    "secretRef": fields({"name": text, "optional": boolean}),
}
_handlers: dict[str, Shape] = {
    "exec": fields({"command": _texts}),
    "httpGet": fields(
        {
            "path": text,
            "port": number_or_text,
            "host": text,
            "scheme": text,
            "httpHeaders": listed(fields({"name": text, "value": text})),
        }
    ),
    "tcpSocket": fields({"port": number_or_text, "host": text}),
}
_probe = fields(
    {
        **_handlers,
        "grpc": fields({"port": integer, "service": text}),
        "initialDelaySeconds": integer,
        "timeoutSeconds": integer,
        "periodSeconds": integer,
        "successThreshold": integer,
        "failureThreshold": integer,
        "terminationGracePeriodSeconds": integer,
    }
)
_handler = fields({**_handlers, "sleep": fields({"seconds": integer})})
_profiled = fields({"type": text, "localhostProfile": text})
_both_security_contexts: dict[str, Shape] = {
    "appArmorProfile": _profiled,
    "runAsGroup": integer,
    "runAsNonRoot": boolean,
    "runAsUser": integer,
    "seLinuxOptions": fields({"user": text, "role": text, "type": text, "level": text}),
    "seccompProfile": _profiled,
    "windowsOptions": fields(
        {"gmsaCredentialSpecName": text, "gmsaCredentialSpec": text, "runAsUserName": text, "hostProcess": boolean}
    ),
}
_security_context = fields(
    {
        **_both_security_contexts,
        "allowPrivilegeEscalation": boolean,
        "capabilities": fields({"add": _texts, "drop": _texts}),
        "privileged": boolean,
        "procMount": text,
        "readOnlyRootFilesystem": boolean,
    }
)
_container: dict[str, Shape] = {
    "name": text,
    "image": text,
    "command": _texts,
    "args": _texts,
    "workingDir": text,
    "ports": listed(
        fields({"name": text, "hostPort": integer, "containerPort": integer, "protocol": text, "hostIP": text})
    ),
    "env": listed(_env),
    "envFrom": listed(fields({"prefix": text, **_env_sources}, one_of=tuple(_env_sources))),
    "resources": _resources,
    "resizePolicy": listed(fields({"resourceName": text, "restartPolicy": text})),
    "restartPolicy": text,
    "restartPolicyRules": denied(_REMOVE),
    "volumeMounts": listed(
        fields(
            {
                "name": text,
                "readOnly": boolean,
                "recursiveReadOnly": text,
                "mountPath": text,
                "subPath": text,
                "mountPropagation": text,
                "subPathExpr": text,
            }
        )
    ),
    "volumeDevices": listed(fields({"name": text, "devicePath": text})),
    "livenessProbe": _probe,
    "readinessProbe": _probe,
    "startupProbe": _probe,
    "lifecycle": fields({"postStart": _handler, "preStop": _handler, "stopSignal": text}),
    "terminationMessagePath": text,
    "terminationMessagePolicy": text,
    "imagePullPolicy": text,
    "securityContext": _security_context,
    "stdin": boolean,
    "stdinOnce": boolean,
    "tty": boolean,
}
CONTAINER = fields(_container)
# The other fields of containers may not be set in these (Kubernetes: "Ephemeral Containers").
EPHEMERAL = fields(
    {
        **{field: _container[field] for field in _IN_EPHEMERAL},
        "targetContainerName": text,
    }
)
"""Builds an ephemeral container; nothing in it is translated yet."""

# Scheduling

_node_term = fields({"matchExpressions": _expressions, "matchFields": _expressions})
_pod_term = fields(
    {
        "labelSelector": SELECTOR,
        "namespaces": _texts,
        "topologyKey": text,
        "namespaceSelector": SELECTOR,
        "matchLabelKeys": _texts,
        "mismatchLabelKeys": _texts,
    }
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_pod_terms = fields(
    {REQUIRED: listed(_pod_term), PREFERRED: listed(fields({"weight": integer, "podAffinityTerm": _pod_term}))}
)
_affinity = fields(
    {
        "nodeAffinity": fields(
            {
                REQUIRED: fields({"nodeSelectorTerms": listed(_node_term)}),
                PREFERRED: listed(fields({"weight": integer, "preference": _node_term})),
            }
        ),
        "podAffinity": _pod_terms,
        "podAntiAffinity": _pod_terms,
    }
)
_spread = fields(
    {
        "maxSkew": integer,
        "topologyKey": text,
        "whenUnsatisfiable": text,
        "labelSelector": SELECTOR,
        "minDomains": integer,
        "nodeAffinityPolicy": text,
        "nodeTaintsPolicy": text,
        "matchLabelKeys": _texts,
    }
)

SPEC = fields(
    {
        "schedulerName": _scheduler,
        "resourceClaims": denied("request devices as resources of containers"),
        "schedulingGroup": denied(_REMOVE),
        "hostnameOverride": denied("set spec.hostname"),
        "containers": listed(CONTAINER, most=MOST_CONTAINERS),
        "initContainers": listed(CONTAINER, most=MOST_CONTAINERS),
        "volumes": listed(_volume),
        "restartPolicy": text,
        "terminationGracePeriodSeconds": integer,
        "activeDeadlineSeconds": integer,
        "dnsPolicy": text,
        "dnsConfig": fields(
            {"nameservers": _texts, "searches": _texts, "options": listed(fields({"name": text, "value": text}))}
        ),
        "nodeSelector": mapped(text),
        "affinity": _affinity,
        "topologySpreadConstraints": listed(_spread),
        "tolerations": listed(
            fields({"key": text, "operator": text, "value": text, "effect": text, "tolerationSeconds": integer})
        ),
        "securityContext": fields(
            {
                **_both_security_contexts,
                "fsGroup": integer,
                "fsGroupChangePolicy": text,
                "seLinuxChangePolicy": text,
                "supplementalGroups": listed(integer),
                "supplementalGroupsPolicy": text,
                "sysctls": listed(fields({"name": text, "value": text})),
            }
        ),
        "hostname": text,
        "subdomain": text,
        "hostAliases": listed(fields({"ip": text, "hostnames": _texts})),
        "hostNetwork": boolean,
        "hostPID": boolean,
        "hostIPC": boolean,
        "hostUsers": boolean,
        "shareProcessNamespace": boolean,
        "imagePullSecrets": listed(_named),
        "priorityClassName": text,
        "preemptionPolicy": text,
        "runtimeClassName": text,
        "enableServiceLinks": boolean,
        "readinessGates": listed(fields({"conditionType": text})),
        "setHostnameAsFQDN": boolean,
        "os": _named,
        "resources": _resources,
        "schedulingGates": listed(_named),
    }
)
"""Builds the spec of a pod; nothing in it is translated yet."""

ADDED = fields({"ephemeralContainers": listed(EPHEMERAL, most=MOST_CONTAINERS)})
"""Builds what is added to the spec of a pod that is there already."""
