{{/* Names and labels. */}}

{{- define "devherd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Short enough for the name of a pool behind it. */}}
{{- define "devherd.fullname" -}}
{{- $name := include "devherd.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "devherd.serviceAccount" -}}
{{- default (include "devherd.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* By which the pods of all pools of a release are known. */}}
{{- define "devherd.selector" -}}
app.kubernetes.io/name: {{ include "devherd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "devherd.labels" -}}
{{ include "devherd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "devherd.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}
{{- else }}{{ printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}
