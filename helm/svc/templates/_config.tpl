{{/* What the chart reads from the configuration, and what it adds to it. */}}

{{/* A value of the configuration as JSON. Arguments: list of root, key path and the default of the service. */}}
{{- define "svc.configValue" -}}
{{- $node := (index . 0).Values.config -}}
{{- $there := true -}}
{{- range $key := splitList "." (index . 1) -}}
{{- if and $there (kindIs "map" $node) (hasKey $node $key) -}}
{{- $node = get $node $key -}}
{{- else -}}
{{- $there = false -}}
{{- end -}}
{{- end -}}
{{- if and $there (not (kindIs "invalid" $node)) -}}
{{- toJson $node -}}
{{- else -}}
{{- toJson (index . 2) -}}
{{- end -}}
{{- end -}}

{{/* A switch of the configuration: "true" or nothing. Arguments as above. */}}
{{- define "svc.configSwitch" -}}
{{- $value := include "svc.configValue" . -}}
{{- if eq $value "true" -}}
true
{{- else if ne $value "false" -}}
{{- fail (printf "config.%s is %s: write true or false, since the chart decides by it which pods there are" (index . 1) $value) -}}
{{- end -}}
{{- end -}}

{{/* A number of the configuration. Arguments as above. */}}
{{- define "svc.configNumber" -}}
{{- $value := include "svc.configValue" . -}}
{{- if not (regexMatch "^[0-9]+$" $value) -}}
{{- fail (printf "config.%s is %s: write a number, since the chart computes with it" (index . 1) $value) -}}
{{- end -}}
{{- $value -}}
{{- end -}}

{{/* The management port, or nothing if there is none. */}}
{{- define "svc.managementPort" -}}
{{- if ne (include "svc.configValue" (list . "server.managementPort" nil)) "null" -}}
{{- include "svc.configNumber" (list . "server.managementPort" nil) -}}
{{- end -}}
{{- end -}}

{{/* The name of the port with health, metrics and admin routes. */}}
{{- define "svc.operatorPort" -}}
{{- if include "svc.managementPort" . }}management{{ else }}http{{ end -}}
{{- end -}}

{{- define "svc.captureDirectory" -}}/var/lib/svc/capture{{- end -}}
{{- define "svc.configFile" -}}/etc/svc/svc.yml{{- end -}}
{{- define "svc.secretsDirectory" -}}/etc/svc/secrets{{- end -}}

{{/* The content of svc.yml. Never passed through tpl: templates of topics and addresses look like Helm's own. */}}
{{- define "svc.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.migrations.enabled -}}
{{- $_ := set $config "database" (set (default dict $config.database) "migrate" false) -}}
{{- end -}}
{{- if has "capture" (fromJsonArray (include "svc.runningRoles" .)) -}}
{{- $_ := set $config.outbox.capture "stateDirectory" (include "svc.captureDirectory" .) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The object that holds the configuration. Arguments: dict of root, name, labels, annotations, immutable. */}}
{{- define "svc.configObject" -}}
{{- $isSecret := eq .root.Values.configKind "Secret" -}}
apiVersion: v1
kind: {{ .root.Values.configKind }}
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- .labels | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if .immutable }}
immutable: true
{{- end }}
{{- if $isSecret }}
type: Opaque
stringData:
{{- else }}
data:
{{- end }}
  svc.yml: |
    {{- include "svc.config" .root | nindent 4 }}
{{- end -}}

{{/*
Key paths below which a credential stands as plain text, one a line.
Arguments: dict of node, path, parent (the name of the map that holds the node), key (the node's own name).
*/}}
{{- define "svc.plainCredentials" -}}
{{- if kindIs "map" .node -}}
{{- range $key, $value := .node -}}
{{- include "svc.plainCredentials" (dict "node" $value "path" (printf "%s.%s" $.path $key) "parent" $.key "key" $key) -}}
{{- end -}}
{{- else if kindIs "slice" .node -}}
{{- range $index, $value := .node -}}
{{- include "svc.plainCredentials" (dict "node" $value "path" (printf "%s.%d" $.path $index) "parent" $.key "key" "") -}}
{{- end -}}
{{- else if kindIs "string" .node -}}
{{- $placeholder := `\$\{[A-Za-z_][A-Za-z0-9_.]*\}` -}}
{{- $isSecret := or (has .key (list "password" "saslPassword" "clientSecret" "headerValue" "token" "secret")) (and (eq .key "key") (eq .parent "auth")) -}}
{{- $isNamed := and (has .parent (list "headers" "extraParams")) (regexMatch `(?i)authori[sz]|authent|cookie|token|secret|passw|pwd|api[-_]?key|assertion|signature|credential` .key) -}}
{{- $isUrl := has .key (list "url" "connectionUrl" "servers" "baseUrl" "tokenUrl") -}}
{{- if or $isSecret $isNamed -}}
{{- if not (or (eq .node "") (and $isSecret (hasPrefix "file:" .node)) (regexMatch $placeholder .node)) -}}
{{ .path }}{{ "\n" }}
{{- end -}}
{{- else if $isUrl -}}
{{- /* What placeholders fill is taken out: the user information that is left then is a password, or a token of NATS. */ -}}
{{- $rest := regexReplaceAllLiteral (printf `://([^\s/:@]*:)?%s@` $placeholder) .node "://" -}}
{{- $userInfo := ternary `://[^\s/@,]+@` `://[^\s/:@]*:[^\s,]*@` (eq .key "servers") -}}
{{- if or (regexMatch $userInfo $rest) (regexMatch `(?i)[?&;]\s*[\w.]*(password|pwd|secret|token)\w*\s*=\s*[^$\s]` $rest) -}}
{{ .path }}{{ "\n" }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
