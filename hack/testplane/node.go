//go:build !plane

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	commands["kubeadm"] = func() *cobra.Command { return kubeadm.NewKubeadmCommand(os.Stdin, os.Stdout, os.Stderr) }
	commands["kubectl"] = kubectl.NewDefaultKubectlCommand
	commands["kubelet"] = func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
}
