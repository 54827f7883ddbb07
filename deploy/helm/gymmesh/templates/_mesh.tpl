{{/*
The mesh file (docs/reference/configuration.md), made from the values. Every service reads the same
mesh file, and serves its own part of the file.
*/}}

{{- define "gymmesh.meshFile" -}}
{{- $root := . -}}
{{- $mesh := dict "models" dict "sandboxes" dict "environments" dict "agents" dict -}}
{{- range $name, $values := .Values.models -}}
{{- $config := deepCopy (default dict (default dict $values).config) -}}
{{- with (default dict $values).vllm -}}
{{- $_ := set $config "backend" "vllm" -}}
{{- $_ := set $config "model" (default .model $config.model) -}}
{{- $_ := set $config "urls" (include "gymmesh.vllmUrls" (dict "root" $root "name" $name "vllm" .) | fromJsonArray) -}}
{{- end -}}
{{- if dig "apiKeySecret" "name" "" (default dict $values) -}}
{{- $_ := set $config "api_key" (printf "${%s:-}" (include "gymmesh.keyVariable" $name)) -}}
{{- end -}}
{{- $_ := set $mesh.models $name $config -}}
{{- end -}}
{{- range $name, $values := .Values.sandboxes -}}
{{- $config := deepCopy (default dict (default dict $values).config) -}}
{{- if eq (default "" $config.backend) "kubernetes" -}}
{{- $options := default dict $config.options -}}
{{- if not $options.claims -}}
{{- $enforces := include "gymmesh.enforcesPolicies" (dict "root" $root "options" $options) | eq "true" -}}
{{- $_ := set $config "options" (merge (dict "network_policies" $enforces) $options) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $mesh.sandboxes $name $config -}}
{{- end -}}
{{- range $name, $values := .Values.environments -}}
{{- $_ := set $mesh.environments $name (default dict (default dict $values).config) -}}
{{- end -}}
{{- range $name, $values := .Values.agents -}}
{{- $config := deepCopy (default dict (default dict $values).config) -}}
{{- if (default dict $values).gateway -}}
{{- $at := ternary (printf "[%s]" $root.Values.host) $root.Values.host (contains ":" $root.Values.host) -}}
{{- $listens := dict "listen" (printf "%s:%v" $at $root.Values.ports.gateway) "plain" true -}}
{{- $_ := set $config "gateway" (merge $listens (default dict $config.gateway)) -}}
{{- end -}}
{{- $_ := set $mesh.agents $name $config -}}
{{- end -}}
{{- $_ := set $mesh "defaults" .Values.defaults -}}
{{- $_ := set $mesh "mesh" (dict
    "drain_s" .Values.drainSeconds
    "transport" .Values.transport
    "metrics" .Values.metrics.enabled
    "log_format" .Values.logFormat
    "traces" (not (empty .Values.traces.endpoint))
    "traces_endpoint" .Values.traces.endpoint) -}}
{{- $_ := set $mesh "discovery" (include "gymmesh.discoveryConfig" . | fromJson) -}}
{{- $_ := set $mesh "security" (include "gymmesh.securityConfig" . | fromJson) -}}
{{- toYaml $mesh -}}
{{- end -}}

{{/* The part of the mesh file that a service reads. */}}
{{- define "gymmesh.meshPart" -}}
{{- $mesh := include "gymmesh.meshFile" .root | fromYaml -}}
{{- $part := dict
    "common" (omit $mesh "models" "sandboxes" "environments" "agents")
    "files" .root.Values.files -}}
{{- if ne .service.kind "discovery" -}}
{{- $_ := set $part "own" (index $mesh .service.section .service.name) -}}
{{- end -}}
{{- if eq .service.kind "environment" -}}
{{- /* If the mesh has no sandbox service, an environment runs sandboxes itself. */ -}}
{{- $_ := set $part "sandboxes" (keys $mesh.sandboxes | sortAlpha) -}}
{{- end -}}
{{- toJson $part -}}
{{- end -}}

