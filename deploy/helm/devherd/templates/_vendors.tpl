{{/* What is known of each vendor: the labels of its nodes, the components that its devices and options need. */}}

{{/* By vendor the labels that nodes with its devices have: those of Node Feature Discovery (0.19: class and vendor of PCI functions, its rules
for RDMA), of its configuration by NVIDIA's charts (vendor alone), and of the vendors' own rules:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/deployments/helm/nvidia-device-plugin/values.yaml (affinity),
https://github.com/ROCm/gpu-operator (chart's rules amd-gpu and amd-vgpu),
https://github.com/intel/intel-device-plugins-for-kubernetes/blob/main/deployments/nfd/overlays/node-feature-rules/node-feature-rules.yaml. */}}
{{- define "devherd.labelsOfVendors" -}}
nvidia:
  feature.node.kubernetes.io/pci-0300_10de.present: "true"
  feature.node.kubernetes.io/pci-0302_10de.present: "true"
  feature.node.kubernetes.io/pci-10de.present: "true"
  feature.node.kubernetes.io/cpu-model.vendor_id: NVIDIA
  nvidia.com/gpu.present: "true"
amd:
  feature.node.kubernetes.io/pci-0300_1002.present: "true"
  feature.node.kubernetes.io/pci-0302_1002.present: "true"
  feature.node.kubernetes.io/pci-0380_1002.present: "true"
  feature.node.kubernetes.io/pci-1200_1002.present: "true"
  feature.node.kubernetes.io/pci-1002.present: "true"
  feature.node.kubernetes.io/amd-gpu: "true"
  feature.node.kubernetes.io/amd-vgpu: "true"
intel-gpu:
  feature.node.kubernetes.io/pci-0300_8086.present: "true"
  feature.node.kubernetes.io/pci-0380_8086.present: "true"
  intel.feature.node.kubernetes.io/gpu: "true"
intel-fpga:
  feature.node.kubernetes.io/pci-1200_8086.present: "true"
  feature.node.kubernetes.io/pci-1200_1c2c.present: "true"
  intel.feature.node.kubernetes.io/fpga-arria10: "true"
xilinx-fpga:
  feature.node.kubernetes.io/pci-1200_10ee.present: "true"
  feature.node.kubernetes.io/pci-10ee.present: "true"
rdma:
  feature.node.kubernetes.io/rdma.available: "true"
  feature.node.kubernetes.io/rdma.capable: "true"
  feature.node.kubernetes.io/pci-15b3.present: "true"
{{- end }}

{{/* An affinity for nodes that have a label of one of `vendors`, one of `also` if that is a vendor, and none of `others`, as YAML. */}}
{{- define "devherd.affinityOfVendors" -}}
{{- $labels := include "devherd.labelsOfVendors" . | fromYaml }}
{{- $not := list }}
{{- range .others }}
{{- range $key, $value := get $labels . }}{{ $not = append $not (dict "key" $key "operator" "NotIn" "values" (list $value)) }}{{ end }}
{{- end }}
{{- $also := list list }}
{{- if .also }}
{{- $also = list }}
{{- range $key, $value := get $labels .also }}{{ $also = append $also (list (dict "key" $key "operator" "In" "values" (list $value))) }}{{ end }}
{{- end }}
{{- $terms := list }}
{{- range .vendors }}
{{- range $key, $value := get $labels . }}
{{- $one := dict "key" $key "operator" "In" "values" (list $value) }}
{{- range $also }}{{ $terms = append $terms (dict "matchExpressions" (concat (list $one) . $not)) }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms))) }}
{{- end }}

