{{/* The first HTTP source as JSON, for NOTES: name, path, body of a message that it takes, auth. An empty object when there is none. */}}
{{- define "svc.sampleSource" -}}
{{- $found := dict -}}
{{- range $name, $source := default dict .Values.config.sources -}}
{{- if and (not $found) $source.path $source.idempotencyKeyPath -}}
{{- $body := dict -}}
{{- range $attribute, $value := dict "idempotencyKeyPath" "1" "eventTypePath" "created" "aggregateIdPath" "c-1" -}}
{{- $path := default "" (get $source $attribute) -}}
{{- if regexMatch `^\$(\.\w+)+$` $path -}}
{{- $part := $value -}}
{{- range $key := reverse (splitList "." (trimPrefix "$." $path)) -}}
{{- $part = dict $key $part -}}
{{- end -}}
{{- $body = merge $body $part -}}
{{- end -}}
{{- end -}}
{{- $base := trimAll `"` (include "svc.configValue" (list $ "inbox.basePath" "/inbox")) -}}
{{- $found = dict "name" $name "path" (printf "%s%s" $base $source.path) "body" (toJson $body) "auth" (hasKey $source "auth") -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}
