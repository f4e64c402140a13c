{{/* Which pools there are, what each has, and on which nodes it is. */}}

{{/* All pools, as JSON: each with the values that it does not have itself from the top. */}}
{{- define "devherd.pools" -}}
{{- $common := omit .Values "image" "imagePullSecrets" "nameOverride" "fullnameOverride" "serviceAccount" "rbac" "pools" "podMonitor" "prometheusRule" "dashboard" "networkPolicy" "resourceQuota" "global" }}
{{- $pools := list }}
{{- range default (list dict) .Values.pools }}
{{- $pools = append $pools (mergeOverwrite (deepCopy $common) .) }}
{{- end }}
{{- include "devherd.checkPools" .Values.pools }}
{{- toJson $pools }}
{{- end }}

{{/* Two on one node would take each other's registrations away: what can be seen of that here is refused. */}}
{{- define "devherd.checkPools" -}}
{{- $names := list }}{{ $rest := list }}
{{- range . }}
{{- if has .name $names }}{{ fail (printf "pools: two are named %s — each needs a name of its own — rename one" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- if .rest }}{{ $rest = append $rest .name }}{{ end }}
{{- if and .rest (or .nodeSelector .affinity) }}{{ fail (printf "pools: %s has rest and nodes of its own — rest are the nodes that no other pool has — leave nodeSelector and affinity out" .name) }}{{ end }}
{{- end }}
{{- if gt (len $rest) 1 }}{{ fail (printf "pools: %s have rest — each node would be in all of them — leave it to one" (join ", " $rest)) }}{{ end }}
{{- if $rest }}
{{- range . }}
{{- if or .affinity (gt (len (default dict .nodeSelector)) 1) }}{{ fail (printf "pools: %s is on nodes by more than one label — which nodes are the rest cannot be told — give it one label, or give %s an affinity" .name (first $rest)) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The nodeSelector of a pool: `pool`, one of `pools`. */}}
{{- define "devherd.nodeSelector" -}}
{{- if or .nodeSelector .affinity .rest (not .name) }}{{ toYaml (default dict .nodeSelector) }}
{{- else }}{{ toYaml (dict "devherd" .name) }}
{{- end }}
{{- end }}

{{/* What a node of the rest must not have, as a list of expressions. */}}
{{- define "devherd.othersExpressions" -}}
{{- $values := dict }}
{{- range . }}
{{- if not .rest }}
{{- range $key, $value := include "devherd.nodeSelector" . | fromYaml }}
{{- $_ := set $values $key (append (get $values $key | default list) $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key := keys $values | sortAlpha }}
- {key: {{ $key | quote }}, operator: NotIn, values: {{ get $values $key | toJson }}}
{{- end }}
{{- end }}
