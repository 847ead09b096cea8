{{- /* SPDX-License-Identifier: GPL-2.0 */ -}}

{{- define "nagletrace.namespace" -}}
{{- if not .Values.namespace.create -}}
{{- .Release.Namespace -}}
{{- else if eq .Values.namespace.name .Release.Namespace -}}
{{- fail (print "namespace.create: the namespace " .Release.Namespace " is the release's own, which the chart "
  "cannot create; give --set namespace.create=false, or another one with -n") -}}
{{- else -}}
{{- .Values.namespace.name -}}
{{- end -}}
{{- end -}}

{{- /* Each object has these labels; those in `more` win. */ -}}
{{- define "nagletrace.labels" -}}
{{- merge (dict "app.kubernetes.io/name" "nagletrace") (.more | default dict) .root.Values.labels | toYaml -}}
{{- end -}}

{{- /* All objects in the namespace begin with this. */ -}}
{{- define "nagletrace.metadata" -}}
name: {{ .name }}
namespace: {{ include "nagletrace.namespace" .root }}
labels:
  {{- include "nagletrace.labels" . | nindent 2 }}
{{- end -}}

{{- /* The pod's service account; empty is the namespace's default one. */ -}}
{{- define "nagletrace.serviceAccount" -}}
{{- with .Values.serviceAccount -}}
{{- .name | default (ternary "nagletrace" "" .create) -}}
{{- end -}}
{{- end -}}

{{- define "nagletrace.image" -}}
{{- with .image -}}
image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end }}
{{- with .pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* The files are links into dashboards/, which some ways of copying a chart drop. */ -}}
{{- define "nagletrace.lacksFiles" -}}
{{- fail (print "the chart has no rules or dashboards: files/ was copied without what its links lead to; take the "
  "chart of `helm package`, of a package, or of `make install`") -}}
{{- end -}}

{{- /* The Secret that holds the key; empty without a key. */ -}}
{{- define "nagletrace.fleetKey" -}}
{{- with .Values.fleetKey -}}
{{- if and .value .secretName -}}
{{- fail (printf "fleetKey: value and secretName (%s) are both given; leave one of them empty" .secretName) -}}
{{- end -}}
{{- if .value }}nagletrace-fleet-key{{ else }}{{ .secretName }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The daemon would end with exit code 2 on each node, or serve another socket; the exporter another port. */ -}}
{{- define "nagletrace.checkOptions" -}}
{{- $known := splitList " " (print
  "--name --cgroup --container --pod --unit --netns --port --localport --remoteport --ipv4 --ipv6 --min --stacks "
  "--hooks --btf --max-overhead --quiet --verbose --window --standby-after --by-cgroup --max-series "
  "--max-connections --max-late-acks") -}}
{{- range .Values.daemon.options -}}
{{- $name := splitList "=" . | first -}}
{{- if and (hasPrefix "-" $name) (not (has $name $known)) -}}
{{- fail (printf (print "daemon.options: %s is no option to give here: give its long name, or the chart's value for it; "
  "take one of %s") $name (join " " $known)) -}}
{{- end -}}
{{- if and (eq $name "--max-overhead") (eq $.Values.daemon.attach "standby") -}}
{{- fail (printf "daemon.options: %s does not go with daemon.attach=standby; leave one out" .) -}}
{{- end -}}
{{- if and (eq $name "--standby-after") (ne $.Values.daemon.attach "standby") -}}
{{- fail (printf "daemon.options: %s is for daemon.attach=standby; give both" .) -}}
{{- end -}}
{{- end -}}
{{- $known = list "--daemon.max-series" "--log.level" "--metrics.exemplars" "--otlp.queue-mib" "--otlp.queue-records" -}}
{{- range .Values.exporter.options -}}
{{- $name := splitList "=" . | first -}}
{{- if has $name (list "--web.listen-address" "--web.telemetry-path" "--daemon.socket") -}}
{{- fail (printf "exporter.options: %s: the chart has its own, which probes and monitors ask; leave it out" .) -}}
{{- end -}}
{{- if eq $name "--web.config.file" -}}
{{- fail (printf (print "exporter.options: %s: probes and monitors ask over http and without a password; leave it out, and "
  "name in networkPolicy.from who may scrape") .) -}}
{{- end -}}
{{- if and (hasPrefix "--otlp." $name) (has $name $known) (not $.Values.otlp.endpoint) -}}
{{- fail (printf "exporter.options: %s is for a receiver; give otlp.endpoint too" .) -}}
{{- end -}}
{{- if and (hasPrefix "-" $name) (not (has $name $known)) -}}
{{- fail (printf "exporter.options: %s is no option to give here: take one of %s, or otlp.endpoint and otlp.secretName" $name
  (join " " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The daemon would end with exit code 4 on each node. What --stacks lacks it says, and goes on. */ -}}
{{- define "nagletrace.checkCapabilities" -}}
{{- $has := .Values.daemon.capabilities -}}
{{- if not (has "SYS_ADMIN" $has) -}}
{{- range $capability := list "BPF" "PERFMON" -}}
{{- if not (has $capability $has) -}}
{{- fail (print "daemon.capabilities: " $capability " is missing, without which the daemon cannot attach; add it, "
  "or SYS_ADMIN where the container runtime does not know it") -}}
{{- end -}}
{{- end -}}
{{- range $option := .Values.daemon.options -}}
{{- if eq (splitList "=" $option | first) "--max-overhead" -}}
{{- fail (printf "daemon.options: %s needs SYS_ADMIN; add it to daemon.capabilities" $option) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
