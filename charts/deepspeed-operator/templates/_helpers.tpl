{{- define "operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else if contains (include "operator.name" .) .Release.Name }}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "operator.name" .) | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels and annotations of an object: those of the chart, commonLabels and commonAnnotations, and further ones, which win. */}}
{{- define "operator.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{ include "operator.selector" $root }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with merge (dict) (index . 1 | default dict) ($root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "operator.annotations" -}}
{{- with merge (dict) (index . 1 | default dict) ((index . 0).Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "operator.metadata" -}}
labels:
  {{- include "operator.labels" (list . dict) | nindent 2 }}
{{- include "operator.annotations" (list . dict) }}
{{- end }}

{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "operator.image" -}}
{{- $repository := required "image.repository is required: `make images REGISTRY=…` builds and pushes the image" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The API group of a scheduler's PodGroups. */}}
{{- define "operator.gangGroup" -}}
{{- get (dict "Volcano" "scheduling.volcano.sh" "Coscheduling" "scheduling.x-k8s.io" "KAI" "scheduling.run.ai") . -}}
{{- end }}

{{/* What the operator may do in a namespace with DeepSpeedJobs. Secrets of jobs' attempts are made and deleted, and never read. */}}
{{- define "operator.rules" -}}
# patch: for the annotation that says which run has ended. RBAC cannot narrow it to that, the admission policy does. Without
# the policy an account that may create pods gains little by it.
- apiGroups: [deepspeed-operator.dev]
  resources: [deepspeedjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [deepspeed-operator.dev]
  resources: [deepspeedjobs/status]
  verbs: [update]
# Where OwnerReferencesPermissionEnforcement is on, as on OpenShift, only who has this may make what keeps a deleted job
# until it is gone. It gives no right to write: a DeepSpeedJob has no such subresource.
- apiGroups: [deepspeed-operator.dev]
  resources: [deepspeedjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [secrets]
  # A dry-run delete can return the Secret: `delete` is granted only while the policy guards it. Without that an attempt's
  # Secret goes with its job.
  verbs: [create{{ if .Values.admissionPolicy.enabled }}, delete{{ end }}]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, update, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, create, update, delete]
{{- if .Values.networkPolicy.jobs }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  resourceNames: [deepspeed-operator-jobs]
  verbs: [get, update]
{{- end }}
{{- if .Values.kueue.enabled }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- range .Values.gangs }}
- apiGroups: [{{ include "operator.gangGroup" . }}]
  resources: [podgroups]
  verbs: [get, create, update, delete]
{{- end }}
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