{{/* The pools of `vendors: auto`, as JSON: no node is in two. A vendor that needs rights comes before one that needs none, and nodes with
both that need rights, NVIDIA and AMD, are a pool of their own. */}}
{{- define "devherd.automaticPools" -}}
{{- if or .Values.pools .Values.affinity }}{{ fail "vendors: auto is set with pools or affinity — it makes pools of its own by the labels of nodes — leave these out, or name the vendors of each pool" }}{{ end }}
{{- if eq (toString .Values.nodes) "all" }}{{ fail "vendors: auto is set with nodes: all — its pools are on the nodes that Node Feature Discovery has labelled — leave nodes out" }}{{ end }}
{{- $pools := list
  (dict "name" "nvidia-amd" "vendors" (list "nvidia") "also" "amd" "others" list)
  (dict "name" "nvidia" "vendors" (list "nvidia") "others" (list "amd"))
  (dict "name" "amd" "vendors" (list "amd") "others" (list "nvidia"))
  (dict "name" "intel-gpu" "vendors" (list "intel-gpu") "others" (list "nvidia" "amd"))
  (dict "name" "other" "vendors" (list "intel-fpga" "xilinx-fpga" "rdma") "others" (list "nvidia" "amd" "intel-gpu")) }}
{{- $made := list }}
{{- range $pools }}
{{- $made = append $made (dict "name" .name "vendors" (compact (append .vendors .also)) "affinity" (include "devherd.affinityOfVendors" . | fromYaml)) }}
{{- end }}
{{- toJson $made }}
{{- end }}

{{/* What options of the configurations of a pool need: a list of `component`, `option`, `why`, `vendor`, as JSON. `or`: another component
that gives the same. A mount of one's own does, too: `mounts`. `below`: the directory that the component mounts, `path`: what is to be in it.
`also`: a component that `vendors` adds with it. Configurations of the user's own ConfigMap are not seen here. */}}
{{- define "devherd.needs" -}}
{{- $needs := list }}
{{- $monitors := dict
  "xpumd" (dict "component" "xpumd" "below" "/run/xpumd/")
  "amd_exporter" (dict "component" "amd-exporter" "below" "/var/lib/amd-metrics-exporter/")
  "amd_nic_exporter" (dict "component" "amd-exporter" "below" "/var/lib/amd-metrics-exporter/") }}
{{- range concat (list .config) (values .configs) }}
{{- $config := . | default dict }}
{{- $vendors := $config.vendors | default dict }}
{{- $nvidia := $vendors.nvidia | default dict }}
{{- $health := $config.health | default dict }}
{{- $kubernetes := $config.kubernetes | default dict }}
{{- $strategy := $nvidia.mig_strategy | default "none" }}
{{- if and (ne $strategy "none") (not (and (eq $strategy "single") (eq (toString $nvidia.device_discovery_strategy) "procfs"))) }}
{{- $option := printf "vendors.nvidia.mig_strategy is %s" $strategy }}
{{- $needs = append $needs (dict "vendor" "nvidia" "component" "nvidia" "also" "nvidia-mig" "option" $option "why" "NVML names MIG devices, and comes with that one") }}
{{- end }}
{{- if eq (toString $nvidia.device_discovery_strategy) "nvml" }}
{{- $needs = append $needs (dict "vendor" "nvidia" "component" "nvidia" "option" "vendors.nvidia.device_discovery_strategy is nvml" "why" "NVML comes with that one") }}
{{- end }}
{{- if contains "cdi-" (toString $nvidia.device_list_strategy) }}
{{- $needs = append $needs (dict "vendor" "nvidia" "component" "nvidia-cdi" "mounts" true "option" "vendors.nvidia.device_list_strategy has a CDI strategy" "why" "the driver's files, which CDI specs name, are mounted by that one") }}
{{- end }}
{{- range $config.resources }}
{{- with (.pre_start | default dict).occupied }}
{{- $needs = append $needs (dict "component" "ledger" "option" (printf "resources.pre_start.occupied is %s" .) "why" "the right to see which process has a device open comes with that one") }}
{{- end }}
{{- if eq (toString (.sharing | default dict).strategy) "mps" }}
{{- $needs = append $needs (dict "vendor" "nvidia" "component" "nvidia-mps" "mounts" true "option" "resources share by mps" "why" "no share is Healthy while devherd does not see the control daemon, whose directory is mounted by that one") }}
{{- end }}
{{- end }}
{{- if eq (toString ($config.ledger | default dict).enabled) "true" }}
{{- $needs = append $needs (dict "component" "ledger" "option" "ledger.enabled is true" "why" "the right to see the host's processes comes with that one") }}
{{- end }}
{{- with $config.web_config }}
{{- $needs = append $needs (dict "component" "web" "mounts" true "option" (printf "web_config is %s" .) "why" "its secret is mounted by that one, in place of this key") }}
{{- end }}
{{- range $key, $monitor := $monitors }}
{{- with get $health $key }}
{{- if hasPrefix "/" (toString .) }}
{{- $needs = append $needs (merge (dict "path" . "mounts" true "option" (printf "health.%s is %s" $key .) "why" (printf "%s is mounted by that one" (trimSuffix "/" $monitor.below))) $monitor) }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq (toString $health.amd_kfd) "true" }}
{{- $needs = append $needs (dict "vendor" "amd" "component" "amd" "option" "health.amd_kfd is true" "why" "the right to open /dev/kfd comes with that one") }}
{{- end }}
{{- if eq (toString ($health.kernel_log | default dict).enabled) "true" }}
{{- $needs = append $needs (dict "component" "kernel-log" "or" "amd" "option" "health.kernel_log.enabled is true" "why" "the right to read the kernel log comes with that one") }}
{{- end }}
{{- $write := ($config.node_labels | default dict).write | default "none" }}
{{- if ne $write "none" }}
{{- $component := get (dict "feature_file" "labels-feature-file" "node_feature" "labels-node-feature" "node" "labels-node") $write }}
{{- $needs = append $needs (dict "component" $component "mounts" (eq $write "feature_file") "option" (printf "node_labels.write is %s" $write) "why" "the right to write labels that way comes with that one") }}
{{- end }}
{{- if eq (toString $kubernetes.node_condition) "true" }}
{{- $needs = append $needs (dict "component" "node-condition" "option" "kubernetes.node_condition is true" "why" "the right to change the node's status comes with that one") }}
{{- end }}
{{- if eq (toString $config.registration) "plugins_registry" }}
{{- $needs = append $needs (dict "component" "plugins-registry" "mounts" true "option" "registration is plugins_registry" "why" "the kubelet's directory is mounted by that one") }}
{{- end }}
{{- end }}
{{- toJson $needs }}
{{- end }}

