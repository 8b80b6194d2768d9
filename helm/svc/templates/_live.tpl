{{/* What an upgrade finds in the cluster. `lookup` finds nothing in `helm template` and Argo CD; the chart renders without it. */}}

{{/*
The ReplicaSets of the release that have pods, as a JSON list of dicts: component; config (kind/name of the object that its pods read the configuration
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
{{- if and (eq .name "config") .configMap -}}{{- $config = printf "ConfigMap/%s" .configMap.name -}}{{- end -}}
{{- if and (eq .name "config") .secret -}}{{- $config = printf "Secret/%s" .secret.secretName -}}{{- end -}}
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
The number of replicas of a scaled Deployment: the present one, from which the autoscaler continues. Without it the Deployment would shrink to one pod when
autoscaling is switched on. Nothing if there is no Deployment yet, or if helm 4 applies on the server and the autoscaler owns the field: a rollback would
conflict with it. Arguments: list of root, name and settings.
*/}}
{{- define "svc.liveReplicas" -}}
{{- $root := index . 0 -}}
{{- if $root.Release.IsUpgrade -}}
{{- $live := lookup "apps/v1" "Deployment" $root.Release.Namespace (index . 1) -}}
{{- $isApplied := false -}}
{{- $isScaled := false -}}
{{- range (default dict $live.metadata).managedFields -}}
{{- $isApplied = or $isApplied (eq .operation "Apply") -}}
{{- $isScaled = or $isScaled (and (eq (toString .subresource) "scale") (hasKey (default dict (get (default dict .fieldsV1) "f:spec")) "f:replicas")) -}}
{{- end -}}
{{- with $live.spec -}}
{{- if not (and $isApplied $isScaled (gt (int .replicas) 0)) -}}
{{- max (int .replicas) (int (include "svc.fewestReplicas" (index $ 2))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The objects that present pods read their configuration from, other than the new one, as a JSON list of kind/name. */}}
{{- define "svc.configsInUse" -}}
{{- $names := list -}}
{{- range fromJsonArray (include "svc.replicaSets" .) -}}
{{- $names = append $names .config -}}
{{- end -}}
{{- toJson (without (compact $names | uniq) (printf "%s/%s" .Values.configKind (include "svc.configName" .))) -}}
{{- end -}}
