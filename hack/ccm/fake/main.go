// Command fake-cloud-controller-manager is the real k8s.io/cloud-provider on the cloud of a file: the one of the driver fake,
// whose form crates/driver-fake/src/cloud.rs documents. Both programs read the same file, so that tests can compare them.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
)

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("unable to initialize command options: %v", err)
	}
	aliases := names.CCMControllerAliases()
	controllers := app.DefaultInitFuncConstructors
	flags := cliflag.NamedFlagSets{}
	command := app.NewCloudControllerManagerCommand(opts, open, controllers, aliases, flags, wait.NeverStop)
	os.Exit(cli.Run(command))
}

// open returns the cloud of the file that --cloud-config names.
func open(config *config.CompletedConfig) cloudprovider.Interface {
	return &cloud{file: config.ComponentConfig.KubeCloudShared.CloudProvider.CloudConfigFile}
}
