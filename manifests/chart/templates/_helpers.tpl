{{/* Names and texts that several templates share. */}}

{{- define "tangram.labels" -}}
app.kubernetes.io/name: tangram
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tangram.extender.selector" -}}
app.kubernetes.io/name: tangram
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: extender
{{- end }}

{{- define "tangram.agent.selector" -}}
app.kubernetes.io/name: tangram
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "tangram.isPaired" -}}
{{- if eq .Values.mode "paired" }}true{{ end }}
{{- end }}

{{/* Whether the extender places pods without GPUs too: an existing kube-scheduler would ask about every pod there is. */}}
{{- define "tangram.everyPod" -}}
{{- if and .Values.scheduler.everyPod (include "tangram.isPaired" .) }}true{{ end }}
{{- end }}

{{- define "tangram.isSelfSigned" -}}
{{- if eq .Values.certificates.source "self-signed" }}true{{ end }}
{{- end }}

{{/* The lease that decides who acts: kube-scheduler's in the paired mode, ours in the stand-alone mode. */}}
{{- define "tangram.lease" -}}
{{- if include "tangram.isPaired" . }}tangram-scheduler{{ else }}tangram-extender{{ end }}
{{- end }}

{{- define "tangram.people.scheme" -}}
{{- if .Values.people.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{/* Audiences that are served with TLS, separated by blanks. */}}
{{- define "tangram.audiences" -}}
webhooks agents
{{- if .Values.people.tls }} people{{ end }}
{{- if not (include "tangram.isPaired" .) }} scheduler{{ end }}
{{- end }}

{{- define "tangram.viewers" -}}
{{- $viewers := .Values.viewer.others -}}
{{- if .Values.viewer.create }}{{ $viewers = prepend $viewers (printf "system:serviceaccount:%s:tangram-viewer" .Release.Namespace) }}{{ end -}}
{{ $viewers | toJson }}
{{- end }}

{{/* Names under which callers reach a replica. */}}
{{- define "tangram.serviceNames" -}}
{{- $names := list }}
{{- $services := list "tangram-webhooks" "tangram-reports" "tangram-people" "tangram-scheduler" }}
{{- if .Values.history.persistence.enabled }}
{{- $services = append $services "tangram-peers" }}
{{- end }}
{{- range $service := $services }}
{{- $name := printf "%s.%s.svc" $service $.Release.Namespace }}
{{- $names = concat $names (list $name (printf "%s.cluster.local" $name)) }}
{{- end }}
{{- $names | toJson }}
{{- end }}

{{/* Where a replica keeps its history, and where it finds the others'; the own certificate's file holds its authority. */}}
{{- define "tangram.history" -}}
path: /var/lib/tangram/history.db
peers: {{ include "tangram.people.scheme" . | lower }}://tangram-peers.{{ .Release.Namespace }}.svc:8273
{{- if .Values.people.tls }}
peers_ca: /run/tangram/certificates/people/{{ ternary "tls.crt" "ca.crt" (eq .Values.certificates.source "self-signed") }}
{{- end }}
{{- end }}

{{/* What the extender reads; every name is a setting. */}}
{{- define "tangram.extender.settings" -}}
{{- $deployment := dict
  "mode" .Values.mode
  "namespace" .Release.Namespace
  "lease_name" (include "tangram.lease" .)
  "certificates" (ternary "self-signed" "mounted" (eq .Values.certificates.source "self-signed"))
  "service_names" (include "tangram.serviceNames" . | fromJsonArray)
  "people_tls" .Values.people.tls
  "agent_namespace" .Values.agent.namespace
  "viewer_accounts" (include "tangram.viewers" . | fromJsonArray)
}}
{{- $admission := dict
  "scheduler_name" .Values.scheduler.name
  "other_schedulers" .Values.scheduler.otherNames
  "runtime_class" .Values.runtimeClass.name
  "other_runtime_classes" .Values.runtimeClass.others
  "injector" .Values.injector
  "mps_directory" .Values.agent.mps.hostPath
  "plugin_pods" .Values.admission.pluginPods
  "routed_namespaces" .Values.admission.routedNamespaces
  "routed_taints" .Values.admission.routedTaints
}}
{{- $settings := dict
  "prefix" .Values.prefix
  "log_level" .Values.extender.logLevel
  "deployment" $deployment
  "admission" $admission
}}
{{- if .Values.history.persistence.enabled }}
{{- $_ := set $settings "history" (include "tangram.history" . | fromYaml) }}
{{- end }}
{{- if .Values.extender.mix }}
{{- $_ := set $settings "mix_file" "/etc/tangram/mix.json" }}
{{- end }}
{{- mustMergeOverwrite $settings (deepCopy .Values.extender.settings) | toYaml }}
{{- end }}

{{/* The constants of extender/scheduler_config.py, compared with them by tests/manifests/test_chart.py. */}}
{{- define "tangram.scheduler.configuration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if include "tangram.isPaired" . }}
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: {{ include "tangram.lease" . }}
  leaseDuration: 10s
  renewDeadline: 6s
  retryPeriod: 1s
{{- end }}
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
    percentageOfNodesToScore: 100
    {{- if include "tangram.everyPod" . }}
    pluginConfig:
      - name: NodeResourcesFit
        args:
          ignoredResources: [{{ .Values.prefix }}/gpu]
    {{- end }}
extenders:
  - urlPrefix: {{ if include "tangram.isPaired" . }}http://127.0.0.1:8270/v1{{ else }}{{ .Values.scheduler.extenderUrl | default (printf "https://tangram-scheduler.%s.svc:8270" .Release.Namespace) }}/v1{{ end }}
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    weight: 150
    httpTimeout: 5s
    nodeCacheCapable: true
    ignorable: false
    {{- if not (include "tangram.everyPod" .) }}
    managedResources:
      - {name: {{ .Values.prefix }}/gpu, ignoredByScheduler: true}
      - {name: {{ .Values.prefix }}/gpu-memory, ignoredByScheduler: false}
      - {name: {{ .Values.prefix }}/gpu-compute, ignoredByScheduler: false}
      {{- range .Files.Lines "files/plugin-resources.txt" }}
      {{- if . }}
      - {name: {{ . }}, ignoredByScheduler: false}
      {{- end }}
      {{- end }}
    {{- end }}
{{- if not (include "tangram.isPaired" .) }}
    enableHTTPS: true
    tlsConfig:
      insecure: false
      serverName: tangram-scheduler.{{ .Release.Namespace }}.svc
      certFile: {{ .Values.scheduler.certificatesDirectory }}/tls.crt
      keyFile: {{ .Values.scheduler.certificatesDirectory }}/tls.key
      caFile: {{ .Values.scheduler.certificatesDirectory }}/ca.crt
{{- end }}
{{- end }}

{{/* Security of a container that Pod Security "restricted" admits. */}}
{{- define "tangram.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
