#!/bin/sh
# Prints a folder with images, as files for `docker load` and `ctr images import`: node.tar is a machine with containerd, which
# starts a kubelet; pause.tar, plane.tar and aws.tar are what runs on it. testplane leads to the programs of Kubernetes, which a
# machine finds in /opt/testplane. Made once, in a cache folder outside the checkout, of Debian's packages and of the programs of
# hack/testplane and hack/ccm, as no registry may be reachable.
#
# aws.tar is the real cloud-controller-manager. In its environment stands what a machine of AWS would tell it, so that manifests
# need not change: it finds moto, which the tests start, at the address that inside.sh makes.
set -eu
cd "$(dirname "$0")"
packages="busybox-static containerd containernetworking-plugins libc6 libseccomp2 runc"
# shellcheck disable=SC2086 # a list
debian=$(../debian.sh $packages)
plane=$(env -u KUBEBUILDER_ASSETS ../testplane/build.sh)
ccm=$(../ccm/build.sh)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-operator/e2e
out=$cache/node-$( (cat node.sh node-init.sh; echo "$debian $plane $ccm") | sha256sum | cut -c1-16)
if [ -d "$out" ]; then
	echo "$out"
	exit
fi
echo "hack/e2e/node.sh: making the images of a node, once ..." >&2
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/.node-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/out"

# An image of one layer: its name, its configuration; the layer is the folder $tmp/NAME.
image() {
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$tmp/$1" -cf "$tmp/layer.tar" .
	printf '{"architecture": "%s", "os": "linux", "config": %s, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
		"$(dpkg --print-architecture)" "$2" "$(sha256sum "$tmp/layer.tar" | cut -d ' ' -f 1)" >"$tmp/config.json"
	printf '[{"Config": "config.json", "RepoTags": ["localhost/ccm-operator-e2e-%s:latest"], "Layers": ["layer.tar"]}]' \
		"$1" >"$tmp/manifest.json"
	tar -C "$tmp" -cf "$tmp/out/$1.tar" manifest.json config.json layer.tar
	rm -rf "${tmp:?}/$1"
}

root=$tmp/node
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/etc/containerd" "$root/etc/kubelet" "$root/etc/kubernetes/manifests" \
	"$root/opt/cni/bin" "$root/opt/testplane" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/run" "$root/var" "$root/root"
for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
ln -s bin "$root/usr/sbin"
ln -s /run "$root/var/run"
for program in containerd containerd-shim-runc-v2 ctr; do cp "$debian/usr/bin/$program" "$root/usr/bin/"; done
cp "$debian/usr/sbin/runc" "$debian/bin/busybox" "$root/usr/bin/"
"$debian/bin/busybox" --list | while read -r name; do [ -e "$root/usr/bin/$name" ] || ln -s busybox "$root/usr/bin/$name"; done
cp "$debian/usr/lib/cni/loopback" "$root/opt/cni/bin/"
cp -a "$debian"/lib/*-linux-gnu "$root/usr/lib/"
cp -a "$debian"/usr/lib/*-linux-gnu/libseccomp.so* "$root"/usr/lib/*-linux-gnu/
if [ -d "$debian/lib64" ]; then cp -a "$debian/lib64" "$root/usr/"; else ln -s lib "$root/usr/lib64"; fi
echo "root:x:0:0:root:/root:/bin/sh" >"$root/etc/passwd"
echo 'PRETTY_NAME="node of the tests"' >"$root/etc/os-release"
install -m 755 node-init.sh "$root/init"
# A machine may not let anybody lower a process's score for the killer of processes out of memory.
cat >"$root/etc/containerd/config.toml" <<-'END'
	version = 2
	[plugins."io.containerd.grpc.v1.cri"]
	sandbox_image = "localhost/ccm-operator-e2e-pause:latest"
	restrict_oom_score_adj = true
END
# What the kubelet needs in a container, whichever control groups the machine has.
cat >"$root/etc/kubelet/10-container.conf" <<-'END'
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	cgroupDriver: cgroupfs
	failSwapOn: false
	failCgroupV1: false
	localStorageCapacityIsolation: false
	enforceNodeAllocatable: []
END
image node '{"Env": ["PATH=/opt/testplane:/usr/bin"], "Cmd": ["/init"]}'

root=$tmp/pause
mkdir -p "$root/bin"
cp "$debian/bin/busybox" "$root/bin/"
image pause '{"Cmd": ["/bin/busybox", "sleep", "infinity"]}'

root=$tmp/plane
mkdir -p "$root/bin"
cp -a "$plane/." "$root/bin/"
image plane '{"Env": ["PATH=/bin"]}'

root=$tmp/aws
mkdir -p "$root/bin"
cp "$ccm/aws-cloud-controller-manager" "$root/bin/"
image aws '{"Env": ["PATH=/bin", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=http://192.0.2.1:5000",
	"AWS_EC2_METADATA_DISABLED=true", "AWS_ACCESS_KEY_ID=none", "AWS_SECRET_ACCESS_KEY=none"]}'

ln -s "$plane" "$tmp/out/testplane"
# A rename is atomic: two calls at once both end well, and a broken one leaves nothing that looks whole.
mv -T "$tmp/out" "$out" 2>/dev/null || [ -d "$out" ]
echo "$out"
