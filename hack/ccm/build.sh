#!/bin/sh
# Builds real cloud-controller-managers once, for the test that starts them with the arguments of our manifests, and two
# programs that read configurations and list the known keys with the clouds' own code (see read/read.go). Prints the folder
# that holds them: a cache folder outside the checkout, keyed by a hash of the sources.
# Each program is named as in OpenShift's image. generic-cloud-controller-manager stands for those that are not available as
# a Go module (GCP, IBM Cloud, Power VS, Nutanix).
# Two modules, because AWS's newest release needs another Kubernetes minor than the others.
set -eu
cd "$(dirname "$0")"
. ../build-once.sh

build_into() {
	(
		cd aws
		go_build "$1/" "" k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager
		go_build "$1/aws-config" "" ./config
	)
	azure=sigs.k8s.io/cloud-provider-azure/cmd
	(
		cd others
		go_build "$1/" "" \
			k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager \
			k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager \
			$azure/cloud-controller-manager \
			$azure/cloud-node-manager
		go_build "$1/others-config" "" ./config
		go_build "$1/generic-cloud-controller-manager" "" .
	)
	mv "$1/cloud-controller-manager" "$1/azure-cloud-controller-manager"
	mv "$1/cloud-node-manager" "$1/azure-cloud-node-manager"
}

build_once hack/ccm "the cloud-controller-managers whose flags the tests check" \
	"$(key_of build.sh aws/go.mod aws/go.sum aws/config/main.go others/go.mod others/go.sum others/main.go \
		others/config/main.go read/go.mod read/go.sum read/read.go)" \
	generic-cloud-controller-manager \
	"the cloud-controller-managers of AWS, Azure, OpenStack and vSphere, once (about six minutes on two cores)"
