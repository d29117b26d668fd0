{{/* Labels of every object, beside its name. */}}
{{- define "pointsman.labels" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The form of the pods: children or sidecar. */}}
{{- define "pointsman.form" -}}
{{ .Values.form | default (ternary "children" "sidecar" .Values.kubeProxy.replace) }}
{{- end }}

{{- define "pointsman.image" -}}
{{ .Values.image.repository | default (eq (include "pointsman.form" .) "sidecar" | ternary "ghcr.io/pointsman/host" "ghcr.io/pointsman/pointsman") }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The image of a dataplane. The argument is a dict with root and name. If one image has all dataplanes, its
     digest is used. */}}
{{- define "pointsman.dataplaneImage" -}}
{{- $v := .root.Values -}}
{{- $digest := get ($v.dataplaneImage.digests | default dict) .name -}}
{{- if and $v.image.repository (not $v.dataplaneImage.repository) (not $v.dataplaneImage.tag) }}{{ $digest = $digest | default $v.image.digest }}{{ end -}}
{{ $v.dataplaneImage.repository | default $v.image.repository | default "ghcr.io/pointsman/dataplane-NAME" | replace "NAME" .name }}:{{ $v.dataplaneImage.tag | default $v.image.tag | default .root.Chart.AppVersion }}{{ with $digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The modes that our images have, as a list. */}}
{{- define "pointsman.ours" -}}
["iptables", "nftables", "ipvs", "userspace", "auto"]
{{- end }}

{{/* Fails if no plugin has the mode. The argument is a dict with root, mode, config (the host's settings), and what
     (the name of the mode in the message). With form: sidecar, dataplanes or plugins must list the mode's container. */}}
{{- define "pointsman.knownMode" -}}
{{- $v := .root.Values }}
{{- $plugins := include "pointsman.pluginNames" .root | fromJsonArray }}
{{- $known := concat (include "pointsman.ours" . | fromJsonArray) $plugins }}
{{- if and (eq (include "pointsman.form" .root) "sidecar") (not (has .mode (concat $v.dataplanes $plugins))) }}
{{- if eq .mode "auto" }}{{ fail (printf "%s is auto, which form: sidecar does not support: set a mode, or form: children" .what) }}{{ end }}
{{- fail (printf "%s is %s, and the pods have %s: take one of these, or add %s to dataplanes or plugins" .what .mode (join ", " (concat $v.dataplanes $plugins)) .mode) }}
{{- end }}
{{- if not (or (has .mode $known) (hasKey (.config.plugins | default dict) .mode)) }}{{ fail (printf "%s is %s, and the images have %s: add another plugin to plugins, or to your own image with config.plugins.%s: {}" .what .mode (join ", " $known) .mode) }}{{ end }}
{{- end }}

