#!/bin/sh
# The first process of a node of the tests, in place of systemd: containerd at once, and the kubelet as soon as kubeadm, or a
# test, has configured it.
set -eu
# The kubelet mounts volumes that containers have to see.
mount --make-rshared /
# Control groups, version 2: below a group that has processes no other can be limited.
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
	mkdir -p /sys/fs/cgroup/init
	while read -r pid; do echo "$pid" >/sys/fs/cgroup/init/cgroup.procs || true; done </sys/fs/cgroup/cgroup.procs
	sed 's/\(^\| \)/\1+/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
fi
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
containerd &
# What a driver has given to the machine, where cloud-init looks for it, too: a script, such as one that joins a cluster.
user_data=/var/lib/cloud/seed/nocloud/user-data
case $(head -n 1 "$user_data" 2>/dev/null) in '#!'*) sh "$user_data" & ;; esac
# kubeadm creates a file and then writes it: a kubelet without its flags would register a node that waits for nobody.
until [ -s /var/lib/kubelet/config.yaml ] && [ -s /var/lib/kubelet/kubeadm-flags.env ]; do sleep 0.1; done
KUBELET_KUBEADM_ARGS=
# shellcheck disable=SC1091 # kubeadm writes it
. /var/lib/kubelet/kubeadm-flags.env
# Without a cluster it runs only the manifests of its folder.
if [ -f /etc/kubernetes/kubelet.conf ] || [ -f /etc/kubernetes/bootstrap-kubelet.conf ]; then
	KUBELET_KUBEADM_ARGS="$KUBELET_KUBEADM_ARGS --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf"
	KUBELET_KUBEADM_ARGS="$KUBELET_KUBEADM_ARGS --kubeconfig=/etc/kubernetes/kubelet.conf"
fi
# shellcheck disable=SC2086 # a list
exec kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubelet $KUBELET_KUBEADM_ARGS
