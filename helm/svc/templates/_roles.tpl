{{/* Which roles run, and in which workloads. */}}

{{/* A map laid over another: maps are merged, everything else is replaced. Arguments: list of the two. Gives JSON. */}}
{{- define "svc.overlaid" -}}
{{- $result := deepCopy (index . 0) -}}
{{- range $key, $value := index . 1 -}}
{{- $below := get $result $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $below) -}}
{{- $_ := set $result $key (fromJson (include "svc.overlaid" (list $below $value))) -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}

{{/* Whether the configuration switches a role on: "true" or nothing. Arguments: list of root and role. */}}
{{- define "svc.switchedOn" -}}
{{- $root := index . 0 -}}
{{- $switch := get (dict "relay" "inbox.relay.enabled" "retention" "retention.enabled" "capture" "outbox.capture.enabled" "admin" "admin.enabled") (index . 1) -}}
{{- if $switch -}}
{{- include "svc.configSwitch" (list $root $switch (eq $switch "inbox.relay.enabled")) -}}
{{- else -}}
true
{{- end -}}
{{- end -}}

{{/* The roles that run somewhere, as a JSON list. */}}
{{- define "svc.runningRoles" -}}
{{- $running := list -}}
{{- range $role := list "ingest" "relay" "poller" "capture" "retention" "admin" -}}
{{- $enabled := (get $.Values.roles $role).enabled | toString -}}
{{- if and (ne $enabled "false") (include "svc.switchedOn" (list $ $role)) -}}
{{- $running = append $running $role -}}
{{- end -}}
{{- end -}}
{{- toJson $running -}}
{{- end -}}

{{/*
The Deployments, as a JSON list of dicts: name (also the label "component"), roles (of the command line), settings (roleDefaults under what the
role itself says), values (where those settings stand, for messages).
*/}}
{{- define "svc.workloads" -}}
{{- $items := list -}}
{{- $running := fromJsonArray (include "svc.runningRoles" .) -}}
{{- if eq .Values.roles.retention.kind "CronJob" -}}
{{- $running = without $running "retention" -}}
{{- end -}}
{{- if eq .Values.mode "allInOne" -}}
{{- if $running -}}
{{- $settings := fromJson (include "svc.overlaid" (list .Values.roleDefaults .Values.allInOne)) -}}
{{- $items = append $items (dict "name" "all" "roles" $running "settings" $settings "values" "allInOne") -}}
{{- end -}}
{{- else -}}
{{- range $role := $running -}}
{{- $settings := fromJson (include "svc.overlaid" (list $.Values.roleDefaults (get $.Values.roles $role))) -}}
{{- $roles := ternary (list "capture" "poller") (list $role) (eq $role "capture") -}}
{{- $items = append $items (dict "name" $role "roles" $roles "settings" $settings "values" (printf "roles.%s" $role)) -}}
{{- end -}}
{{- end -}}
{{- toJson $items -}}
{{- end -}}

{{/* The component whose pods have a role, or nothing when no pod has it. Arguments: list of root and role. */}}
{{- define "svc.componentOf" -}}
{{- range fromJsonArray (include "svc.workloads" (index . 0)) -}}
{{- if and (has (index $ 1) .roles) (or (eq .name (index $ 1)) (eq .name "all")) -}}
{{- .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The fewest replicas of a scaled workload: autoscaling never goes below the number without autoscaling. Argument: its settings. */}}
{{- define "svc.fewestReplicas" -}}
{{- max (int .autoscaling.minReplicas) (int .replicas) -}}
{{- end -}}

{{/* Seconds that a pod may need to stop: load balancers, HTTP, workers, publishers, database, and 5 to spare. */}}
{{- define "svc.stopSeconds" -}}
{{- $workersMs := int (include "svc.configNumber" (list . "outbox.shutdownTimeoutMs" 30000)) -}}
{{- add .Values.preStopSleepSeconds 5 (div (add $workersMs 999) 1000) 5 5 5 -}}
{{- end -}}

{{/*
The most connections to the database that the release opens, or nothing if config.database.poolSize is not a plain number: for each pod its pool, and one
for LISTEN if a poller runs over PostgreSQL. While a Deployment is replaced it has one pod more.
*/}}
{{- define "svc.connections" -}}
{{- $poolSize := include "svc.configValue" (list . "database.poolSize" 10) -}}
{{- if regexMatch "^[0-9]+$" $poolSize -}}
{{- $listens := eq (include "svc.configValue" (list . "database.type" "postgresql")) `"postgresql"` -}}
{{- $sum := 0 -}}
{{- range $workload := fromJsonArray (include "svc.workloads" .) -}}
{{- with $workload.settings -}}
{{- $pods := ternary (int .autoscaling.maxReplicas) (int .replicas) .autoscaling.enabled -}}
{{- $isReplaced := or (has "capture" $workload.roles) (eq (toString .strategy.type) "Recreate") (eq $pods 0) -}}
{{- $each := add (int $poolSize) (ternary 1 0 (and $listens (has "poller" $workload.roles))) -}}
{{- $sum = add $sum (mul (add $pods (ternary 0 1 $isReplaced)) $each) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.roles.retention.kind "CronJob") (has "retention" (fromJsonArray (include "svc.runningRoles" .))) -}}
{{- $sum = add $sum (int $poolSize) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
{{- end -}}
