{{/* What an upgrade finds in the cluster. `lookup` gives nothing in `helm template` and in Argo CD: everything works without it. */}}

{{/*
The ReplicaSets of the release that have pods, as a JSON list of dicts: component; config (the name of the object that its pods read the configuration
from); ingest (whether its pods have the label of the Service).
*/}}
{{- define "svc.replicaSets" -}}
{{- $found := list -}}
{{- if .Release.IsUpgrade -}}
{{- range (lookup "apps/v1" "ReplicaSet" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $isOurs := and (eq (get $labels "app.kubernetes.io/name") (include "svc.name" $)) (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) -}}
{{- if and $isOurs (gt (int .spec.replicas) 0) -}}
{{- $config := "" -}}
{{- range .spec.template.spec.volumes -}}
{{- if and (eq .name "config") .configMap -}}{{- $config = .configMap.name -}}{{- end -}}
{{- if and (eq .name "config") .secret -}}{{- $config = .secret.secretName -}}{{- end -}}
{{- end -}}
{{- $found = append $found (dict "component" (get $labels "app.kubernetes.io/component") "config" $config "ingest" (hasKey $labels "svc-relay/ingest")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
The pods that take messages in, whichever Deployment they belong to, so that a change of `mode` leaves none out. Pods of an older chart lack the label: while
there are some, the Service finds them by their component.
*/}}
{{- define "svc.ingestSelector" -}}
{{- $component := include "svc.componentOf" (list . "ingest") -}}
{{- $byComponent := false -}}
{{- range fromJsonArray (include "svc.replicaSets" .) -}}
{{- if and (eq .component $component) (not .ingest) -}}{{- $byComponent = true -}}{{- end -}}
{{- end -}}
{{- if $byComponent -}}
{{ include "svc.selectorLabels" (list . $component) }}
{{- else -}}
{{ include "svc.releaseLabels" . }}
svc-relay/ingest: "true"
{{- end -}}
{{- end -}}

{{/*
The number of replicas of a scaled Deployment: the present one, which the autoscaler goes on from. Without it the Deployment would shrink to one pod when
autoscaling is switched on. Nothing where there is none yet. Arguments: list of root, name and autoscaling.
*/}}
{{- define "svc.liveReplicas" -}}
{{- $root := index . 0 -}}
{{- if $root.Release.IsUpgrade -}}
{{- with (lookup "apps/v1" "Deployment" $root.Release.Namespace (index . 1)).spec -}}
{{- max (int .replicas) (int (index $ 2).minReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the objects that present pods read their configuration from, other than the new one, as a JSON list. */}}
{{- define "svc.configsInUse" -}}
{{- $names := list -}}
{{- range fromJsonArray (include "svc.replicaSets" .) -}}
{{- $names = append $names .config -}}
{{- end -}}
{{- toJson (without (compact $names | uniq) (include "svc.configName" .)) -}}
{{- end -}}
