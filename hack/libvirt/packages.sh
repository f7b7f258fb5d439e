#!/bin/sh
# Prints a folder in which libvirt's daemon with QEMU, its Python module, what they need, and programs that tests use are unpacked
# from Debian's packages.
# Nothing is installed; see hack/debian.sh, which follows no dependencies.
set -eu
exec "$(dirname "$0")/../debian.sh" libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients libvirt0 python3-libvirt \
	qemu-system-x86 qemu-system-common qemu-system-data qemu-utils seabios ipxe-qemu dnsmasq-base dmidecode busybox-static \
	genisoimage libaio1 libbrlapi0.8 libcacard0 libcapstone4 libdaxctl1 libepoxy0 libexecs0 libfdt1 libfuse3-3 libgstreamer-plugins-base1.0-0 \
	libibverbs1 libndctl6 libnetfilter-conntrack3 libnfnetlink0 libnftables1 libnftnl11 libnl-3-200 libnl-route-3-200 libopus0 \
	liborc-0.4-0 libparted2 libpcap0.8 libpmem1 librdmacm1 libslirp0 libsndio7.0 libspice-server1 libssh-4 liburing2 \
	libusb-1.0-0 libusbredirparser1 libvdeplug2 libyajl2
