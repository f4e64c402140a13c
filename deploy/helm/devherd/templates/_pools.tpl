{{/* Which pools there are, what each has, and on which nodes it is. */}}

{{/* All pools, as JSON: each with the values that it does not have itself from the top. */}}
{{- define "devherd.pools" -}}
{{- $common := omit .Values "image" "imagePullSecrets" "nameOverride" "fullnameOverride" "namespaceOverride" "commonLabels" "serviceAccount" "rbac" "pools" "podMonitor" "prometheusRule" "dashboard" "networkPolicy" "resourceQuota" "cleanNodes" "global" "nodes" "compare" "scrapeAnnotations" }}
{{- $common = merge $common (include "devherd.nothing" . | fromYaml) }}
{{- $pools := list }}
{{- range include "devherd.ownPools" . | fromJsonArray }}
{{- $pool := deepCopy $common }}
{{- include "devherd.override" (dict "to" $pool "by" .) }}
{{- include "devherd.override" (dict "to" $pool "by" (dict "nodeSelector" (include "devherd.ownNodes" . | fromYaml))) }}
{{- $_ := set $pool "components" (include "devherd.componentsOfPool" (dict "root" $ "pool" $pool) | fromJsonArray) }}
{{- include "devherd.checkNeeds" $pool }}
{{- include "devherd.checkConfigs" $pool }}
{{- $pools = append $pools $pool }}
{{- end }}
{{- include "devherd.checkPools" .Values.pools }}
{{- $byLabel := false }}
{{- range $pools }}{{ if has "config-by-label" .components }}{{ $byLabel = true }}{{ end }}{{ end }}
{{- range $key := list "configLabel" "configDefault" }}
{{- if and (get $.Values $key) (not $byLabel) }}{{ fail (printf "%s: it is set without configs — it is about several configurations, and there is one — add configs, or the component config-by-label" $key) }}{{ end }}
{{- end }}
{{- toJson $pools }}
{{- end }}

{{/* Those of all pools, as JSON. */}}
{{- define "devherd.components" -}}
{{- $components := list }}
{{- range include "devherd.pools" . | fromJsonArray }}{{ $components = concat $components .components | uniq }}{{ end }}
{{- toJson $components }}
{{- end }}

{{/* A value that is there without anything, `tolerations:`, is one that is not set. */}}
{{- define "devherd.nothing" -}}
{vendors: [], components: [], config: {}, configs: {}, configLabel: "", configDefault: "", nodeSelector: {}, affinity: {}, tolerations: [], priorityClassName: "", resources: {},
updateStrategy: {}, podAnnotations: {}, podLabels: {}, podSecurityContext: {}, securityContext: {}, extraArgs: [], extraEnv: [], extraVolumes: [], extraVolumeMounts: []}
{{- end }}

{{- define "devherd.checkConfigs" -}}
{{- if and .configs .configDefault (not (hasKey .configs .configDefault)) }}
{{- fail (printf "configDefault: %s is none of configs — nodes without the label would have no configuration — name one of these: %s" .configDefault (keys .configs | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}

{{/* Two on one node would take each other's registrations away: what can be seen of that here is refused. */}}
{{- define "devherd.checkPools" -}}
{{- $names := list }}{{ $rest := list }}{{ $pools := . }}
{{- range . }}
{{- if has .name $names }}{{ fail (printf "pools: two are named %s — each needs a name of its own — rename one" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- if .rest }}{{ $rest = append $rest .name }}{{ end }}
{{- if and .rest (or .nodeSelector .affinity) }}{{ fail (printf "pools: %s has rest and nodes of its own — rest are the nodes that no other pool has — leave nodeSelector and affinity out" .name) }}{{ end }}
{{- end }}
{{- range $one := . }}
{{- range $other := $pools }}
{{- if and (ne $one.name $other.name) (include "devherd.hasAllNodesOf" (list $one $other)) }}
{{- fail (printf "pools: each node of %s is one of %s as well — two devherds on a node displace each other — give %s a label that the others lack" $other.name $one.name $one.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if gt (len $rest) 1 }}{{ fail (printf "pools: %s have rest — each node would be in all of them — leave it to one" (join ", " $rest)) }}{{ end }}
{{- if $rest }}
{{- range . }}
{{- $name := .name }}
{{- range $key, $_ := default dict .nodeSelector }}
{{- if hasPrefix "nvidia.com/gpu.deploy." $key }}{{ fail (printf "pools: %s is on nodes by %s — while NVIDIA's managers have it paused, the node would be one of %s, and its driver stay in use — take the component nvidia-operator for it, and another label for the pool" $name $key (first $rest)) }}{{ end }}
{{- end }}
{{- if or .affinity (gt (len (default dict .nodeSelector)) 1) }}{{ fail (printf "pools: %s is on nodes by more than one label — which nodes are the rest cannot be told — give it one label, or give %s an affinity" .name (first $rest)) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether every node of the second pool is also one of the first, by what their labels say. */}}
{{- define "devherd.hasAllNodesOf" -}}
{{- $one := first . }}{{ $other := last . }}
{{- if not (or $one.rest $other.rest $one.affinity $other.affinity) }}
{{- $there := include "devherd.ownNodes" $other | fromYaml }}
{{- $all := true }}
{{- range $key, $value := include "devherd.ownNodes" $one | fromYaml }}{{ if ne (get $there $key) $value }}{{ $all = false }}{{ end }}{{ end }}
{{- if $all }}true{{ end }}
{{- end }}
{{- end }}

{{/* The labels of the nodes that are a pool's alone: one of `pools`. */}}
{{- define "devherd.ownNodes" -}}
{{- if or .nodeSelector .affinity .rest (not .name) }}{{ toYaml (default dict .nodeSelector) }}
{{- else }}{{ toYaml (dict "devherd" .name) }}
{{- end }}
{{- end }}

{{/* What a node of the rest must not have, as a list of expressions: `pools`. */}}
{{- define "devherd.othersExpressions" -}}
{{- $values := dict }}
{{- range . }}
{{- if not .rest }}
{{- range $key, $value := include "devherd.ownNodes" . | fromYaml }}
{{- $_ := set $values $key (append (get $values $key | default list) $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key := keys $values | sortAlpha }}
- {key: {{ $key | quote }}, operator: NotIn, values: {{ get $values $key | toJson }}}
{{- end }}
{{- end }}
