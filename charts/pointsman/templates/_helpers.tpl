{{/* Labels of every object, beside its name. */}}
{{- define "pointsman.labels" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "pointsman.image" -}}
{{ .Values.image.repository | default (eq .Values.form "sidecar" | ternary "ghcr.io/pointsman/host" "ghcr.io/pointsman/pointsman") }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "pointsman.dataplaneImage" -}}
{{ .Values.dataplaneImage.repository | default .Values.image.repository | default (printf "ghcr.io/pointsman/dataplane-%s" (.Values.mode | default "iptables")) }}:{{ .Values.dataplaneImage.tag | default .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Refuses a mode that no plugin has, of a list of the mode, the settings beside it, and what it is. */}}
{{- define "pointsman.knownMode" -}}
{{- $mode := index . 0 }}
{{- $known := list "iptables" "nftables" "ipvs" "userspace" "auto" }}
{{- if and $mode (not (has $mode $known)) (not (hasKey ((index . 1).plugins | default dict) $mode)) }}{{ fail (printf "%s is %s, and the images have %s: another plugin, of an image of your own, is named by config.plugins.%s: {}" (index . 2) $mode (join ", " $known) $mode) }}{{ end }}
{{- end }}

{{/* What no schema can say of values together. */}}
{{- define "pointsman.check" -}}
{{- $v := .Values }}
{{- if eq $v.form "sidecar" }}
{{- if eq $v.mode "auto" }}{{ fail "form: sidecar runs the dataplane of one mode, so mode cannot be auto: name a mode, or take form: children" }}{{ end }}
{{- if $v.pools }}{{ fail "pools change the mode of a node by a swap between two plugins of one host, which form: sidecar does not have: take form: children, or a release for each pool" }}{{ end }}
{{- if $v.kubeProxy.replace }}{{ fail "kubeProxy.replace has the host read which mode it is to start from kube-proxy's ConfigMap, and form: sidecar starts one beside it: take form: children" }}{{ end }}
{{- end }}
{{- if and $v.kubeProxy.replace $v.config }}{{ fail "kubeProxy.replace reads kube-proxy's ConfigMap, so config has no effect: change the ConfigMap, or set kubeProxy.replace: false" }}{{ end }}
{{- if and $v.kubeProxy.replace (ne .Release.Namespace "kube-system") }}{{ fail (printf "kubeProxy.replace reads kube-proxy's ConfigMap, which is in kube-system, and this release is in %s: install it with --namespace kube-system" .Release.Namespace) }}{{ end }}
{{- if and $v.kubeProxy.checkNodes (not $v.kubeProxy.replace) }}{{ fail "kubeProxy.checkNodes asks about kube-proxy's settings: set kubeProxy.replace: true too" }}{{ end }}
{{- include "pointsman.knownMode" (list $v.mode $v.config "mode") }}
{{- $seen := dict }}
{{- range $v.pools }}
{{- include "pointsman.knownMode" (list .mode (mergeOverwrite (deepCopy $v.config) (deepCopy (.config | default dict))) (printf "the mode of pool %s" .name)) }}
{{- if hasKey $seen .name }}{{ fail (printf "two pools have the name %s: a node has one label pointsman.dev/pool" .name) }}{{ end }}
{{- $_ := set $seen .name true }}
{{- if and $v.kubeProxy.replace .config }}{{ fail (printf "pool %s has a config, and with kubeProxy.replace the settings are kube-proxy's: leave it its mode alone" .name) }}{{ end }}
{{- end }}
{{- end }}

{{/* The host's file, of a dict with root and, for a pool, pool. */}}
{{- define "pointsman.hostConfig" -}}
{{- $v := .root.Values }}
{{- $mode := $v.mode | default "iptables" }}
{{- $config := dict "apiVersion" "pointsman.dev/v1alpha1" "kind" "HostConfig" "mode" $mode "source" (dict "kubernetes" dict) "detectLocal" (dict "clusterCIDRs" $v.clusterCIDRs) }}
{{- if eq $v.form "sidecar" }}
{{- $plugin := dict "address" (printf "unix:///run/pointsman-plugins/%s/plugin.sock" $mode) }}
{{- if has $mode (list "iptables" "nftables") }}{{ $_ := set $plugin "options" (dict "localhostNodePorts" false) }}{{ end }}
{{- $config = merge (dict "oomScoreAdj" 0 "linux" (dict "conntrack" (dict "maxPerCore" 0)) "plugins" (dict $mode $plugin)) $config }}
{{- end }}
{{- $config = mergeOverwrite $config (deepCopy $v.config) }}
{{- with .pool }}
{{- if .mode }}{{ $_ := set $config "mode" .mode }}{{ end }}
{{- $config = mergeOverwrite $config (deepCopy (.config | default dict)) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* The ConfigMap has a name by what is in it, so that pods get other settings one after the other,
     as they are replaced, and a rollout that stops leaves all other nodes as they are. */}}
{{- define "pointsman.configName" -}}
pointsman-{{ with .pool }}{{ .name }}-{{ end }}{{ include "pointsman.hostConfig" . | sha256sum | trunc 10 }}
{{- end }}
