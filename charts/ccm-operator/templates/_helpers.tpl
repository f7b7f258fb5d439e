{{- /* The file of a provider: its permissions, and the Secrets that it needs. */ -}}
{{- define "ccm-operator.provider" -}}
{{- .root.Files.Get (printf "files/providers/%s.yaml" .name) -}}
{{- end -}}

{{- /* The rules that follow from the chosen providers, for the cluster or for a managed namespace. */ -}}
{{- define "ccm-operator.rules" -}}
{{- $namespaces := .root.Values.namespaces -}}
{{- range $name := .root.Values.providers | sortAlpha -}}
{{- $provider := include "ccm-operator.provider" (dict "root" $.root "name" $name) | fromYaml -}}
{{- with get $provider "onlyIn" -}}
{{- if not (ternary (has "kube-system" $namespaces) (gt (len (without $namespaces "kube-system")) 0) .kubeSystem) -}}
{{- fail (printf "namespaces: the cloud-controller-manager of provider %s: %s" $name .because) -}}
{{- end -}}
{{- end -}}
{{- if or (eq $.of "cluster") (not $provider.onlyIn) (eq $provider.onlyIn.kubeSystem (eq $.namespace "kube-system")) -}}
{{- get $provider $.of -}}
{{- $byName := get $provider (printf "%sByName" $.of) -}}
{{- range $one := $.root.Values.names -}}
{{- $suffix := ternary "" (printf "-%s" $one) (eq $one "cluster") -}}
{{- $byName | replace "-name-of-the-chart" $suffix | replace "name-of-the-chart" $one -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The registries that may serve the providers' images under their own paths; nothing if there are none. */ -}}
{{- define "ccm-operator.mirrors" -}}
{{- $mirrors := .Values.registryMirrors -}}
{{- with .Values.image.registryMirror -}}
{{- $mirrors = append $mirrors . | uniq -}}
{{- end -}}
{{- join "," $mirrors -}}
{{- end -}}

{{- /* The names of the Secrets that the operator may read, as a list in JSON; nothing if there are none. */ -}}
{{- define "ccm-operator.secrets" -}}
{{- $names := .Values.secrets -}}
{{- if not $names -}}
{{- range $name := .Values.providers | sortAlpha -}}
{{- $names = concat $names (get (include "ccm-operator.provider" (dict "root" $ "name" $name) | fromYaml) "secrets") -}}
{{- end -}}
{{- end -}}
{{- with $names }}{{ toJson . }}{{ end -}}
{{- end -}}

{{- /* The address of the API server, in JSON; nothing if it is the Service. */ -}}
{{- define "ccm-operator.apiServer" -}}
{{- if .Values.apiServer.host -}}
{{- toJson .Values.apiServer -}}
{{- else -}}
{{- $nodes := ternary "without" "with" (eq (int .Values.controlPlaneNodes) 0) -}}
{{- $known := get (.Files.Get "files/api-servers.yaml" | fromYaml) $nodes -}}
{{- with get $known .Values.distribution }}{{ toJson . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The operator's image. */ -}}
{{- define "ccm-operator.image" -}}
{{- with .Values.image -}}
{{- $repository := .repository -}}
{{- if .registryMirror -}}
{{- $repository = printf "%s/%s" .registryMirror (regexReplaceAll "^[^/]+/" .repository "") -}}
{{- end -}}
{{- printf "%s:%s" $repository (.tag | default $.Chart.AppVersion) -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}
