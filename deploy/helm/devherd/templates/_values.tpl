{{/* What the values of a pool change of its pod. */}}

{{- define "devherd.poolName" -}}
{{- include "devherd.fullname" (first .) }}
{{- with (last .).name }}-{{ . }}{{ end }}
{{- end }}

{{- define "devherd.config" -}}
{{- if .config }}{{ toYaml .config }}{{ else }}# Nothing is set: what is found is served as by the vendors' own plugins.{{ end }}
{{- end }}

{{/* What Kubernetes would refuse, or never come to an end with. */}}
{{- define "devherd.checkStrategy" -}}
{{- $rolling := .strategy.rollingUpdate | default dict }}
{{- $surge := has (toString $rolling.maxSurge) (list "0" "0%" "<nil>") | not }}
{{- $unavailable := has (toString $rolling.maxUnavailable) (list "0" "0%" "<nil>") | not }}
{{- if and (eq .strategy.type "RollingUpdate") $surge $unavailable }}
{{- fail "updateStrategy: both maxSurge and maxUnavailable are set — Kubernetes takes one of them — set the other to 0" }}
{{- end }}
{{- if and $surge .pod.hostNetwork }}
{{- fail "updateStrategy: maxSurge is set with the component host-network — the port is the node's, and a second pod cannot have it — set maxUnavailable, and maxSurge to 0" }}
{{- end }}
{{- end }}

{{/* `pod` and its `container` are changed in place. */}}
{{- define "devherd.applyValues" -}}
{{- $pool := .pool }}{{ $pod := .pod }}{{ $container := .container }}
{{- $_ := set $pod "serviceAccountName" (include "devherd.serviceAccount" .root) }}
{{- with .root.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- $_ := set $pod "priorityClassName" $pool.priorityClassName }}
{{- with $pool.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end }}
{{- if hasKey $pod "runtimeClassName" }}
{{- $_ := unset $pod "runtimeClassName" }}
{{- with $pool.nvidia.runtimeClassName }}{{ $_ := set $pod "runtimeClassName" . }}{{ end }}
{{- end }}
{{- include "devherd.applyNodes" . }}
{{- include "devherd.applyVolumes" . }}
{{- $_ := set $container "image" (include "devherd.image" .root) }}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy }}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources $pool.resources) }}
{{- $_ := set $container "args" (concat $container.args $pool.extraArgs) }}
{{- include "devherd.merge" (dict "to" $container "by" (dict "env" $pool.extraEnv)) }}
{{- end }}

{{- define "devherd.applyNodes" -}}
{{- $pod := .pod }}
{{- $_ := set $pod "nodeSelector" (mergeOverwrite $pod.nodeSelector (include "devherd.nodeSelector" .pool | fromYaml)) }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $ours := (first (get $pod.affinity.nodeAffinity $required).nodeSelectorTerms).matchExpressions }}
{{- if .pool.rest }}{{ $ours = concat $ours (include "devherd.othersExpressions" .pools | fromYamlArray) }}{{ end }}
{{- $affinity := deepCopy .pool.affinity }}
{{- $ofNodes := get $affinity "nodeAffinity" | default dict }}
{{- $terms := list }}
{{- range (get $ofNodes $required | default (dict "nodeSelectorTerms" (list dict))).nodeSelectorTerms }}
{{- $terms = append $terms (set . "matchExpressions" (concat $ours (get . "matchExpressions" | default list))) }}
{{- end }}
{{- $_ := set $affinity "nodeAffinity" (set $ofNodes $required (dict "nodeSelectorTerms" $terms)) }}
{{- $_ := set $pod "affinity" $affinity }}
{{- end }}

{{- define "devherd.applyVolumes" -}}
{{- $pool := .pool }}
{{- range .pod.volumes }}
{{- if eq .name "config" }}{{ $_ := set .configMap "name" (include "devherd.poolName" (list $.root $pool)) }}{{ end }}
{{- if has .name (list "pod-resources" "plugins-registry") }}
{{- $_ := set .hostPath "path" (.hostPath.path | replace "/var/lib/kubelet" (trimSuffix "/" $pool.kubeletDir)) }}
{{- end }}
{{- if eq .name "web" }}
{{- $_ := set .projected "sources" (list (dict "secret" (dict "name" $pool.web.tlsSecret)) (dict "secret" (dict "name" $pool.web.configSecret))) }}
{{- end }}
{{- end }}
{{- $_ := set .pod "volumes" (concat .pod.volumes $pool.extraVolumes) }}
{{- $_ := set .container "volumeMounts" (concat .container.volumeMounts $pool.extraVolumeMounts) }}
{{- end }}