{{/* Checks of several values together, which the schema cannot express. A value that differs from values.yaml
     counts as set. */}}
{{- define "pointsman.check" -}}
{{- $v := .Values }}
{{- $sidecar := eq (include "pointsman.form" .) "sidecar" }}
{{- $replace := $v.kubeProxy.replace }}
{{- if and (eq $v.form "sidecar") $replace }}{{ fail "with kubeProxy.replace the host reads its settings and the mode from kube-proxy's ConfigMap, which has no addresses of dataplanes: set form: children" }}{{ end }}
{{- if and $replace $v.config }}{{ fail "kubeProxy.replace reads kube-proxy's ConfigMap, so config has no effect: change the ConfigMap, or set kubeProxy.replace: false" }}{{ end }}
{{- $cidrs := $v.clusterCIDRs | default list }}
{{- if and $replace $cidrs (ne (toJson $cidrs) "[\"10.244.0.0/16\"]") }}{{ fail "kubeProxy.replace reads kube-proxy's ConfigMap, so clusterCIDRs has no effect: leave it out" }}{{ end }}
{{- if and $replace (ne .Release.Namespace "kube-system") }}{{ fail (printf "kubeProxy.replace reads kube-proxy's ConfigMap, which is in kube-system, and this release is in %s: install it with --namespace kube-system" .Release.Namespace) }}{{ end }}
{{- if and $v.apiServer.kubeletKubeconfig (or $v.apiServer.host $replace) }}{{ fail "apiServer.kubeletKubeconfig, apiServer.host and kubeProxy.replace each set the address of the API server: keep one of them" }}{{ end }}
{{- if and $v.kubeProxy.checkNodes (not $replace) }}{{ fail "kubeProxy.checkNodes has no effect without kubeProxy.replace: set kubeProxy.replace: true too" }}{{ end }}
{{- if and (ne $v.kubeProxy.configMap "kube-proxy") (not $replace) }}{{ fail "kubeProxy.configMap has no effect without kubeProxy.replace: set kubeProxy.replace: true too, or leave it out" }}{{ end }}
{{- if and (ne (int $v.apiServer.port) 6443) (not $v.apiServer.host) }}{{ fail "apiServer.port has no effect without apiServer.host: set that too, or leave it out" }}{{ end }}
{{- if and $v.serviceAccount.annotations (not $v.serviceAccount.create) }}{{ fail "serviceAccount.annotations are for a ServiceAccount that the chart creates: annotate the existing one, or set serviceAccount.create: true" }}{{ end }}
{{- if and (eq ($v.updateStrategy.type | default "") "OnDelete") $v.minReadySeconds }}{{ fail "minReadySeconds has no effect with updateStrategy.type: OnDelete, because no rollout waits: leave one of them out" }}{{ end }}
{{- if gt (len $cidrs) 1 }}
{{- if eq (contains ":" (first $cidrs)) (contains ":" (last $cidrs)) }}{{ fail (printf "clusterCIDRs has %s, which are of one IP family: want one range for each family" (join ", " $cidrs)) }}{{ end }}
{{- end }}
{{- $taken := dict "pointsman" true }}
{{- range concat (include "pointsman.ours" . | fromJsonArray) $v.dataplanes }}{{ $_ := set $taken . true }}{{ end }}
{{- range $v.plugins }}
{{- if hasKey $taken .name }}{{ fail (printf "two plugins, or a plugin and a dataplane of our images, have the name %s: give each plugin a different name" .name) }}{{ end }}
{{- $_ := set $taken .name true }}
{{- end }}
{{- if and (kindIs "bool" $v.imageVolumes) (or $sidecar (not $v.plugins)) }}{{ fail "imageVolumes has an effect only on plugins with form: children: leave it out" }}{{ end }}
{{- include "pointsman.checkExtra" . }}
{{- range $key := list "pointsman.dev/proxy" "pointsman.dev/pool" }}
{{- if hasKey ($v.nodeSelector | default dict) $key }}{{ fail (printf "nodeSelector has %s, which the chart sets by kubeProxy.replace and pools: leave it out" $key) }}{{ end }}
{{- end }}
{{- range $key := list "app.kubernetes.io/name" "pointsman.dev/pool" }}
{{- if hasKey ($v.podLabels | default dict) $key }}{{ fail (printf "podLabels has %s, by which the DaemonSet finds its pods: leave it out" $key) }}{{ end }}
{{- end }}
{{- if not $sidecar }}
{{- if ne (toJson $v.dataplanes) "[\"iptables\",\"nftables\"]" }}{{ fail "dataplanes lists containers of form: sidecar, and with form: children the host starts the plugin of the mode: leave it out" }}{{ end }}
{{- with $v.dataplaneImage }}
{{- if or .repository .tag .digests }}{{ fail "dataplaneImage is for form: sidecar, and with form: children one image has all dataplanes: leave it out" }}{{ end }}
{{- end }}
{{- range $plugin := $v.plugins }}
{{- range list "capabilities" "args" "env" "resources" "livenessProbe" }}
{{- if hasKey $plugin . }}{{ fail (printf "plugin %s has %s, which is for a container of form: sidecar, and with form: children the host starts the plugin: leave it out" $plugin.name .) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $digest := $v.dataplaneImage.digests }}
{{- if not (has $name $v.dataplanes) }}{{ fail (printf "dataplaneImage.digests has %s, and dataplanes has %s" $name (join ", " $v.dataplanes)) }}{{ end }}
{{- end }}
{{- with $v.dataplaneImage.digests }}
{{- range $v.dataplanes }}
{{- if not (hasKey $v.dataplaneImage.digests .) }}{{ fail (printf "dataplaneImage.digests does not have %s, but dataplanes has: set the digests of all dataplanes, or of none" .) }}{{ end }}
{{- end }}
{{- end }}
{{- include "pointsman.knownMode" (dict "root" . "mode" ($v.mode | default "iptables") "config" $v.config "what" "mode") }}
{{- range $sidecar | ternary $v.dataplanes list }}
{{- include "pointsman.knownMode" (dict "root" $ "mode" . "config" $v.config "what" "a name in dataplanes") }}
{{- end }}
{{- include "pointsman.checkConfig" (dict "root" . "config" $v.config "what" "config") }}
{{- $seen := dict }}
{{- range $v.pools }}
{{- $config := mergeOverwrite (deepCopy $v.config) (deepCopy (.config | default dict)) }}
{{- include "pointsman.knownMode" (dict "root" $ "mode" (.mode | default $v.mode | default "iptables") "config" $config "what" (printf "the mode of pool %s" .name)) }}
{{- include "pointsman.checkConfig" (dict "root" $ "config" $config "what" (printf "the config of pool %s" .name)) }}
{{- if hasKey $seen .name }}{{ fail (printf "two pools have the name %s: a node can have only one label pointsman.dev/pool" .name) }}{{ end }}
{{- $_ := set $seen .name true }}
{{- if and $replace .config }}{{ fail (printf "pool %s has a config, which has no effect with kubeProxy.replace, because the settings are kube-proxy's: set only its mode" .name) }}{{ end }}
{{- end }}
{{- end }}

