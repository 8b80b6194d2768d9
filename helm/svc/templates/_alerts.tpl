{{/* The groups of alerts, with what prometheusRule.alerts changes, as YAML. */}}
{{- define "svc.alertGroups" -}}
{{- $changes := .Values.prometheusRule.alerts -}}
{{- $runbooks := default "docs/runbook.md" .Values.prometheusRule.runbookUrl -}}
{{- $names := list -}}
{{- $groups := list -}}
{{- range $file := list "files/alerts.yml" "files/alerts-kubernetes.yml" -}}
{{- $text := $.Files.Get $file | replace "NAMESPACE" $.Release.Namespace | replace "FULLNAME" (include "svc.fullname" $) -}}
{{- range $group := (fromYaml (replace "docs/runbook.md#" (printf "%s#" $runbooks) $text)).groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $alert := default "" $rule.alert -}}{{/* none: a recording rule */}}
{{- $names = append $names $alert -}}
{{- $change := default dict (get $changes $alert) -}}
{{- if ne (toString $change.enabled) "false" -}}
{{- with $change.for -}}{{- $_ := set $rule "for" . -}}{{- end -}}
{{- with $change.severity -}}{{- $_ := set $rule.labels "severity" . -}}{{- end -}}
{{- if hasKey $change "threshold" -}}
{{- $_ := set $rule "expr" (include "svc.withThreshold" (list $rule $change.threshold)) -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}{{- $groups = append $groups (set $group "rules" $rules) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name := keys $changes -}}
{{- if not (has $name $names) -}}
{{- fail (printf "prometheusRule.alerts names %s: there is no such alert" $name) -}}
{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}

{{/*
The expression of a rule with another threshold: the first number after ">" that is not 0, or 0 if there is no other, wherever it is. Arguments: list of rule
and threshold.
*/}}
{{- define "svc.withThreshold" -}}
{{- $rule := index . 0 -}}
{{- $numbers := regexFindAll `> [0-9][0-9.e]*( \* [0-9]+)?` $rule.expr -1 -}}
{{- if not $numbers -}}
{{- fail (printf "prometheusRule.alerts.%s.threshold: this alert compares with no number" $rule.alert) -}}
{{- end -}}
{{- $old := first (append (without $numbers "> 0") (first $numbers)) -}}
{{- $rule.expr | replace $old (printf "> %v" (index . 1)) -}}
{{- end -}}
