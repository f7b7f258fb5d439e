// Command others-config answers what package read can be asked: for the cloud-controller-manager of OpenStack how it reads
// its configuration, and for those of Azure, OpenStack and vSphere which keys they know.
package main

import (
	"github.com/ccm-operator/ccm-operator/hack/ccm/read"
	"k8s.io/cloud-provider-openstack/pkg/openstack"
	vsphere "k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphere/config"
	loadbalancer "k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphere/loadbalancer/config"
	route "k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphere/route/config"
	common "k8s.io/cloud-provider-vsphere/pkg/common/config"
	nsxt "k8s.io/cloud-provider-vsphere/pkg/nsxt/config"
	azure "sigs.k8s.io/cloud-provider-azure/pkg/provider/config"
)

func main() {
	keys := map[string]any{
		"azure":     read.KeysOf("json", azure.Config{}),
		"openstack": read.SectionsOf("gcfg", openstack.Config{}),
		"vsphere": read.SectionsOf("yaml", common.CommonConfigYAML{}, vsphere.CPIConfigYAML{}, loadbalancer.LBConfigYAML{},
			nsxt.NsxtConfigYAML{}, route.RouteConfigYAML{}),
	}
	read.Main(func(*openstack.Config) error { return nil }, keys)
}
