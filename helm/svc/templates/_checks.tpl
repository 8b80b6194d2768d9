{{/* Values that could be rendered but not run, each refused with what to do instead. */}}
{{- define "svc.checks" -}}
{{- include "svc.checkConfig" . -}}
{{- include "svc.checkCredentials" . -}}
{{- include "svc.checkRoles" . -}}
{{- include "svc.checkOnePort" . -}}
{{- range fromJsonArray (include "svc.workloads" .) -}}
{{- include "svc.checkWorkload" (list $ .) -}}
{{- end -}}
{{- include "svc.checkConnections" . -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled is true, but ingress.hosts is empty: name at least one host" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled is true, but httpRoute.parentRefs is empty: name the Gateway" -}}
{{- end -}}
{{- range $name := list "ingress" "httpRoute" -}}
{{- if and (get $.Values $name).enabled (not (include "svc.componentOf" (list $ "ingest"))) -}}
{{- fail (printf "%s.enabled is true, but no pod has the role ingest" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "svc.checkConnections" -}}
{{- with .Values.database.maxConnections -}}
{{- $poolSize := include "svc.configNumber" (list $ "database.poolSize" 10) -}}
{{- $sum := int (include "svc.connections" $) -}}
{{- if gt $sum (int .) -}}
{{- fail (printf "the pods would open up to %d connections, but database.maxConnections is %d: lower config.database.poolSize (%s), replicas or autoscaling.maxReplicas, or put a pooler in front. Counted are the most replicas of each Deployment and one more while it is replaced" $sum (int .) $poolSize) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "svc.checkOnePort" -}}
{{- $hasIngest := include "svc.componentOf" (list . "ingest") -}}
{{- if and $hasIngest (not (include "svc.managementPort" .)) -}}
{{- if ne .Values.service.type "ClusterIP" -}}
{{- fail (printf "service.type is %s, but the data port also serves metrics, health and admin routes: set config.server.managementPort, or keep ClusterIP and use ingress, which leads to the inbox and pull routes alone" .Values.service.type) -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.dataFrom -}}
{{- fail "networkPolicy.dataFrom has no effect: the data port also serves metrics, health and admin routes, so managementFrom opens it too. Set config.server.managementPort" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "svc.checkConfig" -}}
{{- range $key := list "url" "username" "password" -}}
{{- if has (include "svc.configValue" (list $ (printf "database.%s" $key) "")) (list `""` "null") -}}
{{- fail (printf "config.database.%s is missing: the service needs a database (url, username, password)" $key) -}}
{{- end -}}
{{- end -}}
{{- if eq (include "svc.configNumber" (list . "server.httpPort" 8080)) (include "svc.managementPort" .) -}}
{{- fail "config.server.managementPort must differ from config.server.httpPort" -}}
{{- end -}}
{{- if .Values.migrations.enabled -}}
{{- if ne (include "svc.configValue" (list . "database.migrate" false)) "false" -}}
{{- fail "config.database.migrate is true, but the migrations run in a Job of their own: leave it out, or set migrations.enabled to false" -}}
{{- end -}}
{{- range $key := list "inboxTableName" "outboxTableName" "destinationTableName" "historyTableName" "operationsTablePrefix" "columnMapping" -}}
{{- $value := include "svc.configValue" (list $ (printf "database.%s" $key) nil) -}}
{{- if not (has $value (list "null" "{}" `"inbox"` `"outbox"` `"outbox_destination"` `"outbox_history"` `"outbox_"`)) -}}
{{- fail (printf "config.database.%s renames tables or columns, which the bundled migrations do not know: make them by hand and set migrations.enabled to false and config.database.migrate to false" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $directory := include "svc.configValue" (list . "outbox.capture.stateDirectory" "") -}}
{{- if not (has $directory (list `""` (toJson (include "svc.captureDirectory" .)))) -}}
{{- fail (printf "config.outbox.capture.stateDirectory is %s: leave it out, the chart mounts the volume of roles.capture.persistence at %s" $directory (include "svc.captureDirectory" .)) -}}
{{- end -}}
{{- end -}}

{{- define "svc.checkCredentials" -}}
{{- if ne .Values.configKind "Secret" -}}
{{- $plain := splitList "\n" (trim (include "svc.plainCredentials" (dict "node" .Values.config "path" "config" "parent" "" "key" ""))) | compact -}}
{{- if $plain -}}
{{- fail (printf "%s would stand as plain text in a ConfigMap: use file:%s/<name>/<key> with secretFiles, or ${NAME} (without a fallback) with secretEnv, or set configKind to Secret" (join ", " $plain) (include "svc.secretsDirectory" .)) -}}
{{- end -}}
{{- end -}}
{{- $text := toJson .Values.config -}}
{{- $prefix := printf "file:%s/" (include "svc.secretsDirectory" .) -}}
{{- range $file := regexFindAll (printf `%s[^"]*` $prefix) $text -1 | uniq -}}
{{- $name := first (splitList "/" (trimPrefix $prefix $file)) -}}
{{- if not (hasKey $.Values.secretFiles $name) -}}
{{- fail (printf "config reads %s, but secretFiles has no entry %q: add secretFiles.%s.existingSecret" $file $name $name) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.extraEnvFrom -}}
{{- $named := append (keys .Values.secretEnv) "HOSTNAME" -}}
{{- range .Values.extraEnv -}}{{- $named = append $named .name -}}{{- end -}}
{{- $unescaped := regexReplaceAllLiteral `\$\$\{` $text "" -}}
{{- range $placeholder := regexFindAll `\$\{[A-Za-z_][A-Za-z0-9_.]*\}` $unescaped -1 | uniq -}}
{{- $name := trimSuffix "}" (trimPrefix "${" $placeholder) -}}
{{- if not (has $name $named) -}}
{{- fail (printf "config names %s, but no pod has this variable: add secretEnv.%s with existingSecret and key, or an entry in extraEnv" $placeholder $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "svc.checkRoles" -}}
{{- $switches := dict "relay" "inbox.relay.enabled" "retention" "retention.enabled" "capture" "outbox.capture.enabled" "admin" "admin.enabled" -}}
{{- range $role, $settings := .Values.roles -}}
{{- if and (eq (toString $settings.enabled) "true") (not (include "svc.switchedOn" (list $ $role))) -}}
{{- fail (printf "roles.%s.enabled is true, but config.%s is not: the pods would not start. Set it, or leave roles.%s.enabled at auto" $role (get $switches $role) $role) -}}
{{- end -}}
{{- end -}}
{{- $running := fromJsonArray (include "svc.runningRoles" .) -}}
{{- if not $running -}}
{{- fail "no role is enabled: nothing would run" -}}
{{- end -}}
{{- if and (eq .Values.mode "allInOne") (has "capture" $running) (not (has "poller" $running)) -}}
{{- fail "roles.poller.enabled is false, but capture wakes the poller of its own process: enable both in mode allInOne" -}}
{{- end -}}
{{- end -}}

{{/* Arguments: list of root and workload. */}}
{{- define "svc.checkWorkload" -}}
{{- $root := index . 0 -}}
{{- $workload := index . 1 -}}
{{- $values := $workload.values -}}
{{- with $workload.settings -}}
{{- if has "capture" $workload.roles -}}
{{- if or .autoscaling.enabled (ne (int .replicas) 1) -}}
{{- fail (printf "%s has the role capture, and only one replica may capture: set replicas to 1 and autoscaling.enabled to false" $values) -}}
{{- end -}}
{{- if and .strategy (ne (toString .strategy.type) "Recreate") -}}
{{- fail (printf "%s.strategy must be Recreate: two pods cannot own the change capture" $values) -}}
{{- end -}}
{{- end -}}
{{- $computed := `^SVC_(SERVER_(HTTPPORT|MANAGEMENTPORT)|DATABASE_(MIGRATE|STARTUPTIMEOUTMS)|OUTBOX_(SHUTDOWNTIMEOUTMS|CAPTURE_(ENABLED|STATEDIRECTORY))|INBOX_RELAY_ENABLED|RETENTION_ENABLED|ADMIN_ENABLED)$` -}}
{{- range concat $root.Values.extraEnv .extraEnv -}}
{{- if regexMatch $computed .name -}}
{{- fail (printf "extraEnv sets %s: set the key in config, since the chart goes by it" .name) -}}
{{- end -}}
{{- end -}}
{{- $needed := int (include "svc.stopSeconds" $root) -}}
{{- if and .terminationGracePeriodSeconds (lt (int .terminationGracePeriodSeconds) $needed) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds is %d: the shutdown may take %d s (preStopSleepSeconds, 5 s for requests, config.outbox.shutdownTimeoutMs, 10 s for connections, 5 s to spare)" $values (int .terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- with .podDisruptionBudget -}}
{{- if and .enabled (not $workload.settings.autoscaling.enabled) (kindIs "float64" .minAvailable) (ge (int .minAvailable) (int $workload.settings.replicas)) -}}
{{- fail (printf "%s.podDisruptionBudget.minAvailable is %d of %d replicas: no node could be drained" $values (int .minAvailable) (int $workload.settings.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if .autoscaling.enabled -}}
{{- include "svc.checkAutoscaling" $workload -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Argument: a workload. */}}
{{- define "svc.checkAutoscaling" -}}
{{- $workload := . -}}
{{- $values := printf "%s.autoscaling" $workload.values -}}
{{- $requests := default dict .settings.resources.requests -}}
{{- $fewest := int (include "svc.fewestReplicas" .settings) -}}
{{- with .settings.autoscaling -}}
{{- if gt $fewest (int .maxReplicas) -}}
{{- fail (printf "%s.maxReplicas is %d, below the %d of replicas or minReplicas" $values (int .maxReplicas) $fewest) -}}
{{- end -}}
{{- if eq .kind "hpa" -}}
{{- if not (or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics) -}}
{{- fail (printf "%s needs targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics" $values) -}}
{{- end -}}
{{- if or (and .targetCPUUtilizationPercentage (not $requests.cpu)) (and .targetMemoryUtilizationPercentage (not $requests.memory)) -}}
{{- fail (printf "%s measures in percent of the request: set resources.requests.cpu and memory" $values) -}}
{{- end -}}
{{- else -}}
{{- if not (fromJsonArray (include "svc.kedaQueries" (list $workload .keda))) -}}
{{- if not .keda.triggers -}}
{{- fail (printf "%s: %s has no backlog that KEDA could ask for: give keda.triggers, or kind hpa" $values $workload.name) -}}
{{- end -}}
{{- else if not .keda.serverAddress -}}
{{- fail (printf "%s.keda.serverAddress is missing: the URL of Prometheus" $values) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
