{{- define "picus.name" -}}
{{- if contains "picus" .Release.Name -}}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{- else -}}{{ printf "%s-picus" .Release.Name | trunc 63 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "picus.selector" -}}
app.kubernetes.io/name: picus
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "picus.labels" -}}
{{ include "picus.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "picus.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "picus.name" .) }}{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end -}}

{{/* The variables of a group: keys in camel case become parts of the name, groups go on, lists are joined. */}}
{{- define "picus.variables" -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .values -}}
{{- $name := printf "%s_%s" $prefix (regexReplaceAll "([a-z0-9])([A-Z])" $key "${1}_${2}" | upper) -}}
{{- if kindIs "map" $value }}
{{- include "picus.variables" (dict "prefix" $name "values" $value) }}
{{- else if kindIs "slice" $value }}
- name: {{ $name }}
  value: {{ join "," $value | quote }}
{{- else if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- name: {{ $name }}
  value: {{ if kindIs "float64" $value }}{{ if eq (float64 (int64 $value)) $value }}{{ int64 $value | toString | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* One secret as a variable: of the chart's own Secret, of another one, or of a file. */}}
{{- define "picus.secret" -}}
{{- $secret := .secret | default dict -}}
{{- if $secret.file }}
- name: {{ .variable }}_FILE
  value: {{ $secret.file | quote }}
{{- else if $secret.existingSecret }}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ required (printf "%s.existingSecret needs a name" .path) $secret.existingSecret.name }}
      key: {{ required (printf "%s.existingSecret needs a key" .path) $secret.existingSecret.key }}
{{- else if $secret.value }}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .own }}
      key: {{ .key }}
{{- end -}}
{{- end -}}

{{/* The variable of each secret. */}}
{{- define "picus.secretVariables" -}}
woodpeckerToken: PICUS_WOODPECKER_TOKEN
hcloudToken: PICUS_HCLOUD_TOKEN
httpToken: PICUS_HTTP_TOKEN
agentSecret: PICUS_AGENT_WOODPECKER_AGENT_SECRET
awsAccessKeyId: AWS_ACCESS_KEY_ID
awsSecretAccessKey: AWS_SECRET_ACCESS_KEY
{{- end -}}

{{- define "picus.env" -}}
{{- $root := . -}}
{{- $own := include "picus.name" . -}}
{{- $variables := include "picus.secretVariables" . | fromYaml -}}
- name: PICUS_HTTP_ADDR
  value: {{ (dig "http" "addr" "0.0.0.0:8080" (.Values.settings | default dict)) | quote }}
{{- $settings := omit (.Values.settings | default dict) "http" }}
{{- include "picus.variables" (dict "prefix" "PICUS" "values" $settings) }}
{{- range $key, $secret := .Values.secrets }}
{{- include "picus.secret" (dict "secret" $secret "variable" (get $variables $key) "path" (printf "secrets.%s" $key) "own" $own "key" $key) }}
{{- end }}
{{- if .Values.pools }}
- name: PICUS_POOLS
  value: {{ (.Values.poolOrder | default (keys .Values.pools | sortAlpha)) | join "," | quote }}
{{- range $pool, $values := .Values.pools }}
{{- $prefix := printf "PICUS_POOL_%s" ($pool | upper) }}
{{- include "picus.variables" (dict "prefix" $prefix "values" (omit ($values | default dict) "secrets")) }}
{{- range $key, $secret := ($values | default dict).secrets }}
{{- $variable := get $variables $key | trimPrefix "PICUS_" | printf "%s_%s" $prefix }}
{{- include "picus.secret" (dict "secret" $secret "variable" $variable "path" (printf "pools.%s.secrets.%s" $pool $key) "own" $own "key" (printf "%s-%s" $pool $key)) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What is kept in the chart's own Secret, as YAML. */}}
{{- define "picus.ownSecrets" -}}
{{- range $key, $secret := .Values.secrets }}
{{- if and $secret $secret.value (not $secret.file) (not $secret.existingSecret) }}
{{ $key }}: {{ $secret.value | quote }}
{{- end }}
{{- end }}
{{- range $pool, $values := .Values.pools }}
{{- range $key, $secret := ($values | default dict).secrets }}
{{- if and $secret $secret.value (not $secret.file) (not $secret.existingSecret) }}
{{ $pool }}-{{ $key }}: {{ $secret.value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
