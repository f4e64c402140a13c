{{/* What the values of a pool change of its pod. */}}

{{- define "devherd.poolName" -}}
{{- include "devherd.fullname" (first .) }}
{{- with (last .).name }}-{{ . }}{{ end }}
{{- end }}

{{- define "devherd.config" -}}
{{- if .config }}{{ toYaml .config }}{{ else }}# Nothing is set: what is found is served as by the vendors' own plugins.{{ end }}
{{- end }}

{{/* The configurations of which a label chooses, as the files of a ConfigMap. */}}
{{- define "devherd.configs" -}}
{{- $files := dict }}
{{- range $name, $config := .configs }}{{ $_ := set $files $name (include "devherd.config" (dict "config" $config)) }}{{ end }}
{{- toYaml $files }}
{{- end }}

{{/* What Kubernetes would refuse, or never come to an end with. */}}
{{- define "devherd.checkStrategy" -}}
{{- $rolling := .strategy.rollingUpdate | default dict }}
{{- $surge := has (toString $rolling.maxSurge) (list "0" "0%" "<nil>") | not }}
{{- $unavailable := has (toString $rolling.maxUnavailable) (list "0" "0%" "<nil>") | not }}
{{- if and (eq .strategy.type "RollingUpdate") $surge $unavailable }}
{{- fail "updateStrategy: both maxSurge and maxUnavailable are set — Kubernetes takes one of them — set the other to 0" }}
{{- end }}
{{- if eq .strategy.type "OnDelete" }}{{ $_ := unset .strategy "rollingUpdate" }}
{{- else if not (or $surge $unavailable) }}
{{- fail "updateStrategy: both maxSurge and maxUnavailable are 0 — no node would ever get a new pod — set one of them to 1 or more" }}
{{- end }}
{{- if and (eq .strategy.type "RollingUpdate") $surge .pod.hostNetwork }}
{{- fail "updateStrategy: maxSurge is set with the component host-network — the port is the node's, and a second pod cannot have it — set maxUnavailable, and maxSurge to 0" }}
{{- end }}
{{- end }}

{{/* Rights at the API server are of no use to a pod without a token; those of one component come with another. */}}
{{- define "devherd.checkToken" -}}
{{- $pod := .pod }}{{ $files := .root.Files }}
{{- range .pool.components }}
{{- if and ($files.Get (printf "files/components/%s/rbac.yaml" .)) (not $pod.automountServiceAccountToken) }}
{{- fail (printf "components: %s is without events — the token by which it asks the API server comes with that one — add events" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The component gives what the option needs. Configurations of the user's own ConfigMap are not seen here. */}}
{{- define "devherd.checkPause" -}}
{{- $component := has "nvidia-pause" .components }}
{{- $option := false }}
{{- range concat (list .config) (values .configs) }}
{{- $kubernetes := (. | default dict).kubernetes }}
{{- if kindIs "map" $kubernetes }}{{ if $kubernetes.nvidia_pause }}{{ $option = true }}{{ end }}{{ end }}
{{- end }}
{{- if and $option (not $component) }}
{{- fail "config: kubernetes.nvidia_pause is true without the component nvidia-pause — the right to watch the node's labels comes with that one — add nvidia-pause to components" }}
{{- end }}
{{- if and $component (not $option) (or .configs (not (has "config-by-label" .components))) }}
{{- fail "components: nvidia-pause is without its option — the GPUs would stay open while NVIDIA's managers have them paused — set config: {kubernetes: {nvidia_pause: true}}" }}
{{- end }}
{{- end }}

{{/* A variable of the container comes before the configuration's key: what is set there would have no effect. */}}
{{- define "devherd.checkEnvironment" -}}
{{- $configurations := concat (list .pool.config) (values .pool.configs) }}
{{- range $variable := .container.env }}
{{- $key := $variable.name | trimPrefix "DEVHERD_" | lower }}
{{- range $configurations }}
{{- if and (hasPrefix "DEVHERD_" $variable.name) (hasKey (. | default dict) $key) }}
{{- fail (printf "config: %s is set — the pod's %s comes before it — leave it out, or set it by extraEnv: [{name: %s, value: …}]" $key $variable.name $variable.name) }}
{{- end }}
{{- end }}
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
{{- include "devherd.override" (dict "to" $pod.securityContext "by" $pool.podSecurityContext) }}
{{- include "devherd.applyNodes" . }}
{{- include "devherd.applyVolumes" . }}
{{- $_ := set $container "image" (include "devherd.image" .root) }}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy }}
{{- range $pod.initContainers }}
{{- $_ := set . "image" $container.image }}{{ $_ := set . "imagePullPolicy" $container.imagePullPolicy }}
{{- include "devherd.override" (dict "to" .securityContext "by" $pool.securityContext) }}
{{- end }}
{{- include "devherd.override" (dict "to" $container.resources "by" $pool.resources) }}
{{- include "devherd.override" (dict "to" $container.securityContext "by" $pool.securityContext) }}
{{- $_ := set $container "args" (concat $container.args $pool.extraArgs) }}
{{- range $name, $value := dict "DEVHERD_CONFIG_LABEL" $pool.configLabel "DEVHERD_CONFIG_DEFAULT" $pool.configDefault }}
{{- if $value }}{{ $_ := set $container "env" (append $container.env (dict "name" $name "value" $value)) }}{{ end }}
{{- end }}
{{- include "devherd.merge" (dict "to" $container "by" (dict "env" $pool.extraEnv)) }}
{{- include "devherd.checkEnvironment" . }}
{{- end }}

{{- define "devherd.applyNodes" -}}
{{- $pod := .pod }}
{{- include "devherd.override" (dict "to" $pod.nodeSelector "by" .pool.nodeSelector) }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $ours := (first (get $pod.affinity.nodeAffinity $required).nodeSelectorTerms).matchExpressions }}
{{- if .pool.rest }}{{ $ours = concat $ours (include "devherd.othersExpressions" .root.Values.pools | fromYamlArray) }}{{ end }}
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
{{- if and (eq .name "configs") $pool.configs }}{{ $_ := set .configMap "name" (printf "%s-configs" (include "devherd.poolName" (list $.root $pool))) }}{{ end }}
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
