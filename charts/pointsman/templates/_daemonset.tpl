{{/* A DaemonSet, of a dict with root and, for a pool, pool. */}}
{{- define "pointsman.daemonset" -}}
{{- $ := .root }}
{{- $v := .root.Values }}
{{- $sidecar := eq (include "pointsman.form" $) "sidecar" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: pointsman{{ with .pool }}-{{ .name }}{{ end }}
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "pointsman.labels" $ | nindent 4 }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: pointsman
      {{- with .pool }}
      pointsman.dev/pool: {{ .name }}
      {{- end }}
    {{- if not .pool }}
    matchExpressions:
    - {key: pointsman.dev/pool, operator: DoesNotExist}
    {{- end }}
  updateStrategy: {{- toYaml (eq ($v.updateStrategy.type | default "") "OnDelete" | ternary (dict "type" "OnDelete") $v.updateStrategy) | nindent 4 }}
  minReadySeconds: {{ $v.minReadySeconds }}
  template:
    metadata:
      labels:
        {{- with $v.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        app.kubernetes.io/name: pointsman
        {{- with .pool }}
        pointsman.dev/pool: {{ .name }}
        {{- end }}
      {{- with merge (dict) $v.podAnnotations ($sidecar | ternary (dict "kubectl.kubernetes.io/default-container" "pointsman") dict) }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $v.serviceAccount.name }}
      {{- if $sidecar }}
      automountServiceAccountToken: false  # it would be in every container
      securityContext:
        fsGroup: 65532                # who may read the token
      {{- end }}
      {{- with $v.imagePullSecrets }}
      imagePullSecrets:
      {{- range . }}
      - name: {{ . }}
      {{- end }}
      {{- end }}
      hostNetwork: true               # it serves the node
      priorityClassName: {{ $v.priorityClassName }}
      tolerations: {{- toYaml $v.tolerations | nindent 8 }}
      nodeSelector:
        {{- toYaml $v.nodeSelector | nindent 8 }}
        {{- if $v.kubeProxy.replace }}
        pointsman.dev/proxy: pointsman
        {{- end }}
        {{- with .pool }}
        pointsman.dev/pool: {{ .name }}
        {{- end }}
      {{- with include "pointsman.affinity" . | fromYaml }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
      {{- $pluginInit := $sidecar | ternary "" (include "pointsman.pluginInit" $) }}
      {{- if or $v.apiServer.kubeletKubeconfig $pluginInit }}
      initContainers:
      {{- if $v.apiServer.kubeletKubeconfig }}
      - name: api-server              # the only one that sees the kubelet's kubeconfig
        image: {{ include "pointsman.image" $ }}
        imagePullPolicy: {{ $v.image.pullPolicy }}
        args: [config, kubeconfig, /kubelet/kubeconfig, /run/pointsman-api/kubeconfig]
        securityContext:
          privileged: false
          allowPrivilegeEscalation: false
          runAsUser: 0                # whose file it is
          capabilities: {drop: [ALL]}
          readOnlyRootFilesystem: true
          seccompProfile: {type: RuntimeDefault}
        resources: {{- toYaml $v.resources | nindent 10 }}
        volumeMounts:
        - {name: kubelet, mountPath: /kubelet/kubeconfig, readOnly: true}
        - {name: api-server, mountPath: /run/pointsman-api}
      {{- end }}
      {{- with $pluginInit }}
      {{- . | trim | nindent 6 }}
      {{- end }}
      {{- end }}
      containers:                     # in the order of their start: a host asks dataplanes which of them serves
      {{- range $name := $sidecar | ternary $v.dataplanes list }}
      - name: {{ $name }}
        image: {{ include "pointsman.dataplaneImage" (dict "root" $ "name" $name) }}
        imagePullPolicy: {{ $v.image.pullPolicy }}
        command: [/usr/libexec/pointsman/pointsman-dataplane-{{ $name }}]
        args: [--listen, "unix:///run/pointsman-plugins/{{ $name }}/plugin.sock", --allow-uid, "65532"]
        securityContext:
          privileged: false
          allowPrivilegeEscalation: false
          runAsUser: 0
          runAsGroup: 65532           # the host's: it alone comes to the socket
          capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW]}  # NET_RAW: for tables of iptables-legacy
          readOnlyRootFilesystem: true
          seccompProfile: {type: RuntimeDefault}
        resources: {{- toYaml $v.dataplaneResources | nindent 10 }}
        livenessProbe:                # one that hangs the host cannot end
          exec:
            command: [/usr/libexec/pointsman/pointsman-dataplane-{{ $name }}, alive, "unix:///run/pointsman-plugins/{{ $name }}/plugin.sock"]
          periodSeconds: 5
          timeoutSeconds: 4
          failureThreshold: 3
        volumeMounts:
        - {name: state, mountPath: /run/pointsman}
        - {name: sockets, mountPath: /run/pointsman-plugins}
        - {name: xtables-lock, mountPath: /run/xtables.lock}
        - {name: modules, mountPath: /lib/modules, readOnly: true}
      {{- end }}
      {{- range $sidecar | ternary $v.plugins list }}
      - name: {{ .name }}
        image: {{ include "pointsman.pluginImage" . }}
        imagePullPolicy: {{ $v.image.pullPolicy }}
        command: [{{ include "pointsman.pluginPath" . | quote }}]
        args: {{ .args | default (list "--listen" (include "pointsman.pluginAddress" .) "--allow-uid" "65532") | toJson }}
        {{- with .env }}
        env: {{- toYaml . | nindent 8 }}
        {{- end }}
        securityContext:
          privileged: false
          allowPrivilegeEscalation: false
          runAsUser: 0
          runAsGroup: 65532           # the host's: it alone comes to the socket
          capabilities: {drop: [ALL], add: {{ hasKey . "capabilities" | ternary .capabilities (list "NET_ADMIN") | toJson }}}
          readOnlyRootFilesystem: true
          seccompProfile: {type: RuntimeDefault}
        resources: {{- toYaml (.resources | default $v.dataplaneResources) | nindent 10 }}
        {{- with .livenessProbe }}
        livenessProbe: {{- toYaml . | nindent 10 }}
        {{- end }}
        volumeMounts:                 # no other dataplane's socket or state
        - {name: state, mountPath: /run/pointsman/plugins/{{ .name }}, subPath: plugins/{{ .name }}}
        - {name: socket-{{ .name }}, mountPath: /run/pointsman-{{ .name }}}
        - {name: xtables-lock, mountPath: /run/xtables.lock}
      {{- end }}
      - name: pointsman
        image: {{ include "pointsman.image" $ }}
        imagePullPolicy: {{ $v.image.pullPolicy }}
        args: [run, --config={{ $v.kubeProxy.replace | ternary "/var/lib/kube-proxy/config.conf" "/etc/pointsman/host.yaml" }}]
        env:
        - name: POINTSMAN_HOSTNAMEOVERRIDE   # the node's name as its endpoints have it
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- if $v.kubeProxy.replace }}
        {{- with (.pool | default dict).mode | default $v.mode }}
        - {name: POINTSMAN_MODE, value: {{ . }}}
        {{- end }}
        {{- end }}
        {{- with $sidecar | ternary "" (include "pointsman.pluginEnv" $) }}{{ . | trim | nindent 8 }}{{ end }}
        {{- if $v.apiServer.host }}
        - {name: KUBERNETES_SERVICE_HOST, value: {{ $v.apiServer.host | quote }}}
        - {name: KUBERNETES_SERVICE_PORT, value: {{ $v.apiServer.port | quote }}}
        {{- end }}
        {{- with $v.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $v.monitoring.enabled }}
        - name: POINTSMAN_METRICSBINDADDRESS   # before the file's; the port is 10249
          valueFrom: {fieldRef: {fieldPath: status.hostIP}}
        ports:
        - {name: metrics, containerPort: 10249, protocol: TCP}
        {{- end }}
        securityContext:
          {{- if $sidecar }}
          privileged: false
          allowPrivilegeEscalation: false
          runAsNonRoot: true
          runAsUser: 65532
          runAsGroup: 65532
          capabilities: {drop: [ALL]}
          readOnlyRootFilesystem: true
          seccompProfile: {type: RuntimeDefault}
          {{- else }}
          privileged: true            # rules, sysctls and conntrack of the node
          {{- end }}
        resources: {{- toYaml $v.resources | nindent 10 }}
        startupProbe:
          httpGet: {path: /livez, port: 10256}
          failureThreshold: 30
        readinessProbe:
          httpGet: {path: /readyz, port: 10256}
        livenessProbe:
          httpGet: {path: /livez, port: 10256}
          failureThreshold: 8
        volumeMounts:
        {{- if $v.kubeProxy.replace }}
        - {name: kube-proxy, mountPath: /var/lib/kube-proxy}
        {{- else }}
        - {name: config, mountPath: /etc/pointsman}
        {{- end }}
        {{- if $v.apiServer.kubeletKubeconfig }}
        - {name: api-server, mountPath: /run/pointsman-api, readOnly: true}
        {{- end }}
        {{- if $sidecar }}
        - {name: own, mountPath: /run/pointsman}
        - {name: sockets, mountPath: /run/pointsman-plugins}
        {{- range $v.plugins }}
        - {name: socket-{{ .name }}, mountPath: /run/pointsman-{{ .name }}}
        {{- end }}
        - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
        {{- else }}
        - {name: state, mountPath: /run/pointsman}
        - {name: data, mountPath: /var/lib/pointsman}
        - {name: xtables-lock, mountPath: /run/xtables.lock}
        - {name: modules, mountPath: /lib/modules, readOnly: true}
        {{- with include "pointsman.pluginMounts" $ }}{{ . | trim | nindent 8 }}{{ end }}
        {{- end }}
        {{- with $v.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      {{- if $v.kubeProxy.replace }}
      - name: kube-proxy
        configMap: {name: {{ $v.kubeProxy.configMap }}}
      {{- else }}
      - name: config
        configMap: {name: {{ include "pointsman.configName" . }}}
      {{- end }}
      {{- if $v.apiServer.kubeletKubeconfig }}
      - name: kubelet
        hostPath: {path: {{ $v.apiServer.kubeletKubeconfig | quote }}, type: File}
      - name: api-server              # a kubeconfig with the address of the API server, and no secret
        emptyDir: {}
      {{- end }}
      - name: state                   # outlives the pod: what was taken from the node, to give back
        hostPath: {path: /run/pointsman, type: DirectoryOrCreate}
      {{- if $sidecar }}
      - name: own                     # the host's state
        emptyDir: {}
      - name: sockets
        emptyDir: {}
      {{- range $v.plugins }}
      - name: socket-{{ .name }}
        emptyDir: {}
      {{- end }}
      - name: token
        projected:
          sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3607}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
          - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
      {{- else }}
      - name: data                    # outlives a reboot: which mode auto stands for
        hostPath: {path: /var/lib/pointsman, type: DirectoryOrCreate}
      {{- with include "pointsman.pluginVolumes" $ }}{{ . | trim | nindent 6 }}{{ end }}
      {{- end }}
      - name: xtables-lock            # the one that every program on the node takes
        hostPath: {path: /run/xtables.lock, type: FileOrCreate}
      - name: modules
        hostPath: {path: /lib/modules}
      {{- with $v.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}

{{/* The affinity of a DaemonSet, of a dict with root and, for a pool, pool. That of all nodes leaves those of pools out:
     each term of an affinity of one's own has to, since one of them is enough. */}}
{{- define "pointsman.affinity" -}}
{{- $v := .root.Values }}
{{- $affinity := deepCopy ($v.affinity | default dict) }}
{{- if and $v.pools (not .pool) }}
{{- $not := dict "key" "pointsman.dev/pool" "operator" "NotIn" "values" (include "pointsman.poolNames" $v.pools | fromJsonArray) }}
{{- $node := $affinity.nodeAffinity | default dict }}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict }}
{{- $terms := list }}
{{- range $required.nodeSelectorTerms | default (list dict) }}
{{- $terms = append $terms (merge (dict "matchExpressions" (append (.matchExpressions | default list) $not)) .) }}
{{- end }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $_ := set $affinity "nodeAffinity" $node }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{/* The names of pools, as a list. */}}
{{- define "pointsman.poolNames" -}}
{{- $names := list }}
{{- range . }}{{ $names = append $names .name }}{{ end }}
{{- toJson $names }}
{{- end }}
