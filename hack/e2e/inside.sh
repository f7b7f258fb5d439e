#!/bin/bash
# The first process of the namespaces that run.sh makes: starts the Docker Engine, runs the program, and returns its exit code.
# When this ends, the kernel ends everything else in here. bash, because it collects processes that have lost their parents.
set -eu
engine=$1
run=$2
shift 2

# The machine's sockets are no business of what runs here, and the engine's none of the machine.
mount -t tmpfs tmpfs /run
"$engine/bin/busybox" ip link set lo up
# An API server wants a default route, to find the address that it advertises.
"$engine/bin/busybox" ip address add 192.0.2.1/32 dev lo
"$engine/bin/busybox" ip route add default dev lo
# No name server can be reached: an answer at once instead of timeouts.
echo "nameserver 127.0.0.1" >"$run/resolv.conf"
[ ! -e /etc/resolv.conf ] || mount --bind "$run/resolv.conf" /etc/resolv.conf
mkdir "$run/tmp"
# Folders of other runs are swept by process ids, which here are others than outside.
export TMPDIR=$run/tmp
export PATH=$engine/usr/sbin:$engine/usr/bin:$PATH
export DOCKER_CONFIG=$run DOCKER_HOST=unix://$run/docker.sock

# A current engine asks for a namespace of time, which Debian's runc does not know. A privileged container asks for
# CAP_SYS_RESOURCE, and fails where the machine has taken it from everybody.
changes='s/,{"type":"time"}//g; s/{"type":"time"},//g'
bounding=$(sed -n 's/^CapBnd:\t//p' /proc/self/status)
if [ $(((0x$bounding >> 24) & 1)) = 0 ]; then
	changes="$changes; s/\"CAP_SYS_RESOURCE\",//g; s/,\"CAP_SYS_RESOURCE\"//g"
fi
cat >"$run/runc" <<END
#!/bin/sh
previous=
for argument in "\$@"; do
	case \$previous in
	--bundle) file=\$argument/config.json ;;
	--process) file=\$argument ;;
	*) file= ;;
	esac
	[ -z "\$file" ] || sed -i '$changes' "\$file"
	previous=\$argument
done
exec "$engine/usr/sbin/runc" "\$@"
END
chmod 755 "$run/runc"

# Nodes reach the engine by TCP, with mutual TLS: a cloud-controller-manager gets no socket. The certificates are of this run.
mkdir "$run/tls"
(
	cd "$run/tls"
	umask 077
	exec 2>openssl.log
	key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
	# shellcheck disable=SC2086 # a list
	openssl req -x509 $key -days 2 -subj /CN=engine-ca -keyout ca-key.pem -out ca.pem
	for name in server client; do
		# shellcheck disable=SC2086 # a list
		openssl req -new $key -subj "/CN=$name" -keyout "$name-key.pem" -out "$name.csr"
		printf '%s\n' "subjectAltName=IP:192.0.2.1" "extendedKeyUsage=${name}Auth" >"$name.ext"
		openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile "$name.ext" -out "$name.pem"
	done
	# As Docker's own client calls them.
	mv client.pem cert.pem
	mv client-key.pem key.pem
) || { cat "$run/tls/openssl.log" >&2; echo "hack/e2e/inside.sh: openssl has failed" >&2; exit 1; }

# Without a bridge of its own and without rules of iptables, which may be missing: networks that tests make work all the same.
cat >"$run/daemon.json" <<END
{
  "hosts": ["$DOCKER_HOST", "tcp://192.0.2.1:2376"],
  "tlsverify": true,
  "tlscacert": "$run/tls/ca.pem",
  "tlscert": "$run/tls/server.pem",
  "tlskey": "$run/tls/server-key.pem",
  "data-root": "$run/data",
  "exec-root": "$run/exec",
  "pidfile": "$run/docker.pid",
  "deprecated-key-path": "$run/key.json",
  "bridge": "none",
  "iptables": false,
  "ip-masq": false,
  "ip6tables": false,
  "exec-opts": ["native.cgroupdriver=cgroupfs"],
  "cgroup-parent": "/ccm-operator-e2e-${run##*/}",
  "runtimes": {"e2e": {"path": "$run/runc"}},
  "default-runtime": "e2e"
}
END
LD_LIBRARY_PATH=$(echo "$engine"/lib/*-linux-gnu) dockerd --config-file "$run/daemon.json" >"$run/dockerd.log" 2>&1 &
dockerd=$!
until docker version >/dev/null 2>&1; do
	kill -0 "$dockerd" 2>/dev/null || { cat "$run/dockerd.log" >&2; echo "hack/e2e/inside.sh: dockerd has ended" >&2; exit 1; }
	sleep 0.1
done

status=0
CCM_OPERATOR_E2E=namespaces "$@" || status=$?
# Without iptables names of containers are not resolved, which no test needs.
[ "$status" = 0 ] || grep -v -E "level=(info|warning)|set up rule failed" "$run/dockerd.log" | tail -n 20 >&2
exit "$status"
