{{/*
What a ScaledObject asks Prometheus for, as a JSON list of dicts (query, threshold). The gauges say what waits in the database, the same from every pod: the
highest counts. Rows of a destination that is paused or held by its breaker do not: more replicas would not deliver them. Arguments: list of workload and its autoscaling.keda; a third item, the label matchers, for rendering.
*/}}
{{- define "svc.kedaQueries" -}}
{{- $workload := index . 0 -}}
{{- $selector := "" -}}
{{- if gt (len .) 2 -}}{{- $selector = index . 2 -}}{{- end -}}
{{- $queries := list -}}
{{- with index . 1 -}}
{{- if has "poller" $workload.roles -}}
{{- if .pendingRows -}}
{{- $queries = append $queries (dict "query" (printf "sum(max by (cell, destination) (svc_destination_due{%s}))" $selector) "threshold" (int .pendingRows | toString)) -}}
{{- end -}}
{{- if .oldestAgeSeconds -}}
{{- $queries = append $queries (dict "query" (printf "max(svc_destination_oldest_age_seconds{%s} and on (instance, cell, destination) svc_destination_due{%s} > 0)" $selector $selector) "threshold" (int .oldestAgeSeconds | toString)) -}}
{{- end -}}
{{- else if and (has "relay" $workload.roles) .oldestAgeSeconds -}}
{{- $queries = append $queries (dict "query" (printf "max(svc_inbox_oldest_pending_age_seconds{%s})" $selector) "threshold" (int .oldestAgeSeconds | toString)) -}}
{{- end -}}
{{- end -}}
{{- toJson $queries -}}
{{- end -}}