{{/* The components of a pool, as JSON: its own, those that its vendors and their options need, those of other values. */}}
{{- define "devherd.componentsOfPool" -}}
{{- $pool := .pool }}
{{- $components := $pool.components }}
{{- $vendors := ternary list $pool.vendors (kindIs "string" $pool.vendors) }}
{{- if has "nvidia" $vendors }}{{ $components = append $components "nvidia" }}{{ end }}
{{- if has "amd" $vendors }}{{ $components = concat $components (list "amd" "amd-exporter") }}{{ end }}
{{- if has "intel-gpu" $vendors }}{{ $components = append $components "xpumd" }}{{ end }}
{{- range include "devherd.needs" $pool | fromJsonArray }}
{{- if and .vendor (has .vendor $vendors) }}
{{- $components = append $components .component }}
{{- with .also }}{{ $components = append $components . }}{{ end }}
{{- end }}
{{- end }}
{{- if and (has "rdma" $vendors) (eq (toString (($pool.config.vendors | default dict).rdma | default dict).mode) "sriov") }}{{ $components = append $components "rdma-sriov" }}{{ end }}
{{- if $pool.configs }}{{ $components = append $components "config-by-label" }}{{ end }}
{{- if .root.Values.compare }}{{ $components = append $components "compare" }}{{ end }}
{{- toJson (uniq $components) }}
{{- end }}

