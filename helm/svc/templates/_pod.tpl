{{/*
A pod template, metadata and spec. Arguments, a dict: root; component; args (of svc, without --config); cells (--cells); settings (as roleDefaults);
serves (whether it has ports and probes); configName; serviceAccountName; env (further variables of the container); restartPolicy; capture (whether it has the volume).
*/}}
{{- define "svc.podTemplate" -}}
{{- $root := .root -}}
{{- $settings := .settings -}}
metadata:
  {{- with $settings.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  labels:
    {{- /* Not the chart's version: it would restart the pods for nothing. */ -}}
    {{- $labels := merge (fromYaml (include "svc.selectorLabels" (list $root .component))) $root.Values.commonLabels -}}
    {{- if .serves -}}
    {{- $_ := set $labels "svc-relay/serves" "true" -}}
    {{- if has "ingest" .args -}}
    {{- $_ := set $labels "svc-relay/ingest" "true" -}}
    {{- end -}}
    {{- end -}}
    {{- toYaml (merge $labels (default dict $settings.podLabels)) | nindent 4 }}
spec:
  serviceAccountName: {{ .serviceAccountName }}
  automountServiceAccountToken: false
  # Else Kubernetes sets variables such as SVC_PORT, which the service would read as configuration.
  enableServiceLinks: false
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ default (include "svc.stopSeconds" $root) $settings.terminationGracePeriodSeconds }}
  {{- with include "svc.podNetwork" $settings | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $settings.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $settings.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $settings.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $settings.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and .serves $settings.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $same := dict "labelSelector" (dict "matchLabels" (fromYaml (include "svc.selectorLabels" (list $root .component)))) }}
    {{- range $settings.topologySpreadConstraints }}
    - {{- toYaml (ternary . (merge (deepCopy .) $same) (hasKey . "labelSelector")) | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with $settings.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: svc
      image: {{ include "svc.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        {{- $cells := ternary (list "--cells" (join "," (default list .cells))) list (not (empty .cells)) }}
        {{- toYaml (concat .args $cells (list "--config" (include "svc.configFile" $root))) | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      env:
        - name: LOG_LEVEL
          value: {{ $root.Values.logLevel | quote }}
        {{- range $name, $from := $root.Values.secretEnv }}
        - name: {{ $name }}
          valueFrom:
            secretKeyRef:
              name: {{ $from.existingSecret }}
              key: {{ $from.key }}
        {{- end }}
        {{- with concat $root.Values.extraEnv (default list .env) (default list $settings.extraEnv) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .serves }}
      {{- include "svc.portsAndProbes" $root | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml $settings.resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: {{ include "svc.configFile" $root }}
          subPath: svc.yml
          readOnly: true
        {{- range $name, $_ := $root.Values.secretFiles }}
        - name: secret-{{ $name }}
          mountPath: {{ include "svc.secretsDirectory" $root }}/{{ $name }}
          readOnly: true
        {{- end }}
        {{- if .capture }}
        - name: capture
          mountPath: {{ include "svc.captureDirectory" $root }}
        {{- end }}
        - name: tmp
          mountPath: /tmp
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- /* A Job would not end while they run. */}}
    {{- if and .serves $settings.extraContainers }}
    {{- toYaml $settings.extraContainers | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      {{- if eq $root.Values.configKind "Secret" }}
      secret:
        secretName: {{ .configName }}
        defaultMode: 288 # 0440: root and the group of the pod
      {{- else }}
      configMap:
        name: {{ .configName }}
      {{- end }}
    {{- range $name, $from := $root.Values.secretFiles }}
    - name: secret-{{ $name }}
      secret:
        secretName: {{ $from.existingSecret }}
        defaultMode: 288
    {{- end }}
    {{- if .capture }}
    - name: capture
      persistentVolumeClaim:
        claimName: {{ include "svc.claimName" $root }}
    {{- end }}
    - name: tmp
      emptyDir:
        sizeLimit: 64Mi
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* How names are resolved in a pod. Argument: settings, as roleDefaults. */}}
{{- define "svc.podNetwork" -}}
{{- with .hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "svc.portsAndProbes" -}}
{{- $port := include "svc.operatorPort" . -}}
ports:
  - name: http
    containerPort: {{ include "svc.configNumber" (list . "server.httpPort" 8080) }}
  {{- with include "svc.managementPort" . }}
  - name: management
    containerPort: {{ . }}
  {{- end }}
# Nothing listens before the database has answered: the start may last as long as the service waits for it.
startupProbe:
  httpGet:
    path: /health/live
    port: {{ $port }}
  periodSeconds: 2
  timeoutSeconds: 5
  {{- $startupMs := int (include "svc.configNumber" (list . "database.startupTimeoutMs" 60000)) }}
  failureThreshold: {{ div (add (div (add $startupMs 999) 1000) .Values.probes.startup.extraSeconds 1) 2 }}
livenessProbe:
  httpGet:
    path: /health/live
    port: {{ $port }}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet:
    path: /health/ready
    port: {{ $port }}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- if .Values.preStopSleepSeconds }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .Values.preStopSleepSeconds }}
{{- end }}
{{- end -}}

{{/*
A Job of a hook, limited as values.migrations says. Arguments: those of svc.podTemplate without the account, and annotations.
*/}}
{{- define "svc.hookJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "svc.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "svc.labels" (list .root .component) | nindent 4 }}
  annotations:
    {{- toYaml .annotations | nindent 4 }}
spec:
  activeDeadlineSeconds: {{ int .root.Values.migrations.activeDeadlineSeconds }}
  backoffLimit: {{ int .root.Values.migrations.backoffLimit }}
  {{- include "svc.podFailurePolicy" . | nindent 2 }}
  template:
    {{- $account := include "svc.migrationServiceAccountName" .root }}
    {{- include "svc.podTemplate" (merge (dict "restartPolicy" "Never" "serviceAccountName" $account) .) | nindent 4 }}
{{- end -}}

{{/* Of Jobs: exit code 2 is a configuration or a schema that svc refuses, and that a repeat would refuse as well. */}}
{{- define "svc.podFailurePolicy" -}}
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: svc
        operator: In
        values: [2]
{{- end -}}
