// Command testplane is the Kubernetes of the tests, the demos and the benchmark: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kubeadm and kubectl in one multi-call binary. Which of them it is,
// the name says by which it is started. One link instead of seven saves most of the build time and of the disk.
//
// With the build tag plane it has only the programs of a control plane, which the demo needs.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// The commands besides etcd, by name; node.go has more.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          kubeapiserver.NewAPIServerCommand,
	"kube-controller-manager": kubecontrollermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return kubescheduler.NewSchedulerCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := commands[name]
	if !known {
		names := append(slices.Sorted(maps.Keys(commands)), "etcd")
		fmt.Fprintf(os.Stderr, "%s: start it under one of these names: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
