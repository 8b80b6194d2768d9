{{/* Names and labels. */}}

{{- define "svc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 42 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 42 characters: the name of a CronJob may have 52, and "-retention" follows. */}}
{{- define "svc.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 42 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 42 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 42 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What all pods of the release have in common. */}}
{{- define "svc.releaseLabels" -}}
app.kubernetes.io/name: {{ include "svc.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What tells the pods of one workload from all others. Arguments: list of root and component. */}}
{{- define "svc.selectorLabels" -}}
{{ include "svc.releaseLabels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object. Arguments: list of root and component. */}}
{{- define "svc.labels" -}}
{{- $root := index . 0 -}}
{{- $own := fromYaml (include "svc.selectorLabels" .) -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- toYaml (merge $own $root.Values.commonLabels) -}}
{{- end -}}

{{- define "svc.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "svc.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Hooks run before the release's own ServiceAccount is there. */}}
{{- define "svc.migrationServiceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- include "svc.fullname" . }}-migrate
{{- else -}}
{{- include "svc.serviceAccountName" . -}}
{{- end -}}
{{- end -}}

{{- define "svc.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* By its content: pods of an upgrade that fails keep the configuration that they began with, and a change of it makes new pods. */}}
{{- define "svc.configName" -}}
{{- printf "%s-config-%s" (include "svc.fullname" .) (include "svc.config" . | sha256sum | trunc 10) -}}
{{- end -}}

{{- define "svc.claimName" -}}
{{- default (printf "%s-capture" (include "svc.fullname" .)) .Values.roles.capture.persistence.existingClaim -}}
{{- end -}}
