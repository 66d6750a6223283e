{{/*
Words that the policies, and whoever selects pods for the webhooks, have in common. Each define gives the text of one CEL
expression; those on a pod take it as `object`.
*/}}

{{- define "tangram.policies.prefix" -}}
{{ .Values.prefix | default "tangram.dev" }}/
{{- end }}

{{/* The account that posts Bindings. */}}
{{- define "tangram.policies.binder" -}}
{{- $policies := .Values.policies | default dict -}}
{{ $policies.binder | default (printf "system:serviceaccount:%s:tangram-extender" .Release.Namespace) }}
{{- end }}

{{/* Namespaces where an operator's own tools see devices by other means, as a YAML list. */}}
{{- define "tangram.policies.exempt" -}}
{{- $policies := .Values.policies | default dict -}}
{{- $agents := (.Values.agent | default dict).namespace | default "tangram-agents" -}}
{{- $others := $policies.exemptNamespaces | default list -}}
{{ prepend $others $agents | uniq | toJson }}
{{- end }}

{{/* Whether `k` is an annotation that only a Binding may carry. */}}
{{- define "tangram.policies.isReserved" -}}
{{- $prefix := include "tangram.policies.prefix" . -}}
(k == '{{ $prefix }}allocation' || k.startsWith('{{ $prefix }}devices-') || k.startsWith('{{ $prefix }}mps-') || k.startsWith('nvidia.cdi.k8s.io') || k.startsWith('cdi.k8s.io'))
{{- end }}

{{/* Containers and init containers, sidecars among them. */}}
{{- define "tangram.policies.containers" -}}
(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))
{{- end }}

{{/* Whether a pod asks for a resource `k` that .condition is true of, given as (dict "condition" ...). */}}
{{- define "tangram.policies.asksFor" -}}
{{ include "tangram.policies.containers" . }}.exists(c, has(c.resources) && ((has(c.resources.limits) && c.resources.limits.exists(k, ({{ .condition }}) && string(c.resources.limits[k]) != '0')) || (has(c.resources.requests) && c.resources.requests.exists(k, ({{ .condition }}) && string(c.resources.requests[k]) != '0'))))
{{- end }}

{{/* Whether a pod asks for our resources, or for a fraction that the webhook has still to write as one. */}}
{{- define "tangram.policies.asksOurs" -}}
{{- $prefix := include "tangram.policies.prefix" . -}}
({{ include "tangram.policies.asksFor" (dict "condition" (printf "k.startsWith('%s')" $prefix)) }} || (has(object.metadata.annotations) && '{{ $prefix }}gpu-fraction' in object.metadata.annotations && object.metadata.annotations['{{ $prefix }}gpu-fraction'].trim() != ''))
{{- end }}

{{/* Whether a pod asks for what NVIDIA's device plugin advertises; other names below nvidia.com no node need have. */}}
{{- define "tangram.policies.asksPlugin" -}}
{{ include "tangram.policies.asksFor" (dict "condition" "k in ['nvidia.com/gpu', 'nvidia.com/gpu.shared'] || k.startsWith('nvidia.com/mig-')") }}
{{- end }}

{{/*
Whether a pod, or its namespace as `request.namespace`, is routed to our scheduler without asking for devices of ours. Values:
admission.pluginPods (true), admission.routedNamespaces ([]), admission.routedTaints ([]), as the settings of the same names.
*/}}
{{- define "tangram.policies.isRouted" -}}
{{- $admission := .Values.admission | default dict -}}
(request.namespace in {{ $admission.routedNamespaces | default list | toJson }}
|| (has(object.spec.tolerations) && object.spec.tolerations.exists(t, has(t.key) && t.key in {{ $admission.routedTaints | default list | toJson }}))
{{- if ne (toString $admission.pluginPods) "false" }}
|| {{ include "tangram.policies.asksPlugin" . }}
{{- end }})
{{- end }}
