{{/* Names and labels. */}}

{{- define "devherd.name" -}}
{{- default .Chart.Name .Values.nameOverride }}
{{- end }}

{{/* Short enough for the name of a pool behind it; two long ones that begin alike stay apart. */}}
{{- define "devherd.fullname" -}}
{{- $name := include "devherd.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full = default $full .Values.fullnameOverride }}
{{- if gt (len $full) 40 }}{{ $full = printf "%s-%s" (trunc 32 $full | trimSuffix "-") (sha256sum $full | trunc 7) }}{{ end }}
{{- $full }}
{{- end }}

{{- define "devherd.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* Of what belongs to no namespace: each installation of a cluster has its own. */}}
{{- define "devherd.clusterName" -}}
{{- $namespace := include "devherd.namespace" . }}{{ $full := include "devherd.fullname" . }}
{{- ternary $full (printf "%s-%s" $namespace $full) (eq $namespace $full) }}
{{- end }}

{{- define "devherd.serviceAccount" -}}
{{- default (include "devherd.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* By which the pods of all pools of a release are known. */}}
{{- define "devherd.selector" -}}
app.kubernetes.io/name: {{ include "devherd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Those of every object; a label of the user's takes the place of none of them. */}}
{{- define "devherd.labels" -}}
{{- merge (include "devherd.ownLabels" . | fromYaml) (default dict .Values.commonLabels) | toYaml }}
{{- end }}

{{- define "devherd.ownLabels" -}}
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
