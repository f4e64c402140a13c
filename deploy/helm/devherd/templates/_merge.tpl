{{/* Kubernetes' strategic merge, as far as the components need it: `by` into `to`, both maps. A null takes away; lists of what has
a name are merged by name. */}}
{{- define "devherd.merge" -}}
{{- $to := .to }}
{{- range $key, $value := .by }}
{{- $there := get $to $key }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $to $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" $there) }}
{{- include "devherd.merge" (dict "to" $there "by" $value) }}
{{- else if and (kindIs "slice" $value) (kindIs "slice" $there) }}
{{- range $item := $value }}
{{- $same := false }}
{{- range $there }}
{{- if and (kindIs "map" .) (eq (toString (get . "name")) (toString (get $item "name"))) }}
{{- $same = true }}
{{- include "devherd.merge" (dict "to" . "by" $item) }}
{{- end }}
{{- end }}
{{- if not $same }}{{ $there = append $there $item }}{{ end }}
{{- end }}
{{- $_ := set $to $key $there }}
{{- else }}
{{- $_ := set $to $key $value }}
{{- end }}
{{- end }}
{{- end }}