{{/* What an option needs is there, or the installation ends here. */}}
{{- define "devherd.checkNeeds" -}}
{{- $pool := . }}
{{- range include "devherd.needs" $pool | fromJsonArray }}
{{- $own := and .mounts $pool.extraVolumeMounts }}
{{- if not (or (has .component $pool.components) (has (.or | default "") $pool.components) $own) }}
{{- $vendor := ternary (printf ", or %s to vendors" .vendor) "" (not (empty .vendor)) }}
{{- fail (printf "config: %s without the component %s — %s — add %s to components%s" .option .component .why .component $vendor) }}
{{- end }}
{{- if and .below (not $own) (not (hasPrefix .below .path)) }}
{{- fail (printf "config: %s, which the pod does not see — the component %s mounts %s alone — mount its directory by extraVolumes and extraVolumeMounts" .option .component (trimSuffix "/" .below)) }}
{{- end }}
{{- end }}
{{- if and (has "nvidia-mig" $pool.components) (not (has "nvidia" $pool.components)) }}
{{- fail "components: nvidia-mig is without nvidia — NVIDIA's runtime, which reads its variable, comes with that one — add nvidia" }}
{{- end }}
{{- end }}

{{/* `nfd` or `all` for an installation without pools. One that is there keeps its nodes: Node Feature Discovery may have come after it.
Where vendors are named, or a pod needs NVIDIA's runtime, `all` has to be said: on a node without that runtime a pod never starts. The component
nvidia-operator has a label of NVIDIA's operator as its nodes. */}}
{{- define "devherd.nodes" -}}
{{- $components := .Values.components | default list }}
{{- $operators := or (has "nvidia-operator" $components) (has "nvidia-operator-old" $components) }}
{{- $elsewhere := or .Values.affinity (include "devherd.hasDevicesWithoutLabel" .) }}
{{- $there := lookup "apps/v1" "DaemonSet" (include "devherd.namespace" .) (include "devherd.fullname" .) }}
{{- $vendors := include "devherd.vendorsOfNodes" . | fromJsonArray }}
{{- $found := .Capabilities.APIVersions.Has "nfd.k8s-sigs.io/v1alpha1" }}
{{- if $there }}{{ $found = eq "nfd" (get ($there.metadata.annotations | default dict) "devherd.io/nodes") }}{{ end }}
{{- if .Values.nodes }}
{{- if and (eq .Values.nodes "nfd") .Values.affinity }}{{ fail "nodes: nfd is set with an affinity — the labels of Node Feature Discovery are an affinity — leave one of them out" }}{{ end }}
{{- .Values.nodes }}
{{- else if and $found (not $elsewhere) }}nfd
{{- else if or (not $vendors) .Values.affinity .Values.nodeSelector $operators }}all
{{- else if and (not $elsewhere) (include "devherd.hasLabelledNode" $vendors) }}nfd
{{- else }}
{{- $why := ternary "generic and simulated devices have no label" "the cluster has neither Node Feature Discovery nor a node with a label of theirs" (not (empty $elsewhere)) }}
{{- if has "nvidia" $vendors }}{{ $why = printf "%s, and a node without a handler for NVIDIA's runtime class never starts the pod" $why }}{{ end }}
{{- $cure := "set nodes: all if every node has them, nodeSelector if some do, pools for kinds of nodes" }}
{{- if not $elsewhere }}{{ $cure = printf "%s; where Node Feature Discovery labels them: nodes: nfd or vendors: auto for `helm template`, which sees no cluster" $cure }}{{ end }}
{{- fail (printf "nodes: it is not set, and which nodes have %s is not known — %s — %s" (join ", " $vendors) $why $cure) }}
{{- end }}
{{- end }}