{{/* Fails if other values contradict the host's settings. The argument is a dict with root, config, and what (the
     name of config in the message). */}}
{{- define "pointsman.checkConfig" -}}
{{- $v := .root.Values }}
{{- $what := .what }}
{{- $by := .config.detectLocalMode | default "ClusterCIDR" }}
{{- if and (ne $by "ClusterCIDR") $v.clusterCIDRs }}{{ fail (printf "%s has detectLocalMode: %s, so clusterCIDRs has no effect: set clusterCIDRs: []" .what $by) }}{{ end }}
{{- if eq (include "pointsman.form" .root) "sidecar" }}
{{- $has := concat $v.dataplanes (include "pointsman.pluginNames" .root | fromJsonArray) }}
{{- range $name, $_ := .config.plugins }}
{{- if not (has $name $has) }}{{ fail (printf "%s has plugins.%s, and the pods have %s: add %s to dataplanes or plugins, or leave it out" $what $name (join ", " $has) $name) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails if extraEnv, extraVolumes or extraVolumeMounts conflict with a name or path that the chart uses. */}}
{{- define "pointsman.checkExtra" -}}
{{- $v := .Values }}
{{- $own := list "POINTSMAN_HOSTNAMEOVERRIDE" "POINTSMAN_MODE" }}
{{- if $v.apiServer.host }}{{ $own = concat $own (list "KUBERNETES_SERVICE_HOST" "KUBERNETES_SERVICE_PORT") }}{{ end }}
{{- if $v.monitoring.enabled }}{{ $own = append $own "POINTSMAN_METRICSBINDADDRESS" }}{{ end }}
{{- $taken := list "kube-proxy" "config" "kubelet" "api-server" "state" "own" "sockets" "token" "data" "plugins" "xtables-lock" "modules" }}
{{- $paths := list "/etc/pointsman" "/run/pointsman" "/run/pointsman-api" "/run/pointsman-plugins" "/var/lib/pointsman" "/var/lib/kube-proxy" "/run/xtables.lock" "/lib/modules" }}
{{- range $v.plugins }}
{{- $own = append $own (include "pointsman.pluginVariable" .) }}
{{- $taken = concat $taken (list (print "socket-" .name) (print "plugin-" .name)) }}
{{- $paths = concat $paths (list (print "/run/pointsman-" .name) (print "/usr/libexec/pointsman-plugins/" .name)) }}
{{- end }}
{{- range $v.extraEnv }}
{{- if has .name $own }}{{ fail (printf "extraEnv has %s, which the chart sets, or which is there twice: leave it out" .name) }}{{ end }}
{{- $own = append $own .name }}
{{- end }}
{{- $volumes := list }}
{{- range $v.extraVolumes }}
{{- if has .name (concat $volumes $taken) }}{{ fail (printf "extraVolumes has %s, which is the name of another volume: choose another name" .name) }}{{ end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $mounted := list }}
{{- range $v.extraVolumeMounts }}
{{- if not (has .name $volumes) }}{{ fail (printf "extraVolumeMounts has %s, and extraVolumes does not" .name) }}{{ end }}
{{- if has (clean .mountPath) $paths }}{{ fail (printf "extraVolumeMounts has %s, where another volume is mounted: choose another path" .mountPath) }}{{ end }}
{{- $mounted = append $mounted .name }}
{{- $paths = append $paths (clean .mountPath) }}
{{- end }}
{{- range $volumes }}
{{- if not (has . $mounted) }}{{ fail (printf "extraVolumes has %s, and extraVolumeMounts does not mount it" .) }}{{ end }}
{{- end }}
{{- end }}

{{/* The host's config file. The argument is a dict with root and, for a pool, pool. */}}
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

{{/* The name of the ConfigMap contains a hash of its content. So pods get changed settings only when they are
     replaced, one after the other, and a rollout that stops does not affect the other nodes. */}}
{{- define "pointsman.configName" -}}
pointsman-{{ with .pool }}{{ .name }}-{{ end }}{{ include "pointsman.hostConfig" . | sha256sum | trunc 10 }}
{{- end }}
