#!/bin/sh
# Runs a program in network, mount and process namespaces of its own with libvirt's daemon and QEMU in them, as
# qemu:///system: `run.sh PROGRAM [ARGUMENT…]`. Debian's packages are unpacked and laid over /usr of these namespaces, so that
# a driver with a cleared environment finds Python's module libvirt as on a host that has the packages. Nothing is installed,
# and nothing is left: the namespaces end with their first process.
#
# There are the network "default", which gives addresses by DHCP, and the storage pool "default" with the base volumes
# podvm-base.qcow2 and other-base.qcow2. Both are empty disks: a machine of them runs its firmware. KVM is hidden, so that it is the
# same on every machine.
set -eu
fail() { echo "hack/libvirt/run.sh: $*" >&2; exit 1; }

if [ "${1:-}" != --inside ]; then
	[ "$(id -u)" = 0 ] || fail "only root can make the namespaces: run this as root"
	for tool in unshare setpriv; do
		command -v "$tool" >/dev/null || fail "$tool is missing: install util-linux"
	done
	here=$(cd "$(dirname "$0")" && pwd)
	root=$("$here/packages.sh")
	# Killed with this script, and with it everything in the namespaces.
	exec setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc \
		"$here/run.sh" --inside "$root" "$@"
fi

# Otherwise this would change the folders of the machine.
[ "$$" = 1 ] || fail "--inside is only for this script itself"
root=$2
shift 2
libraries=$(echo "$root"/lib/*-linux-gnu)
library=${libraries##*/}
mount -t tmpfs -o mode=755 tmpfs /mnt
for folder in etc var; do
	mkdir -p "/mnt/$folder/new" "/mnt/$folder/work"
	mount -t overlay -o "lowerdir=$root/$folder:/$folder,upperdir=/mnt/$folder/new,workdir=/mnt/$folder/work" overlay "/$folder"
done
mount -t overlay -o "lowerdir=$root/usr:/usr" overlay /usr
mount -t overlay -o "lowerdir=$libraries:/usr/lib/$library" overlay "/usr/lib/$library"
mount -t tmpfs -o mode=755 tmpfs /run
# All devices that QEMU needs but /dev/kvm. The daemon would look again and again whether one can be used that is there and is none.
mkdir -p /mnt/dev
mount -t tmpfs -o mode=755 tmpfs /mnt/dev
mkdir /mnt/dev/pts /mnt/dev/shm /mnt/dev/net
for device in null zero full random urandom tty net/tun; do
	[ -e "/dev/$device" ] || continue
	touch "/mnt/dev/$device"
	mount --bind "/dev/$device" "/mnt/dev/$device"
done
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts /mnt/dev/pts
ln -s pts/ptmx /mnt/dev/ptmx
ln -s /proc/self/fd /mnt/dev/fd
ln -s /proc/self/fd/0 /mnt/dev/stdin
ln -s /proc/self/fd/1 /mnt/dev/stdout
ln -s /proc/self/fd/2 /mnt/dev/stderr
mount --move /mnt/dev /dev
export PATH="$root/bin:$PATH"
busybox ip link set lo up

# What the packages' scripts do, and what the namespaces need: the daemon makes no namespaces and cgroups of its own.
mkdir -p /run/libvirt /var/log/libvirt/qemu /var/lib/libvirt/qemu /var/lib/libvirt/images /var/lib/libvirt/boot \
	/var/lib/libvirt/dnsmasq /var/cache/libvirt/qemu /etc/libvirt/qemu/networks /etc/libvirt/storage
grep -q '^libvirt-qemu:' /etc/group || echo 'libvirt-qemu:x:64055:' >>/etc/group
grep -q '^libvirt-qemu:' /etc/passwd || echo 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' >>/etc/passwd
cat >/etc/libvirt/qemu.conf <<'EOF'
security_driver = "none"
user = "root"
group = "root"
remember_owner = 0
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
EOF
# Its UUID is the id of the account, which is the same for as long as a host exists.
cat >/etc/libvirt/libvirtd.conf <<'EOF'
unix_sock_group = "root"
auth_unix_rw = "none"
host_uuid = "3b1f0c52-7d4e-4a86-9c1d-5e8f2a907b64"
EOF
libvirtd --timeout=0 >/var/log/libvirt/libvirtd.out 2>&1 &
daemon=$!
until virsh --connect qemu:///system version >/dev/null 2>&1; do
	kill -0 "$daemon" 2>/dev/null || { cat /var/log/libvirt/libvirtd.out >&2; fail "libvirtd has ended"; }
	sleep 0.1
done

quiet() { "$@" >/var/log/libvirt/setup.out 2>&1 || { cat /var/log/libvirt/setup.out >&2; fail "$* has failed"; }; }
# Without rules of a firewall, which the namespaces need not.
cat >/run/network.xml <<'EOF'
<network>
  <name>default</name>
  <forward mode="open"/>
  <bridge name="virbr0" stp="off" delay="0"/>
  <ip address="192.168.122.1" netmask="255.255.255.0"><dhcp><range start="192.168.122.2" end="192.168.122.254"/></dhcp></ip>
</network>
EOF
quiet virsh --connect qemu:///system net-define /run/network.xml
quiet virsh --connect qemu:///system net-start default
for volume in podvm-base other-base; do
	quiet qemu-img create -f qcow2 "/var/lib/libvirt/images/$volume.qcow2" 64M
done
quiet virsh --connect qemu:///system pool-create-as default dir --target /var/lib/libvirt/images

status=0
"$@" || status=$?
[ "$status" = 0 ] || tail -n 20 /var/log/libvirt/libvirtd.out >&2
exit "$status"
