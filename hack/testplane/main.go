// Command testplane is the Kubernetes of the tests, the demos and the benchmark: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kubeadm and kubectl in one multi-call binary. Which of them it is,
// the name says by which it is started. One link instead of seven saves most of the build time and of the disk.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          kubeapiserver.NewAPIServerCommand,
		"kube-controller-manager": kubecontrollermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return kubescheduler.NewSchedulerCommand() },
		"kubeadm":                 func() *cobra.Command { return kubeadm.NewKubeadmCommand(os.Stdin, os.Stdout, os.Stderr) },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: start it as etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubeadm or kubectl\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
