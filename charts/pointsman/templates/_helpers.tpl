{{/* Labels of every object, beside its name. */}}
{{- define "pointsman.labels" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* children or sidecar. */}}
{{- define "pointsman.form" -}}
{{ .Values.form | default (ternary "children" "sidecar" .Values.kubeProxy.replace) }}
{{- end }}

{{- define "pointsman.image" -}}
{{ .Values.image.repository | default (eq (include "pointsman.form" .) "sidecar" | ternary "ghcr.io/pointsman/host" "ghcr.io/pointsman/pointsman") }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The image of a dataplane, of a dict with root and name. */}}
{{- define "pointsman.dataplaneImage" -}}
{{- $v := .root.Values -}}
{{ $v.dataplaneImage.repository | default $v.image.repository | default "ghcr.io/pointsman/dataplane-NAME" | replace "NAME" .name }}:{{ $v.dataplaneImage.tag | default $v.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* The modes that our images have, as a list. */}}
{{- define "pointsman.ours" -}}
["iptables", "nftables", "ipvs", "userspace", "auto"]
{{- end }}

{{/* Refuses a mode that no plugin has, of a dict with root, mode, the settings beside it (config), and
     what it is (what). In the form sidecar a plugin is a container, of those in dataplanes or plugins. */}}
{{- define "pointsman.knownMode" -}}
{{- $v := .root.Values }}
{{- $plugins := include "pointsman.pluginNames" .root | fromJsonArray }}
{{- $known := concat (include "pointsman.ours" . | fromJsonArray) $plugins }}
{{- if and (eq (include "pointsman.form" .root) "sidecar") (not (has .mode (concat $v.dataplanes $plugins))) }}
{{- if eq .mode "auto" }}{{ fail (printf "%s is auto, which form: sidecar does not have: name a mode, or take form: children" .what) }}{{ end }}
{{- fail (printf "%s is %s, and the pods have %s: take one of these, or add %s to dataplanes or plugins" .what .mode (join ", " (concat $v.dataplanes $plugins)) .mode) }}
{{- end }}
{{- if not (or (has .mode $known) (hasKey (.config.plugins | default dict) .mode)) }}{{ fail (printf "%s is %s, and the images have %s: another plugin is one of plugins, or of your own image and named by config.plugins.%s: {}" .what .mode (join ", " $known) .mode) }}{{ end }}
{{- end }}

{{/* What no schema can say of values together. */}}
{{- define "pointsman.check" -}}
{{- $v := .Values }}
{{- if and (eq $v.form "sidecar") $v.kubeProxy.replace }}{{ fail "kubeProxy.replace has the host read its settings and the mode from kube-proxy's ConfigMap, which has no address of a dataplane: take form: children" }}{{ end }}
{{- if and $v.kubeProxy.replace $v.config }}{{ fail "kubeProxy.replace reads kube-proxy's ConfigMap, so config has no effect: change the ConfigMap, or set kubeProxy.replace: false" }}{{ end }}
{{- if and $v.kubeProxy.replace (ne .Release.Namespace "kube-system") }}{{ fail (printf "kubeProxy.replace reads kube-proxy's ConfigMap, which is in kube-system, and this release is in %s: install it with --namespace kube-system" .Release.Namespace) }}{{ end }}
{{- if and $v.apiServer.kubeletKubeconfig (or $v.apiServer.host $v.kubeProxy.replace) }}{{ fail "apiServer.kubeletKubeconfig is a third way to the API server beside apiServer.host and kubeProxy.replace: keep one of them" }}{{ end }}
{{- if and $v.kubeProxy.checkNodes (not $v.kubeProxy.replace) }}{{ fail "kubeProxy.checkNodes asks about kube-proxy's settings: set kubeProxy.replace: true too" }}{{ end }}
{{- $taken := dict "pointsman" true }}
{{- range concat (include "pointsman.ours" . | fromJsonArray) $v.dataplanes }}{{ $_ := set $taken . true }}{{ end }}
{{- range $v.plugins }}
{{- if hasKey $taken .name }}{{ fail (printf "two plugins, or one and a dataplane of our images, have the name %s: give each of plugins a name of its own" .name) }}{{ end }}
{{- $_ := set $taken .name true }}
{{- end }}
{{- include "pointsman.knownMode" (dict "root" . "mode" ($v.mode | default "iptables") "config" $v.config "what" "mode") }}
{{- range $v.dataplanes }}
{{- include "pointsman.knownMode" (dict "root" $ "mode" . "config" $v.config "what" "a name in dataplanes") }}
{{- end }}
{{- $seen := dict }}
{{- range $v.pools }}
{{- include "pointsman.knownMode" (dict "root" $ "mode" (.mode | default $v.mode | default "iptables") "config" (mergeOverwrite (deepCopy $v.config) (deepCopy (.config | default dict))) "what" (printf "the mode of pool %s" .name)) }}
{{- if hasKey $seen .name }}{{ fail (printf "two pools have the name %s: a node has one label pointsman.dev/pool" .name) }}{{ end }}
{{- $_ := set $seen .name true }}
{{- if and $v.kubeProxy.replace .config }}{{ fail (printf "pool %s has a config, and with kubeProxy.replace the settings are kube-proxy's: leave it its mode alone" .name) }}{{ end }}
{{- end }}
{{- end }}

{{/* The host's file, of a dict with root and, for a pool, pool. */}}
{{- define "pointsman.hostConfig" -}}
{{- $v := .root.Values }}
{{- $mode := $v.mode | default "iptables" }}
{{- $config := dict "apiVersion" "pointsman.dev/v1alpha1" "kind" "HostConfig" "mode" $mode "source" (dict "kubernetes" (empty $v.apiServer.kubeletKubeconfig | ternary dict (dict "kubeconfig" "/run/pointsman-api/kubeconfig"))) "detectLocal" (dict "clusterCIDRs" $v.clusterCIDRs) }}
{{- if eq (include "pointsman.form" .root) "sidecar" }}
{{- $plugins := dict }}
{{- range $v.dataplanes }}
{{- $plugin := dict "address" (printf "unix:///run/pointsman-plugins/%s/plugin.sock" .) }}
{{- if has . (list "iptables" "nftables") }}{{ $_ := set $plugin "options" (dict "localhostNodePorts" false) }}{{ end }}
{{- $_ := set $plugins . $plugin }}
{{- end }}
{{- range $v.plugins }}{{ $_ := set $plugins .name (dict "address" (include "pointsman.pluginAddress" .)) }}{{ end }}
{{- $config = merge (dict "oomScoreAdj" 0 "linux" (dict "conntrack" (dict "maxPerCore" 0)) "plugins" $plugins) $config }}
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
