{{- /* The form of mutations: mutating policies are v1 since Kubernetes 1.36. */ -}}
{{- define "tenantry.mutations" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
Policies
{{- else -}}
Webhook
{{- end -}}
{{- end -}}
