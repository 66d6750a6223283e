{{/* The extender's container: a native sidecar in the paired mode, the only container otherwise. */}}
{{- define "tangram.extender.container" -}}
name: extender
image: {{ .Values.extender.image.repository }}:{{ .Values.extender.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.extender.image.pullPolicy }}
{{- if include "tangram.isPaired" . }}
restartPolicy: Always
{{- end }}
env:
  - {name: TANGRAM_CONFIG, value: /etc/tangram/extender.yaml}
ports:
  {{- if not (include "tangram.isPaired" .) }}
  - {name: scheduler, containerPort: 8270}
  {{- end }}
  - {name: webhooks, containerPort: 8271}
  - {name: agents, containerPort: 8272}
  - {name: people, containerPort: 8273}
# kube-scheduler starts when the lists are in, so it never asks an extender that knows nothing.
startupProbe:
  httpGet: {path: /readyz, port: people, scheme: {{ include "tangram.people.scheme" . }}}
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 300
readinessProbe:
  httpGet: {path: /readyz, port: people, scheme: {{ include "tangram.people.scheme" . }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: people, scheme: {{ include "tangram.people.scheme" . }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 3
  # A process that hangs does not hear the signal to end: thirty seconds of grace would only keep its pair away.
  terminationGracePeriodSeconds: 5
lifecycle:
  # Endpoints forget this replica before it stops answering.
  preStop:
    sleep: {seconds: 3}
resources:
  {{- toYaml .Values.extender.resources | nindent 2 }}
securityContext:
  {{- include "tangram.restricted" . | nindent 2 }}
volumeMounts:
  - {name: configuration, mountPath: /etc/tangram, readOnly: true}
  - {name: kube-api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- if .Values.history.persistence.enabled }}
  - {name: history, mountPath: /var/lib/tangram}
  {{- end }}
  {{- if include "tangram.isSelfSigned" . }}
  - {name: certificates, mountPath: /run/tangram/certificates}
  {{- else }}
  {{- range $audience := splitList " " (include "tangram.audiences" .) }}
  - {name: certificates-{{ $audience }}, mountPath: /run/tangram/certificates/{{ $audience }}, readOnly: true}
  {{- end }}
  {{- end }}
{{- end }}
