#!/bin/sh
# Beside a libvirt of its own: `instance.sh CCM-CLOUD FLAGS…` makes a machine and looks at it with other programs than the driver.
set -eu
ccm_cloud() { "$program" "$@"; }
program=$1
shift
fail() { echo "instance.sh: $*" >&2; exit 1; }
virsh() { command virsh --connect qemu:///system "$@"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Longer than a block of the disk.
head -c 5000 /dev/urandom | base64 >"$work/user-data"
key=6b7d1d1e-8c1d-4d53-9a2e-0a2f4c7d9e11
ccm_cloud "$@" libvirt instance-create --name worker-1 --key "$key" --user-data "$work/user-data" --option memory=128 \
	--label 'note=<a> & "b"' -o json >"$work/made"
id=$(jq -r .id "$work/made")

# The reader of CDs and the library by which cloud-init finds the disk are not the driver's.
virsh vol-download --pool default "$id-cidata.iso" "$work/seed.iso"
[ "$(blkid -o value -s LABEL "$work/seed.iso")" = cidata ] || fail "the disk has another label"
[ "$(blkid -o value -s TYPE "$work/seed.iso")" = iso9660 ] || fail "the disk has another file system"
isoinfo -i "$work/seed.iso" -x '/user-data;1' | cmp - "$work/user-data"
isoinfo -i "$work/seed.iso" -x '/meta-data;1' | jq -e --arg id "$id" '. == {"instance-id": $id, "local-hostname": "worker-1"}' >/dev/null

# No firmware asks for an address: a client with the hardware address of the machine does, in the same network.
hardware=$(virsh domiflist "$id" | grep -o '[0-9a-f:]*:[0-9a-f:]*$')
# The other end is veth0.
busybox ip link add guest type veth
busybox ip link set veth0 master virbr0
busybox ip link set veth0 up
busybox ip link set guest address "$hardware"
busybox ip link set guest up
busybox udhcpc -i guest -n -q -f -s /bin/true >"$work/udhcpc" 2>&1 || fail "no lease: $(cat "$work/udhcpc")"
leased=$(sed -n 's/.*lease of \([0-9.]*\) obtained.*/\1/p' "$work/udhcpc")
ccm_cloud "$@" libvirt instance-show "$id" -o json >"$work/shown"
jq -e --arg leased "$leased" '.addresses == [{type: "InternalIP", address: $leased}, {type: "Hostname", address: "worker-1"}]' \
	"$work/shown" >/dev/null || fail "the addresses are $(jq -c .addresses "$work/shown"), and $leased is leased"
jq -e '.labels.note == "<a> & \"b\""' "$work/shown" >/dev/null || fail "the labels are $(jq -c .labels "$work/shown")"

# A machine that others have made is seen, and left alone.
virsh define /dev/stdin >/dev/null <<EOF
<domain type="qemu"><name>foreign</name><memory>131072</memory><os><type>hvm</type></os></domain>
EOF
code=0
ccm_cloud "$@" libvirt instance-delete foreign 2>/dev/null || code=$?
[ "$code" = 13 ] || fail "the delete of a foreign domain has ended with $code and not as Forbidden"
[ "$(virsh list --all --name | grep -c foreign)" = 1 ] || fail "the foreign domain is gone"

# What only create needs may be gone.
ccm_cloud "$@" libvirt --net gone --pool gone --vol-name gone instance-delete "$id"
[ -z "$(virsh list --all --name | grep worker-1)" ] || fail "the domain is left"
[ -z "$(virsh vol-list default | grep "$id")" ] || fail "a volume is left"
