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

{{/* An object of a file of rights as one of this release, in place; its account is the release's, or the one of `account`. */}}
{{- define "devherd.nameRight" -}}
{{- $object := .object }}{{ $namespace := include "devherd.namespace" .root }}
{{- $ofCluster := not (hasKey $object.metadata "namespace") }}
{{- $prefix := ternary (include "devherd.clusterName" .root) (include "devherd.fullname" .root) $ofCluster }}
{{- $_ := set $object.metadata "name" ($object.metadata.name | replace "devherd" $prefix) }}
{{- $_ := set $object.metadata "labels" (include "devherd.labels" .root | fromYaml) }}
{{- if not $ofCluster }}{{ $_ := set $object.metadata "namespace" $namespace }}{{ end }}
{{- if eq $object.kind "ValidatingAdmissionPolicy" }}
{{- $account := printf "system:serviceaccount:%s:%s" $namespace (include "devherd.serviceAccount" .root) }}
{{- $_ := set (first $object.spec.matchConditions) "expression" (printf "request.userInfo.username == '%s'" $account) }}
{{- end }}
{{- if eq $object.kind "ValidatingAdmissionPolicyBinding" }}{{ $_ := set $object.spec "policyName" $object.metadata.name }}{{ end }}
{{- if hasKey $object "roleRef" }}
{{- $_ := set $object.roleRef "name" ($object.roleRef.name | replace "devherd" $prefix) }}
{{- $account := default (include "devherd.serviceAccount" .root) .account }}
{{- $_ := set $object "subjects" (list (dict "kind" "ServiceAccount" "name" $account "namespace" $namespace)) }}
{{- end }}
{{- end }}

{{- define "devherd.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}
{{- else }}{{ printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* In the checkout the files are symbolic links. Flux leaves links out of what it takes from Git, git without core.symlinks has their text. */}}
{{- define "devherd.checkFiles" -}}
{{- range list "daemonset.yaml" "clean-nodes/job.yaml" "components/nvidia/kustomization.yaml" "components/events/rbac.yaml" "rules.yaml" }}
{{- if not (contains ": " ($.Files.Get (printf "files/%s" .))) }}
{{- fail (printf "files/%s: it is not there — this is the chart of a checkout, whose files are symbolic links, and these are lost — use the package that `make chart` makes, or deploy/kubernetes, which has no links" .) }}
{{- end }}
{{- end }}
{{- end }}
