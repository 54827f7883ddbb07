{{/*
Names and labels, and what every service has in common.

gymmesh.services gives the services as JSON, each with
  kind    as `gym-cli serve` has it: agent, environment, model, sandbox or discovery
  role    the kind of service, for discovery over Kubernetes: agent, resource, model, sandbox or discovery
  name    in the mesh; `id` is that as a Kubernetes name, `object` the name of its objects
  key     where its values stand, for messages; `section` is the part of the mesh file
  run     how it runs: `workload`, with what the service overrides
  isolates  whether bubblewrap runs in its pod, which needs what `sandbox` gives
  account   the name of its service account; `token` is whether its pod has the account's token
  pods      of a sandbox service whose sandboxes are pods: their namespace, and whether they are
            claimed
  gateway   whether programs in sandboxes call the model at this agent's gateway
Every template that is about services ranges over them.
*/}}

{{- define "gymmesh.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A name of the mesh as a Kubernetes name: tool_loop becomes tool-loop. */}}
{{- define "gymmesh.id" -}}
{{- . | lower | replace "_" "-" | replace "." "-" | trimAll "-" -}}
{{- end -}}

{{- define "gymmesh.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "gymmesh.labels" -}}
{{ include "gymmesh.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Labels of pods. They don't contain the chart's or the application's version, so that an upgrade
restarts only the pods whose image or configuration has changed.
*/}}
{{- define "gymmesh.podLabels" -}}
{{ include "gymmesh.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels that distinguish the pods of one service from the pods of all other services. */}}
{{- define "gymmesh.serviceSelector" -}}
{{ include "gymmesh.selector" (dict "root" .root "component" .service.kind) }}
gymmesh.io/name: {{ .service.name | quote }}
{{- end -}}

{{- define "gymmesh.services" -}}
{{- $root := . -}}
{{- $services := list -}}
{{- $full := include "gymmesh.fullname" . -}}
{{- $kinds := list
    (dict "kind" "model" "role" "model" "key" "models")
    (dict "kind" "sandbox" "role" "sandbox" "key" "sandboxes")
    (dict "kind" "environment" "role" "resource" "key" "environments")
    (dict "kind" "agent" "role" "agent" "key" "agents") -}}
{{- $account := include "gymmesh.serviceAccount" . -}}
{{- if eq (include "gymmesh.servesDiscovery" .) "true" -}}
{{- $own := omit .Values.discovery "backend" "serve" "xds" "consul" "replicas" -}}
{{- $run := mergeOverwrite (deepCopy .Values.workload) $own -}}
{{- $_ := set $run "replicas" (include "gymmesh.discoveryReplicas" . | int) -}}
{{- $services = append $services (dict "kind" "discovery" "role" "discovery" "name" "registry"
    "id" "discovery" "object" (printf "%s-discovery" $full) "key" "discovery" "run" $run
    "account" (printf "%s-discovery" $account) "token" (eq .Values.discovery.backend "kubernetes")) -}}
{{- end -}}
{{- range $of := $kinds -}}
{{- range $name, $values := index $root.Values $of.key -}}
{{- $id := include "gymmesh.id" $name -}}
{{- $own := omit (default dict $values) "config" "apiKeySecret" "vllm" "sandbox" "gateway" -}}
{{- $isolates := default false (default dict $values).sandbox -}}
{{- $pods := dict -}}
{{- if eq $of.kind "sandbox" -}}
{{- $config := default dict (default dict $values).config -}}
{{- $isolates = eq (default "bubblewrap" $config.backend) "bubblewrap" -}}
{{- $pods = include "gymmesh.sandboxPods" (dict "root" $root "config" $config) | fromJson -}}
{{- end -}}
{{- $services = append $services (merge (dict
    "name" $name
    "id" $id
    "object" (printf "%s-%s-%s" $full $of.kind $id)
    "key" (printf "%s.%s" $of.key $name)
    "section" $of.key
    "run" (mergeOverwrite (deepCopy $root.Values.workload) $own)
    "isolates" $isolates
    "pods" $pods
    "gateway" (default false (default dict $values).gateway)
    "account" (ternary (printf "%s-sandbox-%s" $account $id) $account (eq $of.kind "sandbox"))
    "token" (and (not (empty $pods)) $pods.token)
    "apiKeySecret" (default dict (default dict $values).apiKeySecret)
    "vllm" (default dict (default dict $values).vllm)
  ) (omit $of "key")) -}}
{{- end -}}
{{- end -}}
{{- toJson $services -}}
{{- end -}}

{{/* The namespace of the pods of a sandbox service's sandboxes, as JSON. Empty: sandboxes are not pods. */}}
{{- define "gymmesh.sandboxPods" -}}
{{- $options := default dict .config.options -}}
{{- if eq (default "" .config.backend) "kubernetes" -}}
{{- toJson (dict
    "namespace" (default .root.Release.Namespace $options.namespace)
    "claimed" (not (empty $options.claims))
    "policies" (include "gymmesh.enforcesPolicies" (dict "root" .root "options" $options) | eq "true")
    "token" (not (or $options.server $options.kubeconfig))
  ) -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/* Whether the cluster's network enforces NetworkPolicies. Default: true. */}}
{{- define "gymmesh.enforcesPolicies" -}}
{{- if hasKey .options "network_policies" -}}
{{- .options.network_policies -}}
{{- else -}}
{{- .root.Values.networkPolicy.enabled -}}
{{- end -}}
{{- end -}}

{{- define "gymmesh.servesDiscovery" -}}
{{- if kindIs "invalid" .Values.discovery.serve -}}
{{- ne .Values.discovery.backend "consul" -}}
{{- else -}}
{{- .Values.discovery.serve -}}
{{- end -}}
{{- end -}}

{{- define "gymmesh.discoveryReplicas" -}}
{{- if kindIs "invalid" .Values.discovery.replicas -}}
{{- ternary 1 2 (eq .Values.discovery.backend "memory") -}}
{{- else -}}
{{- .Values.discovery.replicas -}}
{{- end -}}
{{- end -}}

{{- define "gymmesh.discoveryAddress" -}}
{{ include "gymmesh.fullname" . }}-discovery.{{ .Release.Namespace }}.svc:{{ .Values.ports.grpc }}
{{- end -}}

{{/* The address under which a collector finds the instances of an agent. */}}
{{- define "gymmesh.agentTarget" -}}
{{- if eq .root.Values.discovery.backend "consul" -}}
consul:///{{ .agent }}
{{- else -}}
discovery://{{ include "gymmesh.discoveryAddress" .root }}/{{ .agent }}
{{- end -}}
{{- end -}}

{{- define "gymmesh.image" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (default dict .image) -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .root.Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{- define "gymmesh.serviceAccount" -}}
{{- default (include "gymmesh.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "gymmesh.serverName" -}}
{{- default (printf "%s.%s" (include "gymmesh.fullname" .) .Release.Namespace) .Values.tls.serverName -}}
{{- end -}}

{{/* The name of the Secret with the certificate of a service or of the collectors. */}}
{{- define "gymmesh.tlsSecret" -}}
{{- if eq .root.Values.tls.mode "certManager" -}}
{{ .object }}-tls
{{- else -}}
{{ .root.Values.tls.secret }}
{{- end -}}
{{- end -}}

{{/* The security context of a container, which forbids nearly everything. */}}
{{- define "gymmesh.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- end -}}

{{- define "gymmesh.podSecurity" -}}
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
runAsGroup: 10001
runAsNonRoot: true
runAsUser: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The volumes and mounts that every container of gymmesh has. */}}
{{- define "gymmesh.volumes" -}}
- name: mesh
  configMap:
    name: {{ include "gymmesh.fullname" .root }}-mesh
- name: tmp
  emptyDir: {sizeLimit: {{ .run.tmpSize }}}
- name: cache
  emptyDir: {sizeLimit: {{ .run.cacheSize }}}
{{- if ne .root.Values.tls.mode "none" }}
- name: tls
  secret:
    secretName: {{ include "gymmesh.tlsSecret" (dict "root" .root "object" .object) }}
    defaultMode: 0440
{{- end }}
{{- with .root.Values.tokenSecret.name }}
- name: token
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if eq .root.Values.discovery.backend "consul" }}
{{- with .root.Values.discovery.consul.tokenSecret.name }}
- name: consul-token
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .root.Values.discovery.consul.caSecret.name }}
- name: consul-ca
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end -}}

{{- define "gymmesh.volumeMounts" -}}
- {name: mesh, mountPath: /etc/gymmesh, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /var/cache/gymmesh}
{{- if ne .Values.tls.mode "none" }}
- {name: tls, mountPath: /etc/gymmesh-tls, readOnly: true}
{{- end }}
{{- if .Values.tokenSecret.name }}
- {name: token, mountPath: /etc/gymmesh-token, readOnly: true}
{{- end }}
{{- if eq .Values.discovery.backend "consul" }}
{{- if .Values.discovery.consul.tokenSecret.name }}
- {name: consul-token, mountPath: /etc/gymmesh-consul/token, readOnly: true}
{{- end }}
{{- if .Values.discovery.consul.caSecret.name }}
- {name: consul-ca, mountPath: /etc/gymmesh-consul/ca, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "gymmesh.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: HOST_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
- {name: HOME, value: /tmp}
- {name: XDG_CACHE_HOME, value: /var/cache/gymmesh}
{{- end -}}

{{/* Default: pods are spread evenly over zones and nodes. */}}
{{- define "gymmesh.spread" -}}
{{- if .run.topologySpreadConstraints -}}
{{ toYaml .run.topologySpreadConstraints }}
{{- else -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
{{ include "gymmesh.serviceSelector" $ | indent 6 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The node selector, affinity and tolerations of a pod. */}}
{{- define "gymmesh.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end -}}