{{- define "gymmesh.discoveryConfig" -}}
{{- $from := .Values.discovery -}}
{{- $config := dict "backend" $from.backend "xds" $from.xds -}}
{{- if eq $from.backend "kubernetes" -}}
{{- $selector := printf "gymmesh.io/service,app.kubernetes.io/instance=%s" .Release.Name -}}
{{- $_ := set $config "kubernetes" (dict "namespace" .Release.Namespace "selector" $selector) -}}
{{- end -}}
{{- if eq $from.backend "consul" -}}
{{- /* The service reports its health to Consul. Consul cannot check health over mTLS or through NetworkPolicies. */ -}}
{{- $consul := dict "address" $from.consul.address "prefix" $from.consul.prefix
    "datacenter" $from.consul.datacenter "check" "ttl" -}}
{{- with $from.consul.tokenSecret -}}
{{- if .name -}}
{{- $_ := set $consul "token_file" (printf "/etc/gymmesh-consul/token/%s" .key) -}}
{{- end -}}
{{- end -}}
{{- with $from.consul.caSecret -}}
{{- if .name -}}
{{- $_ := set $consul "tls" (dict "ca_file" (printf "/etc/gymmesh-consul/ca/%s" .key)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "consul" $consul -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{- define "gymmesh.securityConfig" -}}
{{- $config := dict -}}
{{- if eq .Values.tls.mode "none" -}}
{{- $_ := set $config "insecure" true -}}
{{- else -}}
{{- $_ := set $config "tls" (dict
    "certificate" "/etc/gymmesh-tls/tls.crt"
    "key" "/etc/gymmesh-tls/tls.key"
    "authority" "/etc/gymmesh-tls/ca.crt"
    "server_name" (include "gymmesh.serverName" .)) -}}
{{- $_ := set $config "plain_metrics" (and .Values.metrics.enabled (not .Values.metrics.tls)) -}}
{{- end -}}
{{- if .Values.tokenSecret.name -}}
{{- $_ := set $config "token_file" (printf "/etc/gymmesh-token/%s" .Values.tokenSecret.key) -}}
{{- end -}}
{{- $identities := dict -}}
{{- if eq .Values.tls.mode "certManager" -}}
{{- /* Each kind of certificate has its own name, and the name that all servers share. */ -}}
{{- /* With the certificate of one kind of service, only services of this kind can be registered. */ -}}
{{- range $kind, $may := dict "agent" (list "register" "serve") "resource" (list "register" "serve") "model" (list "register") "sandbox" (list "register") "discovery" (list "observe") -}}
{{- $identity := dict "certificates" (list (printf "%s.%s" $kind (include "gymmesh.serverName" $))) "may" $may -}}
{{- if has "register" $may -}}
{{- $_ := set $identity "registers" (list $kind) -}}
{{- end -}}
{{- $_ := set $identities $kind $identity -}}
{{- end -}}
{{- $known := dict "collector" (list "collect") -}}
{{- if .Values.metrics.tls -}}
{{- $_ := set $known "prometheus" (list "observe") -}}
{{- end -}}
{{- range $name, $may := $known -}}
{{- $_ := set $identities $name (dict
    "certificates" (list (printf "%s.%s" $name (include "gymmesh.serverName" $))) "may" $may) -}}
{{- end -}}
{{- end -}}
{{- with mergeOverwrite $identities (deepCopy .Values.identities) -}}
{{- $_ := set $config "identities" . -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The environment variable with a model's key. Only the pods of this model have the variable. */}}
{{- define "gymmesh.keyVariable" -}}
GYMMESH_KEY_{{ . | upper | replace "-" "_" | replace "." "_" }}
{{- end -}}

{{- define "gymmesh.vllmName" -}}
{{ include "gymmesh.fullname" .root }}-vllm-{{ include "gymmesh.id" .name }}
{{- end -}}

{{/* The addresses of the vLLM servers. Each server has its own name, so that the model service can send a rollout to the server that has the rollout's prefix in its cache. */}}
{{- define "gymmesh.vllmUrls" -}}
{{- $object := include "gymmesh.vllmName" . -}}
{{- $urls := list -}}
{{- range $number := until (int (default 1 .vllm.replicas)) -}}
{{- $urls = append $urls (printf "http://%s-%d.%s.%s.svc:8000/v1" $object $number $object $.root.Release.Namespace) -}}
{{- end -}}
{{- toJson $urls -}}
{{- end -}}
