{{/* `by` over `to`, both maps, in place: what is empty, zero or false counts too, a null takes away, lists are replaced. */}}
{{- define "devherd.override" -}}
{{- $to := .to }}
{{- range $key, $value := .by }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $to $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $to $key)) }}
{{- include "devherd.override" (dict "to" (get $to $key) "by" $value) }}
{{- else }}
{{- $_ := set $to $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Kubernetes' strategic merge, as far as the components need it: `by` into `to`, both maps. A null takes away; lists of what has
a name are merged by name, other lists are replaced. */}}
{{- define "devherd.merge" -}}
{{- $to := .to }}
{{- range $key, $value := .by }}
{{- $there := get $to $key }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $to $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" $there) }}
{{- include "devherd.merge" (dict "to" $there "by" $value) }}
{{- else if and (kindIs "slice" $value) (kindIs "slice" $there) (or (empty $value) (kindIs "map" (first $value))) }}
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