{{/* The vendors by whose labels nodes are found, as JSON; empty if none is named. Where the pod has NVIDIA's runtime class, a node without NVIDIA's
devices could not start it, whatever else it has. */}}
{{- define "devherd.vendorsOfNodes" -}}
{{- $vendors := ternary list (.Values.vendors | default list) (kindIs "string" .Values.vendors) }}
{{- $nvidia := or (has "nvidia" $vendors) (has "nvidia" (.Values.components | default list)) }}
{{- if and $nvidia .Values.nvidia.runtimeClassName }}{{ $vendors = list "nvidia" }}{{ end }}
{{- toJson $vendors }}
{{- end }}

{{/* Whether a configuration has devices that no PCI function shows, and thereby no label. */}}
{{- define "devherd.hasDevicesWithoutLabel" -}}
{{- $without := false }}
{{- range concat (list .Values.config) (values (.Values.configs | default dict)) }}
{{- $config := . | default dict }}
{{- if or $config.generic $config.simulated }}{{ $without = true }}{{ end }}
{{- end }}
{{- if $without }}true{{ end }}
{{- end }}

{{/* Whether a node of the cluster has a label of one of these vendors. `helm template` sees no cluster. */}}
{{- define "devherd.hasLabelledNode" -}}
{{- $labels := include "devherd.labelsOfVendors" . | fromYaml }}
{{- $wanted := list }}
{{- range . }}{{ range $key, $value := get $labels . }}{{ $wanted = append $wanted (printf "%s=%s" $key $value) }}{{ end }}{{ end }}
{{- $found := false }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- range $key, $value := .metadata.labels }}{{ if has (printf "%s=%s" $key $value) $wanted }}{{ $found = true }}{{ end }}{{ end }}
{{- end }}
{{- if $found }}true{{ end }}
{{- end }}

{{/* The pools as the values have them, or as they follow from the vendors, as JSON; with one `{}` for an installation without pools. */}}
{{- define "devherd.ownPools" -}}
{{- if eq (toString .Values.vendors) "auto" }}{{ include "devherd.automaticPools" . }}
{{- else if .Values.pools }}
{{- if eq (toString .Values.nodes) "nfd" }}{{ fail "nodes: nfd is set with pools — each pool has labels of its own — leave it out, or take vendors: auto" }}{{ end }}
{{- toJson .Values.pools }}
{{- else if eq (include "devherd.nodes" .) "nfd" }}
{{- $vendors := include "devherd.vendorsOfNodes" . | fromJsonArray | default (include "devherd.labelsOfVendors" . | fromYaml | keys | sortAlpha) }}
{{- toJson (list (dict "affinity" (include "devherd.affinityOfVendors" (dict "vendors" $vendors "others" list) | fromYaml))) }}
{{- else }}{{ toJson (list dict) }}
{{- end }}
{{- end }}

{{/* What devherd cannot see for lack of a component, by component: the text, and the vendors that it is about. */}}
{{- define "devherd.lackingTexts" -}}
nvidia: {vendors: [nvidia], text: "NVIDIA without the component nvidia: MIG devices, NVLinks, Xids as NVML reports them, memory errors, row remapping, NVLink fabric, thermal slowdown"}
nvidia-mig: {vendors: [nvidia], text: "NVIDIA without nvidia-mig: MIG devices made after the pod started"}
amd: {vendors: [amd], text: "AMD without amd: partitions, XGMI links, GPU resets as they begin"}
amd-exporter: {vendors: [amd], text: "AMD without amd-exporter: ECC errors and CPER records as AMD's metrics exporter reports them"}
xpumd: {vendors: [intel-gpu], text: "Intel GPUs without xpumd: what Intel's xpumd reports of memory, temperature and power"}
host-network: {vendors: [rdma], text: "RDMA without host-network: the firmware of network cards, by devlink"}
kernel-log: {vendors: [nvidia, amd, intel-gpu, intel-fpga, xilinx-fpga, rdma], text: "All vendors without kernel-log: what drivers say in the kernel log: Xids before devherd started and of MIG devices, hung GPUs, resets"}
{{- end }}
