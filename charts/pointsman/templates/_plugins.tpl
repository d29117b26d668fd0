{{/* The image of a plugin, of what values have of the plugin. */}}
{{- define "pointsman.pluginImage" -}}
{{ .image }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Where the plugin's image has its program. */}}
{{- define "pointsman.pluginPath" -}}
{{ .path | default (printf "/usr/libexec/pointsman/pointsman-dataplane-%s" .name) }}
{{- end }}

{{/* Where a plugin in a container of its own listens. It makes the last folder, with a mode that a volume's
     own folder cannot have. */}}
{{- define "pointsman.pluginAddress" -}}
unix:///run/pointsman-{{ .name }}/socket/plugin.sock
{{- end }}

{{/* The names of plugins, as a list. */}}
{{- define "pointsman.pluginNames" -}}
{{- $names := list }}
{{- range .Values.plugins }}{{ $names = append $names .name }}{{ end }}
{{- toJson $names }}
{{- end }}

{{/* What follows gives the host the plugins that it starts itself, in the form children: each image is a
     volume, or an init container copies the folder of the program. Everyone may write to a volume that is
     copied to, and there the host starts no program; so the copied folder alone is mounted. */}}
{{- define "pointsman.imageVolumes" -}}
{{- if eq (toString .Values.imageVolumes) "auto" }}{{ semverCompare ">=1.35" (regexFind "[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) }}{{ else }}{{ .Values.imageVolumes }}{{ end }}
{{- end }}

{{- define "pointsman.pluginInit" }}
{{- if eq (include "pointsman.imageVolumes" .) "false" }}
{{- range .Values.plugins }}
- name: copy-{{ .name }}
  image: {{ include "pointsman.pluginImage" . }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command: [cp, -r, {{ include "pointsman.pluginPath" . | dir }}/., /plugins/{{ .name }}]
  securityContext:
    allowPrivilegeEscalation: false
    runAsUser: 0                # the host takes no program of another user
    capabilities: {drop: [ALL]}
    readOnlyRootFilesystem: true
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
  - {name: plugins, mountPath: /plugins}
{{- end }}
{{- end }}
{{- end }}

{{/* The variable that says where the host has the program of a plugin. */}}
{{- define "pointsman.pluginVariable" -}}
POINTSMAN_PLUGINS_{{ .name | upper | replace "-" "_" }}_PATH
{{- end }}

{{- define "pointsman.pluginEnv" }}
{{- $copied := eq (include "pointsman.imageVolumes" .) "false" }}
{{- range .Values.plugins }}
{{- $path := include "pointsman.pluginPath" . }}
- {name: {{ include "pointsman.pluginVariable" . }}, value: /usr/libexec/pointsman-plugins/{{ .name }}{{ $copied | ternary (print "/" (base $path)) $path }}}
{{- end }}
{{- end }}

{{- define "pointsman.pluginMounts" }}
{{- $copied := eq (include "pointsman.imageVolumes" .) "false" }}
{{- range .Values.plugins }}
- {name: {{ $copied | ternary "plugins" (print "plugin-" .name) }}, mountPath: /usr/libexec/pointsman-plugins/{{ .name }}{{ if $copied }}, subPath: {{ .name }}{{ end }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "pointsman.pluginVolumes" }}
{{- if eq (include "pointsman.imageVolumes" .) "true" }}
{{- range .Values.plugins }}
- name: plugin-{{ .name }}
  image: {reference: {{ include "pointsman.pluginImage" . | quote }}, pullPolicy: {{ $.Values.image.pullPolicy }}}
{{- end }}
{{- else if .Values.plugins }}
- name: plugins
  emptyDir: {}
{{- end }}
{{- end }}
