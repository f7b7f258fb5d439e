//! What only the chart has in the Deployment of the operator: external providers, the certificate of the metrics, and the settings of
//! pods for which `render` has no flag, because its output is a file that can be edited.

use anyhow::{Result, bail};

/// The argument with the names, and those for external providers.
pub(super) const NAMED: &str = "\
--names={{ join \",\" $.Values.names }}
{{- range $.Values.externalProviders }}
{{- $isBuiltIn := $.Files.Get (printf \"files/providers/%s.yaml\" .name) }}
{{- if and $isBuiltIn (not (has .name $.Values.replaceBuiltIn)) }}
{{- fail (printf \"externalProviders: %s comes with the operator: add it to replaceBuiltIn, or choose another name\" .name) }}
{{- end }}
        - --provider=/etc/ccm-operator/providers/{{ .name }}.tar@{{ .digest }}
{{- end }}
{{- if $.Values.providerPolicy }}
        - --provider-policy=/etc/ccm-operator/providers/policy.yaml@{{ $.Values.providerPolicyDigest }}
{{- end }}
{{- with $.Values.replaceBuiltIn }}
        - --replace-built-in={{ join \",\" . }}
{{- end }}
{{- with $.Values.removeProviders }}
{{- range $.Values.externalProviders }}
{{- if has .name $.Values.removeProviders }}
{{- fail (printf \"removeProviders: %s is among externalProviders, so nothing of it would be deleted\" .name) }}
{{- end }}
{{- end }}
        - --remove-provider={{ join \",\" . }}
{{- end }}";

/// The lines before others, which are given by their beginning.
const BEFORE: [(&str, &str); 4] = [
    ("    spec:", LABELS),
    ("      affinity:", NODES),
    // The list of tolerations is the last before the containers.
    ("      containers:", TOLERATIONS),
    // The arguments are the last before the variables.
    ("        # The UID of the pod:", ARGUMENTS),
];

/// The fields that values replace, with the lines below them, and a comment on the default of one.
const INSTEAD: [(&str, &str); 3] = [
    ("      # Every namespace allows this class", ""),
    ("      priorityClassName:", PRIORITY),
    ("        resources:", RESOURCES),
];

const LABELS: &str = "\
{{- with $.Values.podLabels }}
{{ toYaml . | indent 8 }}
{{- end }}
{{- with $.Values.podAnnotations }}
      annotations:
{{ toYaml . | indent 8 }}
{{- end }}
";

const NODES: &str = "\
{{- with $.Values.nodeSelector }}
      nodeSelector:
{{ toYaml . | indent 8 }}
{{- end }}
";

const TOLERATIONS: &str = "\
{{- with $.Values.tolerations }}
{{ toYaml . | indent 6 }}
{{- end }}
{{- with $.Values.image.pullSecrets }}
      imagePullSecrets:
{{ toYaml . | indent 6 }}
{{- end }}
";

/// The manifests do not have the argument `--v`, so the default of the flag adds none.
const ARGUMENTS: &str = "\
{{- if $.Values.metricsCertificate.secretName }}
        - --metrics-cert-dir=/etc/ccm-operator/metrics-certificate
{{- end }}
{{- if ne (int $.Values.verbosity) 2 }}
        - --v={{ int $.Values.verbosity }}
{{- end }}
";

const PRIORITY: &str = "\
{{- with $.Values.priorityClassName }}
      priorityClassName: {{ toYaml . }}
{{- end }}
";

const RESOURCES: &str = "\
{{- with $.Values.resources }}
        resources:
{{ toYaml . | indent 10 }}
{{- end }}
";

/// The mounts and volumes for external providers and the certificate of the metrics, at the end of the container and of the pod.
const VOLUMES: &str = "\
{{- if or $.Values.externalProviders $.Values.metricsCertificate.secretName }}
        volumeMounts:
{{- if $.Values.externalProviders }}
        - name: providers
          mountPath: /etc/ccm-operator/providers
          readOnly: true
{{- end }}
{{- if $.Values.metricsCertificate.secretName }}
        - name: metrics-certificate
          mountPath: /etc/ccm-operator/metrics-certificate
          readOnly: true
{{- end }}
      volumes:
{{- if $.Values.externalProviders }}
      - name: providers
        projected:
          sources:
{{- range $.Values.externalProviders }}
          - configMap: {name: provider-{{ .name }}}
{{- end }}
{{- if $.Values.providerPolicy }}
          - configMap: {name: {{ $.Values.providerPolicy | quote }}}
{{- end }}
{{- end }}
{{- if $.Values.metricsCertificate.secretName }}
      - name: metrics-certificate
        secret:
          secretName: {{ $.Values.metricsCertificate.secretName | quote }}
          optional: true
{{- end }}
{{- end }}
";

/// The template of the Deployment with these settings.
pub(super) fn with_settings(deployment: &str) -> Result<String> {
    let mut lines: Vec<&str> = deployment.split_inclusive('\n').collect();
    for (start, template) in BEFORE {
        let place = only(&lines, start)?;
        lines.insert(place, template);
    }
    for (start, template) in INSTEAD {
        let place = only(&lines, start)?;
        let indent = |line: &str| line.len() - line.trim_start().len();
        let below = lines[place + 1..].iter().take_while(|line| indent(line) > indent(lines[place])).count();
        lines.splice(place..=place + below, [template]);
    }
    Ok(lines.concat() + VOLUMES)
}

/// The place of the only line with this beginning. A line that `install/` no longer has would take its value with it.
fn only(lines: &[&str], start: &str) -> Result<usize> {
    let mut found = lines.iter().enumerate().filter(|(_, line)| line.starts_with(start));
    match (found.next(), found.next()) {
        (Some((place, _)), None) => Ok(place),
        _ => bail!("the Deployment does not have one line {start:?}"),
    }
}
