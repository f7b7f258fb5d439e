// Command generic-cloud-controller-manager has the flags that every cloud-controller-manager has and no cloud: it is
// k8s.io/cloud-provider's own program, for the clouds whose program cannot be had as a Go module.
package main

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as every real one: they add no flags, but metrics
	_ "k8s.io/component-base/metrics/prometheus/version"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"
)

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("unable to initialize command options: %v", err)
	}
	// The one controller beyond the standard ones that a manifest names, under the name that GCP's program has for it
	// (kubernetes/cloud-provider-gcp, cmd/cloud-controller-manager/main.go).
	controllers := app.DefaultInitFuncConstructors
	controllers["node-ipam-controller"] = app.ControllerInitFuncConstructor{Constructor: noController}
	aliases := names.CCMControllerAliases()
	aliases["nodeipam"] = "node-ipam-controller"
	command := app.NewCloudControllerManagerCommand(opts, noCloud, controllers, aliases, cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func noController(app.ControllerInitContext, *config.CompletedConfig, cloudprovider.Interface) app.InitFunc {
	return func(context.Context, genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
		return nil, false, nil
	}
}

func noCloud(*config.CompletedConfig) cloudprovider.Interface {
	klog.Fatal("the generic cloud-controller-manager has no cloud")
	return nil
}
