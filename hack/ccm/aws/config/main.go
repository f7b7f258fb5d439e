// Command aws-config answers for the cloud-controller-manager of AWS what package read can be asked.
package main

import (
	"github.com/ccm-operator/ccm-operator/hack/ccm/read"
	"k8s.io/cloud-provider-aws/pkg/providers/v1/config"
)

func main() {
	keys := map[string]any{"aws": read.SectionsOf("gcfg", config.CloudConfig{})}
	read.Main((*config.CloudConfig).ValidateOverrides, keys)
}
